"""Flow: from new logs to a better policy in the registry, or to the reason why there is none."""

from flows.approval import approval_of
from flows.local_flow import flow
from flows.sources import episodes_of
from offline_core.data.curation.config import PruningConfig, SplitConfig
from offline_core.data.curation.converting import ConversionResult
from offline_core.data.curation.prune import PruningResult
from offline_core.data.curation.split import SplitResult
from offline_core.data.datasets.dataset import Dataset, DatasetRef
from offline_core.data.importing.config import ConversionConfig, ImportConfig
from offline_core.data.importing.report import ImportResult
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import QualityReport
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.result import DecisionResult
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.result import SweepResult
from offline_core.keeping.promotion.config import PromotionConfig
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.policies.registry import Move, entry_of, last_move
from offline_core.runtime.reporting.card import Card
from tasks import stages as tasks
from tasks.chain import Chain, ChainResult, begin_chain

SCORING_SHARE = 0.2
"""Of the episodes to learn from; by them a sweep whose policies are not played compares its runs."""


class ImprovePolicyResult(ChainResult):
    """What the chain came to, stage by stage; None for stages that were not needed."""

    imported: ImportResult | None
    conversion: ConversionResult | None
    quality: QualityReport
    split: SplitResult
    pruning: PruningResult
    sweep: SweepResult
    decision: DecisionResult
    approved_by: str | None
    """None: no approval was asked for, or it was refused."""
    promotion: PromotionResult | None
    """None: the alias names what it named before."""
    registry: str
    """Address of the alias."""

    def card(self) -> Card:
        decided, moved = self.decision, self.promotion
        judged = {
            f"Candidate {rank}": candidate for rank, candidate in enumerate((e for e in decided.candidates if e.judged), 1)
        }
        told = decided.card()
        after = told if moved is None else moved.card()
        return self.chain_card(
            "Improve policy",
            told,
            returns={
                "recorded": decided.recorded,
                **{
                    f"{name} (wdr)": candidate.estimates["wdr"]
                    for name, candidate in judged.items()
                    if "wdr" in candidate.estimates
                },
            },
            checkpoint=decided.checkpoint if moved is None else moved.checkpoint,
            details={
                "Against": decided.against,
                "Registry": self.registry,
                "Moved": moved is not None,
                **{name: f"{candidate.name}, {candidate.judged}" for name, candidate in judged.items()},
            },
            advice=after.advice,
            next=after.next,
        )


@flow(name="improve-policy", run_name="improve-policy: {registry} from {source}, seed {seed}")
def improve_policy(
    source: str | list[str] = "data",
    root: str = "runs/improve",
    registry: str = "runs/registry/policy",
    seed: int | None = 0,
    approval: bool = False,
    importing: ImportConfig = ImportConfig(),
    conversion: ConversionConfig = ConversionConfig(),
    quality: QualityConfig = QualityConfig(),
    split: SplitConfig = SplitConfig(held_out_fraction=0.5),
    pruning: PruningConfig = PruningConfig(),
    sweep: SweepConfig = SweepConfig(grid={"algorithm": ["bc", "marwil", "iql"]}, seeds=1),
    decision: DecisionConfig = DecisionConfig(),
    promotion: PromotionConfig = PromotionConfig(),
) -> ImprovePolicyResult:
    """Learns candidates from new logs, holds them against the champion of a registry, and promotes one that is shown better.

    The episodes are split before anything is pruned: candidates learn from one side and are decided on by the other. While
    the registry has no champion, they are held against what the log recorded. A run whose verdict is not promote is a result,
    and leaves the registry as it is.

    Args:
        source: A file, a folder, a pattern with * or **, or a list of them; or the folder of one dataset.
        root: Folder for everything the run makes; one run at a time may have it.
        registry: Folder of the registry and name of the policy.
        seed: Seed of every stage; the seeds inside the stages' parameters are not used. None: another one for each run,
            and the same when a run is retried.
        approval: Before anything is promoted, pause the run until a person has approved it in the form of the run.
        quality: What the episodes have to meet; the run stops at others.
        split: Which share of the episodes decides.
        sweep: The candidates: each setting is one, by its best run.
        decision: How they are held against the champion; what decision.against names is used while there is none.
    """
    with begin_chain("improve_policy", locals()) as chain:
        address = f"{entry_of(registry).uri}@{promotion.alias}"
        champion = last_move(entry_of(registry), promotion.alias)
        data, imported, converted = episodes_of(chain, source, importing, conversion)
        checked = chain.run("check", tasks.check, quality, dataset=data.ref)
        sides = chain.run("split", tasks.split, split, dataset=data.ref, output="split")
        pruned = chain.run("prune", tasks.prune, pruning, dataset=sides.train, output="pruned")
        learned_from, scored = _scored(chain, sweep, data, pruned.dataset)
        swept = chain.run("sweep", tasks.sweep, scored, dataset=learned_from, output="sweep")
        decided = chain.run(
            "decide",
            tasks.decide,
            decision.model_copy(update={"registry": entry_of(registry).uri} | ({"against": address} if champion else {})),
            dataset=sides.held_out,
            candidates=swept.checkpoints,
            output=f"decisions/{data.ref.fingerprint}-{_name(champion)}",
        )
    approved, moved = None, None
    if decided.verdict == "promote":
        answer = approval_of(decided, address) if approval else None
        if answer is None or answer.approve:
            approved = None if answer is None else answer.by
            signed = promotion if approved is None else promotion.model_copy(update={"moved_by": approved})
            moved = chain.run("promote", tasks.promote, signed, registry=registry, source=decided.uri)
    return chain.end(
        ImprovePolicyResult,
        registry=address,
        imported=imported,
        conversion=converted,
        quality=checked,
        split=sides,
        pruning=pruned,
        sweep=swept,
        decision=decided,
        approved_by=approved,
        promotion=moved,
    )


def _scored(chain: Chain, sweep: SweepConfig, data: Dataset, learned_from: DatasetRef) -> tuple[DatasetRef, SweepConfig]:
    """What is learned from, and the sweep with data to compare its runs by, if they are not played and it names none."""
    evaluation = sweep.training.evaluation
    is_played = evaluation.play and (evaluation.environment or data.manifest.environment) is not None
    if is_played or sweep.estimate_on or evaluation.held_out:
        return learned_from, sweep
    sides = chain.run(
        "hold out to compare",
        tasks.split,
        SplitConfig(held_out_fraction=SCORING_SHARE),
        dataset=learned_from,
        output=f"scoring/{learned_from.fingerprint}",  # a sweep reads the latest version
    )
    return sides.train, sweep.model_copy(update={"estimate_on": sides.held_out.uri})


def _name(champion: Move | None) -> str:
    return "behaviour" if champion is None else champion.fingerprint
