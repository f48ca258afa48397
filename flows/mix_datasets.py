"""Flow: a dataset out of others, and of policies that play, by weight."""

from flows.local_flow import flow
from offline_core.policies.recording.config import MixtureConfig
from offline_core.policies.recording.result import MixtureResult
from tasks.stages import mix_datasets as mix_datasets_task


@flow(name="mix-datasets")
def mix_datasets(
    output: str = "runs/mixture",
    config: MixtureConfig = MixtureConfig(),
) -> MixtureResult:
    """Writes whole episodes of several datasets and playing policies, by weight in steps.

    Args:
        output: Folder of the dataset to write.
        config: The sources with their weights.
    """
    return mix_datasets_task(config, output=output)
