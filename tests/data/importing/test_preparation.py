"""Rows of a source become rows of ours; every row that cannot is named, and the others go through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.importing import preparation
from offline_core.data.importing.preparation import Preparation
from offline_core.data.importing.report import Findings
from offline_core.errors import SchemaError
from tests.cases import examples
from tests.data.importing.preparing import prepare, reason, settled, table

# Rows.


def test_rows_know_where_they_come_from() -> None:
    good, bad = prepare(table(3))
    assert bad == []
    assert good is not None
    assert good["_source_file"].to_pylist() == [3, 3, 3]
    assert good["_source_row"].to_pylist() == [100, 101, 102]
    assert good.column_names == ["obs", "actions", "rewards", "terminateds", "infos", "_source_file", "_source_row"]
    assert [field.name for field in good.schema if field.nullable] == ["infos", "_source_file", "_source_row"]


def test_rows_are_numbered_as_their_file_says() -> None:
    """A filter leaves gaps."""
    rows = table(4, rewards=[0.0, None, 0.0, 0.0]).append_column("_source_row", pa.array([7, 20, 21, 90], pa.uint32()))
    good, bad = prepare(rows)
    assert [each.row for each in bad] == [20]
    assert good is not None
    assert good["_source_row"].to_pylist() == [7, 21, 90]


@pytest.mark.parametrize("first", [0, 5, 9])
def test_most_rows_say_what_rows_are_like(first: int) -> None:
    """And not the first one: a single odd row in front would make all the others odd."""
    obs = [[1.0, 2.0]] * 10
    obs[first] = [1.0, 2.0, 3.0]
    good, bad = prepare(table(10, obs=obs))
    assert [each.row for each in bad] == [100 + first]
    assert "shape (3,) where earlier rows have (2,)" in str(bad[0].error)
    assert good is not None
    assert good.num_rows == 9


@pytest.mark.parametrize(
    "wrong",
    [{"rewards": None}, {"rewards": float("nan")}, {"terminateds": 7}, {"p": 1.5}, {"p": 0.0}, {"obs": "much"}],
    ids=str,
)
def test_rows_of_one_mistake_are_named_by_one_look(wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Halving the rows down to each bad one took minutes where a column was wrong."""
    count = 200
    row = {"obs": 0.5, "actions": 1, "rewards": 0.0, "terminateds": 0, "p": 0.5}
    is_text = "much" in wrong.values()
    rows = [{**row, **({"obs": "0.5"} if is_text else {}), **(wrong if i % 2 else {})} for i in range(count)]
    looks: list[int] = []
    convert = Preparation._convert
    monkeypatch.setattr(Preparation, "_convert", lambda *args, **kw: looks.append(0) or convert(*args, **kw))
    mapping = {"action_prob": "p", "obs": ["obs"]}
    good, bad = prepare(pa.Table.from_pylist(rows), Preparation(mapping))
    assert [each.row for each in bad] == [*range(101, 100 + count, 2)] and len({str(each.error) for each in bad}) == 1
    assert good is not None and good["_source_row"].to_pylist() == [*range(100, 100 + count, 2)]
    assert len(looks) < count / 2, "and not one for each"


@given(st.lists(st.sampled_from(["good", "nan", "null", "ragged", "flag"]), min_size=1, max_size=300), st.booleans())
@settings(max_examples=examples(40))
def test_each_row_is_kept_or_named(kinds: list[str], has_template: bool) -> None:
    prepared = settled(table(1)) if has_template else Preparation({})
    rows = table(
        len(kinds),
        obs=[[0.0, None] if kind == "null" else [0.0] * (3 if kind == "ragged" else 2) for kind in kinds],
        rewards=[np.nan if kind == "nan" else 1.0 for kind in kinds],
        dones=[2 if kind == "flag" else 0 for kind in kinds],
    )
    good, bad = prepare(rows, prepared)
    kept = [] if good is None else good["_source_row"].to_pylist()
    assert sorted([*kept, *(each.row for each in bad)]) == list(range(100, 100 + len(kinds)))
    if has_template or "ragged" not in kinds:  # without, most rows may be of three numbers
        assert kept == [100 + row for row, kind in enumerate(kinds) if kind == "good"]


