"""Stage: train an expert."""

from __future__ import annotations

from prefect import task

from offline_core.experts.config import ExpertConfig
from offline_core.experts.result import ExpertResult
from offline_core.reporting.cards import expert_card, returns_rows
from tasks.artifacts import publish


@task(name="train-expert", task_run_name="train-expert-{config.environment.id}", persist_result=True, result_serializer="json")
def train_expert(config: ExpertConfig, *, output: str) -> ExpertResult:
    """Trains with PPO until the target return is reached; leaves the return curve as an artifact."""
    from offline_core.experts import train as core

    result = core.train_expert(config, output=output)
    rows = {
        "Environment": config.environment.id,
        "Checkpoint": result.checkpoint,
        **returns_rows(result.metrics),
        "Target": "none" if result.target_return is None else result.target_return,
        "Target reached": result.reached_target,
        "Environment steps": result.env_steps,
        "Seconds": result.seconds,
    }
    publish(expert_card(rows=rows, curve=result.curve, target=result.target_return), key="expert-card")
    return result
