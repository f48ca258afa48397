"""Many small files come to the same as each of them by itself: the same bytes, the same losses, the same errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.formats.sources import small_files
from offline_core.errors import OfflineError
from tests.cases import slow_but
from tests.data.importing.factories import ROWS, Row, run_import, scattered, write_rows

FILES = 7


def changed(name: str, value: Any) -> Callable[[Path], None]:
    """Gives the rows of a file another value in a column, or in the last of them if it is a list of one."""

    def change(file: Path) -> None:
        rows: list[Row] = pq.read_table(file).to_pylist()
        for row in rows[-1:] if isinstance(value, list) else rows:
            row[name] = value[0] if isinstance(value, list) else value
        write_rows(file, rows)

    return change


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def emptied(file: Path) -> None:
    pq.write_table(pq.read_table(file).slice(0, 0), file)


def reordered(file: Path) -> None:
    table = pq.read_table(file)
    pq.write_table(table.select(table.column_names[::-1]), file)


def large(file: Path) -> None:
    table = pq.read_table(file)
    kind = table.schema.field("eps_id").with_type(pa.large_string())
    pq.write_table(table.set_column(0, kind, table["eps_id"].cast(pa.large_string())), file)


CHANGES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda file: None,
    "cut": cut,
    "empty": emptied,
    "columns in another order": reordered,
    "another type of text": large,
    "a reward that is NaN": changed("rewards", [math.nan]),
    "rewards as text": changed("rewards", "1.5"),
    "other actions": changed("actions", 0.5),
    "whole numbers as real ones": changed("actions", 1.0),
    "longer observations": changed("obs", [[1.0, 2.0, 3.0]]),
    "a further column": changed("further", 1),
    "infos": changed("infos", {"lives": 3}),
    "a column without values": changed("tag", None),
}


def outcome(source: Path, output: Path, **config: Any) -> tuple[Any, ...]:
    try:
        result, _ = run_import(source, output, partitions=3, **config)
    except OfflineError as error:
        return type(error), str(error).replace(str(output), "")
    manifest = open_dataset(result.dataset.uri).manifest
    notes = [note.replace(str(output), "") for note in result.notes]
    return [file.sha256 for file in manifest.files], result.counts, notes, result.quarantine is None


QUARANTINED = ("cut", "empty", "a reward that is NaN", "rewards as text", "other actions", "longer observations")
QUICK = [*((change, "fail", 3) for change in CHANGES), *((change, "quarantine", 0) for change in QUARANTINED)]


@pytest.mark.parametrize(
    ("change", "unreadable", "number"), slow_but(itertools.product(CHANGES, ("fail", "quarantine"), (0, 3)), *QUICK)
)
def test_the_same_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, unreadable: str, number: int
) -> None:
    source = scattered(tmp_path / "in", [row | {"agent_id": None} for row in ROWS], FILES, seed=0)
    CHANGES[change](source / f"{number}.parquet")
    together = outcome(source, tmp_path / "together", unreadable=unreadable)
    monkeypatch.setattr(small_files, "MAX_FILES", 1)
    assert together == outcome(source, tmp_path / "alone", unreadable=unreadable)


def test_small_files_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = scattered(tmp_path / "in", ROWS, FILES, seed=0)
    together, read = list[int](), small_files._read
    monkeypatch.setattr(small_files, "_read", lambda files, numbers: together.append(len(files)) or read(files, numbers))
    run_import(source, tmp_path / "out", partitions=3)
    assert together == [FILES]
