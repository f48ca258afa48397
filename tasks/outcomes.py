"""The outcome of each stage in a few words: a row on the card of a chain, and on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch

from pydantic import BaseModel

from offline_core.data.curation.converting import ConversionResult
from offline_core.data.curation.prune import PruningResult
from offline_core.data.curation.split import SplitResult
from offline_core.data.importing.report import ImportResult
from offline_core.data.quality.result import QualityReport
from offline_core.judging.decisions.result import DecisionResult
from offline_core.judging.estimation.result import OffPolicyResult
from offline_core.judging.sweeps.result import SweepResult
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.learning.experts.result import ExpertResult
from offline_core.learning.result import TrainingResult
from offline_core.policies.evaluation.result import EvaluationResult
from offline_core.policies.recording.result import RecordingResult


@singledispatch
def outcome_of(result: BaseModel) -> str:
    """The outcome of a stage as one short line."""
    raise TypeError(f"No outcome is known for {type(result).__name__}.")


def _played(metrics: Mapping[str, float], actions: str = "greedy") -> str:
    return f"mean return {metrics['episode_return_mean']:.1f} over {metrics['episodes']:.0f} {actions} episodes"


@outcome_of.register
def _(report: QualityReport) -> str:
    met = sum(finding.outcome == "pass" for finding in report.findings)
    skipped = sum(finding.outcome == "not applicable" for finding in report.findings)
    other = ", ".join(finding.rule for finding in report.findings if finding.verdict != "pass")
    return f"{met} of {len(report.findings)} rules met, {skipped} not applicable{'; not ' + other if other else ''}"


@outcome_of.register
def _(result: OffPolicyResult) -> str:
    estimates = (f"{name} {each.value:.4g} ({each.low:.4g} to {each.high:.4g})" for name, each in result.estimates.items())
    return f"recorded {result.recorded.value:.4g}; {', '.join(estimates)}"


outcome_of.register(ExpertResult, lambda result: _played(result.metrics))
outcome_of.register(EvaluationResult, lambda result: f"{_played(result.metrics, result.actions)}, new seeds")
outcome_of.register(RecordingResult, lambda result: str(result.dataset))
outcome_of.register(ConversionResult, lambda result: str(result.dataset))
outcome_of.register(ImportResult, lambda result: f"{result.dataset} of {result.counts.rows:,} rows")
outcome_of.register(PruningResult, lambda result: f"{result.after.episodes:,} of {result.before.episodes:,} episodes kept")
outcome_of.register(SweepResult, lambda result: f"{len(result.settings):,} settings by {result.score.replace('_', ' ')}")
outcome_of.register(PromotionResult, lambda result: f"{result.address} is {result.checkpoint}")
outcome_of.register(DecisionResult, lambda result: result.sentence)
outcome_of.register(TrainingResult, lambda result: f"{result.updates:,} updates on {result.steps:,} steps, {result.checkpoint}")
outcome_of.register(
    SplitResult, lambda result: f"{result.train.episodes:,} episodes to train on, {result.held_out.episodes:,} held out"
)
