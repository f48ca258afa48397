"""What each operation makes of the same input. Who changes it raises its version, lest old results be reused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.reader import episodes
from offline_core.data.episodes import nested
from offline_core.runtime.config import EnvironmentSpec
from tests.data.datasets.test_reuse import STEPS, write_rows
from tests.learning.test_train import balancing_episodes, dataset_of

GOLDEN = {
    # step: (name and version of the operation, what it makes)
    "import": ("import_data 8", "03177d7d588c"),
    "convert": ("convert 1", "971ad5cb1150"),
    "prune": ("prune 1", "d895b5ea4a29"),
    "compact": ("compact 1", "971ad5cb1150"),
    "split": ("split 3", "a168f84d37ad"),
    "merge": ("merge 1", "971ad5cb1150"),
    "mix": ("mix 2", "9be1f8d02ef2"),
}


def content(uri: str) -> str:
    """12 hex digits for all that is in the episodes of a dataset, and their order."""
    sha256 = hashlib.sha256()
    for episode in episodes(open_dataset(uri)):
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
