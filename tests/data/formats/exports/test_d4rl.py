"""HDF5 as D4RL's, read back by our own reader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from gymnasium import spaces

from offline_core.data.episodes import Episode
from offline_core.data.formats.exports.d4rl import D4rlSink
from offline_core.errors import EmptyDatasetError, EpisodeError, SchemaError, SpaceError
from tests.data.datasets.factories import episode
from tests.data.formats.exports.test_sample_batch import read_back


def written(folder: Path, *calls: list[Episode]) -> Path:
    with D4rlSink(str(folder)) as sink:
        for given in calls:
            sink.write(given)
    return folder / "dataset.hdf5"


@pytest.mark.parametrize(("terminated", "truncated"), [(True, False), (False, True), (True, True)])
def test_the_same_episodes_with_both_flags_come_back(tmp_path: Path, terminated: bool, truncated: bool) -> None:
    given = [replace(episode(i), infos=None, terminated=terminated, truncated=truncated) for i in range(3)]
    file = written(tmp_path / "out", given[:2], given[2:])
    with h5py.File(file) as opened:
        assert {"observations", "actions", "rewards", "terminals", "timeouts", "next_observations"} <= opened.keys()
        assert opened["terminals"][:].sum() == 3 * terminated and opened["timeouts"][:].sum() == 3 * truncated
        assert opened["observations"].shape == (21, *np.asarray(given[0].observations).shape[1:])
    assert read_back(tmp_path / "out", tmp_path / "again", given[0]) == {each.eps_id: each for each in given}


def test_infos_come_back_as_infos(tmp_path: Path) -> None:
    """A key that only some steps or episodes have, too; D4RL's own readers see arrays."""
    with_some = replace(episode(0), infos=[{}, {"n": 1.5}, {"n": 2.0, "deep": {"k": 3}}, *[{}] * 5])
    others = replace(episode(1), infos=[{}, *[{"n": 0.5, "late": 1}] * 7])
    file = written(tmp_path / "out", [with_some, replace(episode(2), infos=None)], [others])
    with h5py.File(file) as opened:
        assert opened["infos/n"].shape == opened["infos/late"].shape == opened["infos/deep/k"].shape == (21,)
        assert opened["infos/_late"][:].tolist() == [False] * 14 + [True] * 7
    found = read_back(tmp_path / "out", tmp_path / "again", with_some)
    assert found[with_some.eps_id].get_infos() == with_some.infos
    assert found[others.eps_id].get_infos() == others.infos
    assert not any(found[episode(2).eps_id].get_infos())


@pytest.mark.parametrize("values", [(1, {"b": 1}), ({"b": 1}, 1)])
def test_a_key_with_a_dict_in_some_episodes_is_refused(tmp_path: Path, values: tuple[Any, Any]) -> None:
    given = [replace(episode(i), infos=[{}, *[{"a": value}] * 7]) for i, value in enumerate(values)]
    with pytest.raises(EpisodeError, match=r"episode-0001 has infos/a.* in another form than earlier ones"):
        written(tmp_path / "out", given)


def test_observations_by_name_are_a_group(tmp_path: Path) -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(9)})
    obs = {"a": np.linspace(-1, 1, 16, dtype=np.float32).reshape(8, 2), "b": np.arange(8)}
    given = replace(episode(0), observations=obs, observation_space=space, infos=None)
    written(tmp_path / "out", [given])
    assert read_back(tmp_path / "out", tmp_path / "again", given) == {given.eps_id: given}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"observations": (np.zeros((8, 4)), np.zeros(8))}, SpaceError, "observations is a tuple"),
        ({"extras": {"terminals": np.zeros(7)}}, EpisodeError, "an output 'terminals', a name that D4RL uses"),
        ({"extras": {}}, SchemaError, "and earlier ones differ in 'action_logp'"),
        ({"infos": [{}, *[{"x": object()}] * 7]}, EpisodeError, "neither numbers nor text"),
        ({"infos": [{}, *[{"a/b": 1.0}] * 7]}, EpisodeError, r"infos of episode episode-0001 have the keys \['a/b'\]"),
        ({"infos": [{}, *[{"a": {"": 1.0}}] * 7]}, EpisodeError, r"infos of episode episode-0001/a have the keys \[''\]"),
        ({"infos": [{}, *[{3: 1.0}] * 7]}, EpisodeError, r"infos of episode episode-0001 have the keys \[3\]"),
        ({"extras": {"a/b": np.zeros(7)}}, EpisodeError, r"outputs of episode episode-0001 have the keys \['a/b'\]"),
        ({"observations": {"a/b": np.zeros(8)}}, EpisodeError, r"observations of episode episode-0001 have the keys \['a/b'"),
    ],
)
def test_what_cannot_be_held_is_refused(tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        written(tmp_path / "out", [episode(0), replace(episode(1), **{"observation_space": None, "infos": None} | changes)])
    with pytest.raises(EmptyDatasetError):
        written(tmp_path / "out")
    assert not (tmp_path / "out").exists()
