"""SampleBatches of ours: read back by our own reader, and laid out as RLlib's JsonWriter lays them out."""

from __future__ import annotations

import base64
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pytest
from gymnasium import spaces

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode, space_to_json
from offline_core.data.formats.exports import sample_batch
from offline_core.data.formats.exports.sample_batch import SampleBatchBuilder, SampleBatchSink, SampleBatchWriter
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.errors import ConfigError, EmptyDatasetError, EpisodeError, SchemaError
from offline_core.runtime.config import parse
from tests.data.datasets.factories import episode


def written(folder: Path, given: list[Episode], **arguments: Any) -> list[dict[str, Any]]:
    with SampleBatchSink(str(folder), **arguments) as sink:
        sink.write(given)
    files = sorted((folder / "batches").glob("output_worker-0_*.json"), key=lambda file: int(file.stem.rpartition("_")[2]))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def read_back(folder: Path, output: Path, like: Episode, **config: Any) -> dict[str, Episode]:
    declared = {"observation_space": like.observation_space, "action_space": like.action_space}
    config |= {name: space_to_json(space) for name, space in declared.items() if space is not None}
    result = import_data(parse(ImportConfig, config), source=str(folder), output=str(output))
    return {each.eps_id: each for each in open_dataset(result.dataset.uri).episodes()}


