"""Rows to prepare, and what becomes of them."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import lz4.frame
import msgpack
import pyarrow as pa

from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.importing.mapping import ColumnMapping
from offline_core.data.importing.preparation import Preparation
from offline_core.data.importing.report import Findings
from offline_core.errors import DataError


def table(count: int = 4, **changes: Any) -> pa.Table:
    """Rows in our columns; row i has observation [i, i]."""
    columns: dict[str, Any] = {
        "obs": [[float(i), float(i)] for i in range(count)],
        "actions": list(range(count)),
        "rewards": [i / 2 for i in range(count)],
        "dones": [False] * count,
    }
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


def prepare(rows: pa.Table, prepared: Preparation | None = None, **fields: Any) -> tuple[pa.Table | None, list[Unreadable]]:
    prepared = Preparation(**{"mapping": {}} | fields) if prepared is None else prepared
    return prepared(rows, file=3, first_row=100, uri="there.parquet", findings=Findings("quarantine"))


def settled(rows: pa.Table, mapping: ColumnMapping | None = None, **fields: Any) -> Preparation:
    """A preparation for rows like these, which are first."""
    return Preparation(mapping or {}, **fields).settled(rows, "there.parquet")


def column(rows: pa.Table, name: str, **fields: Any) -> Any:
    """What becomes of a column of rows that are all good."""
    good, bad = prepare(rows, **fields)
    assert bad == []
    assert good is not None
    return read_column(good, name) if name != "infos" else [cell and msgpack.unpackb(cell) for cell in good[name].to_pylist()]


def reason(rows: pa.Table, **fields: Any) -> DataError:
    """Why no row is good."""
    good, bad = prepare(rows, **fields)
    assert good is None
    assert sum(each.rows for each in bad) == rows.num_rows
    assert isinstance(bad[0].error, DataError)
    return bad[0].error


def packed(value: Any) -> str:
    """As RLlib packs observations."""
    return base64.b64encode(lz4.frame.compress(pickle.dumps(value, protocol=5))).decode("ascii")


def with_metadata(array: pa.Array, name: str, shape: str = "") -> pa.Table:
    """Rows whose observations have one of Ray's types, as a process without Ray sees it."""
    metadata = {"ARROW:extension:name": name, "ARROW:extension:metadata": shape}
    rest = table(len(array), obs=None)
    return rest.append_column(pa.field("obs", array.type, metadata=metadata), array)
