"""Stage: tell in one card what a chain of stages came to."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from offline_core.evaluation.result import EvaluationResult
from offline_core.experts.result import ExpertResult
from offline_core.learning.result import TrainingResult
from offline_core.pruning.prune import PruningResult
from offline_core.quality.result import QualityReport
from offline_core.reporting.cards import chain_card
from offline_core.storage.dataset import DatasetRef
from offline_core.storage.location import Location
from tasks.artifacts import publish, telling
from tasks.stage import stage


class ExpertToPolicyResult(BaseModel):
    """What the chain came to, stage by stage."""

    model_config = ConfigDict(frozen=True)

    expert: ExpertResult
    recording: DatasetRef
    pruning: PruningResult
    quality: QualityReport
    training: TrainingResult
    evaluation: EvaluationResult
    seconds: dict[str, float]
    """Wall time of each stage, and of all."""


@stage("summarize-chain")
def summarize_chain(result: ExpertToPolicyResult, *, root: str, parameters: Mapping[str, BaseModel]) -> None:
    """Leaves one card for the whole chain as an artifact, and in `root`."""
    with telling():
        returns = {
            "expert": result.expert.metrics["episode_return_mean"],
            "recorded": result.pruning.before.returns.mean,
            "kept": result.pruning.after.returns.mean,
            "policy": result.evaluation.metrics["episode_return_mean"],
        }
        rows = {
            "Environment": result.evaluation.environment,
            "Expert": f"return {returns['expert']:.1f}",
            "Recorded": result.pruning.source,
            "Kept": result.pruning.dataset,
            "Quality": result.quality.verdict,
            "Policy": f"{result.training.checkpoint}, {result.training.updates:,} updates",
            "Policy's return": f"{returns['policy']:.1f}",
            "Seconds": result.seconds["all"],
        }
        stages = {name: value for name, value in result.seconds.items() if name != "all"}
        publish(
            chain_card(rows=rows, seconds=stages, returns=returns),
            key="expert-to-policy-card",
            operation="expert_to_policy",
            config=parameters,
            about=(result.training.checkpoint, None),
            beside=[Location.of(root).child("card")],
        )
