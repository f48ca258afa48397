"""Flow: the whole chain, from nothing to a policy that was learned from recordings alone."""

from flows.local_flow import flow
from flows.seeds import seed_of
from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.converting import ConversionResult
from offline_core.data.curation.prune import PruningResult
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.importing.config import ConversionConfig
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import QualityReport
from offline_core.data.store.location import Location
from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.result import ExpertResult
from offline_core.learning.result import TrainingResult
from offline_core.policies.evaluation.config import EvaluationConfig
from offline_core.policies.evaluation.result import EvaluationResult
from offline_core.policies.recording.config import RecordingConfig
from offline_core.runtime.ray_session import ray_scope
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.reporting.returns import beside_expert
from tasks import stages as tasks
from tasks.chain import ChainResult, Stages, reading, summarize_chain
from tasks.crash import crashing


class ExpertToPolicyResult(ChainResult):
    """What the chain came to, stage by stage."""

    expert: ExpertResult
    recording: DatasetRef
    conversion: ConversionResult | None
    """None: episodes were recorded as episodes."""
    pruning: PruningResult
    quality: QualityReport
    training: TrainingResult
    evaluation: EvaluationResult

    def card(self) -> Card:
        expert, evaluated = self.expert, self.evaluation
        return self.chain_card(
            "Expert to policy",
            beside_expert(evaluated.metrics, expert.metrics, expert.target_return, evaluated.actions),
            returns={
                "expert": expert.mean_return,
                "recorded": self.pruning.before.returns.mean,
                "kept": self.pruning.after.returns.mean,
                "policy": evaluated.mean_return,
            },
            checkpoint=self.training.checkpoint,
            details={"Environment": evaluated.environment},
            next=evaluated.card().next,
        )


@flow(name="expert-to-policy", run_name="expert-to-policy: {training.algorithm} in {expert.environment.id}, seed {seed}")
def expert_to_policy(
    root: str = "runs/demo",
    seed: int | None = 0,
    expert: ExpertConfig = ExpertConfig(),
    recording: RecordingConfig = RecordingConfig(),
    conversion: ConversionConfig = ConversionConfig(),
    pruning: PruningConfig = PruningConfig(),
    quality: QualityConfig = QualityConfig(),
    training: TrainingConfig = TrainingConfig(),
    evaluation: EvaluationConfig = EvaluationConfig(),
) -> ExpertToPolicyResult:
    """Trains an expert, records it, prunes and checks the recording, clones a policy from it and evaluates the clone.

    A recording in table format is converted to episodes first, as a stage of its own.

    Args:
        root: Folder for everything the run makes; one run at a time may have it.
        seed: Seed of every stage; the seeds inside the stages' parameters are not used. None: another one for each run,
            and the same when a run is retried.
        expert: The environment, and how the expert learns to master it.
        recording: How the expert's episodes are recorded.
        conversion: How a recorded table becomes episodes.
        pruning: Which of them are kept.
        quality: What the kept ones have to meet; the run stops at others.
        training: How the policy is learned from them.
        evaluation: How the policy is put to the test.
    """
    place, seeded, stages = Location.of(root), {"seed": seed_of(seed)}, Stages()
    with place.make_folder().locked():  # another chain would put its policies where the next stage looks
        with crashing(), ray_scope():
            expert_result = stages.run(
                "train expert", tasks.train_expert, expert.model_copy(update=seeded), output=place.child("expert").uri
            )
            recorded = stages.run(
                "record episodes",
                tasks.record,
                recording.model_copy(update=seeded),
                policy=expert_result.checkpoint,
                output=place.child("recording").uri,
            ).dataset
            converted = None
            if recording.format == "table":
                converted = stages.run(
                    "convert to episodes",
                    tasks.convert,
                    conversion,
                    **reading(recorded),
                    output=place.child("episodes").uri,
                )
            source = recorded if converted is None else converted.dataset
            pruned = stages.run("prune", tasks.prune, pruning, **reading(source), output=place.child("pruned").uri)
            kept = pruned.dataset
            checked = stages.run("check", tasks.check, quality, **reading(kept))
            trained = stages.run(
                "train policy",
                tasks.train,
                training.model_copy(update=seeded),
                **reading(kept),
                output=place.child("policy").uri,
            )
            evaluated = stages.run("evaluate", tasks.evaluate, evaluation.model_copy(update=seeded), policy=trained.checkpoint)
        result = ExpertToPolicyResult(
            reused=stages.outcomes[-1].reused,  # it is made of what all others made
            root=place.uri,
            stages=stages.outcomes,
            seconds=stages.seconds,
            expert=expert_result,
            recording=recorded,
            conversion=converted,
            pruning=pruned,
            quality=checked,
            training=trained,
            evaluation=evaluated,
        )
        summarize_chain(
            "expert_to_policy",
            result,
            parameters={
                "expert": expert,
                "recording": recording,
                "conversion": conversion,
                "pruning": pruning,
                "quality": quality,
                "training": training,
                "evaluation": evaluation,
            },
        )
    return result
