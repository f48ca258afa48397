"""Rows → episodes: orders, what numbers mean, ends."""

from __future__ import annotations

import numpy as np
import pytest

from offline_core.errors import EpisodeError
from tests.data.importing.factories import Row, assembled, nonzero, parts, shuffled, steps, summary, without

A, B = steps("a", 4), steps("b", 3, end="X")
WHOLE = [("a", "a0 a1 a2 a3", "T"), ("b", "b0 b1 b2", "X")]


# Orders.


def test_by_t() -> None:
    found, counts = assembled(shuffled([*A, *B], seed=1))
    assert sorted(summary(found)) == WHOLE
    assert nonzero(counts) == {"rows": 7, "steps": 7, "episodes": 2}
    first = next(e for e in found if e.eps_id == "a")
    assert (first.rewards.tolist(), first.actions.tolist(), first.t_started) == ([1.0, 2.0, 3.0, 4.0], [0, 1, 2, 0], 0)
    assert first.observations[:, 1].tolist() == [-0.0, -0.5, -1.0, -1.5, -2.0]


def test_episodes_come_in_the_order_of_their_first_rows() -> None:
    assert [id for id, *_ in summary(assembled([*B, *A])[0])] == ["b", "a"]
    assert [id for id, *_ in summary(assembled([B[2]], [*A, *B[:2]])[0])] == ["b", "a"]


def test_by_time() -> None:
    """Timestamps only sort; they may lie anyhow far apart."""
    stamps = {t: 1.7e9 + 1.5**t for t in range(4)}
    rows = [row | {"t": stamps[row["t"]]} for row in [*A, *B]]
    found, counts = assembled(shuffled(rows))
    assert sorted(summary(found)) == WHOLE
    assert counts.gaps == counts.late_starts == 0
    whole = [row | {"t": 10 * row["t"] + 1000} for row in [*A, *B]]
    assert sorted(summary(assembled(shuffled(whole), order="time")[0])) == WHOLE


@pytest.mark.parametrize("left_out", [("t",), ("t", "eps_id")])
def test_linked(left_out: tuple[str, ...]) -> None:
    for seed in range(5):
        found, counts = assembled(*(without(rows, *left_out) for rows in np.array_split(shuffled([*A, *B], seed), 3)))
        assert sorted(parts(found)) == [("a0 a1 a2 a3", "T"), ("b0 b1 b2", "X")]
        assert nonzero(counts) == {"rows": 7, "steps": 7, "episodes": 2}


def test_stored() -> None:
    """With ids, rows of several episodes may alternate; without them, what follows in the next file goes on."""
    mixed = without([A[0], B[0], A[1], A[2], B[1], B[2], A[3]], "t")
    assert sorted(summary(assembled(mixed, order="stored")[0])) == WHOLE
    anonymous = without([*A, *B], "t", "eps_id")
    assert parts(assembled(anonymous, order="stored")[0]) == [("a0 a1 a2 a3", "T"), ("b0 b1 b2", "X")]
    for order in ("stored", "linked"):
        found, counts = assembled(anonymous[:2], anonymous[2:], order=order)
        assert parts(found) == [("a0 a1 a2 a3", "T"), ("b0 b1 b2", "X")]
        assert nonzero(counts) == {"rows": 7, "steps": 7, "episodes": 2}
    for rows in (anonymous, without(anonymous, "new_obs")):  # what does not follow, or nothing says so
        second = rows[3:] if rows is anonymous else rows[2:]
        found, counts = assembled(rows[:2], second, order="stored", last_new_obs="repeat")
        assert parts(found)[0] == ("a0 a1", "X")
        assert (len(found), counts.open_ends, counts.gaps) == (3, 1, 0)


def test_single_steps() -> None:
    found, counts = assembled([*A, *B[:1]], order="single_step")
    assert summary(found) == [
        ("a", "a0", "open"),
        ("a@1", "a1", "open"),
        ("a@2", "a2", "open"),
        ("a@3", "a3", "T"),
        ("b", "b0", "open"),
    ]
    assert nonzero(counts) == {"rows": 5, "steps": 5, "episodes": 5}
    assert {e.t_started for e in found} == {0}


@pytest.mark.parametrize("rows", [A, without(A, "t")], ids=["t", "no t"])
def test_single_steps_that_are_there_twice_stay_so_and_are_told(rows: list[Row]) -> None:
    """A user may do the same again."""
    found, counts = assembled(rows, rows, order="single_step")
    assert len({e.eps_id for e in found}) == 8
    assert counts.repeated_rows == (4 if "t" in rows[0] else 0), "without t, equal rows have to be neighbours to be seen"


