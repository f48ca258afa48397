"""Stage: keep the episodes worth learning from."""

from __future__ import annotations

from prefect import task

from offline_core.pruning.config import PruningConfig
from offline_core.pruning.prune import PruningResult
from tasks.artifacts import publish_datasets


@task(name="prune-dataset", persist_result=True, result_serializer="json")
def prune_dataset(config: PruningConfig, *, dataset: str, output: str, version: int | None = None) -> PruningResult:
    """Copies the chosen episodes into a new version; leaves histograms before and after as an artifact."""
    from offline_core.pruning import prune as core

    result = core.prune_dataset(config, dataset=dataset, output=output, version=version)
    rows = {
        "Dataset": f"{result.dataset.uri} version {result.dataset.version}",
        "From": f"{result.source.uri} version {result.source.version}",
        "Rules": config.model_dump_json(exclude={"files"}, exclude_defaults=True),
        "Episodes kept": f"{result.after.episodes:,} of {result.before.episodes:,}",
        "Steps kept": f"{result.after.steps:,} of {result.before.steps:,}",
        "Mean return": f"{result.before.returns.mean:.1f} before, {result.after.returns.mean:.1f} after",
    }
    publish_datasets("Pruning", {"before": result.source, "after": result.dataset}, rows=rows, key="pruning-card")
    return result
