"""The writer: what it puts down, where it cuts, and that nothing half done is left behind."""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

from offline_core.data.datasets import writer as writer_module
from offline_core.data.datasets.commit import prepare_dataset
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.datasets.statistics import Statistics, Summary
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode, episodes_to_table
from offline_core.data.episodes.codecs import CODECS, Format
from offline_core.data.episodes.index import episode_summary
from offline_core.data.store.location import Location
from offline_core.errors import EpisodeError, SchemaError, StorageError
from tests.cases import slow_but
from tests.data.datasets.factories import FORMATS, episode, found, in_small_filesystem, write_dataset, write_files
from tests.waiting import wait_until

LIMIT = 2**16


def rows_of(folder: Path, files: Sequence[FileEntry]) -> pa.Table:
    return pa.concat_tables([pq.read_table(folder / file.path) for file in files])


def groups_of(folder: Path, files: Sequence[FileEntry]) -> list[pa.Table]:
    """Every row group of every file."""
    opened = [pq.ParquetFile(folder / file.path) for file in files]
    return [file.read_row_group(number) for file in opened for number in range(file.num_row_groups)]


def image_episode(number: int, steps: int) -> Episode:
    noise = np.random.default_rng(number).integers(0, 256, (steps + 1, 12, 12, 1), np.uint8)
    return episode(number, steps, observations=noise, observation_space=None)


def chatty_episode(number: int, steps: int) -> Episode:
    """Large infos in some episodes, small ones in others."""
    text = "".join(np.random.default_rng(number).choice(list("abcdefgh"), 300 if number % 7 > 4 else 1))
    return episode(number, steps, infos=[{"text": f"{text}{t}"} for t in range(steps + 1)])


def nested_episode(number: int, steps: int) -> Episode:
    rng = np.random.default_rng(number)
    observations = {
        "small": rng.integers(0, 9, steps + 1).astype(np.int16),
        "half": rng.standard_normal((steps + 1, 5)).astype(np.float16),
        "pair": (rng.random(steps + 1) < 0.5, rng.integers(0, 9, (steps + 1, 3, 2), np.int8)),
        "text": np.array([f"step {t}" for t in range(steps + 1)]),
    }
    return episode(number, steps, observations=observations, observation_space=None)


KINDS: dict[str, Callable[[int, int], Episode]] = {
    "vectors": episode,
    "images": image_episode,
    "infos": chatty_episode,
    "nested": nested_episode,
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_can_be_read(tmp_path: Path, format: Format, kind: str) -> None:
    some = [KINDS[kind](i, 1 + i % 4) for i in range(9)]
    dataset = write_dataset(tmp_path, some, format, batch=2, max_rows_per_file=4 if format == "episodes" else 7)
    assert len(dataset.manifest.files) > 1
    assert list(dataset.episodes()) == some


@pytest.mark.parametrize("format", FORMATS)
def test_no_episodes_make_no_file(tmp_path: Path, format: Format) -> None:
    with EpisodeWriter(prepare_dataset(str(tmp_path)), "part", format=format) as writer:
        writer.write([])
    assert (writer.files, found(tmp_path)) == ([], [])
    assert Statistics.of(writer.summaries).episodes == 0


# Where files end.


def test_files_roll_by_episodes(tmp_path: Path) -> None:
    for batch in (1, 3, 4, 10):
        folder = tmp_path / str(batch)
        files = write_files(folder, [episode(i) for i in range(10)], "episodes", batch=batch, max_rows_per_file=4).files
        rows = [file.rows for file in files]
        assert sum(rows) == 10, "the remainder is written too"
        assert max(rows) <= 4
        assert [pq.read_metadata(folder / file.path).num_rows for file in files] == rows
        assert [file.episodes for file in files] == rows
        assert rows_of(folder, files)["eps_id"].to_pylist() == [f"episode-{i:04}" for i in range(10)]
    assert rows == [4, 4, 2]


def test_files_roll_by_steps_between_episodes(tmp_path: Path) -> None:
    lengths = [3, 4, 5, 11, 1, 1, 2, 6, 5]
    files = write_files(tmp_path, [episode(i, n) for i, n in enumerate(lengths)], "table", max_rows_per_file=10).files
    assert [file.rows for file in files] == [7, 5, 11, 10, 5]
    assert [file.steps for file in files] == [7, 5, 11, 10, 5]
    assert [file.episodes for file in files] == [2, 1, 1, 4, 1]
    for file in files:
        assert pq.read_table(tmp_path / file.path)["t"][0].as_py() == 0


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("compression", "batch"), slow_but([("none", 1), ("zstd", 7), ("none", 1000)], ("zstd", 7), ("none", 1000))
)
def test_no_file_grows_beyond_its_limit(tmp_path: Path, format: Format, kind: str, compression: str, batch: int) -> None:
    some = [KINDS[kind](i, 1 + i * i % 25) for i in range(150)]
    files = write_files(tmp_path, some, format, batch=batch, max_bytes_per_file=LIMIT, compression=compression).files
    assert [file.bytes for file in files] == [(tmp_path / file.path).stat().st_size for file in files]
    assert max(file.bytes for file in files) <= LIMIT
    assert sum(file.episodes for file in files) == 150
    assert len(files) < 2 + 3 * sum(file.bytes for file in files) / LIMIT, "and files are not cut into crumbs"
    assert compression == "zstd" or len(files) > 1, "or else this test would show nothing"


