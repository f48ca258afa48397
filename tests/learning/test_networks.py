"""All networks of a training, kept for learning that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError
from offline_core.learning.checkpoints import load_networks, save_networks
from offline_core.learning.result import NETWORKS_FILE
from tests.learning.algorithms.making import BOX, VECTOR, make_networks


def test_they_come_back_and_nothing_else_does(tmp_path: Path) -> None:
    networks = make_networks("td3_bc", VECTOR, BOX)
    sha256 = save_networks(networks, folder := Location.of(str(tmp_path)))
    found = load_networks(folder, sha256)
    assert all(torch.equal(tensor, found[name]) for name, tensor in networks.state_dict().items())
    (tmp_path / NETWORKS_FILE).write_bytes((tmp_path / NETWORKS_FILE).read_bytes()[:-1] + b"x")
    with pytest.raises(CorruptFileError, match="not what the training wrote"):
        load_networks(folder, sha256)
