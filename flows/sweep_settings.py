"""Flow: learn policies with many settings and seeds, and compare them."""

from flows.local_flow import flow
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.result import SweepResult
from offline_core.runtime.ray_session import ray_scope
from tasks.crash import crashing
from tasks.stages import sweep_settings as sweep_settings_task


@flow(name="sweep-settings", flow_run_name="sweep-{config.seed}")
def sweep_settings(
    dataset: str = "runs/recording",
    output: str = "runs/sweep",
    version: int | None = None,
    config: SweepConfig = SweepConfig(),
) -> SweepResult:
    """Learns policies with many settings, each with many seeds, and compares the settings.

    Args:
        dataset: Folder of the dataset.
        output: Folder for all runs and their comparison.
        version: Version to read; the latest if none is given.
        config: The training, what differs, the seeds, and how settings are compared.
    """
    with crashing(), ray_scope():  # runs and what they play in may each start Ray, and here they start one
        return sweep_settings_task(config, dataset=dataset, output=output, version=version)
