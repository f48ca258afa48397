"""Seconds of each stage as bars, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.vs_rllib.summary import SideSummary, StageSummary, summary

OURS, THEIRS, INK, FAINT = "#1f6f8b", "#d9a441", "#2b2b2b", "#d8d8d8"
LABELS = {
    "expert": "expert",
    "record_episodes": "record,\nepisodes",
    "record_table": "record,\ntable",
    "convert": "table →\nepisodes",
    "bc": "BC",
    "marwil": "MARWIL",
}
BAR = 0.36


def draw(report: Mapping[str, Any], path: str) -> None:
    """Writes a PNG; a side that was ended at the limit is hatched, and its number is a lower bound."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    stages = summary(report)
    figure, axes = plt.subplots(figsize=(9, 4.2), dpi=150, layout="constrained")
    for side, color, shift, label in (
        ("our", OURS, -BAR / 2, "here"),
        ("rllib", THEIRS, BAR / 2, f"RLlib {report['versions']['ray']}"),
    ):
        for position, stage in enumerate(stages):
            bar(axes, getattr(stage, side), position + shift, color)
        axes.bar([0], [0], color=color, label=label)
    for position, stage in enumerate(stages):
        if (text := ratio(stage)) is not None:
            axes.annotate(
                text, (position, 1.0), xycoords=("data", "axes fraction"), ha="center", va="top", color=INK, weight="bold"
            )
    axes.set_yscale("log")
    axes.set_ylim(1, max((run["seconds"] for run in report["runs"]), default=1) * 5)
    axes.set_xlim(-0.6, len(stages) - 0.4)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(range(len(stages)), [LABELS[stage.stage] for stage in stages], color=INK)
    axes.set_ylabel("seconds, whole process", color=INK)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=INK, which="both")
    axes.spines[:].set_visible(False)
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    title = f"RLlib's offline example on {report['machine']['cores']} cores; bold: how many times as long RLlib takes"
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=10)
    figure.savefig(path)
    plt.close(figure)


def bar(axes: Any, side: SideSummary, position: float, color: str) -> None:
    if side.seconds is None:
        axes.annotate(
            "failed" if side.failed else "not run",
            (position, 0.02),
            xycoords=("data", "axes fraction"),
            ha="center",
            rotation=90,
            color=INK,
        )
        return
    axes.bar([position], [side.seconds], BAR, color=color, hatch="///" if side.ended else None, edgecolor="white")
    for run in side.measured:
        axes.plot(position, run.seconds, ".", color=INK, markersize=3)
    text = (
        f"{'> ' if side.ended else ''}{side.seconds:.1f}"
        if side.seconds < 10
        else f"{'> ' if side.ended else ''}{side.seconds:,.0f}"
    )
    top = max(run.seconds for run in side.measured)
    axes.annotate(text, (position, top), xytext=(0, 4), textcoords="offset points", ha="center", color=INK, fontsize=8)


def ratio(stage: StageSummary) -> str | None:
    if stage.ratio is None:
        return None
    sign = {"at least": "≥ ", "at most": "≤ ", "": ""}[stage.bound]
    return f"{sign}{stage.ratio:,.0f}×" if stage.ratio >= 10 else f"{sign}{stage.ratio:.2g}×"
