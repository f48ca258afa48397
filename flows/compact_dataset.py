"""Flow: the same episodes in files of another size."""

from flows.local_flow import flow
from offline_core.data.curation.compact import CompactionResult
from offline_core.data.curation.config import CompactionConfig
from tasks.stages import compact_dataset as compact_dataset_task


@flow(name="compact-dataset")
def compact_dataset(
    dataset: str = "runs/recording",
    output: str = "runs/compacted",
    version: int | None = None,
    config: CompactionConfig = CompactionConfig(),
) -> CompactionResult:
    """Copies all episodes of a dataset into files of the size wanted.

    Args:
        dataset: Folder of the dataset to read.
        output: Folder of the dataset to write.
        version: Version to read; the latest if none is given.
        config: Size and compression of the files.
    """
    return compact_dataset_task(config, dataset=dataset, output=output, version=version)