def test_t_without_ids() -> None:
    """An episode begins where t does not grow, in the order of the rows, and goes on where it does, end flags or not."""
    rows = without([*steps("a", 3), *steps("b", 2, end=""), *steps("c", 4)], "eps_id")
    found, counts = assembled(rows[:4] + rows[5:6] + rows[7:])
    assert parts(found) == [("a0 a1 a2", "T"), ("b0", "X"), ("c0", "X"), ("c2 c3", "T")]
    assert (counts.gaps, counts.open_ends, counts.late_starts, counts.restarted_ids) == (1, 2, 0, 0)
    assert len({e.eps_id for e in found}) == 4


def test_t_without_ids_in_several_files() -> None:
    """An episode goes on in another file only if new_obs says so, however well its t would fit."""
    rows = without(steps("a", 5), "eps_id", "new_obs")
    found, counts = assembled(rows[:2], rows[2:], last_new_obs="repeat", incomplete="keep")
    assert parts(found) == [("a0 a1", "open"), ("a2 a3 a4", "T")]
    assert (counts.open_ends, counts.late_starts, counts.gaps) == (1, 1, 0)
    rows = without(steps("a", 5), "eps_id")
    assert parts(assembled(rows[:2], rows[2:])[0]) == [("a0 a1 a2 a3 a4", "T")]
    assert parts(assembled(rows[:2], rows[3:])[0]) == [("a0 a1", "X"), ("a3 a4", "T")]


def test_ids_of_episodes_without_ids_are_of_their_place() -> None:
    rows = without([*A, *B], "t", "eps_id")
    one, two = (summary(assembled(rows)[0]) for _ in range(2))
    assert one == two
    assert summary(assembled([], rows)[0]) != one, "another file"


# What numbers mean.


def test_whole_real_numbers_are_numbers_of_steps() -> None:
    """As pandas writes them where some were missing on the way."""
    rows = [row | {"t": float(row["t"])} for row in [*A[:2], *A[3:], *B]]
    found, counts = assembled(shuffled(rows))
    assert sorted(summary(found)) == [("a", "a0 a1", "X"), ("a@3", "a3", "T"), ("b", "b0 b1 b2", "X")]
    assert counts.gaps == 1
    late = [row | {"t": row["t"] + 10.5} for row in steps("c", 2)]
    with pytest.raises(EpisodeError, match=r"t is 10\.5 in row 0 of /d1/f and numbers no step; set episodes\.order: time"):
        assembled(rows, late, order="t")


def test_first_t() -> None:
    rows = [*steps("a", 3, first_t=1), *steps("b", 2, first_t=1)]
    found, counts = assembled(shuffled(rows), first_t=1, incomplete="keep")
    assert sorted(summary(found)) == [("a", "a0 a1 a2", "T"), ("b", "b0 b1", "T")]
    assert {e.t_started for e in found} == {0}
    assert counts.late_starts == 0
    assert assembled(rows)[1].late_starts == 2, "if nobody says so, a first step is missing"


def test_a_t_before_the_first() -> None:
    with pytest.raises(EpisodeError, match=r"t is 0 in row 1 of /d0/f, before the first one, which is 1.*episodes.first_t"):
        assembled([B[1], B[0]], first_t=1)


def test_ids_per_file() -> None:
    other = [row | {"obs": [7.0 + row["t"], 0.0], "new_obs": [8.0 + row["t"], 0.0], "tag": f"x{row['t']}"} for row in A]
    with pytest.raises(EpisodeError, match="ids_per: file"):
        assembled(A, other)
    for order in ("t", "linked", "stored"):
        found, counts = assembled(A, other, order=order, ids_per="file")
        assert parts(found) == [("a0 a1 a2 a3", "T"), ("x0 x1 x2 x3", "T")]
        assert counts.duplicates == 0
        one, two = (e.eps_id for e in found)
        assert one != two
        assert one.startswith("a@")
        assert two.startswith("a@")


# No new_obs.


def test_the_last_new_obs_is_repeated() -> None:
    for order in ("t", "stored"):
        found, counts = assembled(without([*A, *B], "new_obs"), order=order, last_new_obs="repeat")
        assert summary(found) == WHOLE
        assert found[0].observations[:, 1].tolist() == [-0.0, -0.5, -1.0, -1.5, -1.5]
        assert counts.dropped_last_steps == 0


