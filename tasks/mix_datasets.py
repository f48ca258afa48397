"""Stage: a dataset out of others, and of policies that play, by weight."""

from __future__ import annotations

from offline_core.recording.config import MixtureConfig
from offline_core.recording.result import MixtureResult
from tasks.artifacts import publish_datasets, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("mix-datasets")
def mix_datasets(config: MixtureConfig, *, output: str) -> MixtureResult:
    """Commits whole episodes of all sources by weight; leaves the share of each as an artifact."""
    from offline_core.recording import mixing as core

    with progress_shown():
        result = core.mix_datasets(config, output=output)
    with telling():
        rows: dict[str, object] = {uri: f"{steps:,} steps" for uri, steps in result.steps.items()}
        rows |= {"To": result.dataset, "All steps asked for": result.is_complete}
        publish_datasets(
            "Mixture",
            {"mixed": result.dataset},
            made=[result.dataset],
            rows=rows,
            key="mixture-card",
            operation="mix_datasets",
            config=config,
            reused=result.reused,
        )
    return result
