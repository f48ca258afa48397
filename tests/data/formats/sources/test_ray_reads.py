"""Whatever Ray Data reads, by the name of its function; with a real Ray."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest

from offline_core.data.formats.packed import read_foreign_column
from offline_core.data.formats.sources.ray_reads import RayRead
from offline_core.errors import ConfigError, OfflineError, SchemaError, UnsafeDataError
from tests.cases import slow_but
from tests.data.datasets.factories import Bomb
from tests.data.formats.sources.factories import (
    SCALARS,
    check_steps,
    imported,
    imported_episodes,
    scalar_steps,
    steps,
    write_steps,
)

pytestmark = pytest.mark.usefixtures("ray_up")


def test_parquet_with_arguments(tmp_path: Path) -> None:
    write_steps(tmp_path / "in" / "x.parquet", steps())
    source: dict[str, Any] = {"format": "read_parquet", "arguments": {"include_paths": True}}
    found = imported_episodes(tmp_path, tmp_path / "in", source=source)
    check_steps(found)
    assert found[0].extras["path"].tolist() == [f"{tmp_path}/in/x.parquet"] * 3


def test_csv_in_the_order_of_its_rows(tmp_path: Path) -> None:
    """File after file, whichever is read first; and more than once."""
    count = 400
    columns = {"x": np.arange(count), "y": np.arange(count) / 2}
    for file in range(4):
        part = {name: values[file * 100 : file * 100 + 100].tolist() for name, values in columns.items()}
        write_steps(tmp_path / "in" / f"{file}.csv", part)
    reader = RayRead("read_csv", (str(tmp_path / "in"),))
    for _ in range(2):
        assert pa.concat_tables(reader.batches())["x"].to_pylist() == list(range(count))


@pytest.mark.slow
def test_several_places(tmp_path: Path) -> None:
    write_steps(tmp_path / "a.csv", scalar_steps())
    write_steps(tmp_path / "b.csv", scalar_steps(eps_id=["c", "c", "c", "d", "d"]))
    result = imported(
        tmp_path, [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], source={"format": "read_csv"}, mapping=SCALARS
    )
    assert (result.counts.rows, result.counts.episodes) == (10, 4)


def test_numpys_files_are_tensors(tmp_path: Path) -> None:
    """Ray's own extension type, registered in this process."""
    images = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), np.uint8)
    np.save(tmp_path / "x.npy", images)
    batches = RayRead("read_numpy", (str(tmp_path / "x.npy"),)).batches()
    found = np.concatenate([read_foreign_column(batch, "data") for batch in batches])
    np.testing.assert_array_equal(found, images, strict=True)


@pytest.mark.slow  # tests/data/episodes/test_arrow.py reads a table that Ray wrote
def test_tables_that_ray_wrote(tmp_path: Path) -> None:
    """Tensors, scanned by us while Ray's types are registered."""
    import ray.data

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 4, 5, 3), np.uint8)
    rows = [
        {
            "obs": image,
            "actions": i,
            "rewards": 1.0,
            "dones": i == 2,
            "t": i,
            "eps_id": "a",
        }
        for i, image in enumerate(images)
    ]
    ray.data.from_items(rows, override_num_blocks=1).write_parquet(str(tmp_path / "in"))
    [found] = imported_episodes(tmp_path, tmp_path / "in", mapping={}, episodes={"last_new_obs": "repeat"})
    np.testing.assert_array_equal(found.observations[:3], images, strict=True)


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("read_tarot_cards", {}, r"Ray Data has no 'read_tarot_cards'; it has .*read_csv"),
        ("read_csv", {"sepparator": ";"}, r"ray\.data\.read_csv does not take these arguments: .*sepparator"),
    ],
)
def test_functions_and_arguments_that_ray_does_not_know(
    tmp_path: Path, method: str, arguments: dict[str, Any], message: str
) -> None:
    write_steps(tmp_path / "a.csv", scalar_steps())
    with pytest.raises(ConfigError, match=message):
        imported(tmp_path, tmp_path / "a.csv", source={"format": method, "arguments": arguments}, mapping=SCALARS)


