"""Stage: train an expert."""

from __future__ import annotations

from offline_core.experts.config import ExpertConfig
from offline_core.experts.result import ExpertResult
from offline_core.reporting.cards import expert_card, returns_rows
from offline_core.storage.location import Location
from tasks.artifacts import publish, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("train-expert", task_run_name="train-expert-{config.environment.id}")
def train_expert(config: ExpertConfig, *, output: str) -> ExpertResult:
    """Trains with PPO until the target return is reached; leaves the return curve as an artifact."""
    from offline_core.experts import train as core

    with progress_shown():
        result = core.train_expert(config, output=output)
    with telling():
        rows = {
            "Environment": config.environment.id,
            "Checkpoint": result.checkpoint,
            **returns_rows(result.metrics),
            "Target": "none" if result.target_return is None else result.target_return,
            "Target reached": result.reached_target,
            "Environment steps": result.env_steps,
            "Seconds": result.seconds,
        } | ({} if result.recording is None else {"Recording": str(result.recording)})
        publish(
            expert_card(rows=rows, curve=result.curve, target=result.target_return),
            key="expert-card",
            operation="train_expert",
            config=config,
            about=(result.checkpoint, None),
            beside=[Location.of(output).child("card")],
            reused=result.reused,
        )
    return result
