"""Stage: put a finished policy to the test."""

from __future__ import annotations

from offline_core.evaluation.config import EvaluationConfig
from offline_core.evaluation.result import EPISODE_METRICS, EvaluationResult
from offline_core.reporting.cards import episodes_card, returns_rows
from offline_core.storage.location import Location
from tasks.artifacts import publish, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("evaluate-policy")
def evaluate_policy(config: EvaluationConfig, *, policy: str) -> EvaluationResult:
    """Plays whole episodes on start states no stage before has seen; leaves histograms as an artifact."""
    from offline_core.evaluation import evaluate as core

    with progress_shown():
        result = core.evaluate_policy(config, policy=policy)
    with telling():
        rows = {
            "Policy": policy,
            "Environment": result.environment,
            **returns_rows(result.metrics),
            **{f"Metric {name}": value for name, value in result.metrics.items() if name not in EPISODE_METRICS},
            "Actions": "sampled" if config.explore else "greedy",
            "Seconds": result.seconds,
        }
        card = episodes_card("Evaluation", rows=rows, returns={"played": result.returns}, lengths={"played": result.lengths})
        publish(
            card,
            key="evaluation-card",
            operation="evaluate_policy",
            config=config,
            about=(policy, None),
            beside=[Location.of(result.uri.removesuffix(".json"))],
            reused=result.reused,
        )
    return result
