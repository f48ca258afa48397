"""What each stage came to, in a word and a sentence: the first line of its card, and what lists of cards show."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch

from pydantic import BaseModel

from offline_core.conversion.report import ImportResult
from offline_core.curation.prune import PruningResult
from offline_core.estimation.result import OffPolicyResult
from offline_core.evaluation.result import EvaluationResult
from offline_core.experts.result import ExpertResult
from offline_core.fine_tuning.result import FineTuneResult
from offline_core.learning.result import TrainingResult
from offline_core.promotion.result import PromotionResult
from offline_core.quality.result import QualityReport
from offline_core.recording.result import MixtureResult, RecordingResult
from offline_core.reporting.card import Headline
from offline_core.reporting.values import FEW_EPISODES, return_text
from offline_core.sweeps.result import SweepResult
from tasks.outcomes import outcome_of


@singledispatch
def headline_of(result: BaseModel) -> Headline:
    """The result of a stage for people who read one line. Stages without a better one have made something, and say how much."""
    try:
        sentence = outcome_of(result)
    except TypeError:
        made = [each for _, each in result if hasattr(each, "episodes")]
        sentence = "; ".join(f"{each.episodes:,} episodes, {each.steps:,} steps" for each in made) or "see below"
    return Headline("Done", f"{sentence[:1].upper()}{sentence[1:]}.", "neutral")


def _played(
    metrics: Mapping[str, float], target: float | None = None, *, is_reached: bool = False, actions: str = "greedy"
) -> Headline:
    if "episode_return_mean" not in metrics:
        return Headline("Never played", "No return is known: the policy was not played while it learned.", "neutral")
    mean, episodes = metrics["episode_return_mean"], int(metrics["episodes"])
    told = return_text(mean, metrics["episode_return_std"], episodes, actions)
    if target is None:
        return Headline("Played", f"Return {told}.", "warning" if episodes < FEW_EPISODES else "neutral")
    if is_reached:
        return Headline("Target reached", f"Return {told}, of {target:,g}.", "good")
    return Headline("Target not reached", f"Return {told}, of {target:,g}.", "bad")


@headline_of.register
def _(result: ExpertResult | TrainingResult) -> Headline:
    return _played(result.metrics, result.target_return, is_reached=result.reached_target)


headline_of.register(EvaluationResult, lambda result: _played(result.metrics, actions=result.actions))


def beside_expert(result: EvaluationResult, expert: float) -> Headline:
    """Of a policy that learned from what an expert did: whether it is worse, by more than two standard errors."""
    mean, std, episodes = (result.metrics[name] for name in ("episode_return_mean", "episode_return_std", "episodes"))
    told = f"Return {return_text(mean, std, int(episodes), result.actions)}; the expert returned {expert:,.1f}."
    if not mean + 2 * std / episodes**0.5 >= expert:  # also if it is NaN
        return Headline("Worse than the expert", told, "warning")
    if episodes < FEW_EPISODES:
        return Headline("Not clearly worse than the expert", told, "warning")
    return Headline("As good as the expert", told, "good")


@headline_of.register
def _(result: FineTuneResult) -> Headline:
    mean = result.metrics["episode_return_mean"]
    told = f"{return_text(mean, result.metrics['episode_return_std'], int(result.metrics['episodes']), 'greedy')}"
    if mean > result.start_return:
        return Headline("Better", f"Return {told}; it began at {result.start_return:,.1f}.", "good")
    return Headline("Not better", f"Return {told}; it began at {result.start_return:,.1f}.", "warning")


@headline_of.register
def _(result: RecordingResult) -> Headline:
    returns, episodes = result.statistics.returns, result.statistics.episodes
    told = f"{episodes:,} episodes, return {return_text(returns.mean, returns.std, episodes, result.actions)}"
    if result.is_below_greedy:
        greedy = f"greedy actions return {result.greedy_return:,.1f} (set explore to false)"
        return Headline("Recorded, below the policy", f"{told}; {greedy}.", "warning")
    return Headline("Recorded", f"{told}.", "good")


@headline_of.register
def _(result: ImportResult) -> Headline:
    counts = result.counts
    told = f"{counts.rows:,} rows became {counts.steps:,} steps of {counts.episodes:,} episodes"
    lost = counts.quarantined_rows + counts.quarantined_files
    if lost:
        more = " and more in unreadable files" if counts.quarantined_files else ""
        return Headline("Imported in part", f"{told}; {counts.quarantined_rows:,} rows{more} could not be read.", "warning")
    return Headline("Imported", f"{told}.", "good")


@headline_of.register
def _(result: PruningResult) -> Headline:
    before, after = result.before, result.after
    told = f"{after.episodes:,} of {before.episodes:,} episodes kept"
    means = f"mean return {before.returns.mean:,.1f} before, {after.returns.mean:,.1f} after"
    return Headline("Pruned", f"{told}; {means}.", "good" if after.episodes else "warning")


@headline_of.register
def _(report: QualityReport) -> Headline:
    rules: dict[str, list[str]] = {"pass": [], "warn": [], "fail": [], "not applicable": []}
    for finding in report.findings:
        rules[finding.outcome].append(finding.rule)
    rest = f"met: {len(rules['pass'])} of {len(report.findings)} rules, not applicable: {len(rules['not applicable'])}"
    if rules["fail"]:
        return Headline("Gate failed", f"Broken: {', '.join(rules['fail'])}; {rest}.", "bad")
    if rules["warn"]:
        return Headline("Gate passed, with warnings", f"Look at {', '.join(rules['warn'])}; {rest}.", "warning")
    return Headline("Gate passed", f"{rest[:1].upper()}{rest[1:]}.", "good")


@headline_of.register
def _(result: OffPolicyResult) -> Headline:
    name, best = next(reversed(result.estimates.items()))
    recorded = result.recorded.value
    told = f"{name} estimates {best.value:.4g} ({best.low:.4g} to {best.high:.4g}); what was recorded returned {recorded:.4g}"
    if best.low > recorded:
        return Headline("Likely better", f"{told}.", "good")
    if best.high < recorded:
        return Headline("Likely worse", f"{told}.", "bad")
    return Headline("Not told apart", f"{told}.", "neutral")


@headline_of.register
def _(result: SweepResult) -> Headline:
    first = result.settings[0]
    return Headline("Compared", f"{outcome_of(result)}; the best is {first.name}: {result.best}.", "neutral")


@headline_of.register
def _(result: MixtureResult) -> Headline:
    told = f"{result.dataset.episodes:,} episodes of {len(result.steps):,} sources"
    if not result.is_complete:
        return Headline("Mixed in part", f"{told}; a source ran out before all steps were there.", "warning")
    return Headline("Mixed", f"{told}.", "good")


headline_of.register(PromotionResult, lambda result: Headline("Moved", f"{outcome_of(result)}.", "good"))
