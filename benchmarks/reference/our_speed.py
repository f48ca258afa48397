"""Our side of `benchmarks.reference_speed`.

python -m benchmarks.reference.our_speed ALGORITHM SECONDS [bfloat16] [compile]
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.learning.shards import batches
from offline_core.learning.steps import Steps
from offline_core.runtime.config import parse

STEPS, EPISODE, OBSERVATION, ACTIONS, BATCH = 20_000, 1_000, 11, 3, 256
NETWORK: dict[str, Any] = {"hidden_sizes": [256, 256], "activation": "relu"}
RATES: dict[str, Any] = {"batch_size": BATCH, "learning_rate": 3e-4}
NAMES = {"dcql": "cql"}
SETTINGS: dict[str, dict[str, Any]] = {
    "bc": {"bc": {"squared_error": True}, "network": NETWORK | {"bounded_mean": True}},
    "iql": {"network": NETWORK | {"bounded_mean": True}},
    "rebrac": {"optimizer": RATES | {"batch_size": 1024}, "rebrac": {"critics": {"layer_norm": True}}},
    "dcql": {"cql": {"double": True, "dueling": False}},
}


def learner_of(
    name: str,
    *options: str,
    batch: int | None = None,
    width: int = 256,
    compute: Mapping[str, Any] = {},
    total_steps: int = 10**9,
    **settings: Any,
) -> Learner:
    """With the networks, batches and rates of d3rlpy's side; plain, unless `compile` is among the options of `compute`.

    Arguments:
        batch: steps of an update; None: d3rlpy's.
        width: units of each hidden layer.
        compute: more of its options.
        total_steps: that it learns from.
    """
    settings["compute"] = {"compile": False} | dict.fromkeys(options, True) | dict(compute)
    values = {"algorithm": NAMES.get(name, name), "network": NETWORK, "optimizer": RATES} | SETTINGS.get(name, {}) | settings
    values["network"] = values["network"] | {"hidden_sizes": [width, width]}
    values["optimizer"] = values["optimizer"] | ({} if batch is None else {"batch_size": batch})
    config = parse(TrainingConfig, values)
    actions = gym.spaces.Discrete(ACTIONS) if name == "dcql" else gym.spaces.Box(-1.0, 1.0, (ACTIONS,))
    spaces = gym.spaces.Box(-np.inf, np.inf, (OBSERVATION,)), actions
    networks = Networks(config.chosen, *spaces, config.network)
    return Learner(networks, config, total_steps=total_steps)


def steps_of(name: str, steps: int = STEPS) -> Steps:
    """Return steps of random numbers."""
    rng, rows = np.random.default_rng(0), steps + steps // EPISODE
    offsets = np.arange(0, rows + 1, EPISODE + 1)
    terminateds = np.zeros(rows, bool)
    terminateds[offsets[1:] - 2] = True
    actions = rng.integers(0, ACTIONS, rows) if name == "dcql" else rng.uniform(-1, 1, (rows, ACTIONS)).astype(np.float32)
    columns = {
        "obs": rng.normal(size=(rows, OBSERVATION)).astype(np.float32),
        "actions": actions,
        "rewards": rng.normal(size=rows),
        "terminateds": terminateds,
    }
    return Steps({path: torch.from_numpy(column) for path, column in columns.items()}, torch.from_numpy(offsets), has_last=True)


def rows_of(learner: Learner) -> Iterator[torch.Tensor]:
    """Rows of full batches, epoch after epoch."""
    size = learner.batch_units
    epochs = (batches(learner.indices(), size=size, seed=0, epoch=e, window=0) for e in itertools.count())
    return (indices for epoch in epochs for indices in epoch if len(indices) == size)


def rate(update: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Updates per second of the clock and of the processor."""
    for _ in range(10):
        update()
    begin, cpu, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begin < seconds:
        update()
        done += 1
    return {"wall": done / (time.perf_counter() - begin), "cpu": done / (time.process_time() - cpu)}


def main() -> None:
    name, seconds = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(1)
    begin = sum(os.times()[:4])
    learner = learner_of(name, *sys.argv[3:])
    learner.load(steps_of(name))
    drawn = rows_of(learner)
    fixed = next(drawn)
    for _ in range(2):  # of TD3 each second update is another
        learner.update(fixed)
    rates = {"start": {"cpu": sum(os.times()[:4]) - begin}}
    rates |= {"drawn": rate(lambda: learner.update(next(drawn)), seconds)}
    print(json.dumps(rates | {"fixed": rate(lambda: learner.update(fixed), seconds)}))


if __name__ == "__main__":
    main()
