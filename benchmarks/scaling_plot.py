"""The plot of the scaling benchmark: rate and memory by size, rate by actors, and the extrapolation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.scaling_page import NODES, Findings, Runs

RESIDENT, STREAMED, GREY = "#1b6ca8", "#d1602b", "#6b7280"


def plot(found: Findings, path: Path) -> None:
    """Draw the four panels."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    settings = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25}
    with plt.rc_context(settings):
        figure, panels = plt.subplots(2, 2, figsize=(10, 7.2), layout="constrained")
        rate, memory, actors, nodes = panels.flat
        by_size(rate, found, lambda runs: runs.steps_per_second / 1e3, "1,000 steps/s", "Rate by size of the dataset")
        by_size(memory, found, lambda runs: runs.median("bytes") / 2**30, "GiB", "Peak memory of all processes")
        by_actors(actors, found)
        by_nodes(nodes, found)
        for axes in panels.flat:
            axes.set_ylim(bottom=0)
            axes.legend(frameon=False)
        figure.savefig(path, dpi=140)
        plt.close(figure)


def by_size(axes: Any, found: Findings, of: Callable[[Runs], float], unit: str, title: str) -> None:
    for name, colour, streamed in (("resident", RESIDENT, False), ("streamed", STREAMED, True)):
        own = [runs for runs in found.along("size") if runs.setting.streamed == streamed]
        axes.plot([runs.setting.steps for runs in own], [of(runs) for runs in own], "o-", color=colour, label=name)
    axes.set(xscale="log", xlabel="steps in the dataset", ylabel=unit, title=title)


def by_actors(axes: Any, found: Findings) -> None:
    for curve, mode, colour in (("prelearners", "streamed", STREAMED), ("learners", "resident", RESIDENT)):
        own = [
            (getattr(runs.setting, curve), runs.steps_per_second / 1e3, runs.setting.simulated) for runs in found.along(curve)
        ]
        axes.plot([count for count, *_ in own], [rate for _, rate, _ in own], color=colour, label=f"{curve} ({mode})")
        for count, rate, simulated in own:
            axes.plot(count, rate, "o", markerfacecolor="white" if simulated else colour, markeredgecolor=colour)
    axes.set_xscale("symlog", base=2, linthresh=1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel="actors (0: the training process itself)", ylabel="1,000 steps/s", title="Rate by actors")
    axes.plot([], [], "o", markerfacecolor="white", markeredgecolor=GREY, label="simulated: more than cores")


def by_nodes(axes: Any, found: Findings) -> None:
    for passes_on, colour, name in (
        (False, RESIDENT, "all fetch from the node that feeds"),
        (True, STREAMED, "nodes pass windows on"),
    ):
        rates = [[rate / 1e6 for rate in found.on(nodes, passes_on=passes_on)[:3]] for nodes in NODES]
        middle, low, high = zip(*rates, strict=True)
        axes.fill_between(NODES, low, high, color=colour, alpha=0.15, lw=0)
        axes.plot(NODES, middle, "o--", color=colour, label=name, markersize=4)
    axes.set(xscale="log", xlabel="nodes", ylabel="million steps/s", title="Extrapolation (not measured)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
