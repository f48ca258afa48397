"""Stage: several datasets become one."""

from __future__ import annotations

from offline_core.pruning.config import MergeConfig
from offline_core.pruning.merge import MergeResult
from tasks.artifacts import publish_datasets, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("merge-datasets")
def merge_datasets(config: MergeConfig, *, datasets: list[str], output: str) -> MergeResult:
    """Commits the episodes of all datasets, each once; leaves what came from where as an artifact."""
    from offline_core.pruning import merge as core

    with progress_shown():
        result = core.merge_datasets(config, datasets=datasets, output=output)
    with telling():
        rows: dict[str, object] = {f"From {i}": ref for i, ref in enumerate(result.sources, 1)}
        rows |= {"To": result.dataset, "Duplicates": result.duplicates}
        publish_datasets(
            "Merge",
            {"merged": result.dataset},
            made=[result.dataset],
            rows=rows,
            key="merge-card",
            operation="merge_datasets",
            config=config,
            reused=result.reused,
        )
    return result
