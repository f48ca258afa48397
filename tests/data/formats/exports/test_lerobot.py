"""LeRobot datasets: the layout of its version 3.0, and the numbers in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

from offline_core.data.episodes import Episode
from offline_core.data.episodes.episode_codec import unpack
from offline_core.data.episodes.spaces import spaces_of
from offline_core.data.formats.exports import lerobot
from offline_core.data.formats.exports.lerobot import LeRobotSink
from offline_core.errors import ConfigError, EpisodeError, SchemaError, SpaceError
from tests.data.datasets.factories import ACTIONS, OBSERVATIONS, episode, found, in_small_filesystem

LENGTHS = [3, 9, 1, 14, 6, 2]
SPACE = spaces.Dict(
    {
        "position": spaces.Box(-1, 1, (2,), np.float64),
        "camera": spaces.Box(0, 255, (4, 5, 3), np.uint8),
        "pair": spaces.Tuple([spaces.Discrete(4), spaces.Box(-1, 1, (1,), np.float32)]),
        "mission": spaces.Text(4),
    }
)


def some_episodes(**changes: Any) -> list[Episode]:
    return [episode(number, steps, **changes) for number, steps in enumerate(LENGTHS)]


def composite(number: int, steps: int) -> Episode:
    rng = np.random.default_rng(number)
    observations = {
        "position": rng.random((steps + 1, 2)),
        "camera": rng.integers(0, 256, (steps + 1, 4, 5, 3), np.uint8),
        "pair": (rng.integers(0, 4, steps + 1), rng.random((steps + 1, 1), np.float32)),
        "mission": np.array([f"m{t}" for t in range(steps + 1)]),
    }
    actions = {"gas": rng.random((steps, 1), np.float32), "gear": rng.integers(0, 5, steps)}
    return episode(
        number, steps, observations=observations, actions=actions, observation_space=SPACE, action_space=None, extras={}
    )


def write(root: Path, episodes: list[Episode], batch: int = 4, **options: Any) -> Path:
    with LeRobotSink(str(root / "set"), **options) as sink:
        for start in range(0, len(episodes), batch):
            sink.write(episodes[start : start + batch])
    return root / "set"


def info_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "meta/info.json").read_text())  # type: ignore[no-any-return]


def episodes_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of `meta/episodes`."""
    return pq.read_table(folder / "meta/episodes").to_pylist()


def frames_of(folder: Path) -> pl.DataFrame:
    """All frames, found by way of the paths that the metadata gives."""
    info = info_of(folder)
    places = dict.fromkeys((row["data/chunk_index"], row["data/file_index"]) for row in episodes_of(folder))
    paths = [folder / info["data_path"].format(chunk_index=chunk, file_index=file) for chunk, file in places]
    assert sorted(paths) == sorted((folder / "data").rglob("*.parquet")), "every file is named by an episode"
    return pl.concat([pl.read_parquet(path) for path in paths])


