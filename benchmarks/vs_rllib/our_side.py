"""The same stages by us."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.vs_rllib.task import (
    ASKED_EPISODES,
    BATCH_STEPS,
    COUNTED_UPDATES,
    ENVIRONMENT,
    HIDDEN_SIZES,
    LEARNING_RATE,
    Clock,
    Task,
    play,
    run,
)

if TYPE_CHECKING:
    from offline_core.learning.config import TrainingConfig

EVALUATION_EPISODES = 100
"""RLlib's Tune stops the experts at a mean over 100 sampled episodes, the clones at one over 5."""
UPDATES_BETWEEN_EVALUATIONS = 100


def expert(task: Task, clock: Clock) -> dict[str, Any]:
    """Our defaults, until the target."""
    with clock("imports"):
        from offline_core.learning.experts.config import ExpertConfig
        from offline_core.learning.experts.train import train_expert
        from offline_core.learning.trainer_config import EvaluationsConfig
    with clock("stage"):
        config = ExpertConfig(
            evaluation=EvaluationsConfig(target_return=task.target_return, episodes=EVALUATION_EPISODES),
            total_steps=10**9,
            seed=task.seed,
        )
        result = train_expert(config, output=f"{task.output}/expert")
    mean_return = result.metrics["episode_return_mean"]
    return {"policy": result.checkpoint, "return_at_stop": mean_return, "env_steps": result.env_steps}


def run_record(task: Task, clock: Clock) -> dict[str, Any]:
    """Our defaults, which do not start Ray for so little."""
    with clock("imports"):
        from offline_core.policies.recording.config import RecordingConfig
        from offline_core.policies.recording.record import record
    format = "table" if task.stage == "record_table" else "episodes"
    config = RecordingConfig(episodes=ASKED_EPISODES, format=format, seed=task.seed)
    with clock("stage"):
        result = record(config, policy=str(task.source), output=f"{task.output}/data")
    statistics = result.statistics
    return {"data": f"{task.output}/data", "played": statistics.episodes, "steps": statistics.steps}


def convert(task: Task, clock: Clock) -> dict[str, Any]:
    """RLlib's table, as RLlib wrote it."""
    with clock("imports"):
        from offline_core.data.importing.config import ImportConfig
        from offline_core.data.importing.importing import import_data
        from offline_core.runtime.config import EnvironmentSpec
    with clock("stage"):
        config = ImportConfig(environment=EnvironmentSpec(id=ENVIRONMENT))
        result = import_data(config, source=str(task.source), output=f"{task.output}/data")
    return {"data": f"{task.output}/data", "rows": result.counts.rows, "duplicates": result.counts.duplicates}


def clone(task: Task, clock: Clock) -> dict[str, Any]:
    """RLlib's recording, as RLlib wrote it: imported, and learned from until the target."""
    with clock("imports"):
        from offline_core.learning.train import train
    with clock("stage"):
        result = train(training(task), dataset=imported(task), output=f"{task.output}/policy")
    if not result.reached_target:
        raise RuntimeError(f"All epochs are over, and the return is below {task.target_return:g}: {result.metrics}")
    mean_return = result.metrics["episode_return_mean"]
    return {"policy": result.checkpoint, "return_at_stop": mean_return, "updates": result.updates, "steps": result.steps}


def imported(task: Task) -> str:
    """The dataset that becomes of RLlib's recording."""
    from offline_core.data.importing.config import ImportConfig
    from offline_core.data.importing.importing import import_data
    from offline_core.runtime.config import EnvironmentSpec

    config = ImportConfig(environment=EnvironmentSpec(id=ENVIRONMENT))
    return import_data(config, source=str(task.source), output=f"{task.output}/data").dataset.uri


def training(task: Task) -> TrainingConfig:
    """Network, batch size and learning rate as RLlib has them."""
    from offline_core.learning.config import TrainingConfig
    from offline_core.runtime.config import parse

    return parse(
        TrainingConfig,
        {
            "algorithm": task.stage.removesuffix("_seen"),
            "seed": task.seed,
            "network": {"hidden_sizes": HIDDEN_SIZES, "activation": "tanh", "share_layers": True},
            "optimizer": {
                "batch_size": BATCH_STEPS,
                "learning_rate": LEARNING_RATE,
                "max_epochs": 1_000_000,
                "updates_per_iteration": UPDATES_BETWEEN_EVALUATIONS,
            },
            "evaluation": {
                "environment": {"id": ENVIRONMENT},
                "episodes": EVALUATION_EPISODES,
                "target_return": task.target_return,
            },
        },
    )


def seen(task: Task, clock: Clock) -> dict[str, Any]:
    """Not timed: the same training, and the steps in its first batches."""
    import numpy as np

    from offline_core.learning.learner import Learner
    from offline_core.learning.train import train

    obs: list[Any] = []
    actions: list[Any] = []
    update = Learner.update

    def observed(self: Learner, *batch: Any) -> bool:
        done = update(self, *batch)
        if len(obs) < COUNTED_UPDATES:
            obs.append(self.last_batch["obs"].numpy())
            actions.append(self.last_batch["actions"].numpy())
        return done

    Learner.update = observed  # type: ignore[method-assign]
    until_first_evaluation = replace(task, target_return=0.0)
    config = training(until_first_evaluation)
    config = config.model_copy(update={"data": config.data.model_copy(update={"prelearners": 0})})  # auto measures updates
    train(config, dataset=imported(task), output=f"{task.output}/policy")
    np.savez(Path(task.output, "seen.npz"), obs=np.concatenate(obs), actions=np.concatenate(actions))
    return {"updates": len(obs)}


def play_policy(task: Task, clock: Clock) -> dict[str, Any]:
    """Not timed: the policy of a run, greedy."""
    from offline_core.policies.checkpoint import load_policy

    return play(load_policy(str(task.source)).act)


STAGES = {
    "expert": expert,
    "record_episodes": run_record,
    "record_table": run_record,
    "convert": convert,
    "bc": clone,
    "marwil": clone,
    "bc_seen": seen,
    "marwil_seen": seen,
    "play": play_policy,
}

if __name__ == "__main__":
    run(STAGES)
