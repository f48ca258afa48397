"""Flow: publish a dataset as a table of Delta or Iceberg that points at the same files."""

from flows.local_flow import flow
from offline_core.data.formats.publishing import PublishConfig, PublishResult
from tasks.stages import publish_dataset as publish_dataset_task


@flow(name="publish-dataset", flow_run_name="publish-{config.format}")
def publish_dataset(
    dataset: str = "runs/recording",
    version: int | None = None,
    config: PublishConfig = PublishConfig(),
) -> PublishResult:
    """Makes the table of a dataset show a version, for Spark, DuckDB and Polars.

    Args:
        dataset: Folder of the dataset.
        version: Version to show; the latest if none is given.
        config: The format of the table.
    """
    return publish_dataset_task(config, dataset=dataset, version=version)
