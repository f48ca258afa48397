"""The same calls on a cluster, by its address alone: work on all nodes, and the same result when a node is lost."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import spaces_of
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy
from offline_core.runtime.config import EnvironmentSpec
from tests.cluster.two_nodes import TwoNodes, said, two_nodes, until
from tests.learning.test_train import balancing_episodes, dataset_of
from tests.waiting import PATIENCE_SECONDS

EPISODES = 640


def recording(cluster: TwoNodes, policy: str, notes: Path, output: Path) -> subprocess.Popen[str]:
    """32 tasks of 20 episodes, for up to four recorders: those of one node may start seconds after the others."""
    return cluster.start(f"""
        from offline_core.runtime.config import EnvironmentSpec
        from offline_core.policies.recording.config import RecordingConfig
        from offline_core.policies.recording.record import record

        environment = EnvironmentSpec(id="tests.cluster.slow_env:OfflineCluster/Slow-v0", kwargs={{"notes": {str(notes)!r}}})
        config = RecordingConfig(
            episodes=80, rounds=8, num_recorders=4, envs_per_recorder=2, environment=environment, max_recorder_restarts=1
        )
        print(record(config, policy={policy!r}, output={str(output)!r}).model_dump_json())
    """)


@pytest.fixture
def slow_policy(tmp_path: Path) -> tuple[str, Path]:
    notes = tmp_path / "notes"
    notes.mkdir()
    environment = EnvironmentSpec(id="tests.cluster.slow_env:OfflineCluster/Slow-v0", kwargs={"notes": str(notes)})
    uri = str(tmp_path / "policy")
    save_policy(Policy(*spaces_of(environment)), uri, operation=Operation(name="untrained"), environment=environment)
    return uri, notes


@pytest.mark.slow
def test_recorders_are_on_all_nodes(tmp_path: Path, slow_policy: tuple[str, Path]) -> None:
    (tmp_path / "together").write_text("3")  # one of them on the second node, as the head has two CPUs
    with two_nodes() as cluster:
        result = said(recording(cluster, *slow_policy, tmp_path / "out"))
        assert {share["node"] for share in result["recorders"]} == cluster.addresses
    assert sum(share["episodes"] for share in result["recorders"]) == EPISODES == result["dataset"]["episodes"]


@pytest.mark.slow
def test_a_node_is_lost_while_recording(tmp_path: Path, slow_policy: tuple[str, Path]) -> None:
    policy, notes = slow_policy
    with two_nodes() as cluster:
        whole = said(recording(cluster, policy, notes, tmp_path / "whole"))
        for path in notes.iterdir():
            path.unlink()
        (tmp_path / "together").write_text("3")  # one of them on the second node, as the head has two CPUs
        process = recording(cluster, policy, notes, tmp_path / "disturbed")
        second_is_playing(cluster, notes, process)
        cluster.kill_second()
        disturbed = said(process)
    assert disturbed["dataset"]["fingerprint"] == whole["dataset"]["fingerprint"]
    found = [episode.eps_id for episode in open_dataset(disturbed["dataset"]["uri"]).episodes()]
    assert len(found) == EPISODES == len(set(found))


@pytest.mark.slow
def test_the_only_node_with_room_is_lost(tmp_path: Path, slow_policy: tuple[str, Path]) -> None:
    with two_nodes(head_cpus=0) as cluster:
        process = recording(cluster, *slow_policy, tmp_path / "out")
        second_is_playing(cluster, slow_policy[1], process)
        cluster.kill_second()
        errors = process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert process.returncode == 1
    assert "RecorderError: No node of the Ray cluster has 1 CPUs for a recorder" in errors
    assert versions(str(tmp_path / "out")) == []


def second_is_playing(cluster: TwoNodes, notes: Path, process: subprocess.Popen[str]) -> None:
    raylet = cluster.second_raylet.pid
    until(lambda: any(is_child(int(path.name), raylet) for path in notes.iterdir()), process)


def is_child(pid: int, parent: int) -> bool:
    try:
        return psutil.Process(pid).ppid() == parent
    except psutil.NoSuchProcess:
        return False


def training(cluster: TwoNodes, dataset: str, output: Path) -> subprocess.Popen[str]:
    return cluster.start(f"""
        import json
        from offline_core.runtime.config import parse
        from offline_core.learning.config import TrainingConfig
        from offline_core.learning.train import train
        from offline_core.policies.manifest import read_policy_manifest

        settings = {{
            "algorithm": "bc",
            "network": {{"hidden_sizes": [16]}},
            "optimizer": {{"batch_size": 128, "max_epochs": 150, "updates_per_iteration": 100}},
            "compute": {{"learners": 2, "placement": "SPREAD", "max_failures": 3}},
        }}
        result = train(parse(TrainingConfig, settings), dataset={dataset!r}, output={str(output)!r})
        print(json.dumps([read_policy_manifest(result.last_checkpoint).fingerprint, result.losses]))
    """)


def learners_below(raylet: psutil.Process) -> int:
    """Learners on a node."""
    count = 0
    for process in raylet.children():
        try:
            count += "LearnerProcess" in " ".join(process.cmdline())
        except psutil.Error:
            continue
    return count


@pytest.mark.slow
def test_a_node_is_lost_while_learning(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path / "data", balancing_episodes(), environment=None)
    with two_nodes() as cluster:
        whole = said(training(cluster, dataset, tmp_path / "whole"))
        process = training(cluster, dataset, tmp_path / "disturbed")
        states = tmp_path / "disturbed" / "checkpoints"
        until(lambda: any(states.glob("*.json")), process)
        assert learners_below(cluster.second_raylet) == 1, "the learners are spread"
        cluster.kill_second()
        disturbed = said(process)
    assert disturbed == whole
