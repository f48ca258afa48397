"""Stage: the quality gate."""

from __future__ import annotations

from offline_core.quality.config import QualityConfig
from offline_core.quality.result import QualityReport
from offline_core.reporting.cards import quality_card
from offline_core.storage.location import Location
from tasks.artifacts import publish, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("check-dataset")
def check_dataset(config: QualityConfig, *, dataset: str, version: int | None = None) -> QualityReport:
    """Holds a dataset against the rules; leaves the findings as an artifact, and then stops the run if it fails."""
    from offline_core.quality import check as core

    with progress_shown():
        report = core.check_dataset(config, dataset=dataset, version=version)
    with telling():
        card = quality_card(
            rows={"Dataset": report.dataset, "Verdict": report.verdict},
            findings=[(finding.rule, finding.verdict, finding.message) for finding in report.findings],
            returns=(report.returns.edges, report.returns.counts),
            lengths=(report.lengths.edges, report.lengths.counts),
        )
        place = Location.of(report.dataset.uri).child(f"_checks/{report.dataset.version:06d}")
        publish(
            card,
            key="quality-card",
            operation="check_dataset",
            config=config,
            about=(report.dataset.uri, report.dataset.version),
            beside=[place] if report.dataset.version else [],  # nothing is put among other people's files
            reused=report.reused,
        )
    core.enforce(report, config)
    return report
