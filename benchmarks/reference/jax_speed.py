"""A compiled loop in JAX, written from the papers: the side of `benchmarks.reference_speed` that is as fast as JAX is.

    python jax_speed.py ALGORITHM SECONDS
    python jax_speed.py ALGORITHM --loss FILE.json

It runs by itself in an environment with jax and optax. It prints a JSON object: updates per second, of batches drawn anew. With
`--loss` it prints the loss of networks and a batch that `jax_losses` wrote, with all draws at zero.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax_algorithms import ALGORITHMS, beginning, train

STEPS, OBSERVATION, ACTIONS, SCAN = 20_000, 11, 3, 200
BATCH = {"rebrac": 1024}
SETTINGS = {"rates": {"policy": 3e-4, "critics": 3e-4}}
OWN = {
    "td3_bc": {"alpha": 2.5},
    "rebrac": {"policy_penalty": 0.01, "critic_penalty": 0.01},
    "cql": {"alpha": 1.0},
    "dcql": {"alpha": 1.0},
}


def algorithm_of(name, width=256):
    """Return an algorithm with two layers of this width."""
    settings = SETTINGS | {"hidden": [width, width]} | OWN.get(name, {})
    return ALGORITHMS[name](OBSERVATION, ACTIONS, settings)


def data(steps=STEPS):
    """Steps of random numbers, as `our_speed` has them."""
    random = np.random.default_rng(0)
    obs = random.normal(size=(steps + 1, OBSERVATION)).astype(np.float32)
    is_open = np.ones(steps, np.float32)
    is_open[999::1000] = 0
    columns = {
        "obs": obs[:-1],
        "new_obs": obs[1:],
        "actions": random.uniform(-1, 1, (steps, ACTIONS)).astype(np.float32),
        "choices": random.integers(0, ACTIONS, steps),
        "rewards": random.normal(size=steps).astype(np.float32),
        "open": is_open,
        "new_actions": random.uniform(-1, 1, (steps, ACTIONS)).astype(np.float32),
        "has_new_actions": is_open,
    }
    return {name: jnp.asarray(column) for name, column in columns.items()}


def main():
    name = sys.argv[1]
    algorithm = algorithm_of(name)
    if sys.argv[2] == "--loss":
        print_loss(algorithm, sys.argv[3])
        return
    seconds = float(sys.argv[2])
    steps, state = data(), beginning(algorithm, 0)
    compiled = train.lower(algorithm, BATCH.get(name, 256), SCAN, steps, state).compile()
    state, losses = compiled(steps, state)
    losses.block_until_ready()
    begin, cpu, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begin < seconds:
        state, losses = compiled(steps, state)
        losses.block_until_ready()
        done += SCAN
    rates = {"wall": done / (time.perf_counter() - begin), "cpu": done / (time.process_time() - cpu)}
    print(json.dumps({"drawn": rates}))


def print_loss(algorithm, path):
    """Print the loss of a file with `learned`, `target` and `batch` as JSON."""
    with open(path) as file:
        values = json.load(file)
    tree = jax.tree.map(
        jnp.asarray, values, is_leaf=lambda x: isinstance(x, list) and not isinstance(x[0], dict) and not nested(x)
    )
    print(json.dumps({"loss": float(algorithm.loss(tree["learned"], tree["target"], tree["batch"], None, True))}))


def nested(x):
    """Whether a list is one of networks: lists of layers."""
    return isinstance(x[0], list) and isinstance(x[0][0], dict)


if __name__ == "__main__":
    main()
