"""Stage: keep the episodes worth learning from."""

from __future__ import annotations

from prefect import task

from offline_core.pruning.config import PruningConfig
from offline_core.pruning.prune import PruningResult
from offline_core.reporting.cards import episodes_card
from offline_core.storage.dataset import open_dataset
from offline_core.storage.episode_index import episode_index
from tasks.artifacts import publish


@task(name="prune-dataset", persist_result=True, result_serializer="json")
def prune_dataset(config: PruningConfig, *, dataset: str, output: str, version: int | None = None) -> PruningResult:
    """Copies the chosen episodes into a new version; leaves histograms before and after as an artifact."""
    from offline_core.pruning import prune as core

    result = core.prune_dataset(config, dataset=dataset, output=output, version=version)
    before, after = (episode_index(open_dataset(ref.uri, ref.version)) for ref in (result.source, result.dataset))
    rows = {
        "Dataset": f"{result.dataset.uri} version {result.dataset.version}",
        "From": f"{result.source.uri} version {result.source.version}",
        "Where": config.where or "everything",
        "Top fraction": "all" if config.keep_top_fraction is None else f"{config.keep_top_fraction:.0%}",
        "Episodes kept": f"{result.after.episodes:,} of {result.before.episodes:,}",
        "Steps kept": f"{result.after.steps:,} of {result.before.steps:,}",
        "Mean return": f"{result.before.returns.mean:.1f} before, {result.after.returns.mean:.1f} after",
    }
    groups = {name: {"before": before[name], "after": after[name]} for name in ("return", "length")}
    publish(episodes_card("Pruning", rows=rows, returns=groups["return"], lengths=groups["length"]), key="pruning-card")
    return result
