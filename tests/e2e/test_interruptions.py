"""Runs that are cancelled or killed, in each stage of the chain: what is left, and what comes of going on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.policies.manifest import read_policy_manifest
from tests.e2e.orchestra import Orchestra

pytestmark = pytest.mark.slow

STAGES = ("train_expert", "record", "prune", "check", "train", "evaluate")
CHAIN = "expert-to-policy/expert-to-policy-smoke"
LONG: dict[str, Any] = {
    "expert": {"total_steps": 100_000, "evaluation": {"target_return": 480.0}, "num_envs": 64},
    "recording": {"episodes": 2000, "num_recorders": 1},
    "pruning": {"drop_non_finite": True, "drop_duplicates": True, "keep_top_fraction": 0.9},
    "training": {"optimizer": {"max_epochs": 2}, "evaluation": {"episodes": 10}},
    "evaluation": {"episodes": 1000},
}
"""Each stage takes a second or more, so that it can be met."""


def fingerprints(root: str) -> dict[str, str]:
    """Of all that the chain made."""
    made = {name: f"{root}/{name}" for name in ("recording", "pruned")}
    assert [versions(uri) for uri in made.values()] == [[1], [1]]
    policies = {name: f"{root}/{name}/best" for name in ("expert", "policy")}
    return {name: open_dataset(uri).ref.fingerprint for name, uri in made.items()} | {
        name: read_policy_manifest(uri).fingerprint for name, uri in policies.items()
    }


@pytest.fixture(scope="module")
def undisturbed(orchestra: Orchestra, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Fingerprints of what the chain makes when nothing gets in its way."""
    root = str(tmp_path_factory.mktemp("undisturbed") / "runs")
    orchestra.wait_for(orchestra.submit(CHAIN, LONG | {"root": root}), "COMPLETED")
    return fingerprints(root)


def test_killed_in_each_stage_and_retried_it_ends_as_if_nothing_had_been(
    orchestra: Orchestra, undisturbed: dict[str, str], fresh_root: str
) -> None:
    run = orchestra.submit(CHAIN, LONG | {"root": fresh_root})
    for attempt, stage in enumerate(STAGES, 1):
        orchestra.wait_for_task(run, stage, attempt=attempt)
        os.kill(orchestra.pid_of(run), signal.SIGKILL)
        orchestra.wait_for(run, "CRASHED")
        orchestra.wait_for_no_ray()
        orchestra.wait_for_worker(run, attempt=attempt)
        orchestra.prefect("flow-run", "retry", run)
    orchestra.wait_for(run, "COMPLETED")
    assert fingerprints(fresh_root) == undisturbed


def test_cancelled_in_each_stage_it_leaves_nothing_running_and_can_be_run_again(
    orchestra: Orchestra, undisturbed: dict[str, str], fresh_root: str
) -> None:
    for stage in STAGES:
        run = orchestra.submit(CHAIN, LONG | {"root": fresh_root})
        orchestra.wait_for_task(run, stage)
        process = orchestra.pid_of(run)
        orchestra.ask("POST", f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
        orchestra.wait_for(run, "CANCELLED")
        orchestra.wait_for_worker(run)
        orchestra.wait_for_no_ray()
        assert not Path(f"/proc/{process}").exists()
    orchestra.wait_for(orchestra.submit(CHAIN, LONG | {"root": fresh_root}), "COMPLETED")
    assert fingerprints(fresh_root) == undisturbed
