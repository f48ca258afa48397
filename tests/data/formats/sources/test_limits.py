"""Readers, their arguments and the files of tables, where variables limit what runs may do; and tables that name code."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offline_core.data.formats.published.iceberg import latest_metadata
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, LocationError, OfflineError, UnsafeDataError

pytestmark = pytest.mark.filterwarnings("ignore::Warning")

ROWS = pa.table({"eps_id": ["a", "a"], "t": [0, 1], "obs": [0.5, 1.5], "actions": [0, 1], "rewards": [1.0, 1.0]})
CATALOGUE = {"type": "sql", "uri": "sqlite:////tmp/elsewhere.db"}
ELSEWHERE = {"endpoint_url": "http://169.254.169.254"}

LIMITS = ("OFFLINE_ROOTS", "OFFLINE_IMPORTS")


def opened(source: Path | str, format: str = "auto", **arguments: Any) -> list[pa.Table]:
    config = SourceConfig(format=format, arguments=arguments)
    return [batch for reader in open_source([str(source)], config) for batch in reader.batches()]


@pytest.fixture(params=LIMITS)
def limit(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A variable that limits what runs may do."""
    monkeypatch.setenv(request.param, {"OFFLINE_ROOTS": str(tmp_path / "in"), "OFFLINE_IMPORTS": "examples"}[request.param])
    return str(request.param)


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFLINE_ROOTS", str(tmp_path / "in"))


