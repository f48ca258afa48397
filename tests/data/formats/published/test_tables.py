"""Published tables: other programs read the same files by name, each version once."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.tags import read_tags
from offline_core.data.formats.published import delta
from offline_core.data.formats.published.iceberg import latest_metadata
from offline_core.data.formats.publishing import PublishConfig, TableFormat, publish
from offline_core.data.store.location import Location
from offline_core.errors import SchemaError
from offline_core.keeping.retention.config import ForgetConfig, VacuumConfig
from offline_core.keeping.retention.forget import forget
from offline_core.keeping.retention.vacuum import vacuum
from tests.data.datasets.factories import episode, write_dataset


def read(table: str, format: TableFormat) -> pl.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a faster plug-in for planning
        if format == "delta":
            return pl.scan_delta(table).collect()
        metadata = latest_metadata(Location.of(table))
        assert metadata is not None
        return pl.scan_iceberg(metadata.uri).collect()


@pytest.mark.parametrize("format", get_args(TableFormat))
def test_polars_reads_the_version_that_was_published_last(tmp_path: Path, format: TableFormat) -> None:
    data, config = f"{tmp_path}/data", PublishConfig(format=format)
    write_dataset(data, [episode(number) for number in range(5)], max_rows_per_file=2)
    first = publish(config, dataset=data)
    files = set((tmp_path / "data").glob("*.parquet"))
    assert read(first.table, format).drop("item").equals(pl.read_parquet(sorted(files)).drop("item"))
    assert publish(config, dataset=data).reused and not first.reused
    assert set((tmp_path / "data").glob("*.parquet")) == files  # nothing is copied

    write_dataset(data, [episode(number) for number in range(7)])
    assert len(read(first.table, format)) == 5
    assert not publish(config, dataset=data).reused
    assert read(first.table, format)["eps_id"].to_list() == [f"episode-{number:04}" for number in range(7)]
    assert open_dataset(f"{data}@published-{format}").manifest.version == 2


def test_vacuum_leaves_the_version_that_a_table_shows(tmp_path: Path) -> None:
    data = f"{tmp_path}/data"
    write_dataset(data, [episode(0)])
    table = publish(PublishConfig(), dataset=data).table
    for count in (2, 3):
        write_dataset(data, [episode(number) for number in range(count)])
    vacuum(VacuumConfig(keep_versions=1, older_than_days=0, delete=True), root=data)
    assert len(read(table, "delta")) == 1


@pytest.mark.parametrize(("error", "left"), [(OSError, {"publishing-delta-2": 2}), (SchemaError, {})])
def test_a_failure_leaves_the_version_that_a_table_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], left: dict[str, int]
) -> None:
    data = f"{tmp_path}/data"
    write_dataset(data, [episode(0)])
    table = publish(PublishConfig(), dataset=data).table
    write_dataset(data, [episode(number) for number in range(2)])

    def fails(dataset: Dataset) -> bool:
        assert read_tags(dataset.location) == {"published-delta": 1, "publishing-delta-2": 2}
        raise error("No.")

    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(delta, "publish", fails)
        publish(PublishConfig(), dataset=data)
    assert read_tags(Location.of(data)) == {"published-delta": 1} | left
    vacuum(VacuumConfig(keep_versions=1, older_than_days=0, delete=True), root=data)
    assert len(read(table, "delta")) == 1
    publish(PublishConfig(), dataset=data)
    assert len(read(table, "delta")) == 2
    assert read_tags(Location.of(data)) == {"published-delta": 2}


@pytest.mark.parametrize("format", get_args(TableFormat))
def test_after_forgetting_the_version_is_published_again(tmp_path: Path, format: TableFormat) -> None:
    data, config = f"{tmp_path}/data", PublishConfig(format=format)
    write_dataset(data, [episode(number) for number in range(3)])
    table = publish(config, dataset=data).table
    forget(ForgetConfig(where="eps_id = 'episode-0001'", delete=True), root=data)
    assert not publish(config, dataset=data).reused
    assert read(table, format)["eps_id"].to_list() == ["episode-0000", "episode-0002"]


def test_a_table_of_steps_has_its_tensors_as_lists(tmp_path: Path) -> None:
    import duckdb
    from deltalake import DeltaTable

    data = f"{tmp_path}/data"
    write_dataset(data, [episode(0)], "table")
    publish(PublishConfig(), dataset=data)
    read = pl.scan_delta(data, use_pyarrow=True).collect()
    assert read["obs"].to_list() == [[float(x) for x in row] for row in episode(0).get_observations(slice(0, 7))]
    [file] = DeltaTable(data).file_uris()
    assert duckdb.sql(f"select obs from read_parquet('{file}')").pl()["obs"].to_list() == read["obs"].to_list()
    with pytest.raises(SchemaError, match="Publish it as delta"):
        publish(PublishConfig(format="iceberg"), dataset=data)
