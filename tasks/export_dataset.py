"""Stage: write a dataset in other people's formats."""

from __future__ import annotations

from offline_core.conversion.exporting import ExportConfig, ExportResult
from offline_core.reporting.card import Card
from offline_core.storage.location import Location
from tasks.artifacts import publish, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("export-dataset")
def export_dataset(config: ExportConfig, *, dataset: str, output: str, version: int | None = None) -> ExportResult:
    """Writes all episodes in the format wanted; leaves how many as an artifact."""
    from offline_core.conversion import exporting as core

    with progress_shown():
        result = core.export_dataset(config, dataset=dataset, output=output, version=version)
    with telling():
        rows = {"From": result.source, "To": result.output, "Format": result.format}
        place = core.result_place(config, output)
        folder = Location.of(output) if place is None else place.parent
        publish(
            Card("Export", rows | {"Episodes": result.episodes, "Steps": result.steps}),
            key="export-card",
            operation="export_dataset",
            config=config,
            about=(result.source.uri, result.source.version),
            beside=[folder.child("card")] if folder.is_folder() else [],  # a writer of the user's own may make a single file
            reused=result.reused,
        )
    return result
