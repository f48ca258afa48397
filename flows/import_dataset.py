"""Flow: import experience of any kind as a dataset."""

from flows.events import announce
from flows.local_flow import flow
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.report import ImportResult
from tasks.stages import import_dataset as import_dataset_task


@flow(name="import-dataset")
def import_dataset(
    source: str | list[str] = "data",
    output: str = "runs/imported",
    config: ImportConfig = ImportConfig(),
) -> ImportResult:
    """Imports recordings of RLlib, tables, Minari and D4RL files, CSV and more as the next version of a dataset.

    Emits the event dataset.imported.

    Args:
        source: A file, a folder, a pattern with * or **, or a list of them.
        output: Folder of the dataset to write.
        config: The format, what the columns mean, how rows become episodes.
    """
    result = import_dataset_task(config, source=source, output=output)
    announce(result.dataset, "dataset.imported")
    return result