@pytest.mark.parametrize("format", FORMATS)
def test_only_an_episode_alone_may_be_larger(tmp_path: Path, format: Format) -> None:
    lengths = [5, 5, 4000, 5, 5]
    files = write_files(tmp_path, [episode(i, n) for i, n in enumerate(lengths)], format, max_bytes_per_file=LIMIT).files
    assert [file.episodes for file in files if file.bytes > LIMIT] == [1]
    assert [file.steps for file in files if file.bytes > LIMIT] == [4000]
    assert sum(file.episodes for file in files) == 5


@pytest.mark.parametrize("format", FORMATS)
def test_row_groups_end_where_episodes_end(tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "ROW_GROUP_BYTES", 4000)
    lengths = [1 + i * 7 % 40 for i in range(60)]
    files = write_files(tmp_path, [episode(i, n) for i, n in enumerate(lengths)], format, batch=25).files
    groups = groups_of(tmp_path, files)
    assert len(groups) > 5
    ids = [set(group["eps_id"].to_pylist()) for group in groups]
    assert len(set.union(*ids)) == sum(map(len, ids)) == 60
    if format == "table":
        for group in groups:
            assert group["t"][0].as_py() == 0
            assert group["terminateds"][-1].as_py() or group["truncateds"][-1].as_py()


def test_an_episode_larger_than_a_row_group_is_one(tmp_path: Path) -> None:
    observations = np.random.default_rng(0).standard_normal((5001, 64))
    assert observations.nbytes * 2 > writer_module.ROW_GROUP_BYTES
    large = episode(1, 5000, observations=observations, observation_space=None)
    small = [episode(i, 5, observations=observations[:6], observation_space=None) for i in (0, 2)]
    files = write_files(tmp_path, [small[0], large, small[1]], "table").files
    assert [group.num_rows for group in groups_of(tmp_path, files)] == [5, 5000, 5]


# What files are called and what is said about them.


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_content_makes_the_same_files(tmp_path: Path, format: Format) -> None:
    for folder in ("one", "two"):
        write_files(tmp_path / folder, [chatty_episode(i, 5) for i in range(20)], format, max_bytes_per_file=LIMIT, batch=6)
    names = found(tmp_path / "one")
    assert names == found(tmp_path / "two")
    assert len(names) == len(set(names))
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("format", FORMATS)
def test_entries_describe_their_files(tmp_path: Path, format: Format) -> None:
    files = write_files(tmp_path, [episode(i, i + 1) for i in range(9)], format, max_rows_per_file=8).files
    assert len(files) > 1
    assert found(tmp_path) == sorted(file.path for file in files)
    for number, file in enumerate(files):
        data = (tmp_path / file.path).read_bytes()
        assert file.sha256 == hashlib.sha256(data).hexdigest()
        assert file.bytes == len(data)
        assert file.path == f"part-{number:06d}-{file.sha256[:12]}.parquet"
        assert file.rows == pq.read_metadata(tmp_path / file.path).num_rows
    assert (sum(file.episodes for file in files), sum(file.steps for file in files)) == (9, 45)


