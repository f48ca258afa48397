"""One run of the scaling benchmark, in a process of its own: JSON in, one line of JSON out.

python -m benchmarks.scaling_run train '{"dataset": …, "algorithm": "bc", "setting": {…}}'
python -m benchmarks.scaling_run stages '{"dataset": …}'
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.cost_model import Setting
from benchmarks.figure import seconds

WINDOW_STEPS = 262_144
REPEATS = 5


def main() -> None:
    kind, arguments = sys.argv[1], json.loads(sys.argv[2])
    logging.disable(logging.WARNING)
    print(json.dumps({"train": train, "stages": stages}[kind](**arguments)))


def train(dataset: str, algorithm: str, setting: dict[str, Any]) -> dict[str, float]:
    """A training as users run it, and where its seconds went."""
    from offline_core.learning.train import train_policy

    wanted = Setting(**setting)
    with cluster(wanted), tempfile.TemporaryDirectory(prefix="offline-bench-") as output:
        result = train_policy(config_of(wanted, algorithm), dataset=dataset, output=output)
    names = ("seconds", "load_seconds", "update_seconds", "gather_seconds", "data_wait_seconds", "updates", "steps")
    return {name: getattr(result, name) for name in names}


def config_of(setting: Setting, algorithm: str) -> Any:
    """The network is the default one; actors share the CPUs but one, which Ray Data's read tasks take, in equal parts."""
    from offline_core.config import parse
    from offline_core.learning.config import TrainingConfig

    actors = setting.prelearners + setting.learners
    each = int(100 * min(1.0, (ray_cpus(setting) - 1) / max(1, actors))) / 100
    config = {
        "algorithm": algorithm,
        "optimizer": {"batch_size": setting.batch_size, "max_epochs": setting.epochs, "updates_per_iteration": 10**6},
        "data": {
            "prelearners": setting.prelearners,
            "cpus_per_prelearner": each,
            "resident_bytes": 0 if setting.streamed else 10**15,
            "window_steps": WINDOW_STEPS,
        },
        "compute": {
            "learners": setting.learners,
            "cpus_per_learner": each,
            "placement": "SPREAD" if setting.nodes > 1 else "PACK",
        },
    }
    return parse(TrainingConfig, config)


def ray_cpus(setting: Setting) -> int:
    """What Ray is told that there are, in all."""
    return max(2, setting.cores)


@contextlib.contextmanager
def cluster(setting: Setting) -> Iterator[None]:
    """Ray nodes on this machine, if any are asked for, that the training joins by `RAY_ADDRESS`.

    As many CPUs on each as the machine has in all, so that actors find room wherever they are put.
    """
    os.environ["OFFLINE_RAY_CPUS"] = str(ray_cpus(setting))
    if not setting.nodes:
        yield
        return
    from ray.cluster_utils import Cluster

    node = {"num_cpus": ray_cpus(setting) * 2 // setting.nodes, "object_store_memory": 300 * 2**20, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=node)
    try:
        for number in range(1, setting.nodes):
            started.add_node(node_ip_address=f"127.0.0.{number + 1}", **node)
        os.environ["RAY_ADDRESS"] = started.address
        yield
    finally:
        started.shutdown()


def stages(dataset: str) -> dict[str, float]:
    """Seconds per step of what happens to a window of steps, each by itself on one core; medians. And a step's bytes."""
    import torch

    from offline_core.learning.feed import batches, joined
    from offline_core.learning.group import _put, _taken
    from offline_core.learning.mapping import Mapping
    from offline_core.learning.recorded import Recorded
    from offline_core.learning.run import Run
    from offline_core.learning.source import SECONDS
    from offline_core.prelearner.layout import IS_STEP
    from offline_core.ray_session import fetch, ray_session
    from offline_core.storage.dataset import open_dataset
    from offline_core.storage.pieces import pieces, read_pieces
    from offline_core.storage.reader import schema_of

    torch.set_num_threads(1)
    config, source = config_of(Setting(1), "bc"), open_dataset(dataset)
    recorded = Recorded.of(source, config.data)
    run = Run(config, recorded, held_out=None, environment=None, target_return=None, output="")
    algorithm = run.algorithm()
    mapping = Mapping(
        config.data,
        source.manifest.format,
        algorithm.stored,
        recorded.pipeline,
        looks_ahead=algorithm.looks_ahead,
        where=source.location.uri,
    )
    mapper, names = mapping.mapper(), mapping.stored_columns(schema_of(source).names)
    window = pieces(source, names)
    parts: list[Any] = []
    while window and sum(int(part[IS_STEP].sum()) for part in parts) < WINDOW_STEPS:
        parts.append(mapper(read_pieces([window.pop(0)], names)))
    parts = [{name: column for name, column in part.items() if name not in SECONDS} for part in parts]
    window, steps = pieces(source, names)[: len(parts)], sum(int(part[IS_STEP].sum()) for part in parts)
    took: dict[str, list[float]] = {"read": [], "feed": [], "order": []}
    with ray_session():
        for _ in range(REPEATS):
            took["read"].append(seconds(lambda: [mapper(read_pieces([piece], names)) for piece in window]) / steps)
            stored: list[Any] = []
            took["feed"].append(seconds(lambda put=stored: put.append(_put(joined(parts, dataset)))) / steps)

            def order(reference: Any = stored[0]) -> None:
                rows = _taken(fetch(reference)).rows
                batches(rows, 1024, seed=0, epoch=0, chunk=0, replacement=False)

            took["order"].append(seconds(order) / steps)
    return {
        **{name: statistics.median(each) for name, each in took.items()},
        "bytes_per_step": sum(column.nbytes for part in parts for column in part.values()) / steps,
        "stored_bytes_per_step": source.ref.bytes / source.ref.steps,
        "gradient_bytes": 4.0 * sum(p.numel() for p in algorithm.parameters() if p.requires_grad),
    }


if __name__ == "__main__":
    main()
