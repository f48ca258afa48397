"""Flow: what a policy would come to, told from recorded episodes, and the gate of promotion."""

from flows.local_flow import flow
from offline_core.judging.estimation.config import OffPolicyConfig
from offline_core.judging.estimation.result import OffPolicyResult
from tasks.stages import estimate_policy as estimate_policy_task


@flow(name="estimate-policy")
def estimate_policy(
    policy: str = "runs/policy/best",
    dataset: str = "runs/recording",
    version: int | None = None,
    config: OffPolicyConfig = OffPolicyConfig(),
) -> OffPolicyResult:
    """Estimates the return of a policy from episodes of another one, without playing it, and stops when it is too little.

    Args:
        policy: Checkpoint of the policy to estimate.
        dataset: Folder of the dataset whose episodes tell how probable their actions were.
        version: Version to read; the latest if none is given.
        config: Estimators, their intervals, and what the policy has to come to.
    """
    return estimate_policy_task(config, policy=policy, dataset=dataset, version=version)
