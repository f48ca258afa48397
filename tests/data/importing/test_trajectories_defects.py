"""Rows → episodes: gaps, open ends, ids used again, rows that are there twice, states that come back; all at once."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.importing.episode_ids import SOURCE_FILE
from offline_core.errors import EpisodeError
from tests.cases import examples
from tests.data.importing.factories import (
    Row,
    assembled,
    assembled_from,
    nonzero,
    parts,
    shuffled,
    steps,
    summary,
    walk,
    without,
)

A, B = steps("a", 4), steps("b", 3, end="X")
WHOLE = [("a", "a0 a1 a2 a3", "T"), ("b", "b0 b1 b2", "X")]


GAP, LATE, OPEN = [A[0], A[1], A[3]], A[1:], A[:3]


@pytest.mark.parametrize(
    ("rows", "cut", "keep", "counted"),
    [
        (GAP, [("a", "a0 a1", "X", 0), ("a@3", "a3", "T", 0)], [("open", 0), ("T", 3)], {"gaps": 1, "open_ends": 1}),
        (LATE, [("a", "a1 a2 a3", "T", 0)], [("T", 1)], {"late_starts": 1}),
        (OPEN, [("a", "a0 a1 a2", "X", 0)], [("open", 0)], {"open_ends": 1}),
        ([A[2]], [("a", "a2", "X", 0)], [("open", 2)], {"late_starts": 1, "open_ends": 1}),
    ],
    ids=["gap", "late start", "open end", "one row of it"],
)
def test_incomplete_episodes(rows: list[Row], cut: Any, keep: Any, counted: dict[str, int]) -> None:
    found, counts = assembled([*rows, *B])
    assert [(*s, e.t_started) for s, e in zip(summary(found), found, strict=True)] == [*cut, ("b", "b0 b1 b2", "X", 0)]
    assert nonzero(counts) == {"rows": len(rows) + 3, "steps": len(rows) + 3, "episodes": len(cut) + 1} | counted
    found, counts = assembled([*rows, *B], incomplete="keep")
    assert [(id, tags) for id, tags, _ in summary(found)] == [(id, tags) for id, tags, *_ in cut] + [("b", "b0 b1 b2")]
    assert [(end, e.t_started) for (*_, end), e in zip(summary(found), found, strict=True)] == [*keep, ("X", 0)]
    found, counts = assembled([*rows, *B], incomplete="drop")
    assert summary(found) == WHOLE[1:]
    dropped = {"dropped_episodes": 1, "dropped_steps": len(rows)}
    assert nonzero(counts) == {"rows": len(rows) + 3, "steps": 3, "episodes": 1} | counted | dropped


def test_the_last_row_of_an_id_is_its_end_where_that_is_declared() -> None:
    """A missing row is no end, nor is a time limit; a truncation of the source stays one."""
    found, counts = assembled([*GAP[:2], A[3] | {"terminateds": False}, *B, *steps("c", 2, end="")], incomplete="end")
    assert summary(found) == [("a", "a0 a1", "X"), ("a@3", "a3", "T"), ("b", "b0 b1 b2", "X"), ("c", "c0 c1", "T")]
    assert (counts.open_ends, counts.declared_ends, counts.terminations) == (3, 2, 0)
    found, counts = assembled(steps("c", 2, end=""), incomplete="end", time_limit_steps=2)
    assert (summary(found), counts.declared_ends) == ([("c", "c0 c1", "X")], 0)
    linked = without([row | {"terminateds": False} for row in [A[3], *A[:2]]], "t")  # the end lies first
    found, counts = assembled(linked, incomplete="end")
    assert {end for *_, end in summary(found)} == {"X"} and counts.declared_ends == 0


@pytest.mark.parametrize("order", ["t", "time", "stored"])
def test_a_row_before_one_that_cannot_be_read_is_no_declared_end(order: str) -> None:
    rows = without([*steps("a", 3, end=""), *steps("b", 2, end="")], "new_obs")
    read = [row | {SOURCE_FILE: 0, SOURCE_ROW: i} for i, row in enumerate(rows) if i != 2]  # without the last one of a
    table = pa.Table.from_pylist(read)
    found, _ = assembled_from(table, ["/f"], lost=[(0, 2)], incomplete="end", order=order)
    assert summary(found) == [("a", "a0 a1", "X"), ("b", "b0 b1", "T")]


@pytest.mark.parametrize("order", ["t", "time", "stored"])
def test_a_link_that_is_broken_is_a_gap(order: str) -> None:
    rows = [row | {"obs": [0.0, 0.25]} if row["tag"] == "a2" else row for row in A]
    found, counts = assembled(rows, order=order)
    assert summary(found) == [("a", "a0 a1", "X"), ("a@2", "a2 a3", "T")]
    assert (counts.gaps, counts.open_ends, counts.late_starts) == (1, 1, 0)


@pytest.mark.parametrize("seed", range(4))
def test_a_gap_in_links_is_seen_whatever_the_order(seed: int) -> None:
    rows = shuffled(without([*GAP, *B], "t"), seed)
    found, counts = assembled(rows)
    assert sorted(summary(found)) == [("a", "a0 a1", "X"), ("a@2", "a3", "T"), ("b", "b0 b1 b2", "X")]
    assert (counts.gaps, counts.open_ends) == (1, 1)
    found, counts = assembled(rows, incomplete="drop")
    assert summary(found) == WHOLE[1:]
    assert (counts.dropped_episodes, counts.dropped_steps) == (1, 3)


def test_without_ids_a_gap_is_an_open_end() -> None:
    """Nobody knows that the two halves belong together."""
    rows = without([*GAP, *B], "t", "eps_id")
    for order in ("linked", "stored"):
        found, counts = assembled(rows, order=order, incomplete="drop")
        assert parts(found) == [("a3", "T"), ("b0 b1 b2", "X")]
        assert (counts.open_ends, counts.gaps, counts.dropped_steps, counts.dropped_episodes) == (1, 0, 2, 1)


def test_ids_that_are_used_again() -> None:
    """Steps after an end are another episode, whole if nothing is missing in between."""
    again = [row | {"eps_id": "a"} for row in steps("c", 2, first_t=4)]
    for incomplete in ("cut", "keep", "drop"):
        found, counts = assembled(shuffled([*A, *again]), incomplete=incomplete)
        assert summary(found) == [("a", "a0 a1 a2 a3", "T"), ("a@4", "c0 c1", "T")]
        assert nonzero(counts) == {"rows": 6, "steps": 6, "episodes": 2, "restarted_ids": 1}
    found, counts = assembled(without([*A, *again], "t"), order="stored")
    assert summary(found) == [("a", "a0 a1 a2 a3", "T"), ("a@4", "c0 c1", "T")]
    late = [row | {"t": row["t"] + 1} for row in again]
    found, counts = assembled([*A, *late], incomplete="drop")
    assert summary(found) == WHOLE[:1]
    assert (counts.late_starts, counts.restarted_ids, counts.dropped_steps) == (1, 1, 2)


def test_ids_of_parts_are_no_ids_of_the_data() -> None:
    taken = [[row | {"eps_id": id} for row in steps("c", 2)] for id in ("a@3", "a@2")]
    for lying in ([*GAP, *taken[0], *taken[1]], [*taken[1], *taken[0], *GAP]):
        found, _ = assembled(lying)
        assert len({e.eps_id for e in found}) == len(found) == 4
        assert {"a", "a@2", "a@3"} < {e.eps_id for e in found}
    again = [e.eps_id for e in assembled(GAP)[0]]
    assert again[1] in {e.eps_id for e in found}, "the same part has the same id"


# Rows that are there twice.


@pytest.mark.parametrize("order", ["t", "linked"])
def test_folders_that_repeat_one_another(order: str) -> None:
    found, counts = assembled([*A, *B[:1]], [*A, *B], B, order=order)
    assert summary(found) == WHOLE
    assert nonzero(counts) == {"rows": 15, "steps": 7, "episodes": 2, "duplicates": 8}


def test_infos_and_agents_do_not_hinder() -> None:
    one = [row | {"infos": b"\x81\xa1a\x01", "agent_id": None, "module_id": "p"} for row in A]
    other = [row | {"infos": None} for row in one]
    for order in ("t", "linked"):
        found, counts = assembled(one, other, order=order)
        assert counts.duplicates == 4
        assert found[0].get_infos(1) == {"a": 1}, "the first one stays"
        assert (found[0].agent_id, found[0].module_id) == (None, "p")


@pytest.mark.parametrize("order", ["t", "linked"])
def test_infos_are_not_lost_with_a_duplicate(order: str) -> None:
    said = [row | {"infos": b"\x81\xa1a\x01"} for row in A]
    nothing, empty = ([row | {"infos": infos} for row in A] for infos in (None, b"\x80"))
    for files in ((nothing, said), (empty, said), (said, nothing, empty)):
        [episode], counts = assembled(*files, order=order)
        assert episode.get_infos(1) == {"a": 1}
        assert counts.duplicates == 4 * len(files) - 4


def test_infos_that_contradict_each_other() -> None:
    one, other = ([row | {"infos": b"\x81\xa1a" + number} for row in A] for number in (b"\x01", b"\x02"))
    with pytest.raises(EpisodeError, match="Two different rows claim to be step 0 of episode a"):
        assembled(one, other)
    _, counts = assembled(one, other, order="linked")
    assert (counts.duplicates, counts.steps) == (0, 8), "neither is lost"
    _, counts = assembled(one, other, one, [*one, *other], order="linked")
    assert (counts.duplicates, counts.steps) == (12, 8)


def test_two_rows_for_one_step() -> None:
    other = A[2] | {"rewards": 9.0}
    with pytest.raises(
        EpisodeError, match=r"step 2 of episode a: row 2 of /d0/f and row 1 of /d1/f\. .*set episodes\.ids_per: file"
    ):
        assembled(A, [B[0], other, *B[1:]])


def test_a_time_of_two_different_rows_is_told_as_a_date() -> None:
    noon = round(datetime(2026, 7, 31, 12, tzinfo=UTC).timestamp())
    rows = [row | {"t": [(noon + 60 * row["t"]) * 10**9]} for row in A]  # as dates are once they are read
    with pytest.raises(EpisodeError, match=r"claim to be the step at 2026-07-31 12:02:00 of episode a"):
        assembled(rows, [rows[2] | {"rewards": 9.0}])


@pytest.mark.parametrize("t", [1_700_000_000_000_000_001, 1e30])
def test_a_number_as_large_as_a_time_is_told_as_it_is(t: float) -> None:
    rows = [row | {"t": t + row["t"]} for row in A[:1]]
    with pytest.raises(EpisodeError, match=r"claim to be step 1(e\+30|700000000000000001) of episode a"):
        assembled(rows, [rows[0] | {"rewards": 9.0}])


def test_extras_of_text_tell_rows_apart() -> None:
    with pytest.raises(EpisodeError, match="step 2 of episode a"):
        assembled(A, [A[2] | {"tag": "another, longer one"}])


def test_without_ids_equal_rows_are_two_steps() -> None:
    """Two recordings of a discrete environment may well hold the same episode."""
    rows = without(walk("a", "stuv"), "t", "eps_id", "tag")
    found, counts = assembled(rows, rows)
    assert (len(found), counts.steps, counts.duplicates) == (2, 6, 0)


def test_a_copy_beside_its_original_by_links() -> None:
    """In one folder, where equal rows may as well be steps really taken twice."""
    rows = without([*A, *B], "t")
    table = pa.Table.from_pylist([row | {SOURCE_FILE: f, SOURCE_ROW: i} for f in (0, 1) for i, row in enumerate(rows)])
    found, counts = assembled_from(table, ["/d/x", "/d/x-copy"])
    assert summary(found) == WHOLE
    assert nonzero(counts) == {"rows": 14, "steps": 7, "episodes": 2, "duplicates": 7}


# States that come back.


def test_a_step_taken_again_another_day_stays() -> None:
    rows = without(walk("a", "stsu"), "t", "tag")
    again = without(walk("a", "stu"), "t", "tag")
    [episode], counts = assembled(rows[:2], again)
    assert [chr(state) for state in episode.observations] == list("ststu")
    assert (len(episode), counts.duplicates, counts.open_ends) == (4, 0, 0)


def test_a_step_really_taken_twice_stays_twice() -> None:
    rows = without(walk("a", "ssssg"), "t", "tag")  # three times into the wall: equal rows
    for lying in (rows, rows[::-1], [*rows[2:], *rows[:2]]):
        for left_out in ((), ("eps_id",)):
            [episode], counts = assembled(without(lying, *left_out))
            assert [chr(state) for state in episode.observations] == list("ssssg")
            assert episode.terminated
            assert counts.duplicates == counts.open_ends == 0


def test_a_cycle_without_an_end() -> None:
    """It begins where the file has it begin; nothing of it is lost."""
    rows = without(walk("a", "stus", end=""), "t")
    found, counts = assembled(rows[1:] + rows[:1])
    assert parts(found) == [("a1 a2 a0", "X")]
    assert counts.open_ends == 1


# All of it at once.


def reference_by_t(files: list[list[Row]], incomplete: str) -> tuple[list[tuple[str, str]], Counter[str]]:
    """The slow and obvious way: ([(tags, end)], counts) of rows with ids and t."""
    of_id: dict[str, dict[int, Row]] = {}
    counts: Counter[str] = Counter()
    for row in (row for rows in files for row in rows):
        if row["t"] in of_id.setdefault(row["eps_id"], {}):
            counts["duplicates"] += 1
        else:
            of_id[row["eps_id"]][row["t"]] = row
    found: list[tuple[str, str]] = []
    for known in of_id.values():
        runs: list[list[Row]] = []
        for t in sorted(known):
            row = known[t]
            if not runs or runs[-1][-1]["t"] + 1 != t or ended(runs[-1][-1]) != "open":
                runs.append([])
            runs[-1].append(row)
        is_whole = len(runs) == 1 and runs[0][0]["t"] == 0 and ended(runs[0][-1]) != "open"
        counts["gaps"] += len(runs) - 1
        counts["late_starts"] += runs[0][0]["t"] > 0
        for run in runs:
            counts["open_ends"] += ended(run[-1]) == "open"
            if incomplete == "drop" and not is_whole:
                counts["dropped_steps"] += len(run)
                continue
            end = ended(run[-1])
            found.append((" ".join(row["tag"] for row in run), "X" if end == "open" and incomplete == "cut" else end))
        counts["dropped_episodes"] += incomplete == "drop" and not is_whole
    return found, counts


def ended(row: Row) -> str:
    return "T" * row["terminateds"] + "X" * row["truncateds"] or "open"


@st.composite
def damaged(draw: st.DrawFn) -> list[list[Row]]:
    """Files of rows in any order: some rows gone, some there twice, some ends without a flag."""
    episodes = [
        steps(name, draw(st.integers(1, 6)), end=draw(st.sampled_from(["T", "X", ""])))
        for name in "abc"[: draw(st.integers(1, 3))]
    ]
    rows = [row for episode in episodes for row in episode if draw(st.sampled_from([True] * 5 + [False]))]
    again = [row for row in rows if draw(st.sampled_from([False] * 4 + [True]))]
    rows = draw(st.permutations([*rows, *again]))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=2)))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


@settings(max_examples=examples(150))
@given(damaged().filter(lambda files: any(files)), st.sampled_from(["cut", "keep", "drop"]))
def test_as_a_slow_and_obvious_program_does_it(files: list[list[Row]], incomplete: str) -> None:
    expected, counted = reference_by_t(files, incomplete)
    found, counts = assembled(*files, incomplete=incomplete)
    assert sorted(parts(found)) == sorted(expected)
    for name in ("duplicates", "gaps", "late_starts", "open_ends", "dropped_steps", "dropped_episodes"):
        assert getattr(counts, name) == counted[name], name
    assert counts.restarted_ids == 0


@settings(max_examples=examples(150))
@given(
    damaged().filter(lambda files: any(files)),
    st.sampled_from(["auto", "t", "time", "linked", "stored", "single_step"]),
    st.sampled_from(["cut", "keep", "drop"]),
    st.sets(st.sampled_from(["t", "eps_id", "truncateds", "new_obs"])),
)
def test_no_step_is_invented_and_none_lost(files: list[list[Row]], order: str, incomplete: str, left_out: set[str]) -> None:
    """`assembled` sees to it that the account balances; here the steps themselves are counted."""
    if ("t" in left_out and order in ("t", "time")) or ("new_obs" in left_out and order == "linked"):
        return
    found, counts = assembled(
        *(without(rows, *left_out) for rows in files), order=order, incomplete=incomplete, last_new_obs="repeat"
    )
    kept = Counter(tag for tags, _ in parts(found) for tag in tags.split())
    there = Counter(row["tag"] for rows in files for row in rows)
    assert kept <= there
    assert kept.total() == counts.steps == there.total() - counts.duplicates - counts.dropped_steps
    assert len({e.eps_id for e in found}) == len(found)
    if incomplete != "drop":
        assert kept.keys() == there.keys(), "what is left out is there once at least"
