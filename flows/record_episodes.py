"""Flow: record episodes of a policy."""

from __future__ import annotations

from prefect import flow

from offline_core.ray_session import ray_session
from offline_core.recording.config import RecordingConfig
from offline_core.storage.dataset import DatasetRef
from tasks.record_episodes import record_episodes as record_episodes_task


@flow(name="record-episodes", flow_run_name="record-{config.episodes}x{config.rounds}-{config.format}")
def record_episodes(
    policy: str = "runs/expert/best", output: str = "runs/recording", config: RecordingConfig = RecordingConfig()
) -> DatasetRef:
    """Records complete episodes of a policy as the next version of a dataset.

    Args:
        policy: Checkpoint of the policy to play.
        output: Folder of the dataset.
        config: How many episodes, by how many recorders, in which format.
    """
    with ray_session():
        return record_episodes_task(config, policy=policy, output=output)
