"""Two nodes of one Ray cluster on this machine, and programs that find it by its address alone."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from ray.cluster_utils import Cluster

from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
SECOND = "127.0.0.2"
"""Address of the second node; the first has the machine's own."""
OBJECT_STORE_BYTES = 150 * 2**20


@dataclass(frozen=True, slots=True)
class TwoNodes:
    """A running cluster; programs run beside its head."""

    cluster: Cluster
    second: Any

    @property
    def addresses(self) -> set[str]:
        return {node.node_ip_address for node in self.cluster.list_all_nodes()}

    @property
    def second_raylet(self) -> psutil.Process:
        """The second node, as a process; what runs on the node is below it."""
        return psutil.Process(self.second.all_processes["raylet"][0].process.pid)

    def start(self, program: str) -> subprocess.Popen[str]:
        """The program in a process of its own, which joins by `RAY_ADDRESS`."""
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            cwd=ROOT,
            env=os.environ | {"RAY_ADDRESS": self.cluster.address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_second(self) -> None:
        """As if its power had gone."""
        self.cluster.remove_node(self.second, allow_graceful=False)


@contextlib.contextmanager
def two_nodes(*, head_cpus: int = 2) -> Iterator[TwoNodes]:
    """Starts the cluster, with two CPUs on the second node, and ends it."""
    settings = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=settings | {"num_cpus": head_cpus})
    try:
        yield TwoNodes(cluster, cluster.add_node(node_ip_address=SECOND, num_cpus=2, **settings))
    finally:
        cluster.shutdown()


def said(process: subprocess.Popen[str]) -> Any:
    """The JSON that the program printed last, after it ended well."""
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors[-4000:]
    return json.loads(output.splitlines()[-1])


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Waits for what the program will bring about."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()[1][-4000:]
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