@pytest.mark.parametrize("incomplete", ["cut", "keep", "drop"])
@pytest.mark.parametrize("order", ["t", "stored"])
def test_terminations_outlive_the_drop_of_last_steps(incomplete: str, order: str) -> None:
    """A terminated end needs no next observation; what is truncated loses its last step, as in d4rl.qlearning_dataset."""
    rows = without([*A, *B, *steps("c", 1), *steps("d", 1, end="X")], "new_obs")
    found, counts = assembled(shuffled(rows) if order == "t" else rows, last_new_obs="drop", incomplete=incomplete, order=order)
    assert sorted(summary(found)) == [("a", "a0 a1 a2 a3", "T"), ("b", "b0 b1", "X"), ("c", "c0", "T")]
    said = {"rows": 9, "steps": 7, "episodes": 3, "dropped_last_steps": 2, "repeated_last_obs": 2, "dropped_episodes": 1}
    assert nonzero(counts) == said
    assert counts.terminations == 2
    assert next(e for e in found if e.eps_id == "a").observations[:, 1].tolist() == [-0.0, -0.5, -1.0, -1.5, -1.5]
    assert next(e for e in found if e.eps_id == "b").observations[:, 1].tolist() == [-0.0, -0.5, -1.0]


def test_a_time_limit_is_no_termination_when_last_steps_are_dropped() -> None:
    rows = without([*A, *steps("c", 3)], "truncateds", "new_obs")
    found, counts = assembled(shuffled(rows), last_new_obs="drop", time_limit_steps=4)
    assert sorted(parts(found)) == [("a0 a1 a2", "X"), ("c0 c1 c2", "T")]
    assert (counts.terminations, counts.time_limits, counts.dropped_last_steps) == (2, 1, 1)


def test_open_parts_lose_their_last_step() -> None:
    """What follows it is not known either; an id that goes on after its end is no late start for that."""
    again = [row | {"eps_id": "b"} for row in steps("c", 3, first_t=3)]
    found, counts = assembled(without([*B, *again], "new_obs"), last_new_obs="drop")
    assert parts(found) == [("b0 b1", "X"), ("c0 c1 c2", "T")]
    assert (counts.late_starts, counts.restarted_ids) == (0, 1)
    found, counts = assembled(without([*A[:2], A[3]], "new_obs"), last_new_obs="drop", incomplete="keep")
    assert summary(found) == [("a", "a0", "open"), ("a@3", "a3", "T")]


def test_single_steps_without_new_obs() -> None:
    found, counts = assembled(without(A, "new_obs"), order="single_step", last_new_obs="repeat")
    assert [e.observations[:, 1].tolist() for e in found[:2]] == [[-0.0, -0.0], [-0.5, -0.5]]
    assert [e.terminated for e in found] == [False, False, False, True], "the source says which do"
    assert counts.lone_rows == 0


def test_rows_of_which_nothing_says_what_follows_terminate() -> None:
    found, counts = assembled(without(A, "new_obs", "terminateds", "truncateds"), order="single_step")
    assert [len(e) for e in found] == [1] * 4 and all(e.terminated for e in found)
    assert counts.lone_rows == counts.terminations == 4


# Ends.


def test_no_truncateds() -> None:
    found, counts = assembled(without([*A, *B], "truncateds"), incomplete="keep")
    assert summary(found) == [("a", "a0 a1 a2 a3", "T"), ("b", "b0 b1 b2", "open")]
    assert counts.open_ends == 1


def test_only_ids() -> None:
    found, counts = assembled(without([*A, *B], "truncateds", "terminateds"))
    assert [end for *_, end in summary(found)] == ["X", "X"]
    assert counts.open_ends == 2


def test_time_limits() -> None:
    """One flag for both: an end at step 4 is a time limit, an earlier one is not."""
    rows = without([*A, *steps("c", 3)], "truncateds")
    found, counts = assembled(shuffled(rows), time_limit_steps=4)
    assert sorted(parts(found)) == [("a0 a1 a2 a3", "X"), ("c0 c1 c2", "T")]
    assert counts.time_limits == 1
    late = assembled([row for row in rows if row["t"] > 1], time_limit_steps=4)
    assert sorted(parts(late[0])) == [("a2 a3", "X"), ("c2", "T")], "t counts, not the rows that are left"


@pytest.mark.parametrize("order", ["t", "stored"])
def test_time_limits_of_ids_that_are_used_again(order: str) -> None:
    """The limit counts from the end before."""
    again = [row | {"eps_id": "a"} for row in steps("c", 3, first_t=4)]
    third = [row | {"eps_id": "a"} for row in steps("d", 4, first_t=7)]
    found, counts = assembled([*A, *again, *third], order=order, time_limit_steps=4)
    assert parts(found) == [("a0 a1 a2 a3", "X"), ("c0 c1 c2", "T"), ("d0 d1 d2 d3", "X")]
    assert counts.time_limits == 2
    found, _ = assembled([*A, *again, *third[2:]], time_limit_steps=4)
    assert parts(found)[2] == ("d2 d3", "X"), "where its first steps are missing too"
