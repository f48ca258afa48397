"""Flow: keep the episodes worth learning from."""

from flows.events import announce
from flows.local_flow import flow
from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import PruningResult
from tasks.stages import prune_dataset as prune_dataset_task


@flow(name="prune-dataset")
def prune_dataset(
    dataset: str = "runs/recording",
    output: str = "runs/pruned",
    version: int | None = None,
    config: PruningConfig = PruningConfig(),
) -> PruningResult:
    """Copies the episodes that meet some conditions into the next version of a dataset, and emits an event.

    Args:
        dataset: Folder of the dataset to read.
        output: Folder of the dataset to write.
        version: Version to read; the latest if none is given.
        config: Which episodes to keep.
    """
    result = prune_dataset_task(config, dataset=dataset, output=output, version=version)
    announce(result.dataset, "dataset.pruned")
    return result
