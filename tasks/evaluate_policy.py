"""Stage: put a finished policy to the test."""

from __future__ import annotations

from prefect import task

from offline_core.evaluation.config import EvaluationConfig
from offline_core.evaluation.result import EvaluationResult
from offline_core.reporting.cards import episodes_card, returns_rows
from tasks.artifacts import publish


@task(name="evaluate-policy", persist_result=True, result_serializer="json")
def evaluate_policy(config: EvaluationConfig, *, policy: str) -> EvaluationResult:
    """Plays whole episodes on start states no stage before has seen; leaves histograms as an artifact."""
    from offline_core.evaluation import evaluate as core

    result = core.evaluate_policy(config, policy=policy)
    rows = {
        "Policy": policy,
        "Environment": result.environment,
        **returns_rows(result.metrics),
        "Actions": "sampled" if config.explore else "greedy",
        "Seconds": result.seconds,
    }
    card = episodes_card("Evaluation", rows=rows, returns={"played": result.returns}, lengths={"played": result.lengths})
    publish(card, key="evaluation-card")
    return result
