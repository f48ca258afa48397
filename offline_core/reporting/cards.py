"""The card of each stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from offline_core.reporting import figures
from offline_core.reporting.card import MARKS, Card, Headline, Section, Tone
from offline_core.reporting.values import return_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Sequence[tuple[int, float]]
Episodes = tuple[Sequence[float], Sequence[float]]
"""(returns, lengths), one of each an episode."""
Bins = tuple[Sequence[float], Sequence[int]]
"""(edges, counts) of a histogram."""

VERDICTS: Mapping[str, Tone] = {"fail": "bad", "warn": "warning", "not applicable": "neutral", "pass": "good"}
"""Of rules, the worst first."""


def returns_rows(metrics: Mapping[str, float], *, actions: str = "greedy") -> dict[str, object]:
    """Rows about the episodes of an evaluation; `actions` were sampled or greedy."""
    if "episode_return_mean" not in metrics:
        held_out = {"Held-out loss": metrics["held_out_loss"]} if "held_out_loss" in metrics else {}
        return {"Return": "never played", **held_out}
    told = return_text(metrics["episode_return_mean"], metrics["episode_return_std"], int(metrics["episodes"]), actions)
    successes = {"Success rate": f"{metrics['success_rate']:.1%}"} if "success_rate" in metrics else {}
    return {
        "Return": told,
        "Lowest and highest return": f"{metrics['episode_return_min']:,.1f} and {metrics['episode_return_max']:,.1f}",
        "Steps per episode": metrics["episode_length_mean"],
        **successes,
    }


def expert_card(*, rows: Mapping[str, object], curve: Curve, target: float | None, title: str = "Expert") -> Card:
    """How an expert came about."""

    def draw(axes: list[Axes]) -> None:
        figures.curve(axes[0], curve, x="environment steps", y="mean greedy return", target=target)

    return Card(title, rows, figures.drawn(1, draw))


def episodes_card(title: str, *, rows: Mapping[str, object], episodes: Callable[[], Mapping[str, Episodes]]) -> Card:
    """What a dataset holds: histograms of return and length, one colour a group of `episodes`, which are read to be drawn."""

    def draw(axes: list[Axes]) -> None:
        groups = episodes()
        figures.histogram(axes[0], {name: returns for name, (returns, _) in groups.items()}, x="return")
        figures.histogram(axes[1], {name: lengths for name, (_, lengths) in groups.items()}, x="steps per episode")

    return Card(title, rows, figures.drawn(2, draw))


def quality_card(*, rows: Mapping[str, object], findings: Sequence[tuple[str, str, str]], returns: Bins, lengths: Bins) -> Card:
    """Whether a dataset is good: one row a rule, out of (rule, verdict, message); histograms of return and length."""
    worst_first = sorted(findings, key=lambda finding: [*VERDICTS].index(finding[1]))
    marked = {f"{MARKS[VERDICTS[verdict]]} {verdict}: {rule}": message for rule, verdict, message in worst_first}

    def draw(axes: list[Axes]) -> None:
        figures.counts(axes[0], *returns, x="return")
        figures.counts(axes[1], *lengths, x="steps per episode")

    return Card("Quality", {**rows, **marked}, figures.drawn(2, draw))


def outliers_card(
    *,
    headline: Headline,
    rows: Mapping[str, object],
    outliers: Sequence[tuple[int, str, str, str]],
    advice: Sequence[str],
) -> Card:
    """Which episodes are unlike the others, out of (number, id, score, reason), and what the data speaks for."""
    found = Section("Outliers", columns=("episode", "id", "score", "reason"), rows=outliers)
    return Card("Outliers", rows, headline=headline, sections=[found, Section("What the data is like", advice)])


def training_card(
    *,
    rows: Mapping[str, object],
    losses: Curve,
    held_out: Curve,
    curve: Curve,
    target: float | None,
    effective_sample_size: Curve,
    seconds: Mapping[str, float],
) -> Card:
    """How a policy was learned.

    Arguments:
        effective_sample_size: of the weights, in fractions of the batch; empty if the algorithm gives none.
        seconds: by layer, from storage to update.
    """

    def draw(axes: list[Axes]) -> None:
        figures.curve(axes[0], curve, x="updates", y="mean greedy return", target=target)
        figures.curve(axes[1], losses, x="updates", y="loss", beside={"held out": held_out})
        if effective_sample_size:
            figures.curve(axes[2], effective_sample_size, x="updates", y="effective sample size")
        figures.bars(axes[-1], seconds, x="seconds")

    return Card("Policy", rows, figures.drawn(4 if effective_sample_size else 3, draw))


def estimates_card(
    *,
    rows: Mapping[str, object],
    recorded: tuple[float, float, float],
    estimates: Mapping[str, tuple[float, float, float]],
    sizes: Mapping[str, tuple[float, float]],
    episodes: int,
    required: float | None,
    warnings: Sequence[str],
) -> Card:
    """What a policy would come to, by several methods.

    Arguments:
        recorded, estimates: (value, low, high), the second by method.
        sizes: (effective episodes, largest weight's share) by method; those without weigh nothing.
        episodes: that were recorded.
        required: the return that is required.
    """
    values = {"Recorded": _interval(recorded), **{f"Estimate {name}": _interval(each) for name, each in estimates.items()}}
    for name, (effective, largest) in sizes.items():
        values[f"Estimate {name}"] += f"; {effective:,.1f} of {episodes:,} episodes effective, largest weight {largest:.1%}"
    doubts = {f"{MARKS['warning']} warning {number}": warning for number, warning in enumerate(warnings, 1)}

    def draw(axes: list[Axes]) -> None:
        figures.intervals(axes[0], estimates, x="discounted return", lines={"recorded": recorded[0], "required": required})
        figures.bars(axes[1], {name: size for name, (size, _) in sizes.items()}, x="effective episodes")

    return Card("Off-policy estimate", {**values, **doubts, **rows}, figures.drawn(2, draw))


def sweep_card(
    *,
    rows: Mapping[str, object],
    score: str,
    scores: Mapping[str, tuple[float, float, float]],
    curves: Mapping[str, Sequence[tuple[float, float, float, float]]],
    profiles: Mapping[str, Sequence[tuple[float, float]]],
    expected_best: Mapping[str, Sequence[float]],
) -> Card:
    """How settings compare.

    Arguments:
        rows: they say which setting has which rank.
        score: what they are compared by.
        scores: (value, low, high) by rank, the best first.
        curves: (updates, mean, low, high) by rank.
        profiles: (score, share of the runs that are better) by rank.
        expected_best: of 1, 2, 3 … policies tried, by algorithm.
    """

    def draw(axes: list[Axes]) -> None:
        one, two, three, four = axes
        figures.intervals(one, scores, x=score, lines={})
        figures.lines(two, {name: curve for name, curve in curves.items() if curve}, x="updates", y="mean, interval")
        figures.lines(three, profiles, x=score, y="share of runs better")
        best = {name: [*enumerate(values, 1)] for name, values in expected_best.items()}
        figures.lines(four, best, x="policies tried", y=f"best {score}, expected")

    return Card("Sweep", rows, figures.drawn(4, draw))


def decision_card(
    *,
    headline: Headline,
    rows: Mapping[str, object],
    sections: Sequence[Section],
    differences: Mapping[str, tuple[figures.Interval | None, figures.Interval | None]],
    margin: float,
    overlaps: Mapping[str, float],
    least_overlap: float,
    lights: Mapping[str, tuple[str, str]],
    calibration: Sequence[tuple[float, float, int]],
) -> Card:
    """Which of several policies may replace what runs today.

    Arguments:
        differences: (judged, selected) by candidate; None: not on that side.
        overlaps: by candidate that was judged.
        lights: (holds, unsure or falls; numbers) by candidate and guardrail.
        calibration: (said, done, actions) by tenths; empty: nothing was fitted.
    """

    def draw(axes: list[Axes]) -> None:
        lines = {"what runs today": 0.0, "margin": margin or None}
        figures.forest(axes[0], differences, x="difference of discounted return", lines=lines)
        figures.shares(axes[1], overlaps, x="overlap with what acted", least=least_overlap)
        if lights:
            figures.lights(axes[2], lights)
        if calibration:
            figures.calibration(axes[-1], calibration, x="probability by the model", y="share that was done")

    picture = figures.drawn(2 + bool(lights) + bool(calibration), draw)
    return Card("Decision", rows, picture, headline=headline, sections=sections)


def _interval(interval: tuple[float, float, float]) -> str:
    value, low, high = interval
    return f"{value:.4g} ({low:.4g} to {high:.4g})"


def chain_card(
    title: str,
    *,
    rows: Mapping[str, object],
    seconds: Mapping[str, float],
    returns: Mapping[str, float],
    headline: Headline,
) -> Card:
    """What a chain of stages came to: the mean return of each thing made, and where the time went."""

    def draw(axes: list[Axes]) -> None:
        figures.bars(axes[0], returns, x="mean return")
        figures.bars(axes[1], seconds, x="seconds")

    return Card(title, rows, figures.drawn(2, draw), headline=headline)
