"""Stage: record episodes of a policy."""

from __future__ import annotations

from offline_core.recording.config import RecordingConfig
from offline_core.storage.dataset import DatasetRef, open_dataset
from tasks.artifacts import publish_datasets
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("record-episodes")
def record_episodes(config: RecordingConfig, *, policy: str, output: str) -> DatasetRef:
    """Plays the policy and commits one dataset version; leaves histograms of return and length as an artifact."""
    from offline_core.recording import record as core

    with progress_shown():
        ref = core.record_episodes(config, policy=policy, output=output)
    statistics = open_dataset(ref.uri, ref.version).manifest.statistics
    rows = {
        "Dataset": f"{ref.uri} version {ref.version}",
        "Policy": policy,
        "Episodes": ref.episodes,
        "Steps": ref.steps,
        "Mean return": statistics.returns.mean,
        "Bytes": ref.bytes,
        "Bytes per step": ref.bytes / ref.steps,
    }
    publish_datasets(
        "Recording",
        {"recorded": ref},
        made=[ref],
        rows=rows,
        key="recording-card",
        operation="record_episodes",
        config=config,
        reused=False,
    )
    return ref