@pytest.mark.parametrize(
    ("method", "arguments", "error", "message"),
    [
        ("read_csv", {"override_num_blocks": -3}, ConfigError, "override_num_blocks: .*positive"),
        ("read_csv", {"shuffle": "bogus"}, ConfigError, "cannot read .*bogus"),
        ("read_parquet", {}, OfflineError, r"ray\.data\.read_parquet cannot read .*a\.csv"),
        ("read_images", {}, OfflineError, r"ray\.data\.read_images cannot read .*a\.csv"),
    ],
)
def test_what_ray_refuses(
    tmp_path: Path, method: str, arguments: dict[str, Any], error: type[OfflineError], message: str
) -> None:
    write_steps(tmp_path / "a.csv", scalar_steps())
    with pytest.raises(error, match=message):
        imported(tmp_path, tmp_path / "a.csv", source={"format": method, "arguments": arguments}, mapping=SCALARS)


@pytest.mark.filterwarnings("ignore:`columns=`")
@pytest.mark.slow
def test_columns_that_ray_does_not_find(tmp_path: Path) -> None:
    write_steps(tmp_path / "x.parquet", steps())
    source = {"format": "read_parquet", "arguments": {"columns": ["nope"]}}
    with pytest.raises(SchemaError, match=r"read_parquet finds no column nope in .*x\.parquet"):
        imported(tmp_path, tmp_path / "x.parquet", source=source)


