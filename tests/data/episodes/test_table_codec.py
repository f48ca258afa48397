"""Episodes ⇄ step table, in memory and through Parquet, and every way in which a table can be no episodes."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offline_core.data.episodes import Episode, columns, episodes_to_table, table_to_episodes
from offline_core.errors import EpisodeError, SchemaError, SpaceError
from tests.cases import examples
from tests.data.episodes.strategies import counting, episode_lists, leaves

# ---- Round trips -----------------------------------------------------------------------------------------------------


def through_parquet(table: pa.Table, row_group_size: int | None = None) -> pa.Table:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steps.parquet"
        pq.write_table(table, path, compression="zstd", use_dictionary=False, row_group_size=row_group_size)
        return pq.read_table(path)


def as_stored(episode: Episode) -> Episode:
    """Lookback is context, not steps, and not kept."""
    return episode.slice(0, len(episode))


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    episode_lists(count=st.integers(1, 4), steps=st.integers(1, 4), lookback=st.integers(0, 2), spaces_known=st.booleans()),
    st.none() | st.integers(1, 5),
)
def test_every_episode_comes_back_equal(episodes: list[Episode], row_group_size: int | None) -> None:
    table = episodes_to_table(episodes)
    assert table.num_rows == sum(map(len, episodes))
    for stored in (table, through_parquet(table, row_group_size)):
        again = table_to_episodes(stored)
        assert again == [as_stored(episode) for episode in episodes]
        for left, right in zip(again, episodes, strict=True):
            assert left.observation_space == right.observation_space
            assert left.action_space == right.action_space
            assert left.validate() is left
            for one, other in zip(leaves(left), leaves(right), strict=True):
                widened = one.dtype == np.float64 and other.dtype == np.float32  # rewards, if those of others are double
                assert one.dtype == other.dtype or one.dtype.kind == other.dtype.kind == "U" or widened


def test_the_columns_are_those_of_rllib_and_say_what_they_hold() -> None:
    table = episodes_to_table([counting(2, lookback=1, t_started=7, truncated=True, agent_id="a"), counting(1, eps_id="b")])
    assert table.to_pydict() == {
        "eps_id": ["count", "count", "b"],
        "agent_id": ["a", "a", None],
        "module_id": [None, None, None],
        "t": [7, 8, 0],
        "obs": [[7, -7], [8, -8], [0, 0]],
        "actions": [107, 108, 100],
        "rewards": [3.5, 4.0, 0.0],
        "new_obs": [[8, -8], [9, -9], [1, -1]],
        "terminateds": [False, False, False],
        "truncateds": [False, True, False],
        "infos": [b"\x81\xa1t\x08", b"\x81\xa1t\x09", b"\x81\xa1t\x01"],
        "reset_infos": [b"\x81\xa1t\x07", None, b"\x81\xa1t\x00"],
        "action_logp": [-7, -8, 0],
    }
    nullable = [field.name for field in table.schema if field.nullable]
    assert nullable == ["agent_id", "module_id", "reset_infos"]
    assert table.schema.field("obs").type == pa.fixed_shape_tensor(pa.float32(), [2])


def test_columns_without_content_are_left_out() -> None:
    names = episodes_to_table([counting(infos=None)]).column_names
    assert not {columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA} & set(names)


def test_consecutive_pieces_are_one_episode_again() -> None:
    whole = counting(9, terminated=True)
    pieces = [whole.slice(0, 4), whole.slice(4, 5, lookback=2), whole.slice(5, 9, lookback=9)]
    assert table_to_episodes(episodes_to_table(pieces)) == [whole]


def test_episodes_share_no_custom_data() -> None:
    """Nor do they when the table has no such column."""
    for custom_data in ({}, {"x": 1}):
        first, second = table_to_episodes(
            episodes_to_table([counting(custom_data=custom_data), counting(eps_id="b", custom_data=custom_data)])
        )
        first.custom_data["seen"] = True
        assert "seen" not in second.custom_data


def test_a_slice_of_a_table_is_read() -> None:
    episodes = [counting(3, eps_id=name, terminated=True) for name in "abc"]
    table = episodes_to_table(episodes).slice(3, 3)
    assert table_to_episodes(table) == [episodes[1]]


def test_a_table_of_many_chunks_is_read() -> None:
    episodes = [counting(3, eps_id=name) for name in "abcd"]
    table = pa.concat_tables([episodes_to_table(episodes[:1]), episodes_to_table(episodes[1:])])
    assert table[columns.OBS].num_chunks == 2
    assert table_to_episodes(table) == episodes


def test_an_empty_table_has_no_episodes() -> None:
    table = episodes_to_table([counting()])
    assert table_to_episodes(table.slice(0, 0)) == []
    assert table_to_episodes(table.schema.empty_table()) == []


# ---- What cannot become a table --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("episodes", "named"),
    [
        ([], "no episodes"),
        ([counting(), counting(0, eps_id="empty")], "empty has no steps"),
        ([counting(), counting(eps_id="b", extras={})], r"b has extras \[\]"),
        ([counting(), counting(eps_id="b", observations=np.zeros((7, 3)))], "shape of obs"),
        ([counting(), counting(eps_id="b", actions=np.zeros((6, 1)))], "shape of actions"),
        ([counting(), counting(eps_id="b", observations={"a": np.zeros(7)})], "shape of obs"),
        ([counting(extras={"t": np.zeros(6)})], "not be called 't'"),
        ([counting(infos=[{"x": {1}}] * 7)], "infos holds a value"),
        ([counting(custom_data={"x": {1}})], "custom_data holds a value"),
    ],
)
def test_episodes_that_are_no_table(episodes: list[Episode], named: str) -> None:
    with pytest.raises(EpisodeError, match=named):
        episodes_to_table(episodes)


def test_values_that_are_no_column() -> None:
    with pytest.raises(SpaceError, match="obs have dtype object"):
        episodes_to_table([counting(observations=np.array([None] * 7))])
    with pytest.raises(SpaceError, match="Sequence"):
        episodes_to_table([counting(action_space=gym.spaces.Sequence(gym.spaces.Discrete(2)))])


# ---- Foreign tables --------------------------------------------------------------------------------------------------


def foreign(**changes: Any) -> pa.Table:
    """Two episodes, a of three steps and b of two, as somebody's own script might write them."""
    table: dict[str, Any] = {
        "eps_id": ["a", "a", "a", "b", "b"],
        "t": [0, 1, 2, 0, 1],
        "obs": [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [5.0, 1.0], [6.0, 1.0]],
        "actions": [0, 1, 0, 1, 0],
        "rewards": [1.0, 2.0, 3.0, 4.0, 5.0],
        "new_obs": [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [6.0, 1.0], [7.0, 1.0]],
        "terminateds": [False, False, True, False, False],
        "truncateds": [False, False, False, False, True],
    }
    return pa.table({name: value for name, value in (table | changes).items() if value is not None})


