"""Stage: the same episodes in files of another size."""

from __future__ import annotations

from offline_core.pruning.compact import CompactionResult
from offline_core.pruning.config import CompactionConfig
from tasks.artifacts import publish_datasets, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("compact-dataset")
def compact_dataset(config: CompactionConfig, *, dataset: str, output: str, version: int | None = None) -> CompactionResult:
    """Copies all episodes into files of the size wanted; leaves how many there were and are as an artifact."""
    from offline_core.pruning import compact as core

    with progress_shown():
        result = core.compact_dataset(config, dataset=dataset, output=output, version=version)
    with telling():
        rows = {
            "From": result.source,
            "To": result.dataset,
            "Files": f"{result.files_before:,} before, {result.files_after:,} after",
        }
        publish_datasets(
            "Compaction",
            {"compacted": result.dataset},
            made=[result.dataset],
            rows=rows,
            key="compaction-card",
            operation="compact_dataset",
            config=config,
            reused=result.reused,
        )
    return result
