"""Flow: learn a policy from a dataset."""

from flows.local_flow import flow
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.runtime.ray_session import ray_scope
from tasks.crash import crashing
from tasks.stages import train_policy as train_policy_task


@flow(name="train-policy", flow_run_name="train-{config.algorithm}-{config.seed}")
def train_policy(
    dataset: str = "runs/recording",
    output: str = "runs/policy",
    version: int | None = None,
    config: TrainingConfig = TrainingConfig(),
) -> TrainingResult:
    """Learns a policy from recorded experience.

    Args:
        dataset: Folder of the dataset.
        output: Folder for checkpoints and metrics.
        version: Version to read; the latest if none is given.
        config: Algorithm, network, optimizer, evaluation and compute.
    """
    with crashing(), ray_scope():  # importing, reading and playing may each start Ray, and here they start one
        return train_policy_task(config, dataset=dataset, output=output, version=version)
