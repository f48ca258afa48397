"""Point 3: RLlib's two formats, either way."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.curation.converting import convert
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode, encode
from offline_core.data.formats.packed import read_foreign_column
from offline_core.data.importing.config import ConversionConfig
from tests.acceptance.forms import by_id, run_import
from tests.data.datasets.factories import episode, write_items
from tests.data.formats.sources.test_sample_batch import packed


def numpy_form(whole: Episode) -> bytes:
    """As RLlib's episodes are after `to_numpy`."""
    return encode(whole)


def list_form(whole: Episode) -> bytes:
    """As RLlib's recorder writes it: an object a step."""
    state = state_of(encode(whole))
    for buffer in (state["observations"], state["actions"], state["rewards"], *state["extra_model_outputs"].values()):
        buffer |= {"data": list(buffer["data"]), "finalized": False}
    return msgpack.packb(state, default=msgpack_numpy.encode)


def state_of(item: bytes) -> dict[str, Any]:
    return msgpack.unpackb(item, object_hook=msgpack_numpy.decode)


@pytest.mark.parametrize("form", [numpy_form, list_form], ids=lambda form: form.__name__)
def test_03_episodes_in_numpy_and_in_list_form_are_read(tmp_path: Path, form: Any) -> None:
    some = [episode(number) for number in range(3)]
    write_items(tmp_path / "in" / "x.parquet", list(map(form, some)))
    assert list(run_import(tmp_path / "in", tmp_path / "out")[1].values()) == some


def test_03_duplicates_are_read_once_and_counted(tmp_path: Path) -> None:
    one, two = episode(1, 5), episode(2, 3)
    write_items(tmp_path / "in" / "x.parquet", [numpy_form(one), numpy_form(one)])
    write_items(tmp_path / "in" / "y.parquet", [list_form(one), numpy_form(two)])
    result, found = run_import(tmp_path / "in", tmp_path / "out")
    assert list(found.values()) == [one, two]
    assert (result.counts.steps, result.counts.duplicates) == (8, 10)


def test_03_missing_optional_keys_are_read(tmp_path: Path) -> None:
    whole = episode(0)
    needed = {"id_", "observations", "actions", "rewards", "infos", "is_terminated", "is_truncated"}
    state = {key: value for key, value in state_of(encode(whole)).items() if key in needed}
    write_items(tmp_path / "in" / "x.parquet", [msgpack.packb(state, default=msgpack_numpy.encode)])
    [found] = run_import(tmp_path / "in", tmp_path / "out")[1].values()
    assert found == replace(whole, extras={}) and found.terminated


@pytest.mark.parametrize(("name", "count", "steps"), [("cartpole_episodes", 60, 23_486), ("pendulum_episodes", 20, 4_000)])
def test_03_rllibs_episode_recordings_are_read(
    rllib_recordings: Path, tmp_path: Path, name: str, count: int, steps: int
) -> None:
    result, found = run_import(rllib_recordings / name, tmp_path)
    assert (len(found), sum(map(len, found.values()))) == (count, steps)
    assert result.counts.rows == steps + result.counts.duplicates


@pytest.mark.parametrize(
    ("name", "rows", "steps", "count"),
    [
        ("cartpole_table_packed", 6_078, 3_798, 10),
        pytest.param("pendulum_table", 4_000, 4_000, 20, marks=pytest.mark.slow),
    ],
)
def test_03_rllibs_tables_are_read(
    rllib_recordings: Path, tmp_path: Path, name: str, rows: int, steps: int, count: int
) -> None:
    """The first has observations packed into text, the second as tensors; either repeats none of its steps here."""
    environment = {"id": "Pendulum-v1" if "pendulum" in name else "CartPole-v1"}
    result, found = run_import(rllib_recordings / name, tmp_path, environment=environment)
    assert (result.counts.rows, result.counts.steps, len(found)) == (rows, steps, count)
    assert all(e.is_done and e.observations.dtype == np.float32 for e in found.values())


def steps_table(**columns: Any) -> pa.Table:
    plain = {"eps_id": ["a"] * 3, "actions": [0, 1, 0], "rewards": [1.0] * 3, "dones": [False, False, True], "t": [0, 1, 2]}
    return pa.table(plain | columns)


@pytest.mark.parametrize("kind", ["packed text", "tensors"])
def test_03_table_columns_packed_as_text_or_tensors(tmp_path: Path, kind: str) -> None:
    seen = np.arange(8, dtype=np.float32).reshape(4, 2)
    if kind == "packed text":
        obs, new_obs = ([packed(each) for each in part] for part in (seen[:-1], seen[1:]))
    else:
        obs, new_obs = (
            pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(part)) for part in (seen[:-1], seen[1:])
        )
    (tmp_path / "in").mkdir()
    pq.write_table(steps_table(obs=obs, new_obs=new_obs), tmp_path / "in" / "x.parquet")
    [found] = run_import(tmp_path / "in", tmp_path / "out")[1].values()
    np.testing.assert_array_equal(found.observations, seen, strict=True)


def test_03_null_ids_of_agents_and_modules(tmp_path: Path) -> None:
    nothing = pa.nulls(3)
    table = steps_table(obs=[[0.0], [1.0], [2.0]], new_obs=[[1.0], [2.0], [3.0]], agent_id=nothing, module_id=nothing)
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "x.parquet")
    [found] = run_import(tmp_path / "in", tmp_path / "out")[1].values()
    assert found.agent_id is None and found.module_id is None and len(found) == 3


def test_03_rllib_reads_our_episodes(own_recording: str) -> None:
    """By RLlib's own class; that its BC trains on both formats is proven in tests/interop."""
    if any(importlib.util.find_spec(name) is None for name in ("tree", "scipy")):
        pytest.skip("RLlib needs the 'interop' extra: pip install -e '.[interop]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # RLlib's own
        from ray.rllib.env.single_agent_episode import SingleAgentEpisode

        ours = by_id(own_recording)
        for path in open_dataset(own_recording).paths:
            for item in pq.read_table(path, columns=["item"])["item"].to_pylist():
                theirs = SingleAgentEpisode.from_state(state_of(item))
                own = ours.pop(theirs.id_)
                np.testing.assert_array_equal(theirs.get_observations(), own.observations)
                np.testing.assert_array_equal(theirs.get_actions(), own.actions)
                assert theirs.is_done and theirs.get_return() == own.return_
    assert not ours


def test_03_our_tables_have_rllibs_columns(own_recording: str, tmp_path: Path) -> None:
    """As Parquet, with observations as tensors, and nothing of ours in the way."""
    table = open_dataset(convert(ConversionConfig(format="table"), dataset=own_recording, output=str(tmp_path)).dataset.uri)
    own = by_id(own_recording)
    rows = pa.concat_tables(pq.read_table(path) for path in table.paths)
    assert {"eps_id", "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds"} <= {*rows.column_names}
    first = rows["eps_id"][0].as_py()
    of_first = rows.filter(pa.compute.equal(rows["eps_id"], first))
    np.testing.assert_array_equal(read_foreign_column(of_first, "obs"), own[first].observations[:-1])
    np.testing.assert_array_equal(read_foreign_column(of_first, "new_obs"), own[first].observations[1:])
