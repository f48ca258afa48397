"""Stage: learn a policy from a dataset."""

from __future__ import annotations

from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.reporting.cards import returns_rows, training_card
from offline_core.storage.location import Location
from tasks.artifacts import publish, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("train-policy", task_run_name="train-{config.algorithm}")
def train_policy(config: TrainingConfig, *, dataset: str, output: str, version: int | None = None) -> TrainingResult:
    """Trains until the target return or the last epoch; leaves loss and return curves as an artifact."""
    from offline_core.learning import train as core
    from offline_core.learning.metrics import series

    with progress_shown():
        result = core.train_policy(config, dataset=dataset, output=output, version=version)
    with telling():
        rows = {
            "Algorithm": str(config.algorithm),
            "Checkpoint": result.checkpoint,
            "Dataset": result.dataset,
            **returns_rows(result.metrics),
            "Target": "none" if result.target_return is None else result.target_return,
            "Target reached": result.reached_target,
            **{name.replace("_", " ").capitalize(): value for name, value in result.watched.items()},
            "Updates": result.updates,
            "Epochs": result.epochs,
            "Steps per second": int(result.steps_per_second),
            "Bottleneck": result.bottleneck,
            "Seconds in all": result.seconds,
        }
        card = training_card(
            rows=rows,
            losses=result.losses,
            held_out=result.held_out_losses,
            curve=result.curve,
            target=result.target_return,
            effective_sample_size=series(Location.of(output), "effective_sample_size"),
            seconds={
                "loading": result.load_seconds,
                "waiting for data": result.data_wait_seconds,
                "gathering batches": result.gather_seconds,
                "updating": result.update_seconds,
            },
        )
        publish(
            card,
            key="policy-card",
            operation="train_policy",
            config=config,
            about=(result.checkpoint, None),
            beside=[Location.of(output).child("card")],
            reused=result.reused,
        )
    return result
