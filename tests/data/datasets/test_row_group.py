"""Row groups anywhere, in any order."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offline_core.data.datasets import row_group as module
from offline_core.data.datasets import writer
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.row_group import READ_SECONDS, batches, prefetch_tables, read_together
from offline_core.data.episodes.codecs import Format
from offline_core.errors import CorruptFileError, SchemaError
from tests.data.datasets.factories import episode, write_dataset
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """Seven files of one row group each."""
    episodes = [episode(number, 20) for number in range(7)]
    write_dataset(tmp_path / "data", episodes, format="table", max_rows_per_file=20)
    return str(tmp_path / "data")


def test_all_row_groups_together_are_the_dataset(dataset: str) -> None:
    source = open_dataset(dataset)
    found = list(source.row_groups(["eps_id", "t"]))
    assert len(found) == 7
    expected = pa.concat_tables(source.tables(["eps_id", "t"]))
    assert read_together(found, ["eps_id", "t"]).equals(expected)
    for together in (1, 3, 10):
        parts = list(prefetch_tables(found, ["eps_id", "t"], together=together))
        assert [part.num_rows for part in parts] == [20 * min(together, 7 - i) for i in range(0, 7, together)]
        assert pa.concat_tables(parts).equals(expected)


def test_a_batch_is_of_one_file_and_limited_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_BYTES", 1)
    episodes = [episode(number, 20) for number in range(10)]
    found = list(write_dataset(tmp_path, episodes, format="table", max_rows_per_file=100).row_groups())
    two = found[0].size_bytes + found[1].size_bytes
    for most, sizes in ((2**20, [5, 5]), (two, [2, 2, 1, 2, 2, 1]), (1, [1] * 10)):
        parts = list(batches(found, most))
        assert [len(part) for part in parts] == sizes
        assert [group for part in parts for group in part] == found
    assert list(batches([])) == []


def test_the_time_of_reading_travels_with_the_rows(dataset: str) -> None:
    begin = time.perf_counter()
    parts = prefetch_tables(list(open_dataset(dataset).row_groups(["t"])), ["t"], timed=True)
    seconds = [sum(part[READ_SECONDS].to_pylist()) for part in parts]
    assert len(seconds) == 7 and all(0 < each <= time.perf_counter() - begin for each in seconds)


def test_a_row_group_is_small_when_pickled(dataset: str) -> None:
    group = list(open_dataset(dataset).row_groups(["t"]))[3]
    assert len(sent := pickle.dumps(group)) < 2_000
    assert pickle.loads(sent).read(["t"]).equals(group.read(["t"]))


def test_a_missing_column(dataset: str) -> None:
    with pytest.raises(SchemaError, match="has no column reward; it has"):
        list(open_dataset(dataset).row_groups(["reward"]))


def test_a_replaced_file_is_read_anew(tmp_path: Path) -> None:
    """A notebook may write a folder anew."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    for value in (1, 2):
        pa.parquet.write_table(pa.table({"x": [value] * (10 * value)}), folder / "data.parquet")
        [group] = list(open_dataset(str(folder)).row_groups(["x"]))
        assert group.read(["x"])["x"].to_pylist() == [value] * (10 * value)


def test_prefetching_is_limited(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(open_dataset(dataset).row_groups(["t"]))
    monkeypatch.setattr(module, "PREFETCH_BYTES", 2 * found[0].size_bytes)
    begun, lock = [], threading.Lock()

    def counted(part: list[module.RowGroup], names: list[str], **how: Any) -> pa.Table:
        with lock:
            begun.append(part)
        return read_together(part, names, **how)

    monkeypatch.setattr(module, "read_together", counted)
    reading = prefetch_tables(found, ["t"])
    for used in range(1, 4):
        next(reading)
        assert len(begun) <= used + 2
    reading.close()
    assert len(begun) < 7


def test_the_garbage_collector_does_not_wait_for_readers(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may run while a thread starts, in which to wait for a thread is to wait for ever."""
    answered = threading.Event()

    def stuck(part: list[module.RowGroup], names: list[str], **how: Any) -> pa.Table:
        if part != found[:1]:
            answered.wait()
        return read_together(part, names, **how)

    monkeypatch.setattr(module, "read_together", stuck)
    monkeypatch.setattr(module, "PREFETCH_BYTES", 0)
    found = list(open_dataset(dataset).row_groups(["t"]))
    before = {*threading.enumerate()}
    reading = prefetch_tables(found, ["t"])
    assert next(reading).num_rows == 20
    held: list[object] = [reading]
    held.append(held)  # as a traceback holds the frames that hold it
    del reading, held
    collector = threading.Thread(target=gc.collect, daemon=True)
    collector.start()
    collector.join(PATIENCE_SECONDS)
    waited = collector.is_alive()
    answered.set()
    assert not waited
    readers = [thread for thread in {*threading.enumerate()} - before if thread.name.startswith("ThreadPoolExecutor")]
    for reader in readers:
        reader.join(PATIENCE_SECONDS)
    assert not any(reader.is_alive() for reader in readers)


def test_errors_of_prefetching_are_raised_in_order(dataset: str) -> None:
    source = open_dataset(dataset)
    found = list(source.row_groups(["t"]))
    damaged = source.location.child(source.manifest.files[2].path).path
    os.truncate(damaged, 100)
    reading = prefetch_tables(found, ["t"])
    assert [next(reading).num_rows for _ in range(2)] == [20, 20]
    with pytest.raises(CorruptFileError, match=damaged):
        next(reading)


def as_before(dataset: Dataset) -> Dataset:
    """With the manifest of an older version, which has no row groups."""
    unknown = {"group_rows": None, "group_bytes": None}
    files = [file.model_copy(update=unknown) for file in dataset.manifest.files]
    return replace(dataset, manifest=dataset.manifest.model_copy(update={"files": files}))


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_the_manifest_lists_the_row_groups_of_the_footers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_BYTES", 2**18)
    episodes = [episode(number, 2_000 + number) for number in range(40)]
    write_dataset(tmp_path, episodes, format=format, max_rows_per_file=20 if format == "episodes" else 40_000)
    source = open_dataset(str(tmp_path))
    listed, read = ([replace(group, pass_number=0) for group in each.row_groups()] for each in (source, as_before(source)))
    assert listed == read
    assert 1 < len(source.manifest.files) < len(listed)


def test_listing_row_groups_opens_no_file(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_footer", None)
    assert sum(group.num_rows for group in open_dataset(dataset).row_groups()) == 140
