"""Flow: record episodes of a policy."""

from flows.events import announce
from flows.local_flow import flow
from flows.seeds import seed_of
from offline_core.policies.recording.config import RecordingConfig, RecordingExport
from offline_core.policies.recording.result import RecordingResult
from tasks.stages import record_episodes as record_episodes_task


@flow(name="record-episodes", flow_run_name="record-{config.episodes}x{config.rounds}-{config.format}")
def record_episodes(
    policy: str = "runs/expert/best",
    output: str = "runs/recording",
    config: RecordingConfig = RecordingConfig(),
    export: RecordingExport | None = None,
) -> RecordingResult:
    """Records complete episodes of a policy as the next version of a dataset, and emits an event.

    Args:
        policy: Checkpoint of the policy to play.
        output: Folder of the dataset.
        config: How many episodes, by how many recorders, in which format.
        export: Also write what is recorded in another format, or by a writer of your own, as export-dataset does.
    """
    config = config.model_copy(update={"seed": seed_of(config.seed)})
    result = record_episodes_task(config, policy=policy, output=output, export=export)
    announce(result.dataset, "dataset.recorded")
    return result