def test_a_prefix_may_name_folders(tmp_path: Path) -> None:
    with EpisodeWriter(Location.of(str(tmp_path)), "cartpole/run-1/part", format="episodes") as writer:
        writer.write([episode(0)])
    assert writer.files[0].path.startswith("cartpole/run-1/part-000000-")
    assert found(tmp_path) == [writer.files[0].path]


@pytest.mark.parametrize("format", FORMATS)
def test_statistics_are_numpys(tmp_path: Path, format: Format) -> None:
    some = [episode(i, 1 + i * i % 17, truncated=i % 3 == 0, terminated=i % 5 == 0) for i in range(40)]
    statistics = Statistics.of(write_files(tmp_path, some, format, batch=7, max_rows_per_file=50).summaries)
    returns = np.array([e.rewards.sum() for e in some])
    lengths = np.array([len(e.rewards) for e in some], float)
    assert (statistics.episodes, statistics.steps) == (40, lengths.sum())
    assert (statistics.terminated, statistics.truncated) == (8, 14)
    for summary, values in ((statistics.returns, returns), (statistics.lengths, lengths)):
        assert summary == Summary(
            count=40, mean=values.mean(), std=values.std(), min=float(values.min()), max=float(values.max())
        )


def test_lookback_is_no_part_of_returns_and_lengths(tmp_path: Path) -> None:
    piece = episode(0, 10).slice(4, 10, lookback=3)
    for format in FORMATS:
        statistics = Statistics.of(write_files(tmp_path / format, [piece], format).summaries)
        assert statistics.returns.mean == episode(0, 10).rewards[4:].sum()
        assert statistics.steps == 6


def nested_walk(number: int, steps: int) -> Episode:
    rng = np.random.default_rng(number)
    observations = {
        "pair": (rng.integers(0, 9, steps + 1), rng.standard_normal((steps + 1, 3))),
        "text": np.full(steps + 1, "x"),
    }
    return episode(number, steps, observations=observations, observation_space=None)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("batch", [1, 100])
