"""Stage: keep the episodes worth learning from."""

from __future__ import annotations

from offline_core.pruning.config import PruningConfig
from offline_core.pruning.prune import PruningResult
from tasks.artifacts import publish_datasets, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("prune-dataset")
def prune_dataset(config: PruningConfig, *, dataset: str, output: str, version: int | None = None) -> PruningResult:
    """Copies the chosen episodes into a new version; leaves histograms before and after as an artifact."""
    from offline_core.pruning import prune as core

    with progress_shown():
        result = core.prune_dataset(config, dataset=dataset, output=output, version=version)
    with telling():
        rows = {
            "From": result.source,
            "To": result.dataset,
            "Episodes kept": f"{result.after.episodes:,} of {result.before.episodes:,}",
            "Steps kept": f"{result.after.steps:,} of {result.before.steps:,}",
            "Mean return": f"{result.before.returns.mean:.1f} before, {result.after.returns.mean:.1f} after",
            **{f"Dropped by {rule}": f"{episodes:,} episodes" for rule, episodes in result.dropped.items()},
        }
        publish_datasets(
            "Pruning",
            {"before": result.source, "after": result.dataset},
            made=[result.dataset],
            rows=rows,
            key="pruning-card",
            operation="prune_dataset",
            config=config,
            reused=result.reused,
        )
    return result
