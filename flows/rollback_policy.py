"""Flow: move an alias of the registry back to the policy that it named before."""

from flows.local_flow import flow
from offline_core.keeping.promotion.config import RollbackConfig
from offline_core.keeping.promotion.result import PromotionResult
from tasks.stages import rollback_policy as rollback_policy_task


@flow(name="rollback-policy", flow_run_name="rollback-{config.alias}")
def rollback_policy(
    registry: str = "runs/registry/policy",
    config: RollbackConfig = RollbackConfig(),
) -> PromotionResult:
    """Moves an alias, such as champion, back to the policy that it named before.

    Args:
        registry: Folder of the registry and name of the policy.
        config: The alias, and why it goes back.
    """
    return rollback_policy_task(config, registry=registry)
