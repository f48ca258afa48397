"""The card of each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offline_core.reporting import figures
from offline_core.reporting.card import Card, Headline, Section

Curve = Sequence[tuple[int, float]]
Bins = tuple[Sequence[float], Sequence[int]]
"""(edges, counts) of a histogram."""

MARKS = {"pass": "✓", "warn": "⚠ warn:", "fail": "✗ fail:", "not applicable": "– not applicable:"}


def returns_rows(metrics: Mapping[str, float]) -> dict[str, object]:
    """Rows about the episodes of an evaluation."""
    if "episode_return_mean" not in metrics:
        held_out = {"Held-out loss": metrics["held_out_loss"]} if "held_out_loss" in metrics else {}
        return {"Return": "never played", **held_out}
    mean, std = metrics["episode_return_mean"], metrics["episode_return_std"]
    successes = {"Success rate": f"{metrics['success_rate']:.1%}"} if "success_rate" in metrics else {}
    return {
        "Return": f"{mean:.1f} ± {std:.1f} ({metrics['episode_return_min']:.1f} to {metrics['episode_return_max']:.1f})",
        "Episodes played": int(metrics["episodes"]),
        "Steps per episode": metrics["episode_length_mean"],
        **successes,
    }


def expert_card(*, rows: Mapping[str, object], curve: Curve, target: float | None, title: str = "Expert") -> Card:
    """How an expert came about."""
    figure, (axes,) = figures.new_figure(1)
    figures.curve(axes, curve, x="environment steps", y="mean greedy return", target=target)
    return Card(title, rows, figures.png(figure))


def episodes_card(
    title: str, *, rows: Mapping[str, object], returns: Mapping[str, object], lengths: Mapping[str, object]
) -> Card:
    """What a dataset holds: histograms of return and length, one colour a group of episodes."""
    figure, (left, right) = figures.new_figure(2)
    figures.histogram(left, returns, x="return")  # type: ignore[arg-type]
    figures.histogram(right, lengths, x="steps per episode")  # type: ignore[arg-type]
    return Card(title, rows, figures.png(figure))


def quality_card(*, rows: Mapping[str, object], findings: Sequence[tuple[str, str, str]], returns: Bins, lengths: Bins) -> Card:
    """Whether a dataset is good: one row a rule, out of (rule, verdict, message); histograms of return and length."""
    marked = {f"{MARKS[verdict]} {rule}": message for rule, verdict, message in findings}
    figure, (left, right) = figures.new_figure(2)
    figures.counts(left, *returns, x="return")
    figures.counts(right, *lengths, x="steps per episode")
    return Card("Quality", {**rows, **marked}, figures.png(figure))


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
    figure, (left, right, *more) = figures.new_figure(4 if effective_sample_size else 3)
    figures.curve(left, curve, x="updates", y="mean greedy return", target=target)
    figures.curve(right, losses, x="updates", y="loss", beside={"held out": held_out})
    if effective_sample_size:
        figures.curve(more[0], effective_sample_size, x="updates", y="effective sample size")
    figures.bars(more[-1], seconds, x="seconds")
    return Card("Policy", rows, figures.png(figure))


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
    doubts = {f"{MARKS['warn']} {number}": warning for number, warning in enumerate(warnings, 1)}
    figure, (left, right) = figures.new_figure(2)
    figures.intervals(left, estimates, x="discounted return", lines={"recorded": recorded[0], "required": required})
    figures.bars(right, {name: size for name, (size, _) in sizes.items()}, x="effective episodes")
    return Card("Off-policy estimate", {**rows, **values, **doubts}, figures.png(figure))


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
    figure, (one, two, three, four) = figures.new_figure(4)
    figures.intervals(one, scores, x=score, lines={})
    figures.lines(two, {name: curve for name, curve in curves.items() if curve}, x="updates", y="mean, interval")
    figures.lines(three, profiles, x=score, y="share of runs better")
    best = {name: [*enumerate(values, 1)] for name, values in expected_best.items()}
    figures.lines(four, best, x="policies tried", y=f"best {score}, expected")
    return Card("Sweep", rows, figures.png(figure))


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
    figure, (one, two, *more) = figures.new_figure(2 + bool(lights) + bool(calibration))
    lines = {"what runs today": 0.0, "margin": margin or None}
    figures.forest(one, differences, x="difference of discounted return", lines=lines)
    figures.shares(two, overlaps, x="overlap with what acted", least=least_overlap)
    if lights:
        figures.lights(more[0], lights)
    if calibration:
        figures.calibration(more[-1], calibration, x="probability by the model", y="share that was done")
    return Card("Decision", rows, figures.png(figure), headline=headline, sections=sections)


def _interval(interval: tuple[float, float, float]) -> str:
    value, low, high = interval
    return f"{value:.4g} ({low:.4g} to {high:.4g})"


def chain_card(
    title: str,
    *,
    rows: Mapping[str, object],
    seconds: Mapping[str, float],
    returns: Mapping[str, float],
    headline: Headline | None = None,
) -> Card:
    """What a chain of stages came to: the mean return of each thing made, and where the time went."""
    figure, (left, right) = figures.new_figure(2)
    figures.bars(left, returns, x="mean return")
    figures.bars(right, seconds, x="seconds")
    return Card(title, rows, figures.png(figure), headline=headline)
