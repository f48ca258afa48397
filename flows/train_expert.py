"""Flow: train an expert."""

from flows.local_flow import flow
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.result import ExpertResult
from tasks.stages import train_expert as train_expert_task


@flow(name="train-expert", flow_run_name="train-expert-{config.environment.id}-{config.seed}")
def train_expert(output: str = "runs/expert", config: ExpertConfig = ExpertConfig()) -> ExpertResult:
    """Trains an expert with PPO until it reaches a target return.

    Args:
        output: Folder for the checkpoint and metrics.
        config: Environment, network and PPO parameters.
    """
    return train_expert_task(config, output=output)
