"""d3rlpy's side of `benchmarks.reference_speed`; runs by itself in an environment with d3rlpy.

    python d3rlpy_speed.py ALGORITHM SECONDS

Prints a JSON object: updates per second, with batches drawn from a buffer of transitions, and of one batch again and again.
"""

import json
import logging
import sys
import time

import d3rlpy
import numpy as np
import torch
from d3rlpy.models.encoders import VectorEncoderFactory

STEPS, OBSERVATION, ACTIONS, BATCH = 20_000, 11, 3, 256
HIDDEN = VectorEncoderFactory([256, 256])


def made(name):
    algos, both = d3rlpy.algos, {"actor_encoder_factory": HIDDEN, "critic_encoder_factory": HIDDEN}
    configs = {
        "bc": lambda: algos.BCConfig(batch_size=BATCH, encoder_factory=HIDDEN),
        "iql": lambda: algos.IQLConfig(batch_size=BATCH, value_encoder_factory=HIDDEN, **both),
        "td3_bc": lambda: algos.TD3PlusBCConfig(batch_size=BATCH, **both),
        "cql": lambda: algos.CQLConfig(batch_size=BATCH, **both),
        "dcql": lambda: algos.DiscreteCQLConfig(batch_size=BATCH, encoder_factory=HIDDEN),
    }
    return configs[name]().create(device="cpu:0")


def data(discrete):
    rng = np.random.default_rng(0)
    ends = np.zeros(STEPS, np.float32)
    ends[999::1000] = 1
    actions = rng.integers(0, ACTIONS, STEPS) if discrete else rng.uniform(-1, 1, (STEPS, ACTIONS)).astype(np.float32)
    return d3rlpy.dataset.MDPDataset(
        rng.normal(size=(STEPS, OBSERVATION)).astype(np.float32), actions, rng.normal(size=STEPS).astype(np.float32), ends
    )


def rate(update, seconds):
    for _ in range(10):
        update()
    begin, cpu, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begin < seconds:
        update()
        done += 1
    return {"wall": done / (time.perf_counter() - begin), "cpu": done / (time.process_time() - cpu)}


def main():
    name, seconds = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    dataset = data(discrete=name == "dcql")
    algorithm = made(name)
    algorithm.build_with_dataset(dataset)
    batch = dataset.sample_transition_batch(BATCH)
    drawn = rate(lambda: algorithm.update(dataset.sample_transition_batch(BATCH)), seconds)
    print(json.dumps({"drawn": drawn, "fixed": rate(lambda: algorithm.update(batch), seconds)}))


if __name__ == "__main__":
    main()
