"""The card of each stage, from its result and what it was called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offline_core.data.curation.compact import CompactionResult
from offline_core.data.curation.config import SplitConfig
from offline_core.data.curation.converting import ConversionResult
from offline_core.data.curation.merge import MergeResult
from offline_core.data.curation.prune import PruningResult
from offline_core.data.curation.split import SplitResult
from offline_core.data.formats.exporting import ExportConfig, ExportResult
from offline_core.data.formats.publishing import PublishResult
from offline_core.data.importing.config import ConversionConfig
from offline_core.data.importing.report import ImportResult
from offline_core.data.quality.result import QualityReport
from offline_core.data.store.location import Location
from offline_core.judging.estimation.config import OffPolicyConfig
from offline_core.judging.estimation.result import OffPolicyResult
from offline_core.keeping.homepage.config import ReportResult
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.keeping.retention.vacuum import VacuumResult
from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.result import ExpertResult
from offline_core.learning.fine_tuning.config import FineTuneConfig
from offline_core.learning.fine_tuning.result import FineTuneResult
from offline_core.learning.result import TrainingResult
from offline_core.policies.evaluation.config import EvaluationConfig
from offline_core.policies.evaluation.result import EPISODE_METRICS, EvaluationResult
from offline_core.policies.export_config import Latency, PolicyExportResult
from offline_core.policies.recording.result import MixtureResult, RecorderShare, RecordingResult
from offline_core.policies.registry.history import HISTORY, entry_of
from offline_core.runtime.reporting.card import MARKS, Card
from offline_core.runtime.reporting.cards import (
    episodes_card,
    estimates_card,
    expert_card,
    quality_card,
    returns_rows,
    training_card,
)
from offline_core.runtime.reporting.values import return_text
from offline_core.runtime.units import duration_text, size_text
from tasks.artifacts import Page, datasets_page
from tasks.decision_card import decide
from tasks.outliers_card import outliers
from tasks.sweep_card import sweep

MOST_LISTED = 50
"""Versions on a card."""


def _train_expert(result: ExpertResult, config: ExpertConfig, *, output: str) -> Page:
    rows = {
        "Environment": config.environment.id,
        "Checkpoint": result.checkpoint,
        **returns_rows(result.metrics),
        "Target": "none" if result.target_return is None else result.target_return,
        "Target reached": result.reached_target,
        "Environment steps": result.env_steps,
        "Time": duration_text(result.seconds),
    } | ({} if result.recording is None else {"Recording": f"{result.recording}, actions sampled"})
    card = expert_card(rows=rows, curve=result.curve, target=result.target_return)
    return Page(card, (result.checkpoint, None), [Location.of(output).child("card")])


def _record_episodes(result: RecordingResult, config: object, *, policy: str, **_: object) -> Page:
    ref, statistics = result.dataset, result.statistics
    rows: dict[str, object] = {
        "Dataset": ref,
        "Policy": f"{policy}, fingerprint {result.policy}",
        "Environment": result.environment,
        "Return": return_text(statistics.returns.mean, statistics.returns.std, statistics.episodes, result.actions),
        **({"Greedy return": f"{result.greedy_return:.1f}; set explore to false for it"} if result.is_below_greedy else {}),
        "Terminated": f"{statistics.terminated:,} of {statistics.episodes:,} episodes, {statistics.truncated:,} truncated",
        "Bytes per step": ref.bytes / ref.steps,
        "Time": duration_text(result.seconds),
        **({} if result.export is None else {"Exported": f"{result.export.output}, as {result.export.format}"}),
        **{f"Recorder {number}": _share(recorder) for number, recorder in enumerate(result.recorders, 1)},
    }
    return datasets_page("Recording", rows, {"recorded": ref})


def _share(recorder: RecorderShare) -> str:
    speed = recorder.steps / max(recorder.seconds, 1e-9)
    where = recorder.node if recorder.node == "here" else f"on {recorder.node}"
    return f"{recorder.episodes:,} episodes, {recorder.steps:,} steps {where}, {speed:,.0f} steps a second"


def _import_dataset(result: ImportResult, config: object, *, source: str | list[str], output: str) -> Page:
    counts: dict[str, object] = {name: count for name, count in result.counts.model_dump().items() if count}
    if result.counts.quarantined_files:  # the number of rows in unreadable parts of files is unknown
        counts |= {name: f"at least {getattr(result.counts, name):,}" for name in ("rows", "quarantined_rows")}
    rows: dict[str, object] = {
        "Source": source,
        "Dataset": result.dataset,
        **{name.replace("_", " ").capitalize(): count for name, count in counts.items()},
        "Observation space": result.observation_space,
        "Action space": result.action_space,
    }
    if result.notes:
        rows["Notes"] = " ".join(result.notes)
    if result.replaced:
        rows["Replaces"] = result.replaced
    if result.quarantine:
        rows["Not read, and why"] = result.quarantine
    return datasets_page("Import", rows, {"imported": result.dataset})


def _convert_table(result: ConversionResult, config: ConversionConfig, **_: object) -> Page:
    before, after = (ref.bytes / max(1, ref.steps) for ref in (result.source, result.dataset))
    rows = {
        "From": result.source,
        "To": result.dataset,
        "Format": config.format,
        "Bytes per step": f"{before:.1f} before, {after:.1f} after",
    }
    return datasets_page("Conversion", rows, {"converted": result.dataset})


def _check_dataset(report: QualityReport, config: object, **_: object) -> Page:
    ref = report.dataset
    card = quality_card(
        rows={"Dataset": ref},
        findings=[(each.rule, each.outcome, each.message) for each in report.findings],
        returns=(report.returns.edges, report.returns.counts),
        lengths=(report.lengths.edges, report.lengths.counts),
    )
    # Nothing is written next to files that are not a version of this pipeline.
    beside = [Location.of(ref.uri).child(f"_checks/{ref.version:06d}")] if ref.version else []
    return Page(card, (ref.uri, ref.version), beside)


def _prune_dataset(result: PruningResult, config: object, **_: object) -> Page:
    before, after = result.before, result.after
    rows = {
        "From": result.source,
        "To": result.dataset,
        "Episodes kept": f"{after.episodes:,} of {before.episodes:,}",
        "Steps kept": f"{after.steps:,} of {before.steps:,}",
        "Mean return": f"{before.returns.mean:.1f} before, {after.returns.mean:.1f} after",
        **{f"Dropped by {rule}": f"{episodes:,} episodes" for rule, episodes in result.dropped.items()},
    }
    return datasets_page("Pruning", rows, {"before": result.source, "after": result.dataset}, made=[result.dataset])


def _compact_dataset(result: CompactionResult, config: object, **_: object) -> Page:
    files = f"{result.files_before:,} before, {result.files_after:,} after"
    rows = {"From": result.source, "To": result.dataset, "Files": files}
    return datasets_page("Compaction", rows, {"compacted": result.dataset})


def _split_dataset(result: SplitResult, config: SplitConfig, **_: object) -> Page:
    rows = {"From": result.source, "To train on": result.train, "Held out": result.held_out, "Seed": config.seed}
    return datasets_page("Split", rows, {"train": result.train, "held out": result.held_out})


def _merge_datasets(result: MergeResult, config: object, **_: object) -> Page:
    sources = {f"From {i}": ref for i, ref in enumerate(result.sources, 1)}
    rows = {**sources, "To": result.dataset, "Duplicates": result.duplicates}
    return datasets_page("Merge", rows, {"merged": result.dataset})


def _mix_datasets(result: MixtureResult, config: object, **_: object) -> Page:
    shares = {uri: f"{steps:,} steps" for uri, steps in result.steps.items()}
    rows = {**shares, "To": result.dataset, "All steps asked for": result.is_complete}
    return datasets_page("Mixture", rows, {"mixed": result.dataset})


def _export_dataset(result: ExportResult, config: ExportConfig, *, output: str, **_: object) -> Page:
    from offline_core.data.formats.exporting import result_place

    rows = {"From": result.source, "To": result.output, "Format": result.format}
    place = result_place(config, output)
    folder = Location.of(output) if place is None else place.parent
    return Page(
        Card("Export", rows | {"Episodes": result.episodes, "Steps": result.steps}),
        (result.source.uri, result.source.version),
        [folder.child("card")] if folder.is_folder() else [],  # a user's writer may make a single file
    )


def _train_policy(result: TrainingResult, config: TrainingConfig, *, output: str, **_: object) -> Page:
    from offline_core.learning.metrics import series

    rows = {
        "Algorithm": str(config.algorithm),
        "Checkpoint": result.checkpoint,
        "Dataset": result.dataset,
        **returns_rows(result.metrics),
        "Target": "none" if result.target_return is None else result.target_return,
        "Target reached": result.reached_target,
        **{f"{MARKS['warning']} warning {number}": warning for number, warning in enumerate(result.warnings, 1)},
        **{name.replace("_", " ").capitalize(): value for name, value in result.training_metrics.items()},
        **({} if result.recorded_return is None else {"Recorded return, beside Q": result.recorded_return}),
        "Updates": result.updates,
        "Epochs": result.epochs,
        "Steps per second": int(result.steps_per_second),
        "Bottleneck": result.bottleneck,
        "Time": duration_text(result.seconds),
    }
    card = training_card(
        rows=rows,
        losses=result.losses,
        held_out=result.held_out_losses,
        curve=result.curve,
        target=result.target_return,
        effective_sample_size=series(Location.of(output), "effective_sample_size"),
        seconds={
            "loading": result.load_seconds,
            "waiting for data": result.data_wait_seconds,
            "gathering batches": result.gather_seconds,
            "updating": result.update_seconds,
        },
    )
    return Page(card, (result.checkpoint, None), [Location.of(output).child("card")])


def _fine_tune_policy(result: FineTuneResult, config: FineTuneConfig, *, output: str, **_: object) -> Page:
    rows = {
        "Checkpoint": result.checkpoint,
        "Return": f"{result.start_return:.1f} at the start, {result.mean_return:.1f} of the best",
        **returns_rows(result.metrics),
        "Target": "none" if result.target_return is None else result.target_return,
        "Target reached": result.reached_target,
        "Environment steps": result.env_steps,
        "Updates": result.updates,
        "Rolled back": f"{result.rollbacks:,} times",
        "Time": duration_text(result.seconds),
    }
    card = expert_card(rows=rows, curve=result.curve, target=result.target_return, title="Fine-tuning")
    return Page(card, (result.checkpoint, None), [Location.of(output).child("card")])


def _evaluate_policy(result: EvaluationResult, config: EvaluationConfig, **_: object) -> Page:
    rows = {
        "Policy": result.checkpoint,
        "Environment": result.environment,
        **returns_rows(result.metrics, actions=result.actions),
        **{f"Metric {name}": value for name, value in result.metrics.items() if name not in EPISODE_METRICS},
        "Time": duration_text(result.seconds),
    }
    card = episodes_card("Evaluation", rows=rows, episodes=lambda: {"played": (result.returns, result.lengths)})
    return Page(card, (result.checkpoint, None), [Location.of(result.uri.removesuffix(".json"))])


def _estimate_policy(result: OffPolicyResult, config: OffPolicyConfig, **_: object) -> Page:
    required = "nothing" if config.require_return is None else f"{config.require_return:g} by {config.gate_method}"
    card = estimates_card(
        rows={
            "Policy": result.checkpoint,
            "Dataset": result.dataset,
            "Weighed by": result.behaviour or "the recorded action_logp",
            "Actions": "sampled" if result.explore else "greedy",
            "Discount": f"{result.gamma:g}",
            "Horizon": result.told_horizon,
            "Intervals": f"{100 * result.confidence:g} % of {config.resamples:,} resamples of episodes",
            "Required": required,
        },
        recorded=(result.recorded.value, result.recorded.low, result.recorded.high),
        estimates={name: (each.value, each.low, each.high) for name, each in result.estimates.items()},
        sizes={
            name: (each.effective_episodes, each.largest_weight or 0.0)
            for name, each in result.estimates.items()
            if each.effective_episodes is not None
        },
        episodes=result.dataset.episodes,
        required=config.require_return,
        warnings=result.warnings,
    )
    return Page(card, (result.checkpoint, None), [Location.of(result.uri.removesuffix(".json"))])


def _promote_policy(result: PromotionResult, config: object, *, registry: str, **_: object) -> Page:
    move, entry = result.move, entry_of(registry)
    rows: dict[str, object] = {
        "Address": result.address,
        "Names now": f"{result.checkpoint}, fingerprint {move.fingerprint}",
        "Copied from": move.source,
        "Named before": "nothing" if move.previous is None else entry.child(move.previous).uri,
        "Move": f"{move.number}, {move.kind}, {move.moved_at:%Y-%m-%d %H:%M} UTC by {move.moved_by}",
        "Because": move.because,
    }
    if move.evidence is not None:
        rows["Decision"] = f"{move.evidence.decision}: {move.evidence.verdict}, against {move.evidence.against}"
    return Page(Card("Promotion", rows), (result.checkpoint, None), [entry.child(f"{HISTORY}/{move.number:06d}")])


def _rollback_policy(result: PromotionResult, config: object, *, registry: str) -> Page:
    page = _promote_policy(result, config, registry=registry)
    return page._replace(card=Card("Rollback", page.card.rows))


def _vacuum(result: VacuumResult, config: object, *, root: str) -> Page:
    freed = size_text(result.freed_bytes)
    rows: dict[str, object] = {
        "Root": result.root,
        "Deleted" if result.deleted else "Would be deleted": f"{len(result.removed):,} versions, {freed}",
        "Files of no version": f"{len(result.leftovers):,}",
        "Kept": f"{len(result.kept):,} versions",
        **({"Left alone, as other runs write there": ", ".join(result.busy)} if result.busy else {}),
        **{f"{each.uri} version {each.version}": each.reason for each in result.removed[:MOST_LISTED]},
    }
    return Page(Card("Vacuum", rows), (result.root, None), [Location.of(root).child("_cards/vacuum")])


def _export_policy(result: PolicyExportResult, config: object, *, output: str, **_: object) -> Page:
    rows: dict[str, object] = {
        "Policy": result.policy,
        "Export": result.output,
        "Compared on": f"{result.observations_compared:,} observations",
    }
    for format, model in result.models.items():
        rows[f"{format}: largest difference"] = f"{model.max_abs_difference:.2g}"
        rows |= {f"{format}: {batch}, µs": _percentiles(latency) for batch, latency in model.latency.items()}
    rows |= {f"policy: {batch}, µs": _percentiles(latency) for batch, latency in result.policy_latency.items()}
    card = Card("Exported policy", rows | {"Time": duration_text(result.seconds)})
    return Page(card, (result.policy, None), [Location.of(output).child("card")])


def _publish_dataset(result: PublishResult, config: object, **_: object) -> Page:
    rows = {"Dataset": result.dataset, "Format": result.format, "Table": result.table}
    return Page(Card("Published table", rows), (result.dataset.uri, result.dataset.version), [])


def _report(result: ReportResult, config: object, **_: object) -> Page:
    rows: dict[str, object] = {
        "Page": result.uri,
        "Root": result.root,
        "Datasets": f"{result.datasets:,}, {result.versions:,} versions",
        "Experiments": result.runs,
        "Policies": result.policies,
        "Episodes": f"{result.episodes:,} listed, {result.episodes_with_steps:,} with their steps",
        "Size": f"{result.bytes:,} bytes",
        **{f"Not read {number}": problem for number, problem in enumerate(result.problems[:MOST_LISTED], 1)},
    }
    return Page(Card("Report", rows), (result.root, None), [])


def _percentiles(latency: Latency) -> str:
    return f"p50 {latency.p50_microseconds:g}, p99 {latency.p99_microseconds:g}"


CARDS: Mapping[str, Callable[..., Page]] = {
    function.__name__.removeprefix("_"): function
    for function in (
        _train_expert,
        _record_episodes,
        _import_dataset,
        _convert_table,
        _check_dataset,
        outliers,
        _prune_dataset,
        _compact_dataset,
        _split_dataset,
        _merge_datasets,
        _mix_datasets,
        _export_dataset,
        _publish_dataset,
        _train_policy,
        _fine_tune_policy,
        sweep,
        _evaluate_policy,
        _estimate_policy,
        decide,
        _promote_policy,
        _rollback_policy,
        _vacuum,
        _report,
        _export_policy,
    )
}
"""By operation."""
