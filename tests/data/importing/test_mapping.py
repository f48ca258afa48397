"""The user's column names become ours, and nothing gets lost on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes.arrow import read_column
from offline_core.data.importing import preparation
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.mapping import canonical_mapping, check_names, map_columns, notes_on_names
from offline_core.errors import ConfigError, SchemaError
from offline_core.runtime.config import parse

SEEDS = {"obs": "o_t", "actions": "a_t", "rewards": "r_t", "new_obs": "o_tp1", "infos": "i_t", "dones": "d_t"}


def table(*names: str) -> pa.Table:
    """Column number i holds [i, i]."""
    return pa.table({name: [number, number] for number, name in enumerate(names)})


def test_the_mapping_of_the_seeds() -> None:
    source = table("o_t", "a_t", "r_t", "o_tp1", "i_t", "d_t", "logprobs_t")
    mapped = map_columns(source, canonical_mapping(SEEDS))
    assert {name: column[0].as_py() for name, column in zip(mapped.column_names, mapped.columns, strict=True)} == {
        "obs": 0,
        "actions": 1,
        "rewards": 2,
        "new_obs": 3,
        "infos": 4,
        "dones": 5,
        "logprobs_t": 6,
    }


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        *[(name, "dones") for name in ("done", "dones", "episode_end")],
        *[(name, "terminateds") for name in ("terminated", "terminal", "terminals", "is_terminal", "next_terminated")],
        *[(name, "truncateds") for name in ("truncated", "timeout", "timeouts")],
        *[(name, "new_obs") for name in ("next_obs", "next_observation", "next_observations", "o_tp1")],
    ],
)
def test_a_mapping_may_call_ends_and_next_observations_by_any_name(name: str, canonical: str) -> None:
    assert canonical_mapping({name: "x"}) == {canonical: "x"}


def test_columns_join_to_vectors() -> None:
    source = pa.table({"y": [1.5, 2.5, 3.5], "x": [1, 2, 3], "flag": [True, False, True]})
    mapped = map_columns(source, {"obs": ["x", "y", "flag"], "actions": ["x"]})
    np.testing.assert_array_equal(read_column(mapped, "obs"), [[1, 1.5, 1], [2, 2.5, 0], [3, 3.5, 1]])
    np.testing.assert_array_equal(read_column(mapped, "actions"), [[1], [2], [3]])
    assert mapped.column_names == ["obs", "actions"]


def test_metadata_of_fields_and_table_stay() -> None:
    schema = pa.schema([pa.field("o_t", pa.int64(), metadata={"a": "b"})], metadata={"c": "d"})
    mapped = map_columns(pa.Table.from_arrays([pa.array([1])], schema=schema), {"obs": "o_t"})
    assert mapped.schema.metadata == {b"c": b"d"}
    assert mapped.schema.field("obs").metadata == {b"a": b"b"}


def test_a_missing_column() -> None:
    with pytest.raises(SchemaError, match=r"no column o_t, y to map; there are x, r_t"):
        map_columns(table("x", "r_t"), {"obs": "o_t", "actions": ["x", "y"], "rewards": "r_t"})


@pytest.mark.parametrize(
    ("names", "mapping", "message"),
    [
        (("o_t", "obs"), {"obs": "o_t"}, "Column 'obs' would be a second 'obs'"),
        (("x", "dones"), {"dones": "x"}, "Column 'dones' would be a second 'dones'"),
    ],
)
def test_two_columns_of_one_name(names: tuple[str, ...], mapping: dict[str, str], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        map_columns(table(*names), mapping)


def test_a_mapping_that_contradicts_itself() -> None:
    with pytest.raises(ConfigError, match="several source columns for terminateds"):
        canonical_mapping({"terminated": "a", "terminateds": "b"})


@pytest.mark.parametrize("column", [["a", "b"], [[[1.0]], [[2.0]]]])
def test_only_numbers_join(column: list[object]) -> None:
    with pytest.raises(SchemaError, match="Column 'bad' has type"):
        map_columns(pa.table({"x": [1, 2], "bad": column}), {"obs": ["x", "bad"]})


def test_numbers_and_vectors_join() -> None:
    mapped = map_columns(pa.table({"x": [1, 2], "v": [[3.0, 4.0], [5.0, 6.0]]}), {"obs": ["v", "x"]})
    assert read_column(mapped, "obs").tolist() == [[3, 4, 1], [5, 6, 2]]


@pytest.mark.parametrize(("obs", "actions"), [(["x", "power"], "power"), ("power", "power"), (["s.x"], ["a", "s.x"])])
def test_what_is_done_is_not_observed(obs: str | list[str], actions: str | list[str]) -> None:
    with pytest.raises(ConfigError, match=r"is mapped to actions and to obs: .*in_episode"):
        parse(ImportConfig, {"mapping": {"obs": obs, "actions": actions}})
    assert ImportConfig(mapping={"obs": ["power", "x"], "actions": "power.set"}).mapping["actions"] == "power.set"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("action_probs", "action_prob"), ("reward", "rewards"), ("new_observ", ""), ("obs_2", ""), ("reward_b", ""), ("load", "")],
)
def test_a_name_that_is_nearly_a_canonical_one_is_refused(name: str, meant: str) -> None:
    parse(ImportConfig, {"mapping": {name: "x"}})
    if not meant:
        check_names({name: "x"}, ["x"])
        return
    with pytest.raises(ConfigError, match=rf"mapping\.{name} is no canonical name \(did you mean {meant}\?\)"):
        check_names({name: "x"}, ["x"])
    check_names({name: "x"}, ["x", meant])


def test_a_dataset_that_has_such_a_name_is_appended_to_and_a_new_one_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(number: int) -> None:
        steps = {"eps_id": [f"e{number}"] * 2, "t": [0, 1], "obs": [[0.5], [1.0]], "actions": [0, 1], "rewards": [1.0, number]}
        table = pa.table({**steps, "terminateds": [False, True], "p": [0.5, 0.25]})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")

    (tmp_path / "in").mkdir()
    save(0)
    config = parse(ImportConfig, {"mapping": {"action_probs": "p"}, "append": True})
    with pytest.raises(ConfigError, match=r"mapping\.action_probs is no canonical name"):
        import_data(config, source=str(tmp_path / "in"), output=str(tmp_path / "out"))
    with monkeypatch.context() as patch:  # as versions before did
        patch.setattr(preparation, "check_names", lambda *_: None)
        import_data(config, source=str(tmp_path / "in"), output=str(tmp_path / "out"))
    save(1)
    result = import_data(config, source=str(tmp_path / "in"), output=str(tmp_path / "out"))
    assert [e.extras["action_probs"].tolist() for e in open_dataset(result.dataset.uri).episodes()] == [[0.5, 0.25]] * 2


def test_a_name_means_no_canonical_column_that_the_source_has(tmp_path: Path) -> None:
    steps = {"eps_id": ["a"] * 2, "t": [0, 1], "obs": [[0.5], [1.0]], "actions": [0, 1], "rewards": [1.0, 2.0], "x": [3.0, 4.0]}
    pq.write_table(pa.table({**steps, "terminateds": [False, True]}), tmp_path / "in.parquet")
    config = parse(ImportConfig, {"mapping": {"reward": "x"}})
    result = import_data(config, source=str(tmp_path / "in.parquet"), output=str(tmp_path / "out"))
    [episode] = open_dataset(result.dataset.uri).episodes()
    assert (episode.rewards.tolist(), episode.extras["reward"].tolist()) == ([1.0, 2.0], [3.0, 4.0])


@pytest.mark.parametrize(("name", "meant"), [("propensity", "action_prob"), ("behavior_logp", "action_logp"), ("load", "")])
def test_another_word_for_a_canonical_name_is_noted(name: str, meant: str) -> None:
    said = notes_on_names({name: "x"}, ["x"])
    assert len(said) == bool(meant) and all(f"meant for the canonical column {meant}" in note for note in said)
    assert notes_on_names({name: "x", meant or "obs": "y"}, ["x", "y"]) == notes_on_names({name: "x"}, ["x", meant]) == []
