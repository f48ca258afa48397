"""Flow: write a dataset in other people's formats."""

from flows.local_flow import flow
from offline_core.data.formats.exporting import ExportConfig, ExportResult
from tasks.stages import export_dataset as export_dataset_task


@flow(name="export-dataset")
def export_dataset(
    dataset: str = "runs/recording",
    output: str = "runs/export",
    version: int | None = None,
    config: ExportConfig = ExportConfig(),
) -> ExportResult:
    """Writes a dataset for Minari, LeRobot or a program of your own.

    Args:
        dataset: Folder of the dataset to read.
        output: Folder to write; an export that is there is replaced, nothing else is.
        version: Version to read; the latest if none is given.
        config: The format, and what its writer wants to know.
    """
    return export_dataset_task(config, dataset=dataset, output=output, version=version)