@pytest.mark.parametrize(
    "arguments",
    slow_but(
        [{}, {"allow_pickle": False}, {"allow_pickle": True}, {"numpy_load_args": {"allow_pickle": True}}],
        *({}, {"allow_pickle": True}, {"numpy_load_args": {"allow_pickle": True}}),
    ),
)
def test_no_pickle_is_run(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Nor are they recommended, as Ray does."""
    objects = np.empty(1, object)
    objects[0] = Bomb(tmp_path / "exploded")
    np.save(tmp_path / "x.npy", objects)
    with pytest.raises(UnsafeDataError, match=r"read_numpy .*pickle.*would run code") as raised:
        imported(tmp_path, tmp_path / "x.npy", source={"format": "read_numpy", "arguments": arguments})
    assert "allow_pickle=True" not in str(raised.value)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("name", slow_but(["missing.parquet", "broken.parquet"], "broken.parquet"))
def test_files_that_ray_cannot_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is none PAR1")
    with pytest.raises(OfflineError, match=rf"ray\.data\.read_parquet cannot read .*{name}"):
        list(RayRead("read_parquet", (str(tmp_path / name),)).batches())


@pytest.mark.slow
def test_the_order_that_others_asked_for_is_kept(tmp_path: Path) -> None:
    import ray.data

    write_steps(tmp_path / "a.csv", scalar_steps())
    options = ray.data.DataContext.get_current().execution_options
    before = options.preserve_order
    batches: Iterator[pa.Table] = RayRead("read_csv", (str(tmp_path / "a.csv"),)).batches()
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]
    assert options.preserve_order == before


def read_iceberg(*, table_identifier: str, row_filter: Any = None, **kwargs: Any) -> Any:
    """With the parameters of Ray's, which needs a package that is not here."""
    raise NotImplementedError


def read_mongo(uri: str, database: str, collection: str, *, pipeline: Any = None) -> Any:
    raise NotImplementedError


def read_lance(uri: str | list[str], *, columns: Any = None) -> Any:
    raise NotImplementedError


def read_delta(path: str | list[str], version: int | None = None, *, filesystem: Any = None) -> Any:
    raise NotImplementedError


OF_MONGO = {"uri": "mongodb://host", "database": "d"}


@pytest.mark.parametrize(
    ("function", "source", "arguments", "passed"),
    [
        (read_iceberg, "lake.steps", {"row_filter": 1}, {"table_identifier": "lake.steps", "row_filter": 1}),
        (read_iceberg, "a name", {"table_identifier": "lake.steps"}, {"table_identifier": "lake.steps"}),
        (read_mongo, "steps", OF_MONGO, OF_MONGO | {"collection": "steps"}),
        (read_lance, "s3://lake/steps", {}, {"uri": "s3://lake/steps"}),
        (read_delta, "lake/steps", {"version": 3}, {"path": "lake/steps", "version": 3}),
    ],
)
def test_functions_get_the_source_as_what_they_ask_for(
    monkeypatch: pytest.MonkeyPatch, function: Any, source: str, arguments: dict[str, Any], passed: dict[str, Any]
) -> None:
    """A list of paths, one path, a table, an address; or nothing, if the arguments say all that is needed."""
    import ray.data

    called: list[dict[str, Any]] = []
    stub = functools.wraps(function)(lambda **given: called.append(given))
    monkeypatch.setattr(ray.data, function.__name__, stub)
    RayRead(function.__name__, (source,), arguments).dataset()
    assert called == [passed]


@pytest.mark.parametrize(
    ("function", "sources", "arguments", "message"),
    [
        (read_mongo, ["a"], {}, "does not take these arguments: missing a required argument: 'database'"),
        (read_mongo, ["a", "b"], OF_MONGO, "reads one collection at a time"),
        (read_delta, ["a"], {"path": "b"}, "as the source, not as its argument path"),
    ],
)
def test_what_does_not_fit_the_function_is_refused(
    monkeypatch: pytest.MonkeyPatch, function: Any, sources: list[str], arguments: dict[str, Any], message: str
) -> None:
    import ray.data

    monkeypatch.setattr(ray.data, function.__name__, function)
    with pytest.raises(ConfigError, match=message):
        RayRead(function.__name__, tuple(sources), arguments).dataset()


@pytest.mark.slow
def test_a_connection_that_is_refused_is_told(tmp_path: Path) -> None:
    def connect() -> Any:
        raise PermissionError(13, "Permission denied")

    source = {"format": "read_sql", "arguments": {"connection_factory": connect}}
    with pytest.raises(OfflineError, match=r"SELECT \* FROM steps.*ermission"):
        imported(tmp_path, "SELECT * FROM steps", source=source)
    assert not (tmp_path / "imported").exists()


@pytest.mark.filterwarnings("ignore:`columns=`")
@pytest.mark.slow
def test_a_filter_on_a_column_that_is_not_given(tmp_path: Path) -> None:
    """Also as lists, which forms can hold."""
    write_steps(tmp_path / "x.parquet", steps())
    for wanted in (pyarrow.dataset.field("t") < 2, [["t", "<", 2]]):
        arguments = {"columns": ["a_t", "r_t"], "filter": wanted}
        found = pa.concat_tables(RayRead("read_parquet", (str(tmp_path / "x.parquet"),), arguments).batches())
        assert found.to_pydict() == {"a_t": [0, 1, 1, 1], "r_t": [0.5, 1.0, 2.0, 2.5]}


def test_what_is_no_filter_is_refused(tmp_path: Path) -> None:
    write_steps(tmp_path / "x.parquet", steps())
    with pytest.raises(ConfigError, match=r"filter is not a filter: .*pyarrow\.dataset\.field"):
        RayRead("read_parquet", (str(tmp_path / "x.parquet"),), {"filter": "t < 2"}).dataset()


@pytest.mark.slow
def test_a_filter_that_does_not_fit_the_columns(tmp_path: Path) -> None:
    write_steps(tmp_path / "x.parquet", steps())
    source = {"format": "read_parquet", "arguments": {"filter": pyarrow.dataset.field("nope") < 5}}
    with pytest.raises(OfflineError, match=r"read_parquet cannot read .*x\.parquet.*nope"):
        imported(tmp_path, tmp_path / "x.parquet", source=source)
    assert not (tmp_path / "imported").exists()
