"""Flow: several datasets become one."""

from flows.local_flow import flow
from offline_core.data.curation.config import MergeConfig
from offline_core.data.curation.merge import MergeResult
from tasks.stages import merge_datasets as merge_datasets_task


@flow(name="merge-datasets")
def merge_datasets(
    datasets: list[str] = ["runs/recording"],  # noqa: B006 - a form shows no tuple, and no code appends to it
    output: str = "runs/merged",
    config: MergeConfig = MergeConfig(),
) -> MergeResult:
    """Copies the episodes of several datasets, each once, into one.

    Args:
        datasets: Folders of the datasets to read.
        output: Folder of the dataset to write.
        config: The files.
    """
    return merge_datasets_task(config, datasets=datasets, output=output)
