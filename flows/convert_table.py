"""Flow: from one of our two formats to the other."""

from flows.local_flow import flow
from offline_core.data.curation.converting import ConversionResult
from offline_core.data.importing.config import ConversionConfig
from tasks.stages import convert_table as convert_table_task


@flow(name="convert-table")
def convert_table(
    dataset: str = "runs/recording",
    output: str = "runs/converted",
    version: int | None = None,
    config: ConversionConfig = ConversionConfig(),
) -> ConversionResult:
    """Writes the episodes of a dataset an episode a row, or a step a row, losing nothing.

    Args:
        dataset: Folder of the dataset to read.
        output: Folder of the dataset to write.
        version: Version to read; the latest if none is given.
        config: The format, and the files.
    """
    return convert_table_task(config, dataset=dataset, output=output, version=version)
