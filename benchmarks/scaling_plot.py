"""The plot of the scaling benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.cost_model import Extrapolation
from benchmarks.scaling_report import Findings, Median

COLOURS = {"resident": "#1b6ca8", "streamed": "#d1602b", "grey": "#6b7280"}


def plot(found: Findings, path: Path) -> None:
    """Four panels: rate and memory by size, rate by actors, and the extrapolation."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    settings = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25}
    with plt.rc_context(settings):
        figure, ((rate, memory), (actors, far)) = plt.subplots(2, 2, figsize=(10, 7.2), layout="constrained")
        by_size(rate, found.medians, lambda m: m.steps_per_second / 1e3, "1,000 steps/s", "Rate by size of the dataset")
        by_size(memory, found.medians, lambda m: m.peak_bytes / 2**30, "GiB", "Peak memory of all processes")
        by_actors(actors, found.medians)
        by_nodes(far, found.extrapolations)
        figure.savefig(path, dpi=140)
        plt.close(figure)


def by_size(axes: Any, medians: Iterable[Median], of: Callable[[Median], float], unit: str, title: str) -> None:
    """A curve each for data that stays in memory and for streams."""
    own = sorted((m for m in medians if "size" in m.curves), key=lambda m: m.setting.steps)
    for name in ("resident", "streamed"):
        these = [m for m in own if m.setting.streamed == (name == "streamed")]
        axes.plot([m.setting.steps for m in these], [of(m) for m in these], "o-", color=COLOURS[name], label=name)
    axes.set(xscale="log", xlabel="steps in the dataset", ylabel=unit, title=title)
    axes.set_ylim(bottom=0)
    if own:
        axes.legend(frameon=False)


def by_actors(axes: Any, medians: Iterable[Median]) -> None:
    """Prelearners and learners; hollow where there were more of them than cores."""
    curves: dict[str, Callable[[Median], int]] = {
        "prelearners": lambda m: m.setting.prelearners,
        "learners": lambda m: m.setting.learners,
    }
    drawn = list(medians)
    for (curve, count), colour in zip(curves.items(), (COLOURS["streamed"], COLOURS["resident"]), strict=True):
        own = sorted((m for m in drawn if curve in m.curves), key=count)
        if not own:
            continue
        rates = [m.steps_per_second / 1e3 for m in own]
        mode = "streamed" if own[0].setting.streamed else "resident"
        axes.plot([count(m) for m in own], rates, "-", color=colour, label=f"{curve} ({mode})")
        for median, value in zip(own, rates, strict=True):
            face = "white" if median.setting.simulated else colour
            axes.plot(count(median), value, "o", markerfacecolor=face, markeredgecolor=colour)
    axes.set_xscale("symlog", base=2, linthresh=1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel="actors (0: the training process itself)", ylabel="1,000 steps/s", title="Rate by actors")
    axes.set_ylim(bottom=0)
    axes.plot([], [], "o", markerfacecolor="white", markeredgecolor=COLOURS["grey"], label="simulated: more than cores")
    axes.legend(frameon=False)


def by_nodes(axes: Any, extrapolations: Iterable[Extrapolation]) -> None:
    """What the model says of clusters, with its interval."""
    drawn = list(extrapolations)
    for passes_on, colour, name in (
        (False, COLOURS["resident"], "all fetch from the node that feeds"),
        (True, COLOURS["streamed"], "nodes pass windows on"),
    ):
        own = [one for one in drawn if one.cluster.passes_on == passes_on]
        nodes = [one.cluster.nodes for one in own]
        axes.fill_between(
            nodes, [one.low / 1e6 for one in own], [one.high / 1e6 for one in own], color=colour, alpha=0.15, lw=0
        )
        axes.plot(nodes, [one.steps_per_second / 1e6 for one in own], "o--", color=colour, label=name, markersize=4)
    axes.set(xscale="log", xlabel="nodes", ylabel="million steps/s", title="Extrapolation (not measured)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