def check_foreign(episodes: list[Episode]) -> None:
    assert [(e.eps_id, len(e), e.terminated, e.truncated) for e in episodes] == [("a", 3, True, False), ("b", 2, False, True)]
    assert np.asarray(episodes[0].observations)[:, 0].tolist() == [0, 1, 2, 3]
    assert np.asarray(episodes[1].observations)[:, 0].tolist() == [5, 6, 7]
    assert [e.return_ for e in episodes] == [6, 9]
    assert [np.asarray(e.actions).tolist() for e in episodes] == [[0, 1, 0], [1, 0]]
    for episode in episodes:
        assert episode.infos is None
        assert (episode.agent_id, episode.module_id, episode.custom_data, episode.extras) == (None, None, {}, {})
        episode.validate()


def test_a_plain_table_is_read() -> None:
    check_foreign(table_to_episodes(foreign()))
    check_foreign(table_to_episodes(through_parquet(foreign(), row_group_size=2)))


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 2)], ids=str)
def test_observations_in_lists_of_any_kind_are_read(kind: pa.DataType) -> None:
    table = foreign()
    for name in ("obs", "new_obs"):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    episodes = table_to_episodes(table)
    check_foreign(episodes)
    assert episodes[0].observations.dtype == kind.value_type.to_pandas_dtype()


def test_rays_tensors_are_read_in_their_shape() -> None:
    """Only the metadata of the field says that these six numbers are two rows of three."""
    flat, images = np.arange(30, dtype=np.uint8).reshape(5, 6), np.arange(36, dtype=np.uint8).reshape(6, 2, 3)
    metadata = {b"ARROW:extension:name": b"ray.data.arrow_tensor_v2", b"ARROW:extension:metadata": b"[2, 3]"}
    table = foreign(eps_id=["a"] * 5, t=range(5), terminateds=[False] * 5, truncateds=[False] * 5)
    for name, rows in (("obs", flat), ("new_obs", flat + 6)):
        column = pa.array(rows.tolist(), pa.large_list(pa.uint8()))
        table = table.set_column(table.column_names.index(name), pa.field(name, column.type, metadata=metadata), column)
    (episode,) = table_to_episodes(through_parquet(table))
    assert episode.observations.tolist() == images.tolist()


