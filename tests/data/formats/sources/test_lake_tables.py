"""Delta, Iceberg, Lance and Avro as sources: the same rows, chosen columns and rows, older versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import offline_core as offline
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.errors import ConfigError, CorruptFileError, SchemaError
from tests.data.formats.sources.factories import format_of

pytestmark = pytest.mark.filterwarnings("ignore::Warning")


def steps(episodes: int, steps: int = 5) -> pa.Table:
    rows = [(f"e{e}", t, [float(e), float(t)], t % 2, 1.0, t == steps - 1) for e in range(episodes) for t in range(steps)]
    names = ["eps_id", "t", "obs", "actions", "rewards", "terminateds"]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


def write_delta(path: Path, table: pa.Table) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(path), table, mode="overwrite")


def write_iceberg(path: Path, table: pa.Table) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    from offline_core.data.formats.published.iceberg import latest_metadata
    from offline_core.data.store.location import Location

    catalog = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=str(path))
    catalog.create_namespace("a")
    known = latest_metadata(Location.of(str(path)))
    made = (
        catalog.create_table("a.b", table.schema, location=str(path))
        if known is None
        else catalog.register_table("a.b", known.uri)
    )
    made.overwrite(table)


def write_lance(path: Path, table: pa.Table) -> None:
    import lance

    lance.write_dataset(table, str(path), mode="overwrite")


def write_avro(path: Path, table: pa.Table) -> None:
    path.mkdir(exist_ok=True)
    pl.DataFrame(table).write_avro(path / "steps.avro")


WRITERS: dict[str, Callable[[Path, pa.Table], None]] = {
    "delta": write_delta,
    "iceberg": write_iceberg,
    "lance": write_lance,
    "avro": write_avro,
}


def rows_of(path: Path, **config: object) -> pl.DataFrame:
    readers = open_source([str(path)], SourceConfig(**config))
    tables = [batch for reader in readers for batch in reader.batches()]
    return pl.concat([pl.DataFrame(table) for table in tables])


@pytest.mark.parametrize("format", WRITERS)
def test_the_same_rows_in_their_order(tmp_path: Path, format: str) -> None:
    WRITERS[format](tmp_path / "table", steps(3))
    assert format_of(f"{tmp_path}/table") == format
    read = rows_of(tmp_path / "table")
    assert read["_source_row"].to_list() == list(range(15))
    assert read.drop("_source_row").equals(pl.DataFrame(steps(3)))


@pytest.mark.parametrize("format", WRITERS)
def test_columns_and_rows_are_chosen_and_wrong_ones_refused(tmp_path: Path, format: str) -> None:
    WRITERS[format](tmp_path / "table", steps(3))
    read = rows_of(tmp_path / "table", columns=["eps_id", "t"], where="eps_id = 'e1' and t > 2")
    assert read.drop("_source_row").rows() == [("e1", 3), ("e1", 4)]
    with pytest.raises(SchemaError, match="has no column nothing"):
        rows_of(tmp_path / "table", columns=["nothing"])
    with pytest.raises(ConfigError, match="cannot be used"):
        rows_of(tmp_path / "table", where="nothing = 1")
    with pytest.raises(ConfigError, match="arguments"):
        rows_of(tmp_path / "table", arguments={"nothing": 1})


@pytest.mark.parametrize(("format", "first"), [("delta", 0), ("lance", 1)])
def test_an_older_version(tmp_path: Path, format: str, first: int) -> None:
    for count in (2, 3):
        WRITERS[format](tmp_path / "table", steps(count))
    assert len(rows_of(tmp_path / "table")) == 15
    assert len(rows_of(tmp_path / "table", arguments={"version": first})) == 10
    with pytest.raises(CorruptFileError, match=f"cannot be read as {format}"):
        rows_of(tmp_path / "table", arguments={"version": 99})


def test_an_older_snapshot_of_iceberg(tmp_path: Path) -> None:
    from pyiceberg.table import StaticTable

    from offline_core.data.formats.published.iceberg import latest_metadata
    from offline_core.data.store.location import Location

    write_iceberg(tmp_path / "table", steps(2))
    metadata = latest_metadata(Location.of(f"{tmp_path}/table"))
    assert metadata is not None
    snapshot = StaticTable.from_metadata(metadata.uri).current_snapshot()
    assert snapshot is not None
    write_iceberg(tmp_path / "table", steps(3))
    assert len(rows_of(tmp_path / "table")) == 15
    assert len(rows_of(tmp_path / "table", arguments={"snapshot_id": snapshot.snapshot_id})) == 10


@pytest.mark.parametrize("format", WRITERS)
def test_an_import_knows_the_table_again_until_it_changes(tmp_path: Path, format: str) -> None:
    table, output = tmp_path / "table", f"{tmp_path}/out"
    WRITERS[format](table, steps(3))
    first = import_data(ImportConfig(episodes={"last_new_obs": "repeat"}), source=str(table), output=output)
    assert (first.dataset.episodes, first.dataset.steps) == (3, 15)
    assert [episode.eps_id for episode in offline.open_dataset(output).episodes()] == ["e0", "e1", "e2"]
    assert import_data(ImportConfig(episodes={"last_new_obs": "repeat"}), source=str(table), output=output).reused
    WRITERS[format](table, steps(4))
    assert (
        import_data(ImportConfig(episodes={"last_new_obs": "repeat"}), source=str(table), output=output).dataset.episodes == 4
    )
