"""Reading episodes: RLlib's own recordings step by step, duplicates, damage and malice."""

from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

from offline_core.data.datasets import writer as writer_module
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.episodes import Episode, decode, encode
from offline_core.data.episodes.codecs import Format
from offline_core.errors import (
    CorruptFileError,
    EmptyDatasetError,
    EpisodeError,
    NonFiniteError,
    OfflineError,
    SchemaError,
    StorageError,
    UnsafeDataError,
)
from tests.data.datasets.factories import (
    ACTIONS,
    FORMATS,
    OBSERVATIONS,
    Bomb,
    copy_tree,
    cut_in_half,
    episode,
    garble,
    write_dataset,
    write_items,
)


def test_rllibs_recordings(rllib_recordings: Path) -> None:
    """See tests/data/episodes/test_rllib_recordings.py for what is in them."""
    folder = rllib_recordings / "pendulum_episodes"
    items = [item for path in sorted(folder.rglob("*.parquet")) for item in pq.read_table(path)["item"].to_pylist()]
    assert list(open_dataset(str(folder)).episodes()) == [decode(item) for item in items]


def test_spaces_of_rllibs_recordings(rllib_recordings: Path) -> None:
    assert open_dataset(str(rllib_recordings / "pendulum_episodes")).spaces == (
        spaces.Box(np.array([-1, -1, -8], np.float32), np.array([1, 1, 8], np.float32)),
        spaces.Box(-2, 2, (1,), np.float32),
    )


def test_episodes_that_are_there_twice_are_read_once(
    rllib_recordings: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As RLlib's recorder makes them: every write repeats what was written before."""
    copy_tree(rllib_recordings / "pendulum_episodes", tmp_path)
    once = [e.eps_id for e in open_dataset(str(tmp_path)).episodes()]
    first = sorted(tmp_path.rglob("*.parquet"))[0]
    (tmp_path / "zzz.parquet").write_bytes(first.read_bytes())
    repeated = pq.read_metadata(first).num_rows
    with caplog.at_level(logging.WARNING):
        assert [e.eps_id for e in open_dataset(str(tmp_path)).episodes()] == once
    assert caplog.messages == [f"{tmp_path}: left out {repeated} duplicate episodes, read 20"]


@pytest.mark.parametrize("format", FORMATS)
def test_pieces_of_one_episode_are_no_duplicates(tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "ROW_GROUP_BYTES", 1)  # consecutive pieces in one group of a table become one
    whole = episode(0, 30)
    pieces = [whole.slice(0, 10), whole.slice(10, 25), whole.slice(25, 30)]
    assert list(write_dataset(tmp_path, pieces, format).episodes()) == pieces


@pytest.mark.parametrize("format", FORMATS)
def test_parts_come_in_order_and_alone(tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "ROW_GROUP_BYTES", 1000)
    some = [episode(i, 3 + i % 7) for i in range(20)]
    dataset = write_dataset(tmp_path, some, format, max_rows_per_file=8 if format == "episodes" else 30)
    groups = list(dataset.row_groups())
    assert len(groups) > len(dataset.manifest.files) > 1
    assert [group.uri for group in groups] == sorted(group.uri for group in groups)
    read = [group.read() for group in dataset.row_groups()]
    assert [group.num_rows for group in groups] == [table.num_rows for table in read]
    ids = pa.concat_tables(read)["eps_id"].unique().to_pylist()
    assert ids == [e.eps_id for e in some]
    parts = list(dataset.tables(["eps_id"]))
    assert all(table.column_names == ["eps_id"] for table in parts)
    assert pa.concat_tables(parts)["eps_id"].unique().to_pylist() == ids


def test_reading_can_stop_early(tmp_path: Path) -> None:
    """And the file that was open is closed; pytest would fail on the warning."""
    dataset = write_dataset(tmp_path, [episode(i) for i in range(5)])
    assert next(dataset.episodes()) == episode(0)
    assert next(dataset.tables()).num_rows == 5


@pytest.mark.parametrize("format", FORMATS)
def test_the_schema_and_spaces_of_ours(tmp_path: Path, format: Format) -> None:
    dataset = write_dataset(tmp_path, [episode(0)], format)
    assert dataset.schema.equals(pq.read_schema(dataset.paths[0]))
    assert dataset.spaces == (OBSERVATIONS, ACTIONS)


def test_spaces_stand_in_the_first_episode_if_nowhere_else(tmp_path: Path) -> None:
    """Which need not be in the first file: Ray writes empty ones."""
    write_items(tmp_path / "a.parquet", [])
    write_items(tmp_path / "b.parquet", [encode(episode(0))])
    dataset = open_dataset(str(tmp_path))
    assert dataset.observation_space is None
    assert dataset.spaces == (OBSERVATIONS, ACTIONS)


def test_no_spaces(tmp_path: Path) -> None:
    write_items(tmp_path / "none" / "a.parquet", [])
    assert open_dataset(str(tmp_path / "none")).spaces == (None, None)
    pq.write_table(pa.table({"obs": [1.0]}), tmp_path / "table.parquet")
    write_items(tmp_path / "unsaid" / "a.parquet", [encode(episode(0, observation_space=None, action_space=None))])
    assert open_dataset(str(tmp_path / "unsaid")).spaces == (None, None)


def test_a_dataset_without_files_has_no_schema(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, [episode(0)])
    empty = Dataset(dataset.location, dataset.manifest.model_copy(update={"files": []}))
    with pytest.raises(EmptyDatasetError, match=str(tmp_path)):
        _ = empty.schema


def test_foreign_tables_are_no_episodes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"obs": [1.0]}), tmp_path / "x.parquet")
    with pytest.raises(SchemaError, match=f"{tmp_path} has no manifest.*Import it first"):
        next(open_dataset(str(tmp_path)).episodes())


