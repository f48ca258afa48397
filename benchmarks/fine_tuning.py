"""Environment steps that fine-tuning needs beside SAC from nothing, to the same return.

    python -m benchmarks.fine_tuning FOLDER [--algorithm cal_ql] [--environment Pendulum-v1] [--seeds 5]
    python -m benchmarks.fine_tuning FOLDER --environment Hopper-v5 --data runs/reference/data/hopper/medium \\
        --preset locomotion --updates 20000 --target 2500 --steps 200000 --interval 2500

A training on medium recordings goes on by play until `--target`, for half of `--steps` at most. SAC from nothing plays
`--steps`, whatever it returns, so its runs serve every algorithm. Both are evaluated by the same 10 greedy episodes every
`--interval` steps. The steps of a side are those of its first evaluation with that return; where SAC never has it, all that
it played, and the ratio is "at most" what is said; where fine-tuning gained nothing, all that it played. What is in FOLDER is
reused, so a run that was cut goes on.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import offline_core as offline
from benchmarks.figure import figure
from offline_core.runtime.overlay import overlaid

EPISODES = 50
FRESH_EPISODES = 20
"""Of which gains are counted: the best of many evaluations is above the first one also by chance."""
NETWORK = {"hidden_sizes": [256, 256], "activation": "relu"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--environment", default="Pendulum-v1")
    parser.add_argument("--algorithm", default="cal_ql")
    parser.add_argument("--preset", help="of the training on recordings; None: two layers of 256 units, rates of 3e-4")
    parser.add_argument("--settings", type=json.loads, default={}, help="of the training on recordings, as JSON, beside these")
    parser.add_argument("--data", help="URI of medium recordings; None: of SAC's first policy above --medium")
    parser.add_argument("--medium", type=float, default=-700.0)
    parser.add_argument("--target", type=float, default=-200.0)
    parser.add_argument("--updates", type=int, default=2_000, help="of the training on recordings")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--interval", type=int, default=500, help="steps between two evaluations")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    data = arguments.data or _recorded(arguments)
    comparisons = [_compare(arguments, data, seed) for seed in range(arguments.seeds)]
    tuned, nothing = (statistics.median(steps) for steps in zip(*(comparison.steps for comparison in comparisons), strict=True))
    at_most = not all(comparison.reached for comparison in comparisons)
    worst = max(comparison.ratio for comparison in comparisons)
    figure("fine_tuning.steps.ratio", tuned / nothing, "times", at_most=at_most, worst=round(worst, 4))
    gains = [comparison.gain for comparison in comparisons]
    figure("fine_tuning.least_gain", min(gains), "return", above_start=f"{sum(gain > 0 for gain in gains)} of {len(gains)}")


def steps_to(curve: list[tuple[int, float]], mean_return: float) -> int | None:
    """Return the environment steps of the first evaluation with this return or more; None: there is none."""
    return next((steps for steps, score in curve if score >= mean_return), None)


@dataclass(frozen=True)
class Comparison:
    """Both sides with one seed."""

    steps: tuple[int, int]
    """Of fine-tuning and of SAC from nothing, to the return that fine-tuning ended with."""
    reached: bool
    """SAC from nothing has that return; otherwise its steps are all that it played."""
    gain: float
    """Mean return of the fine-tuned policy above that of the policy it began with, in new episodes."""

    @property
    def ratio(self) -> float:
        return self.steps[0] / self.steps[1]


def _compare(arguments: argparse.Namespace, data: Any, seed: int) -> Comparison:
    plain = {"network": NETWORK, "optimizer": {"batch_size": 256, "learning_rate": 3e-4, "max_updates": arguments.updates}}
    preset = {"preset": arguments.preset, "optimizer": {"max_updates": arguments.updates}}
    training = offline.train(
        data,
        output=arguments.folder / f"{arguments.algorithm}-{seed}",
        algorithm=arguments.algorithm,
        evaluation={"play": False},
        seed=seed,
        **overlaid(preset if arguments.preset else plain, arguments.settings),
    )
    tuned = offline.fine_tune(
        training,
        data,
        output=arguments.folder / f"tuned-{arguments.algorithm}-{seed}",
        environment={"id": arguments.environment},
        seed=seed,
        evaluation={"target_return": arguments.target},
        total_steps=arguments.steps // 2,
        **_play(arguments),
    )
    nothing = _from_nothing(arguments, seed=seed)
    fresh = [_fresh_return(arguments, policy, seed) for policy in (training.last, tuned.best)]
    reached = steps_to(nothing.curve, tuned.mean_return)
    gained = tuned.mean_return > tuned.start_return
    own = steps_to(tuned.curve, tuned.mean_return) if gained else tuned.env_steps
    comparison = Comparison((own or 0, reached or nothing.curve[-1][0]), reached is not None, fresh[1] - fresh[0])
    figure(
        f"fine_tuning.seed{seed}",
        comparison.ratio,
        "times",
        at_most=not comparison.reached,
        steps=comparison.steps,
        start=round(tuned.start_return),
        end=round(tuned.mean_return),
        nothing=round(nothing.mean_return),
        fresh=[round(score) for score in fresh],
        rollbacks=tuned.rollbacks,
    )
    return comparison


def _play(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"num_envs": 1, "rollouts_per_iteration": arguments.interval}


def _recorded(arguments: argparse.Namespace) -> Any:
    expert = _from_nothing(
        arguments, seed=99, evaluation={"target_return": arguments.medium}, snapshots_at_returns=[arguments.medium]
    )
    return offline.record(expert.snapshots[arguments.medium], output=arguments.folder / "data", episodes=EPISODES)


def _fresh_return(arguments: argparse.Namespace, policy: str, seed: int) -> float:
    environment = {"id": arguments.environment}
    return offline.evaluate(policy, environment=environment, episodes=FRESH_EPISODES, seed=seed).mean_return


def _from_nothing(arguments: argparse.Namespace, *, seed: int, **settings: Any) -> Any:
    output = arguments.folder / f"nothing-{seed}"
    settings |= _play(arguments) | {"total_steps": arguments.steps, "replay": {"learning_starts_steps": 1_000}}
    return offline.train_expert(arguments.environment, output=output, algorithm="sac", seed=seed, **settings)


if __name__ == "__main__":
    main()
