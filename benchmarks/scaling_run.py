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
    from offline_core.learning.config import TrainingConfig
    from offline_core.runtime.config import parse

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

    from offline_core.datasets.dataset import open_dataset
    from offline_core.datasets.row_groups import read_together, row_groups, schema_of
    from offline_core.learning.data_loader import batches, joined, without_seconds
    from offline_core.learning.group import _put, _taken
    from offline_core.learning.mapping import Mapping
    from offline_core.learning.recorded import Recorded
    from offline_core.learning.run import Run
    from offline_core.learning.steps import Steps
    from offline_core.runtime.ray_session import fetch, ray_session

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
        needs_next_obs=algorithm.needs_next_obs,
        where=source.location.uri,
    )
    mapper, names = mapping.mapper(), mapping.stored_columns(schema_of(source).names)
    window = list(row_groups(source, names))
    parts: list[Any] = []
    while window and sum(map(len, parts)) < WINDOW_STEPS:
        parts.append(mapper(read_together([window.pop(0)], names)))
    parts = [without_seconds(part)[0] for part in parts]
    window, steps = list(row_groups(source, names))[: len(parts)], sum(map(len, parts))
    took: dict[str, list[float]] = {"read": [], "feed": [], "order": []}
    with ray_session():
        for _ in range(REPEATS):
            took["read"].append(seconds(lambda: [mapper(read_together([piece], names)) for piece in window]) / steps)
            stored: list[Any] = []
            took["feed"].append(seconds(lambda put=stored: put.append(_put(Steps.of(joined(parts, dataset))))) / steps)

            def order(reference: Any = stored[0]) -> None:
                rows = _taken(fetch(reference)).rows
                batches(rows, 1024, seed=0, epoch=0, window=0, replacement=False)

            took["order"].append(seconds(order) / steps)
    return {
        **{name: statistics.median(each) for name, each in took.items()},
        "bytes_per_step": sum(column.nbytes for part in parts for column in part.columns.values()) / steps,
        "stored_bytes_per_step": source.ref.bytes / source.ref.steps,
        "gradient_bytes": 4.0 * sum(p.numel() for p in algorithm.parameters() if p.requires_grad),
    }


if __name__ == "__main__":
    main()