def test_columns_are_summed_up_step_by_step(tmp_path: Path, format: Format, batch: int) -> None:
    some = [nested_walk(i, 1 + i % 5) for i in range(20)]
    statistics = write_files(tmp_path, some, format, batch=batch).statistics
    assert statistics.columns is not None
    assert set(statistics.columns) == {"obs/pair/0", "obs/pair/1", "actions", "rewards", "action_logp"}
    vectors = np.concatenate([np.asarray(e.observations["pair"][1])[:-1] for e in some])
    rewards = np.concatenate([e.rewards for e in some])
    np.testing.assert_allclose(statistics.columns["obs/pair/1"].mean, vectors.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(statistics.columns["obs/pair/1"].std, vectors.std(axis=0), rtol=1e-12)
    assert statistics.columns["rewards"].count == [len(rewards)] == [statistics.steps]
    assert statistics.columns["rewards"].max == [rewards.max()]


def test_columns_of_episodes_of_different_shapes(tmp_path: Path) -> None:
    some = [episode(0), episode(1, observations=np.zeros((8, 2)), observation_space=None, extras={})]
    columns = write_files(tmp_path, some, "episodes").statistics.columns
    assert columns is not None
    assert columns["obs"].count == [7 * 4 + 7 * 2], "summed up over all dimensions"
    assert columns["action_logp"].count == [7]


def test_columns_of_rows_that_were_not_opened_are_not_known(tmp_path: Path) -> None:
    with EpisodeWriter(prepare_dataset(str(tmp_path)), "part", format="episodes") as writer:
        writer.write([episode(0)])
        writer.copy(CODECS["episodes"].encode([episode(1)]), episode_summary([episode(1)]))
    assert writer.statistics.columns is None
    assert writer.statistics.episodes == 2


def test_tables_are_summed_up_as_they_are(tmp_path: Path) -> None:
    some = [episode(i, 3 + i) for i in range(4)]
    whole = write_files(tmp_path / "a", some, "table").statistics
    with EpisodeWriter(prepare_dataset(str(tmp_path / "b")), "part", format="table") as writer:
        writer.copy(episodes_to_table(some), episode_summary(some))
    assert writer.statistics == whole


def test_rows_from_before_some_metadata_lie_beside_newer_ones(tmp_path: Path) -> None:
    some = [episode(i) for i in range(4)]
    rows = CODECS["episodes"].encode(some)
    with EpisodeWriter(prepare_dataset(str(tmp_path)), "part", format="episodes") as writer:
        writer.copy(rows.slice(0, 2).drop_columns(["success", "policy_id", "content"]), episode_summary(some[:2]))
        writer.copy(rows.slice(2), episode_summary(some[2:]))
    [file] = writer.files
    table = pq.read_table(tmp_path / file.path)
    assert table["item"].to_pylist() == rows["item"].to_pylist()
    assert table["content"].to_pylist() == [None, None, *rows["content"].to_pylist()[2:]]


# What stands in files.


def test_columns_of_the_episode_format(tmp_path: Path) -> None:
    some = [episode(i, i + 1, t_started=i) for i in range(4)]
    table = rows_of(tmp_path, write_files(tmp_path, some, "episodes").files)
    assert {field.name: (str(field.type), field.nullable) for field in table.schema} == {
        "item": ("binary", False),
        "eps_id": ("string", False),
        "t_started": ("int64", False),
        "length": ("int64", False),
        "return": ("double", False),
        "terminated": ("bool", False),
        "truncated": ("bool", False),
        "success": ("bool", True),
        "policy_id": ("string", True),
        "content": ("string", True),
    }


def test_filters_can_be_pushed_down_to_the_metadata(tmp_path: Path) -> None:
    [file] = write_files(tmp_path, [episode(i) for i in range(4)], "episodes").files
    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    statistics = {group.column(i).path_in_schema: group.column(i).statistics for i in range(group.num_columns)}
    returns = [episode(i).rewards.sum() for i in range(4)]
    assert (statistics["return"].min, statistics["return"].max) == (min(returns), max(returns))
    assert (statistics["eps_id"].min, statistics["eps_id"].max) == ("episode-0000", "episode-0003")
    assert statistics["item"] is None


def test_the_table_is_read_by_plain_pyarrow_polars_and_duckdb(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    some = [image_episode(i, 3) for i in range(3)]
    [file] = write_files(tmp_path, some, "table").files
    table = pq.read_table(tmp_path / file.path)
    assert all(not table.schema.field(name).nullable for name in table.column_names if name not in ("agent_id", "module_id"))
    assert table.schema.field("obs").type == pa.fixed_shape_tensor(pa.uint8(), (12, 12, 1))
    obs, new_obs = (np.concatenate([e.observations[part] for e in some]) for part in (slice(0, -1), slice(1, None)))
    np.testing.assert_array_equal(table["obs"].combine_chunks().to_numpy_ndarray(), obs)
    np.testing.assert_array_equal(table["new_obs"].combine_chunks().to_numpy_ndarray(), new_obs)
    frame = pl.read_parquet(tmp_path / file.path)
    assert frame["obs"].to_numpy().dtype == np.uint8
    np.testing.assert_array_equal(frame["obs"].to_numpy().reshape(obs.shape), obs)
    assert frame["rewards"].to_list() == [reward for e in some for reward in e.rewards.tolist()]
    rows = duckdb.sql(f"select obs from '{tmp_path / file.path}' order by eps_id, t").fetchall()
    np.testing.assert_array_equal(np.array([row[0] for row in rows]).reshape(obs.shape), obs)


@pytest.mark.parametrize("format", FORMATS)
def test_compression(tmp_path: Path, format: Format) -> None:
    some = [episode(i, 50, observations=np.zeros((51, 4), np.float32)) for i in range(50)]
    sizes, codecs = {}, {"none": "UNCOMPRESSED"}
    for name in ("none", "snappy", "lz4", "zstd"):
        [file] = write_files(tmp_path / name, some, format, compression=name).files
        group = pq.read_metadata(tmp_path / name / file.path).row_group(0)
        assert {group.column(i).compression for i in range(group.num_columns)} == {codecs.get(name, name.upper())}
        sizes[name] = file.bytes
    [file] = write_files(tmp_path / "strong", some, format, compression="zstd", compression_level=15).files
    assert file.bytes < sizes["zstd"] < sizes["none"]


# Episodes that differ from each other.


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_infos_may_come_and_go(tmp_path: Path, batch: int) -> None:
    """A table has them only where there are any; they are read back as they were all the same."""
    some = [
        episode(i, infos=[{"n": i, "t": t} for t in range(8)] if i % 4 == 1 else None, custom_data={"a": i} if i == 5 else {})
        for i in range(8)
    ]
    assert list(write_dataset(tmp_path, some, "table", batch=batch).episodes()) == some


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"observations": np.zeros((8, 4)), "observation_space": None}, "new_obs"),
        ({"observations": np.zeros((8, 5), np.float32), "observation_space": spaces.Box(-1, 1, (5,))}, "new_obs"),
        ({"rewards": np.zeros(7, np.float32)}, "rewards"),
        ({"extras": {}}, "action_logp"),
        ({"extras": {**episode(1).extras, "state_out": np.zeros(7)}}, "state_out"),
    ],
)
def test_a_table_has_one_type_a_column(tmp_path: Path, changes: dict[str, Any], column: str) -> None:
    with (
        pytest.raises(SchemaError, match=f"Column '{column}' .* earlier episodes for {tmp_path} .*Use the episode format"),
        EpisodeWriter(prepare_dataset(str(tmp_path)), "part", format="table") as writer,
    ):
        writer.write([episode(0)])
        writer.write([episode(1, **changes)])
    assert found(tmp_path) == []
    mixed = [episode(0), episode(1, **changes)]
    assert list(write_dataset(tmp_path, mixed, "episodes", batch=1).episodes()) == mixed


