"""What each operation makes of the same input, and its defaults. Who changes them raises its version, lest old results be
reused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import nested
from offline_core.runtime.config import EnvironmentSpec
from tests import defaults
from tests.data.datasets.test_reuse import STEPS, write_rows
from tests.learning.test_train import balancing_episodes, dataset_of
from tests.written import stages

GOLDEN = {
    # step: (name and version of the operation, what it makes)
    "import": ("import 18", "03177d7d588c"),
    "convert": ("convert 1", "971ad5cb1150"),
    "prune": ("prune 2", "d895b5ea4a29"),
    "compact": ("compact 1", "971ad5cb1150"),
    "split": ("split 4", "a168f84d37ad"),
    "merge": ("merge 1", "971ad5cb1150"),
    "mix": ("mix 2", "9be1f8d02ef2"),
}


def content(uri: str) -> str:
    """12 hex digits for all that is in the episodes of a dataset, and their order."""
    sha256 = hashlib.sha256()
    for episode in open_dataset(uri).episodes():
        trees = (episode.observations, episode.actions, episode.rewards, *episode.extras.values())
        arrays = [array for tree in trees for array in nested.leaves(tree)]
        sha256.update(f"{episode.eps_id} {episode.terminated} {episode.truncated} {[a.dtype.str for a in arrays]}".encode())
        for array in arrays:
            sha256.update(array.tobytes())
    return sha256.hexdigest()[:12]


@pytest.mark.parametrize("step", ["import", "convert", "prune", "compact", "split", "merge", "mix"])
def test_the_same_input_gives_the_same(tmp_path: Path, step: str) -> None:
    dataset_of(tmp_path / "data", balancing_episodes(20, 30), environment=EnvironmentSpec(id="CartPole-v1"))
    write_rows(tmp_path)
    run: Callable[[Path], object] = STEPS[step]
    run(tmp_path)
    made = str(tmp_path / "out" / ("held_out" if step == "split" else ""))
    operation = open_dataset(made).manifest.operation
    assert (f"{operation.name} {operation.version}", content(made)) == GOLDEN[step]


def test_who_changes_a_default_raises_the_version_of_its_stage() -> None:
    assert defaults.text(stages()) == defaults.FILE.read_text(), "run `python -m tests.written`"


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({"version": 2, "defaults": {"rate": 0.1, "network.units": [64]}}, []),
        ({"version": 2, "defaults": {"network.units": [64], "added": None}}, []),
        ({"version": 3, "defaults": {"rate": 0.2, "network.units": [64]}}, []),
        ({"version": 2, "defaults": {"rate": 0.2, "network.units": [64]}}, ["stage.rate was 0.1 by default and is 0.2"]),
        ({"version": 2, "defaults": {"rate": 0.1, "network.units": None}}, ["stage.network.units was [64] by default"]),
    ],
    ids=["same", "removed and added", "new version", "changed", "changed in a group"],
)
def test_only_a_changed_default_needs_a_version(now: defaults.Defaults, told: list[str]) -> None:
    before: defaults.Defaults = {"version": 2, "defaults": {"rate": 0.1, "network.units": [64]}}
    found = defaults.unversioned({"stage": before, "gone": before}, {"stage": now, "new": now})
    assert len(found) == len(told) and all(line.startswith(start) for line, start in zip(found, told, strict=True))
