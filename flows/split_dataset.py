"""Flow: hold some episodes out."""

from flows.local_flow import flow
from offline_core.data.curation.config import SplitConfig
from offline_core.data.curation.split import SplitResult
from tasks.stages import split_dataset as split_dataset_task


@flow(name="split-dataset")
def split_dataset(
    dataset: str = "runs/recording",
    output: str = "runs/split",
    version: int | None = None,
    config: SplitConfig = SplitConfig(),
) -> SplitResult:
    """Splits a dataset by episode, with the same spread of returns on both sides, into train and held_out.

    Args:
        dataset: Folder of the dataset to read.
        output: Folder of the two datasets, train and held_out.
        version: Version to read; the latest if none is given.
        config: Which share is held out.
    """
    return split_dataset_task(config, dataset=dataset, output=output, version=version)
