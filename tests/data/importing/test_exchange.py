"""Rows on their way to their part: every row arrives once, all of an episode in one part."""

from __future__ import annotations

import errno
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offline_core.data.importing.episode_ids import SOURCE_FILE
from offline_core.data.importing.exchange import part_of, read_part, scatter
from offline_core.data.store.location import Location, temporary_folder
from offline_core.errors import StorageError
from tests.cases import examples


def rows(ids: list[str], file: int, first: int = 0) -> pa.Table:
    numbers = np.arange(first, first + len(ids))
    return pa.table({"eps_id": ids, "number": numbers, SOURCE_FILE: np.full(len(ids), file, np.int32)})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30))
@given(
    st.lists(st.lists(st.text("abé", max_size=2), min_size=1, max_size=8), min_size=1, max_size=4),
    st.integers(1, 5),
    st.booleans(),
)
def test_every_row_arrives_with_its_episode(tmp_path: Path, files: list[list[str]], parts: int, ids_per_file: bool) -> None:
    with temporary_folder(Location.of(str(tmp_path))) as folder:
        for file, ids in enumerate(files):
            tables = [rows(ids[:3], file), rows(ids[3:], file, 3)]
            scatter(tables, folder, f"{file:08d}", parts=parts, ids_per_file=ids_per_file)
        found = [read_part(folder, part) for part in range(parts)]
    arrived = Counter(
        (row["eps_id"], row[SOURCE_FILE], row["number"]) for table in found if table is not None for row in table.to_pylist()
    )
    assert arrived == Counter((id, file, i) for file, ids in enumerate(files) for i, id in enumerate(ids))
    for table in found:
        if table is not None:
            places = list(zip(table[SOURCE_FILE].to_pylist(), table["number"].to_pylist(), strict=True))
            assert places == sorted(places), "in the order of the source"
    where: dict[tuple[str, int], set[int]] = {}
    for number, table in enumerate(found):
        for row in [] if table is None else table.to_pylist():
            where.setdefault((row["eps_id"], row[SOURCE_FILE] if ids_per_file else 0), set()).add(number)
    assert all(len(numbers) == 1 for numbers in where.values())


def test_parts_are_of_about_one_size() -> None:
    table = rows([f"episode-{i}" for i in range(1000)], 0)
    sizes = np.bincount(part_of(table, 10, ids_per_file=False), minlength=10)
    assert (sizes > 50).all()
    assert (sizes < 200).all()


def test_files_that_number_their_episodes_alike_are_spread() -> None:
    parts = {int(part_of(rows(["0"], file), 8, ids_per_file=True)[0]) for file in range(100)}
    assert len(parts) == 8


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "00000").write_text("a file where a folder has to be")
    with pytest.raises(StorageError, match=str(tmp_path)):
        scatter([rows(["a"], 0)], Location.of(str(tmp_path)), "x", parts=1, ids_per_file=False)


def test_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that are open fail once more when they are closed."""

    class Full:
        def __enter__(self) -> Full:
            return self

        def write_table(self, _: pa.Table) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def __exit__(self, *_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pa.ipc, "new_file", lambda *_: Full())
    with pytest.raises(StorageError, match="Cannot write"):
        scatter([rows(["a"], 0)], Location.of(str(tmp_path)), "0", parts=1, ids_per_file=False)
