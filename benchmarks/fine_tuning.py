"""Environment steps that fine-tuning needs beside SAC from nothing, to the same return.

    python -m benchmarks.fine_tuning FOLDER [--algorithm cal_ql] [--environment Pendulum-v1] [--seeds 5]

SAC's first policy above a medium return records episodes; a training on them goes on by play until `--target`. Evaluations are
of 10 greedy episodes, every `INTERVAL` steps. What is in FOLDER is reused, so a run that was cut goes on.
"""

from __future__ import annotations

import argparse
import logging
import statistics
from pathlib import Path
from typing import Any

import offline_core as offline
from benchmarks.figure import figure

INTERVAL = 500
EPISODES = 50
NETWORK = {"hidden_sizes": [256, 256], "activation": "relu"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--environment", default="Pendulum-v1")
    parser.add_argument("--algorithm", default="cal_ql")
    parser.add_argument("--medium", type=float, default=-700.0)
    parser.add_argument("--target", type=float, default=-200.0)
    parser.add_argument("--updates", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    play: dict[str, Any] = {"num_envs": 1, "evaluation_interval": INTERVAL, "target_return": given.target}
    play |= {"total_steps": given.steps, "evaluation_episodes": 10}
    expert = _from_nothing(given, seed=99, play=play, snapshots_at_returns=[given.medium])
    data = offline.record(expert.snapshots[given.medium], output=given.folder / "data", episodes=EPISODES)
    steps: dict[str, list[int]] = {"fine_tuned": [], "from_nothing": []}
    gains: list[float] = []
    for seed in range(given.seeds):
        training = offline.train(
            data,
            output=given.folder / f"{given.algorithm}-{seed}",
            algorithm=given.algorithm,
            network=NETWORK,
            optimizer={"max_updates": given.updates, "batch_size": 256, "learning_rate": 3e-4},
            evaluation={"play": False},
            seed=seed,
        )
        environment = {"id": given.environment}
        tuned = offline.fine_tune(
            training, data, output=given.folder / f"tuned-{seed}", environment=environment, seed=seed, **play
        )
        nothing = _from_nothing(given, seed=seed, play=play)
        steps["fine_tuned"].append(tuned.curve[-1][0])
        steps["from_nothing"].append(nothing.curve[-1][0])
        gains.append(tuned.mean_return - tuned.start_return)
        figure(
            f"fine_tuning.seed{seed}",
            tuned.curve[-1][0] / nothing.curve[-1][0],
            "times",
            start=round(tuned.start_return),
            end=round(tuned.mean_return),
            steps=[tuned.curve[-1][0], nothing.curve[-1][0]],
            nothing=round(nothing.mean_return),
            rollbacks=tuned.rollbacks,
        )
    medians = {name: statistics.median(each) for name, each in steps.items()}
    figure("fine_tuning.steps.ratio", medians["fine_tuned"] / medians["from_nothing"], "times")
    figure("fine_tuning.least_gain", min(gains), "return")


def _from_nothing(given: argparse.Namespace, *, seed: int, play: dict[str, Any], **settings: Any) -> Any:
    output = given.folder / f"nothing-{seed}"
    off_policy = {"learning_starts_steps": 1_000}
    return offline.train_expert(
        given.environment, output=output, algorithm="sac", off_policy=off_policy, seed=seed, **play, **settings
    )


if __name__ == "__main__":
    main()
