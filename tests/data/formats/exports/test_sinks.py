"""All sinks of exports: the folder appears as a whole or not at all, and replaces nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.formats.exports.d4rl import D4rlSink
from offline_core.data.formats.exports.lerobot import LeRobotSink
from offline_core.data.formats.exports.minari import MinariSink
from offline_core.data.formats.exports.sample_batch import SampleBatchSink
from offline_core.errors import EmptyDatasetError, EpisodeError, StorageError
from tests.data.datasets.factories import episode, found

pytest.importorskip("minari")
pytest.importorskip("h5py")

SINKS: dict[str, Callable[[str], Any]] = {
    "d4rl": D4rlSink,
    "lerobot": LeRobotSink,
    "minari": partial(MinariSink, dataset_id="cartpole/expert-v3"),
    "sample_batch": SampleBatchSink,
}


@pytest.fixture(params=SINKS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    return lambda: SINKS[request.param](str(tmp_path / "out"))


def test_an_existing_folder_is_not_overwritten(tmp_path: Path, make: Callable[[], Any]) -> None:
    with make() as sink:
        sink.write([episode(0), episode(1)])
    before = {name: (tmp_path / name).read_bytes() for name in found(tmp_path)}
    with pytest.raises(StorageError, match="exists already"), make() as sink:
        sink.write([episode(2)])
    assert {name: (tmp_path / name).read_bytes() for name in found(tmp_path)} == before != {}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("caller")])
def test_an_error_of_the_caller_leaves_no_file(tmp_path: Path, make: Callable[[], Any], error: BaseException) -> None:
    with pytest.raises(type(error)), make() as sink:
        sink.write([episode(0)])
        raise error
    assert found(tmp_path) == []


def test_an_error_at_the_first_write_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(D4rlSink, "_open", lambda _: (tmp_path / "missing").read_bytes())
    with pytest.raises(StorageError), D4rlSink(str(tmp_path / "out")) as sink:
        sink.write([episode(0)])
    assert list(tmp_path.iterdir()) == []


def test_an_export_without_episodes_is_refused(tmp_path: Path, make: Callable[[], Any]) -> None:
    with pytest.raises(EmptyDatasetError, match="out"), make() as sink:
        sink.write([])
    assert found(tmp_path) == [] and not any((tmp_path / "out").glob("*/*"))


@pytest.mark.parametrize(("start", "message"), [(0, "has no steps"), (4, "is a piece that starts at step 4")])
def test_pieces_and_empty_episodes_are_refused(tmp_path: Path, make: Callable[[], Any], start: int, message: str) -> None:
    with pytest.raises(EpisodeError, match=message), make() as sink:
        sink.write([episode(0), episode(1).slice(start, 0 if start == 0 else 7)])
    assert found(tmp_path) == []
