"""Flow: from recorded logs to a policy that was put to the test, with or without an environment."""

from typing import Literal

from flows.local_flow import flow
from flows.sources import episodes_of
from offline_core.data.curation.config import PruningConfig, SplitConfig
from offline_core.data.curation.converting import ConversionResult
from offline_core.data.curation.prune import PruningResult
from offline_core.data.curation.split import SplitResult
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.importing.config import ConversionConfig, ImportConfig
from offline_core.data.importing.report import ImportResult
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import QualityReport
from offline_core.errors import ConfigError
from offline_core.judging.estimation.config import EstimateConfig
from offline_core.judging.estimation.estimators import weighing
from offline_core.judging.estimation.result import EstimateResult
from offline_core.learning.config import EvaluationDuringTraining, TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.policies.evaluation import EvaluationConfig, EvaluationResult
from offline_core.runtime.reporting.card import Card
from tasks import stages as tasks
from tasks.chain import Chain, ChainResult, begin_chain


class LogsToPolicyResult(ChainResult):
    """What the chain came to, stage by stage; None for stages that the data did not need."""

    imported: ImportResult | None
    conversion: ConversionResult | None
    quality: QualityReport
    split: SplitResult | None
    pruning: PruningResult
    training: TrainingResult
    evaluation: EvaluationResult | None
    estimate: EstimateResult | None

    def card(self) -> Card:
        told = (self.evaluation or self.estimate or self.training).card()
        return self.chain_card(
            "Logs to policy",
            told,
            returns=self._returns(),
            checkpoint=self.training.checkpoint,
            details={"Environment": "none" if self.evaluation is None else self.evaluation.environment},
            advice=told.advice,
            next=told.next,
        )

    def _returns(self) -> dict[str, float]:
        """Mean returns; an estimate is of discounted returns, and so has its own."""
        if self.estimate is not None:
            estimates = {f"policy ({name})": estimate.value for name, estimate in self.estimate.estimates.items()}
            return {"held out": self.estimate.recorded.value, **estimates}
        played = {} if self.evaluation is None else {"policy": self.evaluation.mean_return}
        return {"logs": self.pruning.before.returns.mean, "kept": self.pruning.after.returns.mean, **played}


@flow(name="logs-to-policy", run_name="logs-to-policy: {training.algorithm} from {source}, seed {seed}")
def logs_to_policy(
    source: str | list[str] = "data",
    root: str = "runs/logs",
    seed: int | None = 0,
    test: Literal["auto", "evaluate", "estimate"] = "auto",
    importing: ImportConfig = ImportConfig(),
    conversion: ConversionConfig = ConversionConfig(),
    quality: QualityConfig = QualityConfig(),
    split: SplitConfig = SplitConfig(held_out_fraction=0.3),
    pruning: PruningConfig = PruningConfig(),
    training: TrainingConfig = TrainingConfig(),
    evaluation: EvaluationConfig = EvaluationConfig(),
    estimate: EstimateConfig = EstimateConfig(),
) -> LogsToPolicyResult:
    """Imports logs, or converts a table, checks and prunes the episodes, learns a policy from them and puts it to the test.

    With an environment the policy is evaluated in it. Without one its return is estimated from held-out episodes, which
    are split off before anything is pruned; logs that do not say how probable their actions were are weighed by a clone of
    the policy that acted.

    Args:
        source: A file, a folder, a pattern with * or **, or a list of them; or the folder of one dataset.
        root: Folder for everything the run makes; one run at a time may have it.
        seed: Seed of every stage; the seeds inside the stages' parameters are not used. None: another one for each run,
            and the same when a run is retried.
        test: evaluate: play the policy. estimate: do not. auto: play it if an environment is known.
        quality: What the episodes have to meet; the run stops at others.
        split: Which share of the episodes the estimate is made from.
    """
    with begin_chain("logs_to_policy", locals()) as chain:
        data, imported, converted = episodes_of(chain, source, importing, conversion)
        checked = chain.run("check", tasks.check, quality, dataset=data.ref)
        environment = evaluation.environment or training.evaluation.environment or data.manifest.environment
        if test == "evaluate" and environment is None:
            raise ConfigError(
                f"{data.ref.uri} does not say where it was recorded: set evaluation.environment, or another test."
            )
        sides = None
        if test == "estimate" or (test == "auto" and environment is None):
            sides = chain.run("split", tasks.split, split, dataset=data.ref, output="split")
        learned_from = data.ref if sides is None else sides.train
        pruned = chain.run("prune", tasks.prune, pruning, dataset=learned_from, output="pruned")
        trained = chain.run("train policy", tasks.train, training, dataset=pruned.dataset, output="policy")
        evaluated = estimated = None
        if sides is None:
            played = evaluation.model_copy(update={"environment": environment})
            evaluated = chain.run("evaluate", tasks.evaluate, played, policy=trained.checkpoint)
        else:
            weighed = estimate.model_copy(update={"behaviour": _behaviour(chain, estimate, training, sides)})
            estimated = chain.run("estimate", tasks.estimate, weighed, policy=trained.checkpoint, dataset=sides.held_out)
        return chain.end(
            LogsToPolicyResult,
            imported=imported,
            conversion=converted,
            quality=checked,
            split=sides,
            pruning=pruned,
            training=trained,
            evaluation=evaluated,
            estimate=estimated,
        )


def _behaviour(chain: Chain, estimate: EstimateConfig, training: TrainingConfig, sides: SplitResult) -> str | None:
    """Checkpoint by which recorded actions are weighed; None: by what was recorded as action_logp."""
    from offline_core.judging.estimation.logged import has_probabilities

    if estimate.behaviour is not None or not weighing(estimate.methods):
        return estimate.behaviour
    if has_probabilities(open_dataset(sides.held_out.uri, sides.held_out.version)):
        return None
    clone = {
        "algorithm": "bc",
        "data": training.data.model_copy(update={"buffer": None}),
        "evaluation": EvaluationDuringTraining(play=False),
    }
    return chain.run(
        "clone behaviour", tasks.train, training.model_copy(update=clone), dataset=sides.train, output="behaviour"
    ).checkpoint