# Damage.


def reading(dataset: Dataset) -> list[Episode]:
    return list(dataset.episodes())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("damage", ["cut", "footer", "page", "empty"])
def test_a_damaged_file_is_named(tmp_path: Path, format: Format, damage: str) -> None:
    some = [episode(i, 20) for i in range(4)]
    dataset = write_dataset(tmp_path, some, format, max_rows_per_file=2 if format == "episodes" else 40)
    bad = dataset.paths[1]
    match damage:
        case "cut":
            cut_in_half(bad)
        case "footer":
            garble(bad, -60, -8)
        case "page":
            garble(bad, 4, 60)
        case "empty":
            Path(bad).write_bytes(b"")
    with pytest.raises(CorruptFileError, match=rf"{bad} is no readable Parquet file(.|\n)*Restore it from a copy"):
        reading(dataset)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, [episode(0)])
    os.unlink(dataset.paths[0])
    with pytest.raises(StorageError, match=f"Cannot read {dataset.paths[0]}: it does not exist"):
        reading(dataset)
    with pytest.raises(StorageError, match=f"Cannot read {dataset.paths[0]}"):
        _ = dataset.schema


def state_of(e: Episode, **changes: Any) -> bytes:
    """An episode's bytes with some of its state replaced, as a foreign writer might."""
    state = msgpack.unpackb(encode(e), object_hook=msgpack_numpy.decode, strict_map_key=False)
    return bytes(msgpack.packb(state | changes, default=msgpack_numpy.encode))


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        (b"not msgpack", CorruptFileError, "11 bytes"),
        (b"", CorruptFileError, "0 bytes"),
        (encode(episode(1))[:-10], CorruptFileError, "bytes are not a stored episode"),
        (state_of(episode(1), rewards={"data": np.zeros(3)}), EpisodeError, "episode-0001"),
        (encode(episode(1, rewards=np.full(7, np.nan))), NonFiniteError, "episode-0001.*rewards at step 0"),
    ],
)
def test_an_episode_that_is_not_whole_is_named(tmp_path: Path, item: bytes, error: type[OfflineError], message: str) -> None:
    write_items(tmp_path / "good.parquet", [encode(episode(0))])
    write_items(tmp_path / "sub" / "bad.parquet", [encode(episode(2)), item])
    with pytest.raises(error, match=rf"{tmp_path}/sub/bad\.parquet: .*{message}"):
        reading(open_dataset(str(tmp_path)))


def test_an_episode_with_a_pickle_that_runs_code(tmp_path: Path) -> None:
    marker = tmp_path / "exploded"
    bomb = {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": pickle.dumps(Bomb(marker))}
    for key in ("observations", "actions", "rewards"):
        folder = tmp_path / key
        write_items(folder / "x.parquet", [state_of(episode(0), **{key: {"data": bomb, "lookback": 0, "finalized": True}})])
        with pytest.raises(UnsafeDataError, match=rf"{folder}/x\.parquet: .*mkdir.*only plain numpy arrays are read"):
            reading(open_dataset(str(folder)))
    write_items(tmp_path / "infos" / "x.parquet", [state_of(episode(0), infos={"data": [{"a": bomb}] * 8, "lookback": 0})])
    with pytest.raises(UnsafeDataError):
        reading(open_dataset(str(tmp_path / "infos")))
    assert not marker.exists()
    pickle.loads(bomb[b"data"])  # type: ignore[arg-type]
    assert marker.exists(), "or else this test would show nothing"