@pytest.mark.parametrize(
    ("eps_ids", "expected"),
    [
        (pa.array([7, 7, 7, 8, 8]), ["7", "8"]),
        (pa.array(["a", "a", "a", "b", "b"]).dictionary_encode(), ["a", "b"]),
        (pa.array(["a", "a", "a", "b", "b"], pa.large_string()), ["a", "b"]),
        (pa.array([b"a", b"a", b"a", b"b", b"b"]), ["a", "b"]),
    ],
    ids=["int", "dictionary", "large_string", "binary"],
)
def test_episode_ids_of_any_type_become_text(eps_ids: pa.Array, expected: list[str]) -> None:
    assert [episode.eps_id for episode in table_to_episodes(foreign(eps_id=eps_ids))] == expected


def test_flags_may_be_numbers_and_ids_of_agents_null() -> None:
    table = foreign(
        terminateds=[0, 0, 1, 0, 0], truncateds=[0.0, 0.0, 0.0, 0.0, 1.0], agent_id=pa.nulls(5), module_id=pa.nulls(5)
    )
    check_foreign(table_to_episodes(table))


def test_columns_of_other_names_are_extras() -> None:
    table = foreign(vf_preds=[0.5, 1.5, 2.5, 3.5, 4.5], state=pa.array([{"h": [i, i]} for i in range(5)]))
    first, second = table_to_episodes(table)
    assert first.get_extra("vf_preds").tolist() == [0.5, 1.5, 2.5]
    assert second.get_extra("state")["h"].tolist() == [[3, 3], [4, 4]]


def test_infos_are_read_from_bytes_with_nulls_and_from_structs() -> None:
    packed = foreign(infos=pa.array([None, b"\x81\xa1x\x05", None, None, None]))
    structs = foreign(infos=pa.array([None, {"x": 5}, None, None, None]))
    for table in (packed, structs):
        first, second = table_to_episodes(table)
        assert first.get_infos() == [{}, {}, {"x": 5}, {}]
        assert second.infos is None


def test_order_of_columns_and_further_metadata_do_not_matter() -> None:
    table = foreign().select(sorted(foreign().column_names, reverse=True)).replace_schema_metadata({"pandas": "{}"})
    check_foreign(table_to_episodes(table))


# ---- Tables that are no episodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["eps_id", "t", "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds"])
def test_a_missing_column_is_named(name: str) -> None:
    with pytest.raises(SchemaError, match=rf"\['{name}'\]"):
        table_to_episodes(foreign(**{name: None}))


