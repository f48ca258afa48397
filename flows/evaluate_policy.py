"""Flow: put a finished policy to the test."""

from flows.local_flow import flow
from offline_core.policies.evaluation.config import EvaluationConfig
from offline_core.policies.evaluation.result import EvaluationResult
from tasks.stages import evaluate_policy as evaluate_policy_task


@flow(name="evaluate-policy", flow_run_name="evaluate-{config.episodes}-{config.seed}")
def evaluate_policy(policy: str = "runs/policy/best", config: EvaluationConfig = EvaluationConfig()) -> EvaluationResult:
    """Plays a policy in its environment, on start states that no other stage has seen.

    Args:
        policy: Checkpoint of the policy to play.
        config: How many episodes, and where.
    """
    return evaluate_policy_task(config, policy=policy)
