"""What a stage came to, in a few words: a row on the card of a chain, and on the terminal."""

from __future__ import annotations

from functools import singledispatch

from pydantic import BaseModel

from offline_core.conversion.converting import ConversionResult
from offline_core.conversion.report import ImportResult
from offline_core.evaluation.off_policy.result import OffPolicyResult
from offline_core.evaluation.result import EvaluationResult
from offline_core.experts.result import ExpertResult
from offline_core.learning.result import TrainingResult
from offline_core.pruning.prune import PruningResult
from offline_core.pruning.split import SplitResult
from offline_core.quality.result import QualityReport
from offline_core.recording.result import RecordingResult


@singledispatch
def outcome_of(result: BaseModel) -> str:
    """What came of a stage, as one short line."""
    raise TypeError(f"No outcome is known for {type(result).__name__}.")


@outcome_of.register
def _(result: ExpertResult) -> str:
    metrics = result.metrics
    return f"mean return {metrics['episode_return_mean']:.1f} over {metrics['episodes']:.0f} greedy episodes"


@outcome_of.register
def _(result: RecordingResult) -> str:
    return str(result.dataset)


@outcome_of.register
def _(result: ImportResult) -> str:
    return f"{result.dataset} of {result.counts.rows:,} rows"


@outcome_of.register
def _(result: ConversionResult) -> str:
    return str(result.dataset)


@outcome_of.register
def _(result: QualityReport) -> str:
    verdicts = [finding.verdict for finding in result.findings]
    other = ", ".join(finding.rule for finding in result.findings if finding.verdict != "pass")
    return f"{verdicts.count('pass')} of {len(verdicts)} rules passed{'; not ' + other if other else ''}"


@outcome_of.register
def _(result: SplitResult) -> str:
    return f"{result.train.episodes:,} episodes to train on, {result.held_out.episodes:,} held out"


@outcome_of.register
def _(result: PruningResult) -> str:
    return f"{result.after.episodes:,} of {result.before.episodes:,} episodes kept"


@outcome_of.register
def _(result: TrainingResult) -> str:
    return f"{result.updates:,} updates on {result.steps:,} steps, {result.checkpoint}"


@outcome_of.register
def _(result: EvaluationResult) -> str:
    metrics = result.metrics
    return f"mean return {metrics['episode_return_mean']:.1f} over {metrics['episodes']:.0f} greedy episodes, new seeds"


@outcome_of.register
def _(result: OffPolicyResult) -> str:
    told = (f"{name} {each.value:.4g} ({each.low:.4g} to {each.high:.4g})" for name, each in result.estimates.items())
    return f"recorded {result.recorded.value:.4g}; {', '.join(told)}"