def test_a_large_table_without_a_good_row_does_not_take_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    count, tried = 20_000, []
    convert = Preparation._convert
    monkeypatch.setattr(Preparation, "_convert", lambda *a, **more: tried.append(1) or convert(*a, **more))
    good, bad = prepare(table(count, rewards=np.full(count, np.nan)))
    assert len(tried) <= 2 * preparation.PROBES + 2
    assert good is None
    assert [each.row for each in bad] == list(range(100, 100 + count))


@pytest.fixture
def searched_rows(monkeypatch: pytest.MonkeyPatch) -> int:
    """Fewer, to be quick."""
    monkeypatch.setattr(preparation, "SEARCHED_ROWS", 400)
    return 400


@pytest.mark.usefixtures("searched_rows")
def test_in_a_large_table_the_bad_part_is_found() -> None:
    count = 5000
    rewards = np.where(np.arange(count) < 3000, np.nan, 1.0)
    rewards[2990] = 2.0  # one good row among bad ones, near the border
    good, bad = prepare(table(count, rewards=rewards))
    assert good is not None
    assert len(bad) + good.num_rows == count
    assert good["_source_row"].to_pylist() == [100 + 2990, *range(3100, 5100)]


def test_the_search_is_thorough_in_small_tables(searched_rows: int) -> None:
    """One good row among as many as are searched."""
    rewards = np.full(searched_rows, np.nan)
    rewards[123] = 1.0
    good, bad = prepare(table(searched_rows, rewards=rewards))
    assert good is not None
    assert good["_source_row"].to_pylist() == [223]
    assert len(bad) == searched_rows - 1


def test_no_rows() -> None:
    assert prepare(table(4).slice(0, 0)) == (None, [])


# Columns.


def test_missing_columns_are_named_once_for_all_rows() -> None:
    good, bad = prepare(table(4, actions=None, rewards=None))
    assert good is None
    assert [(each.row, each.rows) for each in bad] == [(None, 4)]
    told = "no column actions, rewards and none is mapped to it; there are obs, dones. Say which it is by mapping: "
    assert told + "{actions: NAME}." in str(bad[0].error)


def test_missing_columns_are_held_against_names_as_they_are_in_the_source() -> None:
    """And quarantine is no advice: it would list every row."""
    theirs = pa.table({"o_t": [0.5, 1.5], "a_t": [0, 1], "done": [False, True]})
    _, [bad] = prepare(theirs, mapping={"obs": "o_t"})
    assert "no column actions, rewards and none is mapped to it; there are o_t, a_t, done. Say" in str(bad.error)
    with pytest.raises(SchemaError) as refused:
        Findings("fail").refuse(bad)
    assert str(refused.value).endswith("Say which it is by mapping: {actions: a_t}.") and refused.value.uri == "there.parquet"


def test_columns_have_to_be_the_same_in_all_tables() -> None:
    prepared = settled(table(2, action_logp=[0.5, 0.5]))
    good, [bad] = prepare(table(2, truncateds=[1, 1]), prepared)
    assert good is None
    assert "not those of earlier rows: no action_logp; also truncateds. Choose the common ones by source.columns" in str(
        bad.error
    )


def test_infos_may_come_and_go() -> None:
    prepared = settled(table(1))
    parts = [
        prepare(rows, prepared)
        for rows in (table(1), table(1, infos=[{"a": 1}]), table(1, infos=pa.nulls(1)), table(1, custom_data=[{"b": 1}]))
    ]
    assert [bad for _, bad in parts] == [[], [], [], []]
    assert len({str(good.schema) for good, _ in parts[:3] if good is not None}) == 1


