"""A name of a bucket that is wrong is told as such, whatever was looked for in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.errors import CheckpointError, DatasetNotFoundError, StorageError
from offline_core.policies.checkpoint import load_policy
from tests.cases import slow_but

LOOKS: dict[str, Callable[[str, Path], object]] = {
    "open": lambda place, output: open_dataset(f"{place}/x"),
    "prune": lambda place, output: prune(PruningConfig(), dataset=f"{place}/x", output=str(output / "y")),
    "import": lambda place, output: import_data(ImportConfig(), source=f"{place}/x", output=str(output / "y")),
    "pattern": lambda place, output: import_data(ImportConfig(), source=f"{place}/*/x.csv", output=str(output / "y")),
    "policy": lambda place, output: load_policy(f"{place}/x"),
}


@pytest.mark.parametrize("what", slow_but(LOOKS, "open", "pattern", "policy"))
def test_the_bucket_is_to_blame(what: str, bucket: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="offline_core")
    with pytest.raises(StorageError, match=rf"{bucket}-typo/.*the bucket does not exist: create it, or correct its name"):
        LOOKS[what](f"{bucket}-typo", tmp_path)
    assert not caplog.records and not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", slow_but(LOOKS, "open", "pattern", "policy"))
def test_the_bucket_is_not_to_blame(what: str, bucket: str, tmp_path: Path) -> None:
    with pytest.raises((DatasetNotFoundError, CheckpointError), match=r"There is no|There is nothing"):
        LOOKS[what](bucket, tmp_path)
