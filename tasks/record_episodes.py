"""Stage: record episodes of a policy."""

from __future__ import annotations

from prefect import task

from offline_core.recording.config import RecordingConfig
from offline_core.reporting.cards import episodes_card
from offline_core.storage.dataset import DatasetRef, open_dataset
from offline_core.storage.episode_index import episode_index
from tasks.artifacts import publish


@task(name="record-episodes", persist_result=True, result_serializer="json")
def record_episodes(config: RecordingConfig, *, policy: str, output: str) -> DatasetRef:
    """Plays the policy and commits one dataset version; leaves histograms of return and length as an artifact."""
    from offline_core.recording import record as core

    ref = core.record_episodes(config, policy=policy, output=output)
    index = episode_index(open_dataset(ref.uri, ref.version))
    rows = {
        "Dataset": f"{ref.uri} version {ref.version}",
        "Policy": policy,
        "Episodes": ref.episodes,
        "Steps": ref.steps,
        "Mean return": index["return"].mean(),
        "Bytes": ref.bytes,
        "Bytes per step": ref.bytes / ref.steps,
    }
    card = episodes_card("Recording", rows=rows, returns={"recorded": index["return"]}, lengths={"recorded": index["length"]})
    publish(card, key="recording-card")
    return ref
