"""Formats whose packages are not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from offline_core.data.formats.exports.minari import MinariSink
from offline_core.data.formats.sources.hdf5 import Hdf5File
from offline_core.data.formats.sources.minari import MinariDataset
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError


@pytest.mark.parametrize("package", ["h5py", "minari"])
def test_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "metadata.json").write_text('{"observation_space": "", "action_space": ""}')
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    if package == "h5py":
        with pytest.raises(ConfigError, match=r"needs h5py.*pip install -c constraints\.txt '\.\[hdf5\]'"):
            list(Hdf5File(Location.of(str(tmp_path / "x.hdf5"))).batches())
        return
    with pytest.raises(ConfigError, match=r"needs minari.*\[minari\]'"):
        list(MinariDataset(Location.of(str(tmp_path))).batches())
    with pytest.raises(ConfigError, match=r"needs minari.*\[minari\]'"):
        MinariSink(str(tmp_path), dataset_id="x-v0")