@pytest.mark.parametrize("compress", [("obs", "new_obs"), (), ("obs", "new_obs", "actions", "rewards", "action_logp")])
def test_what_is_written_is_read_back(tmp_path: Path, compress: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of episodes that take several lines."""
    monkeypatch.setattr(sample_batch, "LINE_BYTES", 400)
    given = [replace(episode(i), infos=None) for i in range(3)]
    lines = written(tmp_path / "out", given, compress_columns=compress)
    assert len(lines) > 3 and all(isinstance(line["obs"], str) is ("obs" in compress) for line in lines)
    found = read_back(tmp_path / "out", tmp_path / "again", given[0])
    for one in given:
        again = found[one.eps_id]
        logs = again.extras.pop("action_logp")
        np.testing.assert_array_equal(logs, one.extras["action_logp"])
        assert again == replace(one, extras={})


def test_large_packed_columns_are_read_back(tmp_path: Path) -> None:
    given = replace(episode(0, 5000), infos=None, extras={})
    [line] = written(tmp_path / "out", [given])
    assert len(base64.b64decode(line["obs"])) > 2**16
    assert read_back(tmp_path / "out", tmp_path / "again", given) == {given.eps_id: given}


def test_a_packed_column_is_what_rllib_unpacks(tmp_path: Path) -> None:
    [line] = written(tmp_path / "out", [episode(0)])
    array = pickle.loads(lz4.frame.decompress(base64.b64decode(line["obs"])))
    np.testing.assert_array_equal(array, episode(0).get_observations(slice(0, -1)), strict=True)
    assert line["type"] == "SampleBatch" and line["t"] == list(range(7)) and set(line["unroll_id"]) == {0}


def test_infos_are_those_that_followed(tmp_path: Path) -> None:
    infos = [{}, {"n": 1}, {"n": np.float32(0.5), "v": np.arange(2)}, *[{}] * 5]
    given = replace(episode(0), infos=infos)
    written(tmp_path / "out", [given])
    [found] = read_back(tmp_path / "out", tmp_path / "again", given).values()
    assert found.get_infos()[1:3] == [{"n": 1}, {"n": 0.5, "v": [0, 1]}]
    with pytest.raises(EpisodeError, match="JSON cannot hold this batch: bytes is neither a number nor text"):
        written(tmp_path / "bytes", [replace(given, infos=[{}, *[{"b": b"x"}] * 7])])
    assert not (tmp_path / "bytes").exists()


def test_composite_observations(tmp_path: Path) -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(9)})
    obs = {"a": np.linspace(-1, 1, 16, dtype=np.float32).reshape(8, 2), "b": np.arange(8)}
    given = replace(episode(0), observations=obs, observation_space=space, infos=None, extras={})
    for name, compress in (("packed", ("obs", "new_obs")), ("plain", ())):
        written(tmp_path / name, [given], compress_columns=compress)
        assert read_back(tmp_path / name, tmp_path / f"{name}-again", given) == {given.eps_id: given}


def test_a_tuple_of_as_many_parts_as_steps_is_no_list_of_steps(tmp_path: Path) -> None:
    space = spaces.Tuple([spaces.Discrete(9), spaces.Discrete(9)])
    actions = {"a": (np.array([1, 2]), np.array([3, 4]))}
    given = replace(episode(0, 2), actions=actions, action_space=spaces.Dict(a=space), infos=None, extras={})
    written(tmp_path / "out", [given])
    assert read_back(tmp_path / "out", tmp_path / "again", given) == {given.eps_id: given}


def test_a_file_is_followed_by_the_next(tmp_path: Path) -> None:
    written(tmp_path / "out", [episode(i) for i in range(4)], max_file_size=1)
    names = [file.name.rpartition("_")[2] for file in (tmp_path / "out" / "batches").glob("*.json")]
    assert sorted(names) == ["0.json", "1.json", "2.json", "3.json"]


@pytest.mark.parametrize("arguments", [{"compress_columns": "obs"}, {"max_file_size": 0}])
def test_arguments_out_of_bounds(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="compress_columns must be a list of names"):
        SampleBatchWriter(str(tmp_path / "out"), **arguments)
    assert not (tmp_path / "out").exists()


# A log of one's own.


def test_a_builder_takes_a_step_at_a_time(tmp_path: Path) -> None:
    """As in RLlib's example of saving experiences."""
    builder = SampleBatchBuilder()
    with SampleBatchWriter(str(tmp_path / "out")) as writer:
        for eps_id in range(2):
            for t in range(3):
                builder.add_values(
                    t=t,
                    eps_id=eps_id,
                    obs=[0.5 * t, 1.0],
                    actions=t % 2,
                    action_logp=-0.5,
                    rewards=1.0,
                    terminateds=t == 2,
                    truncateds=False,
                    infos={"t": t},
                    new_obs=[0.5 * (t + 1), 1.0],
                )
            assert builder.count == 3
            writer.write(builder.build_and_reset())
    result = import_data(ImportConfig(), source=str(tmp_path / "out"), output=str(tmp_path / "again"))
    found = {each.eps_id: each for each in open_dataset(result.dataset.uri).episodes()}
    assert found.keys() == {"0", "1"} and found["0"].terminated
    assert np.asarray(found["1"].observations).tolist() == [[0.0, 1.0], [0.5, 1.0], [1.0, 1.0], [1.5, 1.0]]
    assert found["1"].get_infos()[1:] == [{"t": 0}, {"t": 1}, {"t": 2}]


def test_what_a_builder_refuses() -> None:
    builder = SampleBatchBuilder()
    with pytest.raises(SchemaError, match="no steps to build"):
        builder.build_and_reset()
    builder.add_values(obs=[1.0], actions=0)
    with pytest.raises(SchemaError, match="Step 1 of the batch and the first differ in the columns rewards"):
        builder.add_values(obs=[1.0], actions=0, rewards=1.0)
    builder.add_values(obs=[1.0, 2.0], actions=0)
    with pytest.raises(SchemaError, match="Column 'obs' cannot be one array"):
        builder.build_and_reset()


def test_what_a_writer_refuses(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="obs 2, actions 1"), SampleBatchWriter(str(tmp_path / "out")) as writer:
        writer.write({"obs": np.zeros((2, 1)), "actions": np.zeros(1)})
    with pytest.raises(EmptyDatasetError), SampleBatchWriter(str(tmp_path / "out")):
        pass
    assert not (tmp_path / "out").exists()
