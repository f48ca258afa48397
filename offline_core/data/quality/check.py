"""The quality gate: one pass over a dataset, in front of all rules."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from offline_core.data.datasets.damage import damaged_files, state_of, unusable_files
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.held_out import judged_by
from offline_core.data.datasets.result_cache import StoredResult, stored_result
from offline_core.data.datasets.statistics import Statistics, StatisticsBuilder
from offline_core.data.episodes import columns
from offline_core.data.importing.ends import IMPORT
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.episode_rules import (
    AfterEnd,
    DuplicateContents,
    DuplicateIds,
    EmptyDataset,
    HeldOutOverlap,
    ObservationChain,
    OpenEpisodes,
    StepOrder,
    TimeJumps,
    TimeLimits,
)
from offline_core.data.quality.result import CHECKS, SEVERITY, Finding, Histogram, QualityReport
from offline_core.data.quality.rule import Rule, UserRule, check_names
from offline_core.data.quality.rules import (
    ConstantFeatures,
    ForbiddenActions,
    MixedTypes,
    NonFinite,
    ObservedOutcomes,
    OutsideSpace,
    SaturatedActions,
)
from offline_core.data.quality.steps import step_batches
from offline_core.errors import CorruptFileError, QualityError
from offline_core.runtime.progress import progress
from offline_core.runtime.stage import DATASET, VERSION, Made, stage

log = logging.getLogger(__name__)

_WITHOUT_STATISTICS = {columns.NEW_OBS, columns.T, columns.TERMINATEDS, columns.TRUNCATEDS}


def enforce(report: QualityReport, config: QualityConfig) -> None:
    """Stops at a dataset that is worse than `config.stop_on` allows.

    Raises:
        QualityError: listing the findings, the first place of each, and what to do.
    """
    if broken := _broken(report, config.stop_on):
        lines = [f"{report.dataset} breaks {len(broken)} of {len(report.findings)} rules:"]
        lines += [f"  {finding}" for finding in broken]
        lines.append("Correct the data, or set stop_on to 'never' to go on with it as it is.")
        raise QualityError("\n".join(lines))


@stage(
    "check",
    version=8,
    after="convert",
    arguments=(DATASET, VERSION),
    hint="The exit code is 1 if it fails.",
    event="dataset.passed",
    gate=enforce,
    returns_failures=True,
)
def check(
    config: QualityConfig, *, dataset: str, version: int | None = None, rules: Sequence[Rule] | None = None
) -> Made[QualityReport]:
    """Check every step of a dataset by the quality rules, and stop if it fails.

    What they find is reported, and raised by `enforce` alone. The report is stored with the data, at
    `<dataset>/_checks/<version>.json`, if the dataset has a manifest.

    Arguments:
        dataset: URI of a dataset, or of a foreign folder of episode files.
        version: the latest if None.
        rules: instead of `default_rules(config)` and the user's; new objects each time, as a rule counts what it sees.

    Raises:
        ConfigError: a user's rule cannot be made, or returns no finding with a name of its own.
        DataError: such a rule failed, and so cannot judge; the message names it.
        CorruptFileError: a file is not there, or its SHA-256 is not that of the manifest; the message names it.
        DataError: something cannot be read, and so cannot be judged; the message names the file.
    """
    opened = open_dataset(dataset, version)
    held_out = None if config.held_out is None else open_dataset(config.held_out)
    looked_at = [dataset for dataset in (opened, held_out) if dataset is not None]
    by_name = {f"{source.location.uri}@{source.manifest.version}": source for source in looked_at}

    def fingerprint(name: str) -> str | None:
        """Files that were written again since are hashed again, whatever their footers say."""
        return None if name not in by_name or unusable_files(by_name[name]) else state_of(by_name[name])

    yield StoredResult(
        QualityReport,
        opened.location.child(CHECKS),
        [source.parent_entry for source in looked_at],
        fingerprint,
        outputs=lambda _: by_name,
        config=config,
        exclude={"held_out"},
        name=_name(opened),
        is_beside=True,
        may_reuse=rules is None and not opened.is_foreign,  # rules of one's own are not told
    )
    for source in looked_at:
        _refuse_damaged(source)
    own = [UserRule(rule, opened.ref) for rule in config.rules] if rules is None else []
    chosen = [*default_rules(config, held_out, about=opened), *own] if rules is None else rules
    builder = StatisticsBuilder()
    parts: list[dict[str, np.ndarray]] = []
    with progress(opened.ref.steps or None, what="check", unit="step") as bar:
        for steps in step_batches(opened):
            for rule in chosen:
                rule.look(steps)
            builder.add(
                {name: leaf for name, leaf in steps.columns.items() if name.partition("/")[0] not in _WITHOUT_STATISTICS}
            )
            parts.append(
                {
                    columns.RETURN: steps.returns(),
                    columns.LENGTH: steps.lengths,
                    columns.TERMINATED: steps.any_in_piece(steps.terminated),
                    columns.TRUNCATED: steps.any_in_piece(steps.truncated),
                }
            )
            bar.update(len(steps))
    statistics = Statistics.of(parts, builder)
    returns, lengths = (
        np.concatenate([part[name] for part in parts]) if parts else np.zeros(0) for name in (columns.RETURN, columns.LENGTH)
    )
    findings = [rule.finding(statistics.columns or {}) for rule in chosen]
    check_names(findings, own)
    report = QualityReport(
        dataset=opened.ref,
        verdict=max((finding.verdict for finding in findings), key=SEVERITY.__getitem__, default="pass"),
        findings=findings,
        statistics=statistics,
        returns=Histogram.of(returns),
        lengths=Histogram.of(lengths),
        config=config,
        judged_by=judged_by(opened),
    )
    log.info("%s: %s, %d of %d rules are broken", opened.ref, report.verdict, len(_broken(report, "warn")), len(findings))
    return report


def default_rules(config: QualityConfig, held_out: Dataset | None = None, *, about: Dataset | None = None) -> list[Rule]:
    """One of each rule; reads the held-out dataset, if there is one.

    Arguments:
        about: the dataset that is checked, whose import says what was declared and what numbers are called.
    """
    rules: list[Rule] = [
        EmptyDataset(),
        MixedTypes(),
        NonFinite(),
        OutsideSpace(columns.ACTIONS),
        OutsideSpace(columns.OBS),
        ForbiddenActions(),
        ConstantFeatures(None if about is None else about.manifest.input_columns),
        ObservedOutcomes(None if about is None else about.manifest.input_columns),
        SaturatedActions(config.max_saturated_fraction),
        StepOrder(),
        TimeJumps(is_declared=about is not None and _declares_max_gap(about)),
        AfterEnd(),
        ObservationChain(),
        OpenEpisodes(),
        TimeLimits(config.max_time_limit_fraction),
        DuplicateIds(),
        DuplicateContents(config.max_duplicate_fraction),
    ]
    if held_out is not None:
        rules.append(HeldOutOverlap(held_out.location.uri, step_batches(held_out)))
    return rules


def last_report(dataset: Dataset) -> QualityReport | None:
    """What the last check of this version found; None if there was none that can be read, or files were written again since."""
    location = dataset.location.child(f"{CHECKS}/{_name(dataset)}")
    if (stored := stored_result(location, QualityReport)) is None:
        return None
    report, made = stored
    if state_of(dataset) not in made.values():
        log.warning("%s: files were written again since it was checked. Check it again.", dataset.ref)
        return None
    return report


def _name(dataset: Dataset) -> str:
    return f"{dataset.manifest.version:06d}.json"


def _declares_max_gap(dataset: Dataset) -> bool:
    operation = dataset.manifest.operation
    return operation.stage == IMPORT and operation.config.get("episodes", {}).get("max_gap") is not None


def _refuse_damaged(dataset: Dataset) -> None:
    if dataset.is_foreign:
        return  # its hashes were taken just now
    if damaged := damaged_files(dataset):
        path, wrong = next(iter(damaged.items()))
        raise CorruptFileError(
            f"{dataset.ref}: {len(damaged)} of its {len(dataset.manifest.files)} files are not what was written; first "
            f"{dataset.location.child(path).uri}, which {wrong}. Restore them from a copy, or make the version again; "
            "'offline verify' lists them all."
        )


def _broken(report: QualityReport, stop_on: str) -> list[Finding]:
    return [finding for finding in report.findings if SEVERITY[finding.verdict] >= SEVERITY[stop_on]]
