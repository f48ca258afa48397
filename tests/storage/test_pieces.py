"""Row groups anywhere, in any order."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from offline_core.errors import CorruptFileError, SchemaError
from offline_core.storage import pieces as module
from offline_core.storage.dataset import open_dataset
from offline_core.storage.pieces import pieces, read_pieces, tables_of
from offline_core.storage.reader import tables
from tests.storage.factories import episode, write_dataset


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """Seven files of one row group each."""
    episodes = [episode(number, 20) for number in range(7)]
    write_dataset(tmp_path / "data", episodes, format="table", max_rows_per_file=20)
    return str(tmp_path / "data")


def test_all_pieces_together_are_the_dataset(dataset: str) -> None:
    source = open_dataset(dataset)
    found = pieces(source, ["eps_id", "t"])
    assert len(found) == 7
    expected = pa.concat_tables(tables(source, ["eps_id", "t"]))
    assert read_pieces(found, ["eps_id", "t"]).equals(expected)
    for together in (1, 3, 10):
        parts = list(tables_of(found, ["eps_id", "t"], together=together))
        assert [part.num_rows for part in parts] == [20 * min(together, 7 - i) for i in range(0, 7, together)]
        assert pa.concat_tables(parts).equals(expected)


def test_a_piece_can_be_sent_elsewhere(dataset: str) -> None:
    piece = pieces(open_dataset(dataset), ["t"])[3]
    assert len(sent := pickle.dumps(piece)) < 1_000
    assert pickle.loads(sent).read(["t"]).equals(piece.read(["t"]))


def test_a_missing_column(dataset: str) -> None:
    with pytest.raises(SchemaError, match="has no column reward; it has"):
        pieces(open_dataset(dataset), ["reward"])


def test_another_file_in_the_place_of_one_that_was_read(tmp_path: Path) -> None:
    """A folder that somebody writes anew, as notebooks do."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    for value in (1, 2):
        pa.parquet.write_table(pa.table({"x": [value] * (10 * value)}), folder / "data.parquet")
        [piece] = pieces(open_dataset(str(folder)), ["x"])
        assert piece.read(["x"])["x"].to_pylist() == [value] * (10 * value)


def test_reading_goes_ahead_only_so_far(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = pieces(open_dataset(dataset), ["t"])
    monkeypatch.setattr(module, "AHEAD_BYTES", 2 * found[0].size_bytes)
    begun, lock = [], threading.Lock()

    def counted(part: list[module.Piece], names: list[str]) -> pa.Table:
        with lock:
            begun.append(part)
        return read_pieces(part, names)

    monkeypatch.setattr(module, "read_pieces", counted)
    reading = tables_of(found, ["t"], together=1)
    for asked in range(1, 4):
        next(reading)
        assert len(begun) <= asked + 2
    reading.close()
    assert len(begun) < 7


def test_no_garbage_collector_waits_for_readers(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may run while a thread starts, in which to wait for a thread is to wait for ever."""
    answered = threading.Event()

    def stuck(part: list[module.Piece], names: list[str]) -> pa.Table:
        if part != found[:1]:
            answered.wait()
        return read_pieces(part, names)

    monkeypatch.setattr(module, "read_pieces", stuck)
    monkeypatch.setattr(module, "AHEAD_BYTES", 0)
    found = pieces(open_dataset(dataset), ["t"])
    before = {*threading.enumerate()}
    reading = tables_of(found, ["t"], together=1)
    assert next(reading).num_rows == 20
    held: list[object] = [reading]
    held.append(held)  # as a traceback holds the frames that hold it
    del reading, held
    collector = threading.Thread(target=gc.collect, daemon=True)
    collector.start()
    collector.join(30)
    waited = collector.is_alive()
    answered.set()
    assert not waited
    readers = [thread for thread in {*threading.enumerate()} - before if thread.name.startswith("ThreadPoolExecutor")]
    for reader in readers:
        reader.join(30)
    assert not any(reader.is_alive() for reader in readers)


def test_what_goes_wrong_ahead_is_told_when_it_is_its_turn(dataset: str) -> None:
    source = open_dataset(dataset)
    found = pieces(source, ["t"])
    damaged = source.location.child(source.manifest.files[2].path).path
    os.truncate(damaged, 100)
    reading = tables_of(found, ["t"], together=1)
    assert [next(reading).num_rows for _ in range(2)] == [20, 20]
    with pytest.raises(CorruptFileError, match=damaged):
        next(reading)
