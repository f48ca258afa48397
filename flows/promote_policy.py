"""Flow: move an alias of the registry to a policy that a decision promotes."""

from flows.local_flow import flow
from offline_core.keeping.promotion.config import PromotionConfig
from offline_core.keeping.promotion.result import PromotionResult
from tasks.stages import promote_policy as promote_policy_task


@flow(name="promote-policy", flow_run_name="promote-to-{config.alias}")
def promote_policy(
    registry: str = "runs/registry/policy",
    source: str = "runs/decision",
    config: PromotionConfig = PromotionConfig(),
) -> PromotionResult:
    """Moves an alias, such as champion, to the policy that a decision promotes; refuses what the decision does not show.

    Args:
        registry: Folder of the registry and name of the policy.
        source: Folder of the decision; with an override also the checkpoint of a policy.
        config: The alias, and why it is moved without a passed decision, if it is.
    """
    return promote_policy_task(config, registry=registry, source=source)
