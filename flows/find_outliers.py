"""Flow: which episodes are unlike the others, and what the data speaks for."""

from flows.local_flow import flow
from offline_core.judging.ranking.config import OutlierConfig
from offline_core.judging.ranking.result import OutlierResult
from tasks.stages import find_outliers as find_outliers_task


@flow(name="find-outliers")
def find_outliers(
    dataset: str = "runs/recording",
    output: str = "runs/outliers",
    version: int | None = None,
    config: OutlierConfig = OutlierConfig(),
) -> OutlierResult:
    """Ranks the episodes of a dataset by how unlike the others they are, and says which algorithm it speaks for.

    Args:
        dataset: Folder of the dataset.
        output: Folder for the scores, which a pruning can choose by.
        version: Version to read; the latest if none is given.
        config: What is an outlier, and how the models of what is usual are fitted.
    """
    return find_outliers_task(config, dataset=dataset, output=output, version=version)
