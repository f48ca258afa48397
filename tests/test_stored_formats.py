"""What earlier versions of this package wrote is read by this one: files that stay as they are, one folder a format.

A change of a format that cannot read one of these needs a command that migrates it, and a folder of its own here.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import offline_core as offline

STORED = sorted((Path(__file__).parent / "data" / "stored").iterdir())


@pytest.fixture(params=STORED, ids=lambda folder: folder.name)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the files of one format, for reading leaves marks beside them."""
    return Path(shutil.copytree(request.param, tmp_path / request.param.name))


def test_a_dataset_of_an_earlier_version_is_read_whole(stored: Path) -> None:
    dataset = offline.open_dataset(stored / "recording")
    assert not any(each.wrong for each in offline.verify(stored / "recording"))
    assert (dataset.ref.version, dataset.ref.fingerprint, dataset.ref.steps) == (1, "95d19fd8dd9970a4", 46)
    found = list(dataset.episodes())
    assert sum(len(each) for each in found) == 46 and sum(float(each.rewards.sum()) for each in found) == 46.0
    assert offline.check(stored / "recording").verdict != "fail"
    assert offline.prune(stored / "recording", "return >= 0", output=stored / "kept").ref.steps == 46


def test_a_policy_of_an_earlier_version_acts_as_it_did(stored: Path) -> None:
    policy = offline.load_policy(stored / "policy")
    observations = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    assert policy.act(observations).tolist() == [0, 1, 1]
