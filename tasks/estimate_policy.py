"""Stage: what a policy would come to, told from recorded episodes, and the gate of promotion."""

from __future__ import annotations

from offline_core.evaluation.off_policy.config import OffPolicyConfig
from offline_core.evaluation.off_policy.result import OffPolicyResult
from offline_core.reporting.cards import estimates_card
from offline_core.storage.location import Location
from tasks.artifacts import publish, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("estimate-policy")
def estimate_policy(config: OffPolicyConfig, *, policy: str, dataset: str, version: int | None = None) -> OffPolicyResult:
    """Estimates the return of a policy that is not played; leaves intervals as an artifact, then stops if it is too little."""
    from offline_core.evaluation.off_policy import estimate as core

    with progress_shown():
        result = core.estimate_policy(config, policy=policy, dataset=dataset, version=version)
    with telling():
        card = estimates_card(
            rows={
                "Policy": policy,
                "Dataset": result.dataset,
                "Weighed by": result.behaviour or "the recorded action_logp",
                "Actions": "sampled" if result.explore else "greedy",
                "Discount": f"{result.gamma:g}",
                "Horizon": result.told_horizon,
                "Intervals": f"{100 * result.confidence:g} % of {config.resamples:,} resamples of episodes",
                "Required": "nothing"
                if config.require_return is None
                else f"{config.require_return:g} by {config.gate_method}",
            },
            recorded=(result.recorded.value, result.recorded.low, result.recorded.high),
            estimates={name: (each.value, each.low, each.high) for name, each in result.estimates.items()},
            sizes={
                name: (each.effective_episodes, each.largest_weight or 0.0)
                for name, each in result.estimates.items()
                if each.effective_episodes is not None
            },
            episodes=result.dataset.episodes,
            required=config.require_return,
            warnings=result.warnings,
        )
        publish(
            card,
            key="estimate-card",
            operation="estimate_policy",
            config=config,
            about=(policy, None),
            beside=[Location.of(result.uri.removesuffix(".json"))],
            reused=result.reused,
        )
    core.enforce(result, config)
    return result
