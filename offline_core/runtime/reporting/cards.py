"""The card of each stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import MARKS, Card, Headline, Section, Tone
from offline_core.runtime.reporting.values import return_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Sequence[tuple[int, float]]
Episodes = tuple[Sequence[float], Sequence[float]]
"""(returns, lengths), one of each an episode."""
Bins = tuple[Sequence[float], Sequence[int]]
"""(edges, counts) of a histogram."""

BOTH = "return, which is the steps per episode"
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

    def draw(axes: Axes) -> None:
        figures.curve(axes, curve, x="environment steps", y="mean greedy return", target=target)

    return Card(title, rows, figures.drawn(lambda: [draw]) if len(curve) > 1 else None)


def episodes_card(title: str, *, rows: Mapping[str, object], episodes: Callable[[], Mapping[str, Episodes]]) -> Card:
    """What a dataset holds: histograms of return and length, one colour a group of `episodes`, which are read to be drawn.

    One histogram where both are the same, as in CartPole.
    """

    def pictures() -> list[figures.Picture]:
        groups = episodes()
        if all(returns == lengths for returns, lengths in groups.values()):
            return [partial(figures.histogram, groups={name: returns for name, (returns, _) in groups.items()}, x=BOTH)]
        return [
            partial(figures.histogram, groups={name: returns for name, (returns, _) in groups.items()}, x="return"),
            partial(figures.histogram, groups={name: lengths for name, (_, lengths) in groups.items()}, x="steps per episode"),
        ]

    return Card(title, rows, figures.drawn(pictures))


def quality_card(*, rows: Mapping[str, object], findings: Sequence[tuple[str, str, str]], returns: Bins, lengths: Bins) -> Card:
    """Whether a dataset is good: one row a rule, out of (rule, verdict, message); histograms of return and length."""
    worst_first = sorted(findings, key=lambda finding: [*VERDICTS].index(finding[1]))
    marked = [(f"{MARKS[VERDICTS[verdict]]} {verdict}", rule, message) for rule, verdict, message in worst_first]
    bins = {BOTH: returns} if returns == lengths else {"return": returns, "steps per episode": lengths}
    picture = figures.drawn(lambda: [partial(figures.counts, edges=edges, heights=of, x=x) for x, (edges, of) in bins.items()])
    return Card("Quality", rows, picture, sections=[Section("Rules", columns=("verdict", "rule", "found"), rows=marked)])


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
    curves: list[tuple[Curve, figures.Picture]] = [
        (curve, partial(figures.curve, points=curve, x="updates", y="mean greedy return", target=target)),
        (losses, partial(figures.curve, points=losses, x="updates", y="loss", beside={"held out": held_out})),
        (effective_sample_size, partial(figures.curve, points=effective_sample_size, x="updates", y="effective sample size")),
    ]
    worth = [draw for points, draw in curves if len(points) > 1]  # a single point is a number, and among the rows
    rounded = {layer: round(taken, 2) for layer, taken in seconds.items()}
    return Card("Policy", rows, figures.drawn(lambda: [*worth, partial(figures.bars, values=rounded, x="seconds")]))


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
    lines = {"recorded": recorded[0], "required": required}
    pictures: list[figures.Picture] = [partial(figures.intervals, values=estimates, x="discounted return", lines=lines)]
    if sizes:
        episodes_by_method = {name: size for name, (size, _) in sizes.items()}
        pictures.append(partial(figures.bars, values=episodes_by_method, x="effective episodes"))
    return Card("Off-policy estimate", {**values, **doubts, **rows}, figures.drawn(lambda: pictures))


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
    curved = {name: curve for name, curve in curves.items() if len(curve) > 1}
    best = {name: [*enumerate(values, 1)] for name, values in expected_best.items()}
    pictures: list[figures.Picture] = [
        partial(figures.intervals, values=scores, x=score, lines={}),
        *([partial(figures.lines, named=curved, x="updates", y="mean, interval")] if curved else []),
        partial(figures.lines, named=profiles, x=score, y="share of runs better"),
        partial(figures.lines, named=best, x="policies tried", y=f"best {score}, expected"),
    ]
    return Card("Sweep", rows, figures.drawn(lambda: pictures))


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
    lines = {"what runs today": 0.0, "margin": margin or None}
    said, done = "probability by the model", "share that was done"
    pictures: list[figures.Picture] = [
        partial(figures.forest, rows=differences, x="difference of discounted return", lines=lines),
        partial(figures.shares, values=overlaps, x="overlap with what acted", least=least_overlap),
        *([partial(figures.lights, rows=lights)] if lights else []),
        *([partial(figures.calibration, tenths=calibration, x=said, y=done)] if calibration else []),
    ]
    return Card("Decision", rows, figures.drawn(lambda: pictures), headline=headline, sections=sections)


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
    pictures = [partial(figures.bars, values=returns, x="mean return"), partial(figures.bars, values=seconds, x="seconds")]
    return Card(title, rows, figures.drawn(lambda: pictures), headline=headline)
