"""JAX's side of a cell; runs by itself in an environment with jax, optax and gymnasium: `python jax_side.py ORDER.json`.

All steps are in memory, those of a batch are drawn with replacement, and all updates are compiled scans. The seconds have the
compilation in them.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from jax_algorithms import ALGORITHMS, DiscreteBC, beginning, train
from playing import returns

MOST_IN_A_SCAN = 5_000


def steps_of(path, discrete):
    """Columns (N, …) of all steps by the names of `jax_algorithms`, and the returns of the episodes."""
    parts, episode_returns = [], []
    with h5py.File(path) as file:
        for number in range(len(file)):
            group = file[f"episode_{number}"]
            seen, actions = np.asarray(group["observations"], np.float32), np.asarray(group["actions"])
            rewards = np.asarray(group["rewards"], np.float32)
            follows = np.arange(len(actions)) + 1 < len(actions)
            parts.append(
                {
                    "obs": seen[:-1],
                    "new_obs": seen[1:],
                    "choices" if discrete else "actions": actions if discrete else actions.astype(np.float32),
                    "rewards": rewards,
                    "open": 1 - np.asarray(group["terminations"], np.float32),
                    "new_actions": np.concatenate([actions[1:], actions[-1:]]),
                    "has_new_actions": follows.astype(np.float32),
                }
            )
            episode_returns.append(float(rewards.sum()))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, episode_returns


def main():
    order = json.loads(Path(sys.argv[1]).read_text())
    settings, updates = order["settings"], order["updates"]
    steps, of_episodes = steps_of(order["minari"], order["discrete"])
    begin, cpu = time.perf_counter(), time.process_time()
    mean, deviation = np.float32(0), np.float32(1)
    if settings.get("normalize"):
        mean, deviation = steps["obs"].mean(axis=0), steps["obs"].std(axis=0) + 1e-6
        steps |= {name: (steps[name] - mean) / deviation for name in ("obs", "new_obs")}
    if settings.get("scale_rewards"):
        steps["rewards"] = steps["rewards"] * np.float32(1000 / (max(of_episodes) - min(of_episodes)))
    actions = int(steps["choices"].max()) + 1 if order["discrete"] else steps["actions"].shape[1]
    kind = DiscreteBC if order["discrete"] and order["algorithm"] == "bc" else ALGORITHMS[order["algorithm"]]
    algorithm = kind(steps["obs"].shape[1], actions, settings, updates)
    columns, state = {name: jnp.asarray(column) for name, column in steps.items()}, beginning(algorithm, order["seed"])
    at_once = settings.get("target_interval", min(MOST_IN_A_SCAN, updates))
    assert updates % at_once == 0
    for _ in range(updates // at_once):
        state, losses = train(algorithm, settings["batch"], at_once, columns, state)
        if "target_interval" in settings:
            learned, _, moments, key = state
            state = learned, jax.tree.map(jnp.copy, algorithm.target(learned)), moments, key
    losses.block_until_ready()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    greedy = jax.jit(algorithm.greedy)
    greedy_returns = returns(
        order["environment"],
        lambda seen: np.asarray(greedy(state[0], jnp.asarray((seen.astype(np.float32) - mean) / deviation))),
        order["episodes"],
    )
    print(json.dumps({"returns": greedy_returns, "seconds": seconds, "cpu_seconds": cpu, "updates": updates}))


if __name__ == "__main__":
    main()
