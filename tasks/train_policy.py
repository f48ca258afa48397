"""Stage: learn a policy from a dataset."""

from __future__ import annotations

from prefect import task

from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.reporting.cards import returns_rows, training_card
from tasks.artifacts import publish


@task(name="train-policy", task_run_name="train-{config.algorithm}", persist_result=True, result_serializer="json")
def train_policy(config: TrainingConfig, *, dataset: str, output: str, version: int | None = None) -> TrainingResult:
    """Trains until the target return or the last epoch; leaves loss and return curves as an artifact."""
    from offline_core.learning import train as core

    result = core.train_policy(config, dataset=dataset, output=output, version=version)
    rows = {
        "Algorithm": config.algorithm,
        "Checkpoint": result.checkpoint,
        "Dataset": f"{result.dataset.uri} version {result.dataset.version}",
        **returns_rows(result.metrics),
        "Target": "none" if result.target_return is None else result.target_return,
        "Target reached": result.reached_target,
        **{name.replace("_", " ").capitalize(): value for name, value in result.watched.items()},
        "Updates": result.updates,
        "Epochs": result.epochs,
        "Steps per second": int(result.steps_per_second),
        "Seconds loading": result.load_seconds,
        "Seconds updating": result.update_seconds,
        "Seconds gathering batches": result.gather_seconds,
        "Seconds waiting for data": result.data_wait_seconds,
        "Bottleneck": result.bottleneck,
        "Seconds in all": result.seconds,
    }
    card = training_card(
        rows=rows,
        losses=result.losses,
        held_out=result.held_out_losses,
        curve=result.curve,
        target=result.target_return,
    )
    publish(card, key="policy-card")
    return result
