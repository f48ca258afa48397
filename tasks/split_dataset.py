"""Stage: hold some episodes out."""

from __future__ import annotations

from offline_core.pruning.config import SplitConfig
from offline_core.pruning.split import SplitResult
from tasks.artifacts import publish_datasets, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("split-dataset")
def split_dataset(config: SplitConfig, *, dataset: str, output: str, version: int | None = None) -> SplitResult:
    """Commits a part to train on and a part to hold out; leaves the histograms of both as an artifact."""
    from offline_core.pruning import split as core

    with progress_shown():
        result = core.split_dataset(config, dataset=dataset, output=output, version=version)
    with telling():
        rows = {"From": result.source, "To train on": result.train, "Held out": result.held_out, "Seed": config.seed}
        publish_datasets(
            "Split",
            {"train": result.train, "held out": result.held_out},
            made=[result.train, result.held_out],
            rows=rows,
            key="split-card",
            operation="split_dataset",
            config=config,
            reused=result.reused,
        )
    return result