# What is left behind when something goes wrong.


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("error", [RuntimeError("the environment crashed"), KeyboardInterrupt()])
def test_an_error_leaves_nothing_half_done(tmp_path: Path, format: Format, error: BaseException) -> None:
    with (
        pytest.raises(type(error)),
        EpisodeWriter(prepare_dataset(str(tmp_path)), "part", format=format, config=FilesConfig(max_rows_per_file=7)) as writer,
    ):
        for i in range(9):
            writer.write([episode(i)])
        wait_until(lambda: any(name.startswith(".tmp-") for name in found(tmp_path)), what="the writer's thread to open a file")
        raise error
    assert found(tmp_path) == [file.path for file in writer.files], "files that were complete stay, the open one is gone"
    for file in writer.files:
        assert pq.read_table(tmp_path / file.path).num_rows == file.rows


def test_an_episode_that_cannot_be_stored(tmp_path: Path) -> None:
    with (
        pytest.raises(EpisodeError, match="episode-0001"),
        EpisodeWriter(prepare_dataset(str(tmp_path)), "part", format="episodes") as writer,
    ):
        writer.write([episode(0)])
        writer.write([episode(1, infos=[{"object": object()}] * 8)])
    assert found(tmp_path) == []


def test_columns_that_parquet_cannot_hold(tmp_path: Path) -> None:
    """The file exists before its schema is refused."""
    rows = CODECS["episodes"].encode([episode(0)]).append_column("empty", pa.array([{}], pa.struct([])))
    with (
        pytest.raises(pa.ArrowNotImplementedError),
        EpisodeWriter(prepare_dataset(str(tmp_path)), "part", format="episodes") as writer,
    ):
        writer.copy(rows, episode_summary([episode(0)]))
    assert found(tmp_path) == []


