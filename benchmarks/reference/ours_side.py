"""Our side of a cell: `python -m benchmarks.reference.ours_side ORDER.json` prints the result as JSON.

With `--chosen` it is what a user would do who cannot play: a tenth of the episodes is held out, and of the policies of each
iteration the one with the least loss there is played, not the last one.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import offline_core as offline
from benchmarks.reference.playing import returns
from offline_core.learning.train import train

CHOSEN_EVERY_UPDATES = 1_000
"""Between two policies of which one is chosen."""


def config_of(name: str, settings: dict[str, Any], updates: int, *, discrete: bool) -> dict[str, Any]:
    """The parameters of a training that mean the settings of the suite."""
    network: dict[str, Any] = {"hidden_sizes": settings["hidden"], "activation": "relu"}
    if settings.get("normalize"):
        network["normalize_observations"] = True
    if name in ("bc", "iql") and not discrete:
        network["bounded_mean"] = True
    rates = settings["rates"]
    optimizer: dict[str, Any] = {"batch_size": settings["batch"], "max_updates": updates, "updates_per_iteration": 5_000}
    optimizer["learning_rate"] = rates.get("critics", rates.get("policy"))
    own: dict[str, Any] = {key: settings[key] for key in ("alpha", "policy_penalty", "critic_penalty") if key in settings}
    if name == "bc" and not discrete:
        own["squared_error"] = True
    elif name == "rebrac":
        own["critics"] = {"layer_norm": True}
    elif name == "dcql":
        own |= {"double": True, "dueling": False, "target_network_interval_updates": settings["target_interval"]}
    if name in ("iql", "cql"):
        schedule = {"schedule": "cosine"} if name == "iql" else {}
        optimizer["networks"] = {"policy": {"learning_rate": rates["policy"], **schedule}}
    algorithm = {"dcql": "cql"}.get(name, name)
    config = {"algorithm": algorithm, "network": network, "optimizer": optimizer, algorithm: own, "evaluation": {"play": False}}
    return config | ({"data": {"rewards": {"scale": "return_range"}}} if settings.get("scale_rewards") else {})


def main() -> None:
    order, is_chosen = json.loads(Path(sys.argv[1]).read_text()), "--chosen" in sys.argv[2:]
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(order["algorithm"], order["settings"], order["updates"], discrete=order["discrete"])
        begin, cpu = time.perf_counter(), time.process_time()
        data = order["data"]
        if is_chosen:
            data, held_out = offline.split(data, output=f"{folder}/split", held_out_fraction=0.1, seed=order["seed"])
            config["evaluation"]["held_out"] = held_out.location.uri
            config["optimizer"]["updates_per_iteration"] = CHOSEN_EVERY_UPDATES
        run = offline.train(data, output=f"{folder}/run", seed=order["seed"], **config)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        policy = offline.load_policy(run.best if is_chosen else run.last)
        episode_returns = returns(
            order["environment"], lambda observations: policy.act(observations, explore=False), order["episodes"]
        )
    assert run.updates == order["updates"]
    measured = {"returns": episode_returns, "seconds": seconds, "cpu_seconds": cpu, "updates": run.updates}
    print(json.dumps(measured | {"version": train.version}), flush=True)


if __name__ == "__main__":
    main()
