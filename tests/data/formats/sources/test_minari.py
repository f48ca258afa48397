"""Minari's datasets, written by Minari itself, as step tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import minari
import numpy as np
import pyarrow as pa
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from offline_core.data.episodes import Episode, nested, table_to_episodes
from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.sources import minari as minari_source
from offline_core.data.formats.sources.minari import MinariDataset
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, DataError, DatasetNotFoundError, EpisodeError, SchemaError, SpaceError
from tests.data.datasets.factories import cut_in_half

ID = "test/random-v0"
LAYOUTS = ("hdf5", "arrow", "parquet")
OBSERVATION_SPACE = spaces.Dict(
    {
        "position": spaces.Box(-np.inf, np.inf, (3,), np.float32),
        "pair": spaces.Tuple([spaces.Discrete(5), spaces.MultiBinary(4)]),
        "frame": spaces.Box(0, 255, (40, 40, 3), np.uint8),
    }
)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def buffer(observation_space: spaces.Space[Any], action_space: spaces.Space[Any], steps: int, seed: int) -> EpisodeBuffer:
    observation_space.seed(seed)
    action_space.seed(seed)
    ends = np.arange(steps) == steps - 1
    return EpisodeBuffer(
        observations=nested.stack([observation_space.sample() for _ in range(steps + 1)], "observations"),
        actions=nested.stack([action_space.sample() for _ in range(steps)], "actions"),
        rewards=np.random.default_rng(seed).random(steps),
        terminations=ends & (seed % 2 == 0),
        truncations=ends & (seed % 2 == 1),
        infos={"qpos": np.random.default_rng(seed).random((steps + 1, 2)), "inner": {"count": np.arange(steps + 1)}},
    )


def create(
    buffers: list[EpisodeBuffer], observation_space: spaces.Space[Any], action_space: spaces.Space[Any], layout: str = "hdf5"
) -> None:
    with pytest.warns(UserWarning, match="recommended|env_spec|eval_env"):
        minari.create_dataset_from_buffers(
            ID,
            buffers,
            observation_space=observation_space,
            action_space=action_space,
            data_format=layout,
            jpeg_encoding=False,
        )


def reader(path: Path) -> MinariDataset:
    return MinariDataset(Location.of(str(path)))


def read(path: Path) -> list[pa.Table]:
    return list(reader(path).batches())


def episodes(path: Path) -> Iterator[Episode]:
    for table in read(path):
        yield from table_to_episodes(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_minari(root: Path, layout: str) -> None:
    action_space = spaces.Box(-1, 1, (2,), np.float32)
    buffers = [buffer(OBSERVATION_SPACE, action_space, 3 + seed, seed) for seed in range(4)]
    if layout != "hdf5":  # Minari itself cannot read back nested infos from these
        for each in buffers:
            assert each.infos is not None
            del each.infos["inner"]
    create(buffers, OBSERVATION_SPACE, action_space, layout)
    for place in (root / ID, root / ID / "data"):
        found = list(episodes(place))
        assert [e.eps_id for e in found] == [f"{ID}/{i}" for i in range(4)]
        for episode, expected in zip(found, buffers, strict=True):
            assert nested.equal(episode.observations, expected.observations)
            assert nested.equal(episode.actions, expected.actions)
            np.testing.assert_array_equal(episode.rewards, expected.rewards)
            assert (episode.terminated, episode.truncated) == (expected.terminations[-1], expected.truncations[-1])
            assert (episode.observation_space, episode.action_space) == (OBSERVATION_SPACE, action_space)
            assert expected.infos is not None
            assert [info["qpos"].tolist() for info in episode.get_infos(slice(0, 1))] == [expected.infos["qpos"][0].tolist()]
            np.testing.assert_array_equal([info["qpos"] for info in episode.get_infos()], expected.infos["qpos"])
            if layout == "hdf5":
                assert [info["inner"]["count"] for info in episode.get_infos()] == list(range(len(episode) + 1))


def test_text(root: Path) -> None:
    space = spaces.Dict({"mission": spaces.Text(8, charset="abc"), "x": spaces.Discrete(3)})
    buffers = [EpisodeBuffer(
        observations={"mission": ["ab", "cc", "a"], "x": np.array([0, 1, 2])},
        actions=np.array([0, 1]),
        rewards=[1.0, 2.0],
        terminations=[False, True],
        truncations=[False, False],
        infos={"note": ["α", "b", "c"]},
    )]  # fmt: skip
    create(buffers, space, spaces.Discrete(2))
    [episode] = episodes(root / ID)
    assert episode.observations["mission"].tolist() == ["ab", "cc", "a"]
    assert [info["note"] for info in episode.get_infos()] == ["α", "b", "c"]


def test_tables_are_of_moderate_size_and_of_one_structure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = spaces.Box(-1, 1, (4,), np.float64)
    buffers = [buffer(space, spaces.Discrete(2), 10, seed) for seed in range(12)]
    for seed in (5, 6):
        assert buffers[seed].infos is not None
        buffers[seed].infos.clear()
    create(buffers, space, spaces.Discrete(2))
    assert [table.num_rows for table in read(root / ID)] == [50, 20, 50]
    assert ["infos" in table.column_names for table in read(root / ID)] == [True, False, True]
    monkeypatch.setattr(minari_source, "BATCH_BYTES", 2 * read(root / ID)[0].nbytes // 5)
    assert [table.num_rows for table in read(root / ID)] == [20, 20, 10, 20, 20, 20, 10]
    assert len(list(episodes(root / ID))) == 12
    structs = read_column(read(root / ID)[0], "infos")
    np.testing.assert_array_equal(structs["inner"]["count"], [*range(1, 11), *range(1, 11)])


def test_episodes_too_long_for_minaris_arrow_reader(root: Path) -> None:
    """It would give the first rows of the long one as an episode, the next ones as the episode after it, and drop that."""
    space = spaces.Discrete(3)
    steps = 140_000
    zeros = np.zeros(steps)
    long, short = (
        EpisodeBuffer(
            observations=np.zeros(count + 1, int),
            actions=np.zeros(count, int),
            rewards=zeros[:count],
            terminations=zeros[:count].astype(bool),
            truncations=np.arange(count) == count - 1,
        )
        for count in (steps, 10)
    )
    create([short, long, short], space, space, "parquet")
    with pytest.raises(CorruptFileError, match=rf"{ID}/1 has 140000 steps, of which Minari reads \d+.*HDF5"):
        read(root / ID)


def test_an_end_inside_an_episode(root: Path) -> None:
    wrong = buffer(spaces.Discrete(3), spaces.Discrete(3), 5, 0)
    wrong.terminations[2] = True
    create([wrong], spaces.Discrete(3), spaces.Discrete(3))
    with pytest.raises(EpisodeError, match=rf"{ID}: Episode {ID}/0 goes on after it ended at step 2"):
        read(root / ID)


@pytest.mark.parametrize(
    ("name", "rows", "error", "told"),
    [
        ("observations", 5, EpisodeError, "has no last observation"),
        ("infos/qpos", 4, SchemaError, r"has 5 actions and infos/inner/count \(6,\), infos/qpos \(4, 2\)"),
    ],
)
def test_unequal_lengths_are_named(root: Path, name: str, rows: int, error: type[DataError], told: str) -> None:
    create([buffer(spaces.Discrete(3), spaces.Discrete(3), 5, 0)], spaces.Discrete(3), spaces.Discrete(3))
    with h5py.File(root / ID / "data" / "main_data.hdf5", "a") as file:
        data = file[f"episode_0/{name}"][:rows]
        del file[f"episode_0/{name}"]
        file[f"episode_0/{name}"] = data
    with pytest.raises(error, match=f"{ID}: Episode {ID}/0 {told}"):
        read(root / ID)


def test_damage_is_told(root: Path) -> None:
    create([buffer(spaces.Discrete(3), spaces.Discrete(3), 500, 0)], spaces.Discrete(3), spaces.Discrete(3))
    with h5py.File(root / ID / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0/actions"]
    with pytest.raises(CorruptFileError, match=rf"{ID}.*actions"):
        read(root / ID)
    cut_in_half(root / ID / "data" / "main_data.hdf5")
    with pytest.raises(CorruptFileError, match=f"{ID}.*truncated"):
        read(root / ID)
    (root / ID / "data" / "metadata.json").write_text("{")
    with pytest.raises(CorruptFileError, match=ID):
        read(root / ID)


def test_other_folders_are_told(root: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"There is no Minari dataset at .*door;"):
        read(root / "door")


def test_environments_are_not_made_to_learn_their_spaces(root: Path) -> None:
    """Making one imports the module that the dataset names."""
    create([buffer(spaces.Discrete(3), spaces.Discrete(3), 5, 0)], spaces.Discrete(3), spaces.Discrete(3))
    path = root / ID / "data" / "metadata.json"
    metadata = json.loads(path.read_text())
    del metadata["action_space"]
    path.write_text(json.dumps(metadata | {"env_spec": '{"id": "x-v0", "entry_point": "os:abort"}'}))
    with pytest.raises(SpaceError, match="no action_space"):
        read(root / ID)
