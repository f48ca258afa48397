"""Flow: go on by play from what was learned from recordings."""

from flows.local_flow import flow
from offline_core.learning.fine_tuning.config import FineTuneConfig
from offline_core.learning.fine_tuning.result import FineTuneResult
from tasks.crash import crashing
from tasks.stages import fine_tune_policy as fine_tune_policy_task


@flow(name="fine-tune-policy", flow_run_name="fine-tune-{config.seed}")
def fine_tune_policy(
    training: str = "runs/policy",
    dataset: str = "runs/recording",
    output: str = "runs/fine-tuned",
    version: int | None = None,
    config: FineTuneConfig = FineTuneConfig(),
) -> FineTuneResult:
    """Goes on by play from what a training learned from recordings.

    Args:
        training: Folder of the training.
        dataset: Folder of the dataset that a share of each batch is drawn from.
        output: Folder for the checkpoint.
        version: Version of the dataset; the latest if none is given.
        config: Where to play, how to learn from it, and when the policy is good enough.
    """
    with crashing():
        return fine_tune_policy_task(config, training=training, dataset=dataset, output=output, version=version)
