"""Flow: the whole chain, from nothing to a policy that was learned from recordings alone."""

from flows.local_flow import flow
from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.converting import ConversionResult
from offline_core.data.curation.prune import PruningResult
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.importing.config import ConversionConfig
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import QualityReport
from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.result import ExpertResult, TrainingResult
from offline_core.policies.evaluation import EvaluationConfig, EvaluationResult
from offline_core.policies.recording.config import RecordingConfig
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.reporting.returns import beside_expert
from tasks import stages as tasks
from tasks.chain import ChainResult, begin_chain


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

    A recording in another format than that of the conversion is converted first, as a stage of its own.

    Args:
        root: Folder for everything the run makes; one run at a time may have it.
        seed: Seed of every stage; the seeds inside the stages' parameters are not used. None: another one for each run,
            and the same when a run is retried.
        quality: What the kept ones have to meet; the run stops at others.
    """
    with begin_chain("expert_to_policy", locals()) as chain:
        trained_expert = chain.run("train expert", tasks.train_expert, expert, output="expert")
        source = recorded = chain.run(
            "record episodes", tasks.record, recording, policy=trained_expert.checkpoint, output="recording"
        ).dataset
        converted = None
        if recording.format != conversion.format:
            converted = chain.run("convert to episodes", tasks.convert, conversion, dataset=recorded, output="episodes")
            source = converted.dataset
        pruned = chain.run("prune", tasks.prune, pruning, dataset=source, output="pruned")
        checked = chain.run("check", tasks.check, quality, dataset=pruned.dataset)
        trained = chain.run("train policy", tasks.train, training, dataset=pruned.dataset, output="policy")
        evaluated = chain.run("evaluate", tasks.evaluate, evaluation, policy=trained.checkpoint)
        return chain.end(
            ExpertToPolicyResult,
            expert=trained_expert,
            recording=recorded,
            conversion=converted,
            pruning=pruned,
            quality=checked,
            training=trained,
            evaluation=evaluated,
        )