def test_the_layout(tmp_path: Path) -> None:
    folder = write(tmp_path, some_episodes(), fps=20, task="balance the pole")
    assert found(folder) == [
        "data/chunk-000/file-000.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "meta/info.json",
        "meta/stats.json",
        "meta/tasks.parquet",
    ]
    info = info_of(folder)
    features = info.pop("features")
    assert info == {
        "codebase_version": "v3.0",
        "robot_type": None,
        "total_episodes": 6,
        "total_frames": 35,
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": 20,
        "splits": {"train": "0:6"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
    }
    assert {name: (one["dtype"], one["shape"]) for name, one in features.items()} == {
        "observation.state": ("float32", [4]),
        "action": ("int64", [1]),
        "next.reward": ("float64", [1]),
        "next.done": ("bool", [1]),
        "next.terminated": ("bool", [1]),
        "next.truncated": ("bool", [1]),
        "extra.action_logp": ("float32", [1]),
        "timestamp": ("float32", [1]),
        "frame_index": ("int64", [1]),
        "episode_index": ("int64", [1]),
        "index": ("int64", [1]),
        "task_index": ("int64", [1]),
    }
    schema = pq.read_schema(folder / "data/chunk-000/file-000.parquet")
    assert list(features) == schema.names
    assert schema.field("observation.state").type == pa.list_(pa.float32(), 4)
    assert schema.field("action").type == schema.field("index").type == pa.int64()
    assert (schema.field("timestamp").type, schema.field("next.done").type) == (pa.float32(), pa.bool_())
    assert spaces_of(schema) == (OBSERVATIONS, ACTIONS)


def test_tasks_are_the_index_of_a_pandas_frame(tmp_path: Path) -> None:
    tasks = pd.read_parquet(write(tmp_path, some_episodes(), task="balance the pole") / "meta/tasks.parquet")
    assert tasks.index.name == "task"
    assert int(tasks.loc["balance the pole"].task_index) == 0
    assert tasks.shape == (1, 1)


@pytest.mark.parametrize("file_bytes", [100 * 2**20, 100])
def test_episodes_point_to_their_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_bytes: int) -> None:
    monkeypatch.setattr(lerobot, "FILE_BYTES", file_bytes)
    monkeypatch.setattr(lerobot, "CHUNK_FILES", 2)
    monkeypatch.setattr(lerobot, "ROWS_AT_ONCE", 4)
    some = some_episodes()
    folder = write(tmp_path, some, fps=4)
    rows = episodes_of(folder)
    assert [row["episode_index"] for row in rows] == list(range(6))
    assert [row["length"] for row in rows] == LENGTHS
    assert [row["dataset_from_index"] for row in rows] == [0, 3, 12, 13, 27, 33]
    assert [row["dataset_to_index"] for row in rows] == [3, 12, 13, 27, 33, 35]
    assert {(row["meta/episodes/chunk_index"], row["meta/episodes/file_index"]) for row in rows} == {(0, 0)}
    places = [(row["data/chunk_index"], row["data/file_index"]) for row in rows]
    assert places == sorted(places)
    assert len(set(places)) == (1 if file_bytes > 100 else 6)
    assert places[-1] == ((0, 0) if file_bytes > 100 else (2, 1))
    frames = frames_of(folder)
    assert frames["index"].to_list() == list(range(35))
    for row, expected in zip(rows, some, strict=True):
        own = frames[row["dataset_from_index"] : row["dataset_to_index"]]
        assert own["episode_index"].unique().to_list() == [row["episode_index"]]
        assert own["frame_index"].to_list() == list(range(row["length"]))
        assert own["timestamp"].to_list() == [t / 4 for t in range(row["length"])]
        np.testing.assert_array_equal(own["observation.state"].to_numpy(), expected.observations[:-1])
        np.testing.assert_array_equal(own["action"], expected.actions)
        np.testing.assert_array_equal(own["next.reward"], expected.rewards)
        np.testing.assert_array_equal(own["extra.action_logp"], expected.extras["action_logp"])
        assert own["next.done"].to_list() == [False] * (row["length"] - 1) + [True]


def test_a_row_group_an_episode(tmp_path: Path) -> None:
    folder = write(tmp_path, some_episodes())
    metadata = pq.read_metadata(folder / "data/chunk-000/file-000.parquet")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == LENGTHS


def test_composite_spaces(tmp_path: Path) -> None:
    some = [composite(number, steps) for number, steps in enumerate(LENGTHS)]
    folder = write(tmp_path, some)
    features = info_of(folder)["features"]
    expected: dict[str, tuple[str, list[int], list[np.ndarray]]] = {
        "observation.position": ("float64", [2], [e.observations["position"] for e in some]),
        "observation.camera": ("uint8", [4, 5, 3], [e.observations["camera"] for e in some]),
        "observation.pair.0": ("int64", [1], [e.observations["pair"][0] for e in some]),
        "observation.pair.1": ("float32", [1], [e.observations["pair"][1][:, 0] for e in some]),
        "observation.mission": ("string", [1], [e.observations["mission"] for e in some]),
    }
    rows, frames = episodes_of(folder), frames_of(folder)
    for name, (dtype, shape, arrays) in expected.items():
        assert (features[name]["dtype"], features[name]["shape"]) == (dtype, shape)
        np.testing.assert_array_equal(np.array(frames[name].to_list()), np.concatenate([array[:-1] for array in arrays]))
        for row, array in zip(rows, arrays, strict=True):
            np.testing.assert_array_equal(row[f"final_{name}"], array[-1])
    np.testing.assert_array_equal(frames["action.gear"], np.concatenate([e.actions["gear"] for e in some]))
    np.testing.assert_array_equal(frames["action.gas"], np.concatenate([e.actions["gas"][:, 0] for e in some]))
    assert json.loads((folder / "meta/stats.json").read_text()).keys().isdisjoint({"observation.camera", "observation.mission"})


def test_what_lerobot_has_no_place_for(tmp_path: Path) -> None:
    infos = [{"x": t} for t in range(4)]
    some = [
        episode(0, 3, infos=infos, custom_data={"policy_id": "b1"}, agent_id="a", module_id="m"),
        episode(1, 3),
        episode(3, 3, truncated=False),
    ]
    rows = episodes_of(write(tmp_path, some))
    np.testing.assert_array_equal([row["final_observation.state"] for row in rows], [e.observations[-1] for e in some])
    assert [row["eps_id"] for row in rows] == ["episode-0000", "episode-0001", "episode-0003"]
    assert [(row["agent_id"], row["module_id"]) for row in rows] == [("a", "m"), (None, None), (None, None)]
    assert [(row["terminated"], row["truncated"]) for row in rows] == [(True, False), (False, True), (False, False)]
    assert unpack(rows[0]["infos"]) == infos
    assert unpack(rows[0]["custom_data"]) == {"policy_id": "b1"}
    assert [(row["infos"], row["custom_data"]) for row in rows[1:]] == [(None, None)] * 2
    assert frames_of(tmp_path / "set")["next.done"].to_list() == [False, False, True] * 2 + [False] * 3


