"""What each stage came to, in a word and a sentence: the first line of its card, and what lists of cards show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch

from pydantic import BaseModel

from offline_core.data.curation.prune import PruningResult
from offline_core.data.importing.report import ImportResult
from offline_core.data.quality.result import QualityReport
from offline_core.judging.estimation.result import OffPolicyResult
from offline_core.judging.sweeps.result import SweepResult
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.learning.experts.result import ExpertResult
from offline_core.learning.fine_tuning.result import FineTuneResult
from offline_core.learning.result import TrainingResult
from offline_core.policies.evaluation.result import EvaluationResult
from offline_core.policies.recording.result import MixtureResult, RecordingResult
from offline_core.runtime.reporting.card import Headline, Tone
from offline_core.runtime.reporting.values import FEW_EPISODES, return_text
from tasks.outcomes import outcome_of

NOTED_UNRECORDED = 0.1
"""Share of a return that was not recorded, from which on the headline says so."""


def headline_of(result: BaseModel) -> Headline:
    """The result of a stage for people who read one line; green only if the stage has nothing to warn of."""
    headline, warnings = stage_headline(result), warnings_of(result)
    if headline.tone != "good" or not warnings:
        return headline
    there = "There is a warning" if len(warnings) == 1 else f"There are {len(warnings):,} warnings"
    return replace(headline, sentence=f"{headline.sentence} {there} below.", tone="warning")


def warnings_of(result: BaseModel) -> list[str]:
    """What a stage itself says against its result."""
    if isinstance(result, ImportResult):
        return result.notes[1 if result.appended else 0 :]  # the first note of an append says what it did
    return list(getattr(result, "warnings", ()))


@singledispatch
def stage_headline(result: BaseModel) -> Headline:
    """The result without its warnings. Stages without a better headline have made something, and say how much."""
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
        return Headline("Target reached", f"Return {told}, of {target:,g}.", _of_enough(episodes))
    return Headline("Target not reached", f"Return {told}, of {target:,g}.", "bad")


@stage_headline.register
def _(result: ExpertResult | TrainingResult) -> Headline:
    actions = result.actions if isinstance(result, ExpertResult) else "greedy"
    return _played(result.metrics, result.target_return, is_reached=result.reached_target, actions=actions)


stage_headline.register(EvaluationResult, lambda result: _played(result.metrics, actions=result.actions))


def _of_enough(episodes: int) -> Tone:
    return "warning" if episodes < FEW_EPISODES else "good"


def beside_expert(result: EvaluationResult, expert: ExpertResult) -> Headline:
    """Of a policy that learned from an expert: whether it reaches the expert's target, or else is worse than the expert.

    Worse is what lies below by more than two standard errors of the difference.
    """
    mean, std, episodes = _mean(result.metrics)
    best, best_std, best_episodes = _mean(expert.metrics)
    told = f"Return {return_text(mean, std, episodes, result.actions)}; the expert returned {best:,.1f}"
    error = math.sqrt(std**2 / episodes + best_std**2 / best_episodes)
    target = expert.target_return
    if target is not None:
        told += f", its target was {target:,g}"
    if mean + 2 * error >= best:  # not if it is NaN
        if episodes < FEW_EPISODES:
            return Headline("Not clearly worse than the expert", f"{told}.", "warning")
        return Headline("As good as the expert", f"{told}.", "good")
    if target is not None and mean >= target:
        return Headline("Target reached", f"{told}.", _of_enough(episodes))
    return Headline("Worse than the expert", f"{told}.", "warning")


def _mean(metrics: Mapping[str, float]) -> tuple[float, float, int]:
    """(mean return, its standard deviation, episodes)"""
    return metrics["episode_return_mean"], metrics["episode_return_std"], int(metrics["episodes"])


@stage_headline.register
def _(result: FineTuneResult) -> Headline:
    mean, std, episodes = _mean(result.metrics)
    told = f"Return {return_text(mean, std, episodes, 'greedy')}; it began at {result.start_return:,.1f}."
    if not mean > result.start_return:
        return Headline("Not better", told, "warning")
    if not mean - 2 * std / math.sqrt(episodes) > result.start_return:
        return Headline("Not clearly better", told, "warning")
    return Headline("Better", told, _of_enough(episodes))


@stage_headline.register
def _(result: RecordingResult) -> Headline:
    returns, episodes = result.statistics.returns, result.statistics.episodes
    told = f"{episodes:,} episodes, return {return_text(returns.mean, returns.std, episodes, result.actions)}"
    if result.is_below_greedy:
        greedy = f"greedy actions return {result.greedy_return:,.1f} (set explore to false)"
        return Headline("Recorded, below the policy", f"{told}; {greedy}.", "warning")
    return Headline("Recorded", f"{told}.", "good")


@stage_headline.register
def _(result: ImportResult) -> Headline:
    counts = result.counts
    told = f"{counts.rows:,} rows became {counts.steps:,} steps of {counts.episodes:,} episodes"
    lost = counts.quarantined_rows + counts.quarantined_files
    if lost:
        more = " and more in unreadable files" if counts.quarantined_files else ""
        return Headline("Imported in part", f"{told}; {counts.quarantined_rows:,} rows{more} could not be read.", "warning")
    return Headline("Imported", f"{told}.", "good")


@stage_headline.register
def _(result: PruningResult) -> Headline:
    before, after = result.before, result.after
    told = f"{after.episodes:,} of {before.episodes:,} episodes kept"
    means = f"mean return {before.returns.mean:,.1f} before, {after.returns.mean:,.1f} after"
    return Headline("Pruned", f"{told}; {means}.", "good" if after.episodes else "warning")


@stage_headline.register
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


@stage_headline.register
def _(result: OffPolicyResult) -> Headline:
    """Better or worse only if all methods say so; and only perhaps if the stage warns, or part of it was not recorded."""
    name, last = next(reversed(result.estimates.items()))
    recorded = result.recorded.value
    told = f"{name} estimates {last.value:.4g} ({last.low:.4g} to {last.high:.4g}); what was recorded returned {recorded:.4g}"
    others = ", ".join(f"{other} {each.value:.4g}" for other, each in result.estimates.items() if other != name)
    is_better, is_worse = last.low > recorded, last.high < recorded
    if not is_better and not is_worse:
        return Headline("Not told apart", f"{told}.", "neutral")
    word = "better" if is_better else "worse"
    every = [each.low > recorded if is_better else each.high < recorded for each in result.estimates.values()]
    if not all(every):
        return Headline(f"Methods disagree on {word}", f"{told}; other methods: {others}.", "warning")
    if result.unrecorded_share > NOTED_UNRECORDED:
        share = f"{100 * result.unrecorded_share:.0f} % of the return was not recorded"
        return Headline(f"Perhaps {word}", f"{told}; {share}.", "warning")
    if warnings_of(result):
        return Headline(f"Perhaps {word}", f"{told}; the warnings below say what speaks against it.", "warning")
    return Headline(f"Likely {word}", f"{told}.", "good" if is_better else "bad")


@stage_headline.register
def _(result: SweepResult) -> Headline:
    first = result.settings[0]
    return Headline("Compared", f"{outcome_of(result)}; the best is {first.name}: {result.best}.", "neutral")


@stage_headline.register
def _(result: MixtureResult) -> Headline:
    told = f"{result.dataset.episodes:,} episodes of {len(result.steps):,} sources"
    if not result.is_complete:
        return Headline("Mixed in part", f"{told}; a source ran out before all steps were there.", "warning")
    return Headline("Mixed", f"{told}.", "good")


stage_headline.register(PromotionResult, lambda result: Headline("Moved", f"{outcome_of(result)}.", "good"))
