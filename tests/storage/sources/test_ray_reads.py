"""Whatever Ray Data reads, by the name of its function; with a real Ray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from offline_core.errors import ConfigError, OfflineError, SchemaError, UnsafeDataError
from offline_core.storage.foreign import read_foreign_column
from offline_core.storage.sources.ray_reads import RayRead
from tests.storage.factories import Bomb
from tests.storage.sources.factories import (
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


def test_tables_that_ray_wrote(tmp_path: Path) -> None:
    """Tensors, and tuples that it pickles, scanned by us while Ray's types are registered."""
    import ray.data

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 4, 5, 3), np.uint8)
    rows = [
        {
            "obs": image,
            "pair": (np.float32([i, i]), np.int64(i)),
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
    first, second = found.extras["pair"]
    np.testing.assert_array_equal(first, np.float32([[0, 0], [1, 1], [2, 2]]), strict=True)
    np.testing.assert_array_equal(second, [0, 1, 2])


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
        ("read_csv", {"override_num_blocks": -3}, ConfigError, "cannot read .*-3"),
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
def test_columns_that_ray_does_not_find(tmp_path: Path) -> None:
    write_steps(tmp_path / "x.parquet", steps())
    source = {"format": "read_parquet", "arguments": {"columns": ["nope"]}}
    with pytest.raises(SchemaError, match=r"read_parquet finds no column nope in .*x\.parquet"):
        imported(tmp_path, tmp_path / "x.parquet", source=source)


@pytest.mark.parametrize(
    "arguments", [{}, {"allow_pickle": False}, {"allow_pickle": True}, {"numpy_load_args": {"allow_pickle": True}}]
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


@pytest.mark.parametrize("name", ["missing.parquet", "broken.parquet"])
def test_files_that_ray_cannot_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is none PAR1")
    with pytest.raises(OfflineError, match=rf"ray\.data\.read_parquet cannot read .*{name}"):
        list(RayRead("read_parquet", (str(tmp_path / name),)).batches())


def test_the_order_that_others_asked_for_is_kept(tmp_path: Path) -> None:
    import ray.data

    write_steps(tmp_path / "a.csv", scalar_steps())
    options = ray.data.DataContext.get_current().execution_options
    before = options.preserve_order
    batches: Iterator[pa.Table] = RayRead("read_csv", (str(tmp_path / "a.csv"),)).batches()
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]
    assert options.preserve_order == before
