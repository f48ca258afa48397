"""PPO's environment steps a second, and returns, over Stable-Baselines3's at equal settings, several seeds.

    python -m benchmarks.reference_experts --peer /path/to/stable-baselines3/venv/bin/python

Both sides of a seed run at the same time, a process and a thread each; nothing is evaluated meanwhile. A return is the mean of
10 greedy episodes of the last policy from the same starts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.figure import figure
from benchmarks.reference.playing import returns
from offline_core.data.environments.vector_env import make_vector_env
from offline_core.data.store.location import Location
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.work import new_expert
from offline_core.learning.learner import Learner
from offline_core.learning.play import Play, learned_steps
from offline_core.learning.trainer_config import copies
from offline_core.runtime.config import parse
from offline_core.runtime.torch_settings import isolated_torch

PEER = Path(__file__).parent / "reference" / "sb3_side.py"
COMMON = {"num_epochs": 10, "gamma": 0.99, "gae_lambda": 0.95, "learning_rate": 3e-4, "minibatch_size": 64}
TASKS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "hopper": (
        "Hopper-v5",
        200_000,
        COMMON | {"num_envs": 1, "rollout_steps": 2_048, "normalize": True, "value_clip_range": 0.2, "value_coefficient": 0.25},
    ),
    "cartpole": (
        "CartPole-v1",
        100_000,
        COMMON | {"num_envs": 8, "rollout_steps": 256, "normalize": False, "value_clip_range": None, "value_coefficient": 0.5},
    ),
}
"""Environment, steps, and the settings of both sides; two layers of 64 with tanh for the policy and for the values."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="Python of an environment with stable-baselines3")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ours", nargs=2, metavar=("TASK", "SEED"), help="only our side of one seed")
    arguments = parser.parse_args()
    if arguments.ours:
        print(json.dumps(ours(arguments.ours[0], int(arguments.ours[1]))), flush=True)
        return
    for task in arguments.tasks:
        compare(task, arguments.peer, arguments.seeds)


def compare(task: str, peer: str, seeds: int) -> None:
    """Run all seeds of both sides, and print what they come to."""
    environment, steps, settings = TASKS[task]
    runs_by_side: dict[str, list[dict[str, Any]]] = {"ours": [], "sb3": []}
    for seed in range(seeds):
        commands = {
            "ours": [sys.executable, "-m", "benchmarks.reference_experts", "--ours", task, str(seed)],
            "sb3": [peer, str(PEER), environment, str(seed), str(steps), json.dumps(settings)],
        }
        threads = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        running = {
            side: subprocess.Popen(command, env=threads, stdout=subprocess.PIPE, text=True)
            for side, command in commands.items()
        }
        for side, process in running.items():
            printed, _ = process.communicate()
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, process.args, printed)
            runs_by_side[side].append(json.loads(printed.strip().splitlines()[-1]))
    speed = {side: statistics.median(run["steps"] / run["cpu_seconds"] for run in runs) for side, runs in runs_by_side.items()}
    reached = {side: [statistics.mean(run["returns"]) for run in runs] for side, runs in runs_by_side.items()}
    figure(f"reference.ppo.{task}.ratio", speed["ours"] / speed["sb3"], "times", **{k: round(v) for k, v in speed.items()})
    for side, means in reached.items():
        figure(f"reference.ppo.{task}.{side}.return", statistics.mean(means), "return", seeds=[round(value) for value in means])


def ours(task: str, seed: int) -> dict[str, Any]:
    """Train by PPO without evaluations, then play the last policy."""
    environment, steps, settings = TASKS[task]
    rest = dict(settings)
    optimizer = {
        "schedule": "linear",
        "learning_rate": rest.pop("learning_rate"),
        "batch_size": rest.pop("minibatch_size"),
    }
    config = parse(
        ExpertConfig,
        {
            "environment": {"id": environment},
            "num_envs": rest.pop("num_envs"),
            "rollout_steps": rest.pop("rollout_steps"),
            "network": {"normalize_observations": rest.pop("normalize")},
            "optimizer": optimizer,
            "ppo": {"normalize_rewards": settings["normalize"], **rest},
            "total_steps": steps,
            "seed": seed,
        },
    )
    env = make_vector_env(config.environment, copies(config))
    with isolated_torch(1):
        networks, _ = new_expert(config, (env.single_observation_space, env.single_action_space), None)
        learner = Learner(networks, config, total_steps=learned_steps(config, networks.algorithm.epochs_per_rollout))
        play = Play(networks, env, config, states=Location.of("."))
        begin, cpu = time.perf_counter(), time.process_time()
        for batch in play.batches(learner):
            if batch is not None:
                learner.update(batch.indices, batch)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        policy = networks.policy.eval()
        episode_returns = returns(environment, lambda observations: policy.act(observations, explore=False), 10)
    return {"returns": episode_returns, "seconds": seconds, "cpu_seconds": cpu, "steps": play.env_steps}


if __name__ == "__main__":
    main()