NAMED: list[tuple[dict[str, Any], type[Exception], str]] = [
    # the rows
    ({"t": [0, 2, 1, 0, 1]}, EpisodeError, "Episode a jumps from step 0 to 2"),
    ({"t": [0, 1, 2, 0, 2]}, EpisodeError, "Episode b jumps from step 0 to 2"),
    ({"t": [0, 1, 2, 1, 0]}, EpisodeError, "Episode b jumps from step 1 to 0"),
    ({"t": [0, 0, 1, 0, 1]}, EpisodeError, "Episode a jumps from step 0 to 0"),
    ({"t": pa.array([0, 1, 2, 1, 0], pa.uint8())}, EpisodeError, "Episode b jumps from step 1 to 0"),
    ({"eps_id": ["a", "a", "b", "b", "a"]}, EpisodeError, "rows of episode a are not together"),
    ({"eps_id": ["a"] * 5, "t": range(5)}, EpisodeError, "Episode a goes on after it ended at step 2"),
    ({"terminateds": [True, False, True, False, False]}, EpisodeError, "Episode a goes on after it ended at step 0"),
    ({"truncateds": [False, False, False, True, True]}, EpisodeError, "Episode b goes on after it ended at step 0"),
    (
        {"new_obs": [[1.0, 1.0], [9.0, 1.0], [3.0, 1.0], [6.0, 1.0], [7.0, 1.0]]},
        EpisodeError,
        "Episode a: new_obs of step 1 is not obs of step 2",
    ),
    (
        {"new_obs": [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [6.0, float("nan")], [7.0, 1.0]]},
        EpisodeError,
        "Episode b: new_obs of step 0 is not obs of step 1",
    ),
    # the types
    ({"new_obs": [[1.0]] * 5}, SchemaError, r"different shapes: \(2,\) and \(1,\)"),
    ({"new_obs": [{"x": 1.0}] * 5}, SchemaError, r"different shapes: \(2,\) and \{'x': \(\)\}"),
    ({"obs": [[1.0], [1.0, 2.0], [1.0], [1.0], [1.0]]}, SchemaError, "'obs' has lists of 1 to 2 values"),
    ({"actions": [[1], [1, 2], [1], [1], [1]]}, SchemaError, "'actions' has lists of 1 to 2 values"),
    ({"extra": [[1], [], [1], [1], [1]]}, SchemaError, "'extra' has lists of 0 to 1 values"),
    ({"eps_id": ["a", "a", None, "b", "b"]}, SchemaError, "'eps_id' has 1 null;"),
    ({"t": [0, 1, None, 0, 1]}, SchemaError, "'t' has 1 null among"),
    ({"obs": [[0.0, 1.0], None, [2.0, 1.0], [5.0, 1.0], [6.0, 1.0]]}, SchemaError, "'obs' has 1 null among"),
    (
        {"new_obs": [[1.0, 1.0], [2.0, None], [3.0, 1.0], [6.0, 1.0], [7.0, 1.0]]},
        SchemaError,
        "'new_obs' has nulls in 1 of 5 rows",
    ),
    ({"actions": [0, 1, None, 1, 0]}, SchemaError, "'actions' has 1 null among"),
    ({"rewards": [None, 1.0, 2.0, 3.0, 4.0]}, SchemaError, "'rewards' has 1 null among"),
    ({"terminateds": [False, None, True, False, False]}, SchemaError, "'terminateds' has 1 null among"),
    ({"truncateds": pa.nulls(5)}, SchemaError, "'truncateds' has 5 nulls"),
    ({"extra": [1, 2, None, 3, 4]}, SchemaError, "'extra' has 1 null among"),
    ({"eps_id": [["a"]] * 5}, SchemaError, "'eps_id' has type list"),
    ({"t": [0.0, 1.0, 2.0, 0.0, 1.0]}, SchemaError, "'t' has type double; it has to hold one integer"),
    ({"rewards": [[1.0]] * 5}, SchemaError, "'rewards' has type list.* one number"),
    ({"rewards": ["1"] * 5}, SchemaError, "'rewards' has type string"),
    ({"terminateds": ["no"] * 5}, SchemaError, "'terminateds' has type string"),
    ({"actions": [b"a"] * 5}, SchemaError, "'actions' has type binary"),
    ({"infos": ["{}"] * 5}, SchemaError, "'infos' has type string"),
    ({"infos": [b"\x05"] * 5}, SchemaError, "'infos' has type binary; it has to hold dicts"),
]


@pytest.mark.parametrize(("changes", "error", "named"), NAMED, ids=[named for _, _, named in NAMED])
def test_a_table_that_is_no_episodes_is_refused_by_name(changes: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        table_to_episodes(foreign(**changes))


def test_two_nan_observations_do_not_contradict_each_other() -> None:
    """It is for `validate` to refuse them, which knows the step."""
    episode = counting(3, observations=np.array([[1.0], [np.nan], [2.0], [3.0]]))
    assert table_to_episodes(episodes_to_table([episode])) == [episode]


def test_the_spaces_of_a_table_that_cannot_be_read_are_an_error() -> None:
    table = episodes_to_table([counting(action_space=gym.spaces.Discrete(3))])
    metadata = table.schema.metadata
    for broken in (b"{", b'{"space": "maze"}'):
        with pytest.raises(SpaceError):
            table_to_episodes(table.replace_schema_metadata(dict.fromkeys(metadata, broken)))


# ---- Cost ------------------------------------------------------------------------------------------------------------


def test_the_number_of_steps_costs_no_python() -> None:
    """A long episode and a short one run the same lines, if there are no infos."""

    def calls(steps: int) -> int:
        episode = replace(counting(steps, infos=None), terminated=True)
        total = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal total
            total += 1

        sys.setprofile(count)
        try:
            table_to_episodes(episodes_to_table([episode]))
        finally:
            sys.setprofile(None)
        return total

    calls(10)
    assert calls(100_000) < calls(10) + 50
