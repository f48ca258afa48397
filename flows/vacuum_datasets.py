"""Flow: delete old versions of datasets, and files that belong to none."""

from flows.local_flow import flow
from offline_core.keeping.retention.config import VacuumConfig
from offline_core.keeping.retention.vacuum import VacuumResult
from tasks.stages import vacuum_datasets as vacuum_datasets_task


@flow(name="vacuum-datasets")
def vacuum_datasets(root: str = "runs", config: VacuumConfig = VacuumConfig()) -> VacuumResult:
    """Lists, or deletes, old versions of the datasets below a folder, and files that belong to none.

    What is deleted is gone for good; without `delete` it is only listed.

    Args:
        root: Folder of a dataset, or one that holds some.
        config: Which versions stay, and whether the others are deleted.
    """
    return vacuum_datasets_task(config, root=root)
