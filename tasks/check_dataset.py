"""Stage: the quality gate."""

from __future__ import annotations

from prefect import task

from offline_core.quality.config import QualityConfig
from offline_core.quality.result import QualityReport
from offline_core.reporting.cards import quality_card
from tasks.artifacts import publish


@task(name="check-dataset", persist_result=True, result_serializer="json")
def check_dataset(config: QualityConfig, *, dataset: str, version: int | None = None) -> QualityReport:
    """Holds a dataset against the rules; leaves the findings as an artifact, and then stops the run if it fails."""
    from offline_core.quality import check as core

    report = core.check_dataset(config, dataset=dataset, version=version)
    card = quality_card(
        rows={"Dataset": report.dataset, "Verdict": report.verdict},
        findings=[(finding.rule, finding.verdict, finding.message) for finding in report.findings],
        returns=(report.returns.edges, report.returns.counts),
        lengths=(report.lengths.edges, report.lengths.counts),
    )
    publish(card, key="quality-card")
    core.enforce(report, config)
    return report