@pytest.mark.parametrize(
    ("format", "arguments"),
    [
        ("read_iceberg", {"catalog_kwargs": {"py-catalog-impl": "antigravity.Catalog"}}),
        ("read_iceberg", {"catalog_kwargs": CATALOGUE}),
        ("read_iceberg", {"catalog_kwargs": {"type": "rest", "uri": "http://169.254.169.254"}}),
        ("read_unity_catalog", {"url": "http://169.254.169.254", "token": "x"}),
        ("read_lance", {"uri": "/etc"}),
        ("read_delta", {"path": "/etc"}),
        ("read_hudi", {"table_uri": "/etc"}),
        ("read_kafka", {"bootstrap_servers": "169.254.169.254:80"}),
        ("read_sql", {}),
        ("read_datasource", {}),
        ("read_something_new", {}),
        ("read_parquet", {"runtime_env": {"pip": ["a-package"]}}),
        ("read_parquet", {"ray_remote_args": {"runtime_env": {}}}),
        ("read_parquet", {"catalog": "a"}),
        ("read_csv", {"storage_options": ELSEWHERE}),
        ("parquet", {"storage_options": ELSEWHERE}),
        ("parquet", {"_deletion_files": ["iceberg-position-delete", {"0": ["/etc/passwd"]}]}),
        ("auto", {"storage_options": ELSEWHERE}),
        ("delta", {"storage_options": ELSEWHERE}),
        ("iceberg", {"storage_options": {"py-io-impl": "antigravity.IO"}}),
        ("iceberg", {"catalog": CATALOGUE}),
        ("lance", {"uri": "/etc"}),
        ("lance", {"storage_options": ELSEWHERE}),
        ("episodes", {"storage_options": ELSEWHERE}),
    ],
)
def test_what_may_lead_elsewhere_is_refused_before_it_is_called(
    tmp_path: Path, limit: str, format: str, arguments: dict[str, Any]
) -> None:
    name = format if format.startswith("read_") and format not in ("read_parquet", "read_csv") else next(iter(arguments))
    with pytest.raises(ConfigError, match=rf"source\.(format|arguments).*{name}.* where {limit} is set\. (Choose|Leave)"):
        opened(tmp_path / "in/table", format, **arguments)
    assert "antigravity" not in sys.modules


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize(("format", "arguments"), [("csv", {"separator": ";"}), ("auto", {"null_values": ["-"]})])
def test_what_is_harmless_stays_allowed(tmp_path: Path, format: str, arguments: dict[str, Any]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x.csv").write_text("a;b\n1;2\n")
    [table] = opened(tmp_path / "in/x.csv", format, **arguments)
    assert table.num_rows == 1


def test_rays_readers_stay_allowed_below_the_roots(tmp_path: Path, limit: str) -> None:
    config = SourceConfig(format="read_parquet", arguments={"columns": ["a"], "include_paths": True})
    open_source([f"{tmp_path}/in/x.parquet"], config)
    if limit == "OFFLINE_ROOTS":
        for outside in ("/etc/x.parquet", "other://bucket/x.parquet"):
            with pytest.raises(LocationError):
                open_source([outside], config)


def write_iceberg(folder: Path, **properties: str) -> None:
    """A table in a folder, all of whose files lie there if no property says something else."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=str(folder))
    catalog.create_namespace("a")
    catalog.create_table("a.b", ROWS.schema, location=str(folder), properties=properties).append(ROWS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("py-io-impl", "antigravity.IO"),
        ("s3.retry-strategy-impl", "antigravity.Retry"),
        ("write.py-location-provider.impl", "antigravity.Provider"),
        ("s3.endpoint", "http://169.254.169.254"),
        ("adls.connection-string", "x"),
    ],
)
def test_a_table_that_names_code_or_a_server_is_refused_whatever_is_set(tmp_path: Path, name: str, value: str) -> None:
    write_iceberg(tmp_path / "table")
    metadata = latest_metadata(Location.of(f"{tmp_path}/table"))
    assert metadata is not None
    told = json.loads(metadata.read())
    metadata.write(json.dumps(told | {"properties": {**told["properties"], name: value}}).encode())
    with pytest.raises(UnsafeDataError, match=rf"sets '{name}', by which a reader would run code or send requests elsewhere"):
        opened(tmp_path / "table")
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("names", ["write.data.path", "write.metadata.path"])
def test_files_of_an_iceberg_table_outside_the_roots_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    table, outside = tmp_path / "in/table", tmp_path / "outside"
    write_iceberg(table, **{names: str(outside)})
    if names == "write.metadata.path":  # also the metadata: what is named there are manifests
        newest = max(outside.glob("*.metadata.json"))
        shutil.rmtree(table / "metadata", ignore_errors=True)
        (table / "metadata").mkdir()
        shutil.copy(newest, table / "metadata")
    assert sum(batch.num_rows for batch in opened(table)) == 2
    monkeypatch.setenv("OFFLINE_ROOTS", str(tmp_path / "in"))
    with pytest.raises(LocationError, match=r"outside/.* is not below a location that OFFLINE_ROOTS allows"):
        opened(table)


@pytest.mark.usefixtures("roots")
def test_tables_below_the_roots_are_read(tmp_path: Path) -> None:
    import lance
    from deltalake import write_deltalake

    write_iceberg(tmp_path / "in/iceberg")
    lance.write_dataset(ROWS, str(tmp_path / "in/lance"))
    write_deltalake(str(tmp_path / "in/delta"), ROWS)
    for name in ("iceberg", "lance", "delta"):
        assert sum(batch.num_rows for batch in opened(tmp_path / "in" / name)) == 2


@pytest.mark.usefixtures("roots")
def test_a_clone_of_a_lance_table_outside_is_not_read(tmp_path: Path) -> None:
    import lance

    table = lance.write_dataset(ROWS, str(tmp_path / "outside"))
    table.tags.create("first", 1)
    table.shallow_clone(str(tmp_path / "in/clone"), "first")
    with pytest.raises(LocationError, match=r"outside is not below a location that OFFLINE_ROOTS allows"):
        opened(tmp_path / "in/clone")


@pytest.mark.usefixtures("roots")
@pytest.mark.parametrize("target", ["absolute", "above", "link"])
def test_files_of_a_delta_table_outside_the_roots_are_not_read(tmp_path: Path, target: str) -> None:
    from deltalake import write_deltalake

    table, outside = tmp_path / "in/table", tmp_path / "outside.parquet"
    write_deltalake(str(table), ROWS)
    [file], [log] = table.glob("*.parquet"), (table / "_delta_log").glob("*.json")
    shutil.move(file, outside)
    if target == "link":
        file.symlink_to(outside)
    else:
        name = str(outside) if target == "absolute" else "../../outside.parquet"
        log.write_text(log.read_text().replace(file.name, name))
    with pytest.raises(OfflineError):
        opened(table, "delta")