def test_statistics_are_numpys(tmp_path: Path) -> None:
    some = some_episodes()
    folder = write(tmp_path, some)
    stats = json.loads((folder / "meta/stats.json").read_text())
    assert stats.keys() == info_of(folder)["features"].keys()
    states = np.concatenate([e.observations[:-1] for e in some]).astype(float)
    for name, numbers in (
        ("observation.state", states),
        ("next.reward", np.concatenate([e.rewards for e in some])[:, None]),
        ("action", np.concatenate([e.actions for e in some])[:, None]),
        ("next.done", np.array([t == n - 1 for n in LENGTHS for t in range(n)])[:, None]),
        ("index", np.arange(35.0)[:, None]),
    ):
        one = stats[name]
        for statistic, expected in (("min", numbers.min(0)), ("max", numbers.max(0))):
            assert one[statistic] == expected.tolist()
        np.testing.assert_allclose(one["mean"], numbers.mean(0), atol=1e-12)
        np.testing.assert_allclose(one["std"], numbers.std(0))
        assert one["count"] == [35]
        for quantile in (0.01, 0.1, 0.5, 0.9, 0.99):
            expected = np.quantile(numbers, quantile, axis=0, method="inverted_cdf")
            np.testing.assert_allclose(one[f"q{quantile * 100:02.0f}"], expected, rtol=1 / 31)
    for row, e in zip(episodes_of(folder), some, strict=True):
        own = e.observations[:-1].astype(float)
        np.testing.assert_allclose(row["stats/observation.state/mean"], own.mean(0))
        np.testing.assert_allclose(row["stats/observation.state/std"], own.std(0))
        assert row["stats/next.reward/min"] == [e.rewards.min()]
        assert row["stats/next.reward/max"] == [e.rewards.max()]
        assert row["stats/action/count"] == [len(e)]


# What is refused, and what is left then.


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"t_started": 4}, EpisodeError, "is a piece that starts at step 4"),
        ({"rewards": np.ones(2)}, EpisodeError, "not whole"),
        ({"rewards": np.ones(5, np.float32)}, SchemaError, "has float32 of shape .1. as 'next.reward'.*float64"),
        ({"observations": np.ones((6, 3), np.float32)}, SchemaError, r"float32 of shape \[3\] as 'observation.state'"),
        ({"extras": {}}, SchemaError, "no such feature as 'extra.action_logp'"),
        ({"extras": {"action_logp": np.ones(5, complex)}}, SpaceError, "extra.action_logp of episode episode-0001 is complex"),
        (
            {"observations": {"a": {"b": np.ones(6)}, "a.b": np.ones(6)}},
            SpaceError,
            r"with the same name in LeRobot, of .*observation.a.b:",
        ),
        ({"infos": [{"x": object()}] * 6}, EpisodeError, "cannot be stored"),
    ],
)
def test_what_lerobot_cannot_hold(tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        write(tmp_path, [episode(0, 5), episode(1, 5, **changes)], batch=1)
    assert found(tmp_path) == []


def test_frames_a_second(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fps=0"):
        LeRobotSink(str(tmp_path / "set"), fps=0)


def test_a_full_disk(tmp_path: Path) -> None:
    """Whether frames find no room or only the metadata: nothing is left."""
    script = """
import os
import numpy as np
from offline_core.data.episodes import Episode
from offline_core.errors import StorageError
from offline_core.data.formats.exports.lerobot import LeRobotSink

def attempt(steps, filler):
    with open(f"{root}/filler", "wb") as file:
        file.write(bytes(filler))
    rng = np.random.default_rng(0)
    noise = Episode(eps_id="e", observations=rng.standard_normal((steps + 1, 8)), actions=np.arange(steps),
                    rewards=rng.standard_normal(steps), truncated=True)
    try:
        with LeRobotSink(f"{root}/set") as sink:
            sink.write([noise])
    except StorageError as error:
        return str(error), sorted(os.listdir(root))
    return None, sorted(os.listdir(root))

result = [attempt(20_000, 0), attempt(1, 500 * 1024)]
"""
    for message, left in in_small_filesystem(tmp_path, script):
        assert message is not None
        assert "The disk is full" in message
        assert left == ["filler"]
