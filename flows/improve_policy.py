"""Flow: from new logs to a better policy in the registry, or to the reason why there is none."""

from flows.approval import approval_of
from flows.local_flow import flow
from flows.seeds import seed_of
from flows.sources import episodes_of
from offline_core.data.curation.config import PruningConfig, SplitConfig
from offline_core.data.curation.converting import ConversionResult
from offline_core.data.curation.prune import PruningResult
from offline_core.data.curation.split import SplitResult
from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_dataset
from offline_core.data.importing.config import ConversionConfig, ImportConfig
from offline_core.data.importing.report import ImportResult
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import QualityReport
from offline_core.data.store.location import Location
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.result import DecisionResult
from offline_core.judging.estimation.estimators import weighing
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.result import SweepResult
from offline_core.keeping.promotion.config import PromotionConfig
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.policies.registry.history import entry_of, last_move
from offline_core.policies.registry.move import Move
from offline_core.runtime.ray_session import ray_scope
from offline_core.runtime.reporting.card import Card
from tasks import stages as tasks
from tasks.chain import ChainResult, Stages, reading, summarize_chain
from tasks.crash import crashing

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
        judged = {f"Candidate {rank}": each for rank, each in enumerate((e for e in decided.candidates if e.judged), 1)}
        told = decided.card()
        return self.chain_card(
            "Improve policy",
            told,
            returns={
                "recorded": decided.recorded,
                **{f"{name} (wdr)": each.estimates["wdr"] for name, each in judged.items() if "wdr" in each.estimates},
            },
            checkpoint=decided.checkpoint if moved is None else moved.checkpoint,
            details={
                "Against": decided.against,
                "Registry": self.registry,
                "Moved": moved is not None,
                **{name: f"{each.name}, {each.judged}" for name, each in judged.items()},
            },
            next=told.next if moved is None else moved.card().next,
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
        importing: The format of the logs, what their columns mean, how rows become episodes.
        conversion: How a table of steps becomes episodes.
        quality: What the episodes have to meet; the run stops at others.
        split: Which share of the episodes decides.
        pruning: Which of the others are learned from.
        sweep: The candidates: each setting is one, by its best run.
        decision: How they are held against the champion; what decision.against names is used while there is none.
        promotion: Which alias is moved, champion by default.
    """
    place, seeded, stages = Location.of(root), {"seed": seed_of(seed)}, Stages()
    address = f"{entry_of(registry).uri}@{promotion.alias}"
    champion = last_move(entry_of(registry), promotion.alias)
    with place.make_folder().locked(), crashing(), ray_scope():
        data, imported, converted = episodes_of(stages, source, importing, conversion, place)
        checked = stages.run("check", tasks.check, quality, **reading(data.ref))
        sides = stages.run(
            "split", tasks.split, split.model_copy(update=seeded), **reading(data.ref), output=place.child("split").uri
        )
        pruned = stages.run("prune", tasks.prune, pruning, **reading(sides.train), output=place.child("pruned").uri)
        learned_from, scored = _scored(stages, sweep.model_copy(update=seeded), data, pruned.dataset, place)
        swept = stages.run("sweep", tasks.sweep, scored, **reading(learned_from), output=place.child("sweep").uri)
        decided = stages.run(
            "decide",
            tasks.decide,
            decision.model_copy(update=seeded | ({"against": address} if champion else {})),
            **reading(sides.held_out),
            candidates=swept.checkpoints,
            output=place.child(f"decisions/{data.ref.fingerprint}-{_name(champion)}").uri,
        )
    approved, moved = None, None
    if decided.verdict == "promote":
        answer = approval_of(decided, address) if approval else None
        if answer is None or answer.approve:
            approved = None if answer is None else answer.by
            signed = promotion if approved is None else promotion.model_copy(update={"moved_by": approved})
            moved = stages.run("promote", tasks.promote, signed, registry=registry, source=decided.uri)
    result = ImprovePolicyResult(
        reused=stages.outcomes[-1].reused,  # it is made of what all others made
        root=place.uri,
        registry=address,
        stages=stages.outcomes,
        seconds=stages.seconds,
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
    summarize_chain(
        "improve_policy",
        result,
        parameters={
            "importing": importing,
            "conversion": conversion,
            "quality": quality,
            "split": split,
            "pruning": pruning,
            "sweep": sweep,
            "decision": decision,
            "promotion": promotion,
        },
    )
    return result


def _scored(
    stages: Stages, sweep: SweepConfig, data: Dataset, learned_from: DatasetRef, place: Location
) -> tuple[DatasetRef, SweepConfig]:
    """What is learned from, and the sweep with data to compare its runs by, if they are not played and it names none."""
    from offline_core.judging.estimation.logged import has_probabilities

    evaluation = sweep.training.evaluation
    is_played = evaluation.play and (evaluation.environment or data.manifest.environment) is not None
    if is_played or sweep.estimate_on or evaluation.held_out:
        return learned_from, sweep
    sides = stages.run(
        "hold out to compare",
        tasks.split,
        SplitConfig(held_out_fraction=SCORING_SHARE, seed=sweep.seed),
        **reading(learned_from),
        output=place.child(f"scoring/{learned_from.fingerprint}").uri,  # a sweep reads the latest version
    )
    estimate = sweep.estimate
    if estimate.behaviour is None and weighing(estimate.methods) and not has_probabilities(open_dataset(sides.held_out.uri)):
        estimate = estimate.model_copy(update={"methods": ["fqe"], "gate_method": "fqe"})
    return sides.train, sweep.model_copy(update={"estimate_on": sides.held_out.uri, "estimate": estimate})


def _name(champion: Move | None) -> str:
    return "behaviour" if champion is None else champion.fingerprint