def test_columns_without_a_type_hold_nothing() -> None:
    good, bad = prepare(table(2, agent_id=pa.nulls(2)))
    assert bad == []
    assert good is not None
    assert "agent_id" not in good.column_names
    assert "'rewards' has 2 nulls among 2 rows" in str(reason(table(2, rewards=pa.nulls(2))))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([0.5], [1]),
        (pa.array([0.5], pa.float32()), [3]),
        ([1], pa.array([1], pa.int8())),
        (pa.array([1], pa.int32()), pa.array([1], pa.int64())),
        (["a"], ["longer"]),
    ],
)
def test_types_that_fit_earlier_ones(before: Any, now: Any) -> None:
    prepared = settled(table(1, extra=before))
    first, _ = prepare(table(1, extra=before), prepared)
    second, bad = prepare(table(1, extra=now), prepared)
    assert bad == []
    assert first is not None
    assert second is not None
    assert first.schema == second.schema
    assert second["extra"].to_pylist() == pa.array(now).to_pylist()


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([1], [0.5]),
        ([1], [1.0]),
        (pa.array([1], pa.int8()), [1000]),
        (pa.array([1], pa.uint64()), [-1]),
        (pa.array([1], pa.int64()), pa.array([2**64 - 1], pa.uint64())),
        (pa.array([0.5], pa.float32()), [2**24 + 1]),
        (pa.array([0.5], pa.float32()), [0.1]),
        ([1], ["a"]),
        ([{"a": 1}], [{"b": 1}]),
    ],
)
def test_types_that_do_not_fit_earlier_ones(before: Any, now: Any) -> None:
    prepared = settled(table(1, extra=before), {"cost": "extra"})
    good, [bad] = prepare(table(1, extra=now), prepared)
    assert good is None
    assert bad.row == 100
    assert isinstance(bad.error, SchemaError)
    assert "where earlier rows have" in str(bad.error)


@pytest.mark.parametrize("name", ["obs", "actions"])
def test_what_networks_get_is_rounded_to_float32_and_a_note_says_so(name: str) -> None:
    prepared = settled(table(1, **{name: pa.array([[0.5, 1.0]], pa.list_(pa.float32()))}))
    findings = Findings("quarantine")
    good, bad = prepared(table(1, **{name: [[0.1, 0.2]]}), file=0, first_row=0, uri="x", findings=findings)
    assert good is not None and not bad and read_column(good, name).dtype == np.float32  # type: ignore[union-attr]
    assert f"Some rows have {name} in float64" in findings.notes[0]
    none, [large] = prepared(table(1, **{name: [[1e300, 0.2]]}), file=0, first_row=0, uri="x", findings=findings)
    assert none is None and "is float64 where earlier rows have float32" in str(large.error)


def test_declared_spaces_settle_types_that_differ() -> None:
    declared = (spaces.Box(0, 9, (2,), np.float32), spaces.Discrete(9))
    prepared = settled(table(2, obs=[[1, 2], [3, 4]], actions=[1.0, 2.0]), spaces=declared)
    parts = [
        prepare(table(2, obs=obs, actions=actions), prepared)
        for obs, actions in (
            ([[1, 2], [3, 4]], [1.0, 2.0]),
            ([[0.5, 2.0], [3.0, 4.0]], [[1], [2]]),
        )
    ]
    assert [bad for _, bad in parts] == [[], []]
    assert [part["actions"].to_pylist() for part, _ in parts if part is not None] == [[1, 2], [1, 2]]
    assert all(part.schema.field("obs").type == pa.fixed_shape_tensor(pa.float32(), (2,)) for part, _ in parts if part)


def test_rewards_are_float64() -> None:
    """So that files may differ in what they keep them as."""
    prepared = settled(table(1, rewards=[1]))
    for rewards in ([1], [0.5], pa.array([0.1], pa.float32()), [True], [[2.0]]):
        good, bad = prepare(table(1, rewards=rewards), prepared)
        assert bad == []
        assert good is not None
        assert good.schema.field("rewards").type == pa.float64()


# What readers could not read.


def test_what_a_reader_could_not_read_is_passed_on() -> None:
    unread = Unreadable("there.parquet", 7, 1, SchemaError("Nothing there."))
    findings = Findings("quarantine")
    assert Preparation({})(unread, file=0, first_row=0, uri="there.parquet", findings=findings) == (None, [unread])
    assert (unread.num_rows, unread._replace(rows=0).num_rows) == (1, 1), "lest its neighbours seem to follow one another"


def test_a_name_that_is_taken() -> None:
    assert "column _source_file, a name that is taken here" in str(reason(table(1, _source_file=[1])))
