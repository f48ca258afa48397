"""Columns that no one mapped refuse no row: what cannot be kept of them is left out of all rows, and said."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offline_core as offline
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.preparation import Preparation
from offline_core.data.importing.report import Findings, ImportResult
from offline_core.errors import DataError
from offline_core.runtime.config import parse
from tests.data.importing.preparing import prepare, table

MOMENT = datetime.datetime(2026, 3, 20, 7)
NOT_KEPT = {
    "null": pa.array([1, None]),
    "null-text": pa.array(["a", None]),
    "timestamp": pa.array([MOMENT] * 2),
    "date": pa.array([MOMENT.date()] * 2),
    "time": pa.array([MOMENT.time()] * 2),
    "duration": pa.array([datetime.timedelta(seconds=1)] * 2),
    "binary": pa.array([b"a", b"b"]),
    "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
    "ragged": pa.array([[1], [1, 2]]),
    "empty-lists": pa.array([[], []], pa.list_(pa.int64())),
    "list-of-records": pa.array([[{"a": 1}], [{"a": 2}]]),
    "list-of-null": pa.array([[1.0], [None]]),
    "list-of-text": pa.array([["a"], ["b"]]),
    "struct-with-null": pa.array([{"a": 1}, None]),
    "struct-of-dates": pa.array([{"a": MOMENT}] * 2),
    "categories-with-null": pa.array(["a", None]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", NOT_KEPT)
def test_a_column_that_cannot_be_kept_is_left_out(kind: str) -> None:
    rows = table(2, extra=NOT_KEPT[kind], speed=[0.5, 1.5])
    findings = Findings("quarantine")
    good, bad = Preparation({})(rows, file=0, first_row=0, uri="there.parquet", findings=findings)
    assert bad == []
    assert good is not None and good["speed"].to_pylist() == [0.5, 1.5] and "extra" not in good.column_names
    assert findings.extras.keys() == {"extra"}


@pytest.mark.parametrize("kind", NOT_KEPT)
def test_the_same_column_refuses_rows_where_it_is_mapped(kind: str) -> None:
    _, bad = prepare(table(2, extra=NOT_KEPT[kind]), Preparation({"cost": "extra"}))
    assert bad and isinstance(bad[0].error, DataError) and "extra" in str(bad[0].error)


def test_a_null_in_a_row_that_is_refused_anyway_costs_no_column() -> None:
    good, [bad] = prepare(table(3, rewards=[1.0, None, 1.0], extra=[1, None, 3]))
    assert bad.row == 101
    assert good is not None and good["extra"].to_pylist() == [1, 3]


def rows(first: int, **more: Any) -> pa.Table:
    """Two episodes of three steps."""
    count = 6
    return pa.table(
        {
            "eps_id": np.repeat([first, first + 1], 3),
            "t": [0, 1, 2] * 2,
            "obs": [[float(i)] for i in range(count)],
            "actions": [0, 1] * 3,
            "rewards": [1.0] * count,
            "terminateds": [False, False, True] * 2,
            **more,
        }
    )


LATER = {
    "lacks": {},
    "null": {"fault": [7, 7, 7, 7, 7, None]},
    "null-type": {"fault": pa.nulls(6)},
    "other-type": {"fault": ["7"] * 6},
    "larger": {"fault": [2**40 + 0.5] * 6},
}


def imported(folder: Path, tables: list[pa.Table], *drop: str, **values: Any) -> tuple[ImportResult, list[Episode]]:
    (folder / "in").mkdir(exist_ok=True)
    for number, each in enumerate(tables):
        pq.write_table(each.drop_columns(list(drop)), folder / "in" / f"{number}.parquet")
    config = parse(ImportConfig, {"episodes": {"last_new_obs": "repeat"}} | values)
    made = import_data(config, source=str(folder / "in"), output=str(folder / "out"))
    return made, list(offline.open_dataset(made.dataset.uri).episodes())


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("order", ["parts", "together", "stored"])
def test_a_column_that_changes_in_a_later_file_is_left_out_of_all(later: str, order: str, tmp_path: Path) -> None:
    tables = [rows(0, fault=[7] * 6, speed=[0.5] * 6), rows(2, speed=[0.5] * 6, **LATER[later])]
    drop = ("eps_id", "t") if order == "stored" else ()
    made, episodes = imported(tmp_path, tables, *drop, partitions=3 if order == "parts" else 1)
    assert len(episodes) == 4 and made.counts.steps == made.counts.rows == 12
    assert all("fault" not in each.extras and each.extras["speed"].tolist() == [0.5] * 3 for each in episodes)
    [note] = [each for each in made.notes if "fault" in each]
    assert note.startswith("Columns that are not mapped are left out where they cannot be kept: fault (")
    entries = sorted(str(path) for path in (tmp_path / "out").glob("*.parquet"))
    assert len(entries) == len(open_dataset(made.dataset.uri).manifest.files), "no file is left of the first reading"


@pytest.mark.parametrize("first", ["lacks", "null-type"])
def test_a_column_that_the_first_file_has_no_value_of(first: str, tmp_path: Path) -> None:
    made, episodes = imported(tmp_path, [rows(0, **LATER[first]), rows(2, fault=[7] * 6)])
    assert len(episodes) == 4 and all("fault" not in each.extras for each in episodes)
    assert any("fault (the rows before have none)" in note for note in made.notes)


def test_an_append_leaves_out_what_is_new_and_refuses_what_it_would_lose(tmp_path: Path) -> None:
    imported(tmp_path, [rows(0, fault=[7] * 6)], append=True)
    made, episodes = imported(tmp_path, [rows(0, fault=[7] * 6), rows(2, fault=[8] * 6, speed=[1] * 6)], append=True)
    assert [each.extras.keys() for each in episodes] == [{"fault"}] * 4
    assert any("speed (the rows before have none)" in note for note in made.notes)
    with pytest.raises(DataError, match="fault"):
        imported(tmp_path, [rows(0, fault=[7] * 6), rows(2, fault=[8] * 6, speed=[1] * 6), rows(4)], append=True)


@pytest.mark.parametrize("write", ["parquet", "csv"])
def test_a_flag_without_values_in_the_first_file_is_filled(write: str, tmp_path: Path) -> None:
    """Of such a column CSV says that it is text."""
    (tmp_path / "in").mkdir()
    flags = [False, False, True] * 2
    for number, each in enumerate((rows(0, ended=pa.nulls(6)), rows(2, ended=flags))):
        frame = pl.DataFrame(each.drop_columns(["terminateds", "obs"]))
        getattr(frame, f"write_{write}")(tmp_path / "in" / f"{number}.{write}")
    config = {"mapping": {"obs": ["t"], "terminateds": "ended"}, "episodes": {"last_new_obs": "repeat"}}
    with pytest.raises(DataError, match=r"no value in any row here; fill it by columns\.fill|has 6 nulls "):
        import_data(parse(ImportConfig, config), source=str(tmp_path / "in"), output=str(tmp_path / "out"))
    filled = parse(ImportConfig, config | {"columns": {"fill": {"ended": False}}})
    made = import_data(filled, source=str(tmp_path / "in"), output=str(tmp_path / "out"))
    episodes = {each.eps_id: each.terminated for each in offline.open_dataset(made.dataset.uri).episodes()}
    assert episodes == {"0": False, "1": False, "2": True, "3": True}
