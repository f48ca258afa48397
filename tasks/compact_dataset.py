"""Stage: the same episodes in files of another size."""

from __future__ import annotations

from prefect import task

from offline_core.pruning.compact import CompactionResult
from offline_core.pruning.config import CompactionConfig
from tasks.artifacts import publish_datasets


@task(name="compact-dataset", persist_result=True, result_serializer="json")
def compact_dataset(config: CompactionConfig, *, dataset: str, output: str, version: int | None = None) -> CompactionResult:
    """Copies all episodes into files of the size wanted; leaves how many there were and are as an artifact."""
    from offline_core.pruning import compact as core

    result = core.compact_dataset(config, dataset=dataset, output=output, version=version)
    rows = {
        "From": result.source,
        "To": result.dataset,
        "Files": f"{result.files_before:,} before, {result.files_after:,} after",
    }
    publish_datasets("Compaction", {"compacted": result.dataset}, rows=rows, key="compaction-card")
    return result