def test_an_error_while_a_file_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is taken by a folder."""
    (tmp_path / "part-000000-taken.parquet" / "inside").mkdir(parents=True)
    monkeypatch.setattr("offline_core.data.datasets.data_file._HashingSink.__init__", _with_digest("taken"))
    with (
        pytest.raises(StorageError, match=str(tmp_path)),
        EpisodeWriter(prepare_dataset(str(tmp_path)), "part", format="episodes") as writer,
    ):
        writer.write([episode(0)])
    assert found(tmp_path) == []


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("error", [None, RuntimeError("the environment crashed"), KeyboardInterrupt()])
def test_the_first_error_is_the_one_that_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format, error: BaseException | None
) -> None:
    """The disk fills up in the thread while more row groups wait for it: nobody hears of the file that is gone by then."""
    all_wait, begun = threading.Event(), threading.Event()

    def fail(*_: Any, **__: Any) -> None:
        begun.set()
        all_wait.wait(60)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    monkeypatch.setattr(writer_module, "MAX_TASKS", 20)
    expected = StorageError if error is None else type(error)
    with (
        pytest.raises(expected, match=None if isinstance(error, KeyboardInterrupt) else "No space left|crashed") as raised,
        EpisodeWriter(prepare_dataset(str(tmp_path)), "part", format=format) as writer,
    ):
        for i in range(4):
            writer.write([episode(i)])
        begun.wait(60)
        all_wait.set()
        if error is not None:
            raise error
    assert raised.value.__context__ is None or isinstance(raised.value.__context__, OSError)
    assert found(tmp_path) == []


def _with_digest(name: str) -> Callable[..., None]:
    class Fixed:
        def update(self, data: bytes) -> None: ...
        def hexdigest(self) -> str:
            return name

    def init(self: Any, stream: pa.NativeFile) -> None:
        self.stream, self.sha256, self.closed, self._size = stream, Fixed(), False, 0

    return init


def test_a_full_disk(tmp_path: Path) -> None:
    """Whether it is full from the start, in the middle of a file, or when the footer is written: nothing is left."""
    script = """
import contextlib, os
import numpy as np
from offline_core.data.episodes import Episode, episodes_to_table
from offline_core.errors import StorageError
from offline_core.data.store.location import Location
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.writer import EpisodeWriter

rng = np.random.default_rng(0)
def noise(steps):
    return Episode(eps_id="e", observations=rng.standard_normal((steps + 1, 8)), actions=np.arange(steps),
                   rewards=rng.standard_normal(steps), truncated=True)

def fill(spare):
    with open(f"{root}/filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    with open(f"{root}/filler", "ab") as filler:
        filler.truncate(max(0, filler.tell() - spare))

def attempt(format, spare, steps):
    messages = []
    fill(spare)
    try:
        with EpisodeWriter(Location.of(root), "part", format=format, config=FilesConfig(compression="none")) as writer:
            for count in steps:
                writer.write([noise(count)])
    except StorageError as error:
        return str(error), sorted(os.listdir(root))
    return None, sorted(os.listdir(root))

result = {
    f"{format} {name}": attempt(format, spare, steps)
    for format in ("episodes", "table")
    for name, spare, steps in (
        ("from the start", 0, [1]),
        ("in the middle", 16 * 4096, [10, 100, 1000, 1000]),
        ("at the footer", 4096, [35] if format == "episodes" else [10]),
    )
}
"""
    result = in_small_filesystem(tmp_path, script)
    assert len(result) == 6
    for when, (message, left) in result.items():
        assert message is not None, when
        assert str(tmp_path) in message, when
        assert message.endswith("The disk is full: free some space or choose another location."), when
        assert left == ["filler"], when


def test_writing_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(StorageError, match="A file is where a folder has to be"),
        EpisodeWriter(Location.of(str(tmp_path / "file" / "x")), "part", format="episodes") as writer,
    ):
        writer.write([episode(0)])
    assert found(tmp_path) == ["file"]
