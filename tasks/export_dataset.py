"""Stage: write a dataset in other people's formats."""

from __future__ import annotations

from prefect import task

from offline_core.conversion.exporting import ExportConfig, ExportResult
from offline_core.reporting.card import Card
from tasks.artifacts import publish


@task(name="export-dataset", persist_result=True, result_serializer="json")
def export_dataset(config: ExportConfig, *, dataset: str, output: str, version: int | None = None) -> ExportResult:
    """Writes all episodes in the format wanted; leaves how many as an artifact."""
    from offline_core.conversion import exporting as core

    result = core.export_dataset(config, dataset=dataset, output=output, version=version)
    rows = {"From": result.source, "To": result.output, "Format": result.format}
    publish(Card("Export", rows | {"Episodes": result.episodes, "Steps": result.steps}), key="export-card")
    return result
