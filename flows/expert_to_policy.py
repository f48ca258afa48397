"""Flow: the whole chain, from nothing to a policy that was learned from recordings alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prefect import flow, task
from pydantic import BaseModel, ConfigDict

from flows.seeds import seed_of
from offline_core.evaluation.config import EvaluationConfig
from offline_core.evaluation.result import EvaluationResult
from offline_core.experts.config import ExpertConfig
from offline_core.experts.result import ExpertResult
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.pruning.config import PruningConfig
from offline_core.pruning.prune import PruningResult
from offline_core.quality.config import QualityConfig
from offline_core.quality.result import QualityReport
from offline_core.ray_session import ray_scope
from offline_core.recording.config import RecordingConfig
from offline_core.reporting.cards import chain_card
from offline_core.storage.dataset import DatasetRef
from offline_core.storage.location import Location
from tasks.artifacts import publish, telling
from tasks.check_dataset import check_dataset
from tasks.evaluate_policy import evaluate_policy
from tasks.prune_dataset import prune_dataset
from tasks.record_episodes import record_episodes
from tasks.train_expert import train_expert
from tasks.train_policy import train_policy


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


@flow(name="expert-to-policy", flow_run_name="expert-to-policy-{expert.environment.id}-{seed}")
def expert_to_policy(
    root: str = "runs/demo",
    seed: int | None = 0,
    expert: ExpertConfig = ExpertConfig(),
    recording: RecordingConfig = RecordingConfig(),
    pruning: PruningConfig = PruningConfig(),
    quality: QualityConfig = QualityConfig(),
    training: TrainingConfig = TrainingConfig(),
    evaluation: EvaluationConfig = EvaluationConfig(),
) -> ExpertToPolicyResult:
    """Trains an expert, records it, prunes and checks the recording, clones a policy from it and evaluates the clone.

    Args:
        root: Folder for everything the run makes; one run at a time may have it.
        seed: Seed of every stage; the seeds inside the stages' parameters are not used. None: another one for each run,
            and the same when a run is retried.
        expert: The environment, and how the expert learns to master it.
        recording: How the expert's episodes are recorded.
        pruning: Which of them are kept.
        quality: What the kept ones have to meet, lest the run stops.
        training: How the policy is learned from them.
        evaluation: How the policy is put to the test.
    """
    place = Location.of(root)
    seeded = {"seed": seed_of(seed)}
    seconds: dict[str, float] = {}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - start

    parameters = {
        "expert": expert,
        "recording": recording,
        "pruning": pruning,
        "quality": quality,
        "training": training,
        "evaluation": evaluation,
    }
    with place.make_folder().locked():  # lest another chain put its policies where this one's next stage looks
        with stage("all"), ray_scope():
            with stage("train expert"):
                expert_result = train_expert(expert.model_copy(update=seeded), output=place.child("expert").uri)
            with stage("record episodes"):
                recorded = record_episodes(
                    recording.model_copy(update=seeded), policy=expert_result.checkpoint, output=place.child("recording").uri
                ).dataset
            with stage("prune"):
                pruned = prune_dataset(
                    pruning, dataset=recorded.uri, version=recorded.version, output=place.child("pruned").uri
                )
            with stage("check"):
                checked = check_dataset(quality, dataset=pruned.dataset.uri, version=pruned.dataset.version)
            with stage("train policy"):
                trained = train_policy(
                    training.model_copy(update=seeded),
                    dataset=pruned.dataset.uri,
                    version=pruned.dataset.version,
                    output=place.child("policy").uri,
                )
            with stage("evaluate"):
                evaluated = evaluate_policy(evaluation.model_copy(update=seeded), policy=trained.checkpoint)
        result = ExpertToPolicyResult(
            expert=expert_result,
            recording=recorded,
            pruning=pruned,
            quality=checked,
            training=trained,
            evaluation=evaluated,
            seconds=seconds,
        )
        summarize(result, root=place.uri, parameters=parameters)
    return result


@task(name="summarize")
def summarize(result: ExpertToPolicyResult, *, root: str, parameters: Mapping[str, BaseModel]) -> None:
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
