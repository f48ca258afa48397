"""Stage: record episodes of a policy."""

from __future__ import annotations

from prefect import task

from offline_core.recording.config import RecordingConfig
from offline_core.storage.dataset import DatasetRef, open_dataset
from tasks.artifacts import publish_datasets


@task(name="record-episodes", persist_result=True, result_serializer="json")
def record_episodes(config: RecordingConfig, *, policy: str, output: str) -> DatasetRef:
    """Plays the policy and commits one dataset version; leaves histograms of return and length as an artifact."""
    from offline_core.recording import record as core

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
    publish_datasets("Recording", {"recorded": ref}, rows=rows, key="recording-card")
    return ref
