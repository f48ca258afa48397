"""Flow: the quality gate."""

from flows.events import announce
from flows.local_flow import flow
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import QualityReport
from tasks.stages import check_dataset as check_dataset_task


@flow(name="check-dataset")
def check_dataset(
    dataset: str = "runs/recording",
    version: int | None = None,
    config: QualityConfig = QualityConfig(),
) -> QualityReport:
    """Checks every step of a dataset by the quality rules; stops when it fails, and emits an event when it passes.

    Args:
        dataset: Folder of the dataset.
        version: Version to read; the latest if none is given.
        config: The limits, and when to stop.
    """
    report = check_dataset_task(config, dataset=dataset, version=version)
    if report.verdict != "fail" and report.dataset.version:  # others may be let by, or are no versions that could be named
        announce(report.dataset, "dataset.passed")
    return report
