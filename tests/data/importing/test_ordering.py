"""What `auto` means, and orders that cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offline_core.data.importing.config import EpisodesConfig
from offline_core.data.importing.step_order import order_of, whole_ends
from offline_core.errors import ConfigError, SchemaError
from tests.data.importing.factories import Row, assembled, parts, run_import, steps, summary, without, write_rows

EVERYTHING = {"eps_id": pa.string(), "t": pa.int32(), "obs": pa.int64(), "new_obs": pa.int64(), "terminateds": pa.bool_()}


def schema(*left_out: str, **types: pa.DataType) -> pa.Schema:
    return pa.schema({name: kind for name, kind in (EVERYTHING | types).items() if name not in left_out})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (schema(), "t"),
        (schema(t=pa.float64()), "time"),
        (schema(t=pa.fixed_shape_tensor(pa.int64(), [1])), "time"),
        (schema("t"), "linked"),
        (schema("t", "eps_id"), "linked"),
        (schema("t", "terminateds"), "linked"),
    ],
)
def test_auto(given: pa.Schema, expected: str) -> None:
    assert order_of(EpisodesConfig(), given.empty_table()) == expected


@pytest.mark.parametrize(
    ("t", "expected"), [([0.0, 2.0, 1.0], "t"), ([0.0, 0.5], "time"), ([1.7e9, 1.7e9 + 1], "time"), ([5, 9], "t")]
)
def test_auto_by_the_first_values(t: list[float], expected: str) -> None:
    table = pa.table({"eps_id": ["a"] * len(t), "t": t, "new_obs": t})
    assert order_of(EpisodesConfig(), table) == expected


def test_auto_without_new_obs() -> None:
    assert order_of(EpisodesConfig(last_new_obs="repeat"), schema("t", "new_obs").empty_table()) == "stored"
    assert order_of(EpisodesConfig(last_new_obs="drop"), schema("new_obs").empty_table()) == "t"


@pytest.mark.parametrize(
    ("rules", "given", "message"),
    [
        ({"order": "t"}, schema("t"), "no column is mapped to 't'"),
        ({"order": "time"}, schema("t"), "no column is mapped to 't'"),
        ({"order": "t"}, schema(t=pa.fixed_shape_tensor(pa.int64(), [1])), "holds times .* use order: time"),
        ({"order": "linked", "last_new_obs": "repeat"}, schema("new_obs"), "without a column new_obs"),
        ({"order": "single_step", "last_new_obs": "drop"}, schema("new_obs"), "would all be dropped"),
        ({}, schema("eps_id", "terminateds", _source_file=pa.string()), r"to dones\. The columns are t, obs, new_obs\.$"),
    ],
)
def test_orders_that_cannot_be_had(rules: dict[str, Any], given: pa.Schema, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        order_of(EpisodesConfig(**rules), given.empty_table())


def test_single_steps_need_no_ends() -> None:
    assert order_of(EpisodesConfig(order="single_step"), schema("eps_id", "terminateds").empty_table()) == "single_step"


def with_state(rows: list[Row], **of: Any) -> list[Row]:
    return [row | {name: value(row) for name, value in of.items()} for row in rows]


@pytest.mark.parametrize("order", ["t", "linked", "stored"])
def test_texts_of_different_lengths_are_compared_whole(order: str) -> None:
    states = ["a", "abcdefgh", "abc", "end"]
    rows = with_state(steps("e", 3), obs=lambda row: states[row["t"]], new_obs=lambda row: states[row["t"] + 1])
    assert parts(assembled(rows, order=order)[0]) == [("e0 e1 e2", "T")]
    assert parts(assembled(rows[::-1], order="linked")[0]) == [("e0 e1 e2", "T")]


@pytest.mark.parametrize("order", ["t", "linked", "stored"])
def test_numbers_of_different_types_are_compared_as_numbers(order: str) -> None:
    """As a CSV file has them whose obs happen to be whole."""
    rows = with_state(steps("e", 3), obs=lambda row: row["t"], new_obs=lambda row: 2.5 if row["t"] == 2 else row["t"] + 1.0)
    [episode], _ = assembled(rows, order=order)
    assert episode.observations.tolist() == [0.0, 1.0, 2.0, 2.5]


@pytest.mark.parametrize("order", ["t", "linked", "stored"])
def test_obs_and_new_obs_of_different_shapes(order: str) -> None:
    rows = with_state(steps("e", 3), new_obs=lambda _: [1.0, 2.0, 3.0])
    with pytest.raises(SchemaError, match=r"obs and new_obs have steps of different shapes: \(2,\) and \(3,\)"):
        assembled(rows, order=order)


def test_minus_zero_is_zero() -> None:
    rows = with_state(steps("e", 2), obs=lambda row: -0.0 if row["t"] else 1.0, new_obs=lambda row: row["t"] + 0.0)
    assert parts(assembled(rows[::-1], order="linked")[0]) == [("e0 e1", "T")]


def test_nested_observations_are_linked() -> None:
    def state(t: int) -> dict[str, Any]:
        return {"position": [float(t), 0.5], "name": "x" * t}

    rows = with_state(steps("e", 4), obs=lambda row: state(row["t"]), new_obs=lambda row: state(row["t"] + 1))
    assert summary(assembled(rows[::-1], order="linked")[0]) == [("e", "e0 e1 e2 e3", "T")]


def test_times_a_nanosecond_apart() -> None:
    """They come as a column of one number, which no step numbers do."""
    now = 1_700_000_000_000_000_000
    rows = with_state(steps("e", 4), t=lambda row: [now + row["t"]], obs=lambda _: [0.0], new_obs=lambda _: [0.0])
    found, counts = assembled(rows[::-1])
    assert (parts(found), counts.duplicates) == ([("e0 e1 e2 e3", "T")], 0)


@pytest.mark.parametrize("order", ["t", "time"])
def test_without_ids_a_row_that_repeats_the_one_before_is_a_copy(order: str) -> None:
    """The first, one in the middle three times, the last with its end; another row of the same t begins an episode."""
    a, b = steps("a", 3), steps("b", 2, end="")
    rows = [a[0], a[0], a[1], a[1], a[1], a[2], a[2], *b, b[1] | {"rewards": 9.0, "tag": "other"}]
    found, counts = assembled(without(rows, "eps_id", "new_obs"), order=order)
    assert parts(found) == [("a0 a1 a2", "T"), ("b0 b1", "X"), ("other", "X")]
    assert counts.duplicates == 4


@pytest.mark.parametrize("end", ["T", "X", ""])
def test_equal_episodes_of_one_step_are_no_copies(end: str) -> None:
    rows = [*steps("a", 1, end=end) * 3, *steps("b", 2, end=end), *steps("a", 1, end=end) * 2]
    found, counts = assembled(without(rows, "eps_id", "new_obs"), order="t")
    each = end or "X"
    assert parts(found) == [("a0", each)] * 3 + [("b0 b1", each)] + [("a0", each)] * 2 and counts.duplicates == 0


def test_a_row_that_the_source_calls_a_first_or_last_one_is_no_copy_of_another() -> None:
    a, b = steps("a", 2, end=""), steps("b", 3, first_t=1)
    rows = [row | {"is_first": row in (a[0], b[0])} for row in [*a, *b]]
    rows[2] |= {name: a[1][name] for name in ("t", "obs", "actions", "rewards", "tag")}
    found, counts = assembled(without(rows, "eps_id", "new_obs"), order="time")
    assert parts(found) == [("a0 a1", "X"), ("a1 b1 b2", "T")] and counts.duplicates == 0
    final = [*a, a[1] | {"is_last": True}, *b]
    found, counts = assembled(without([{"is_last": False} | row for row in final], "eps_id", "new_obs"), order="t")
    assert (counts.duplicates, counts.final_observations) == (0, 1)


def test_a_copy_of_an_end_is_one_wherever_files_and_batches_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offline_core.data.formats.sources.scans.BATCH_BYTES", 1)
    episodes = [without(steps(name, 3), "eps_id", "new_obs") for name in "abcdefgh"]
    rows = [row for episode in episodes for row in [*episode, episode[-1]]]
    for number, part in enumerate((rows[:3], rows[3:11], rows[11:])):
        write_rows(tmp_path / "in" / f"{number}.parquet", part)
    result, found = run_import(tmp_path / "in", tmp_path / "out", episodes={"order": "t", "last_new_obs": "repeat"})
    assert parts(found) == [(f"{name}0 {name}1 {name}2", "T") for name in "abcdefgh"]
    assert result.counts.duplicates == 8


def test_ends_that_may_be_repeated_wait_for_what_follows() -> None:
    """An episode of one step does not, so a log of clicks is never held as a whole."""
    clicks = pa.table({"t": [0] * 4, "terminateds": [True] * 4})
    assert whole_ends(clicks, is_first=True).tolist() == [True] * 4
    rows = pa.table({"t": [0, 1, 1, 0, 0, 1], "terminateds": [False, True, True, True, False, True]})
    assert whole_ends(rows, is_first=True).tolist() == [False, False, True, True, False, False]
    assert whole_ends(rows.slice(1), is_first=False).tolist() == [False, True, True, False, False]
