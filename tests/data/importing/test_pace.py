"""Whole numbers that do not count steps are times, or are refused: they no longer cut each step off the one before."""

from __future__ import annotations

from pathlib import Path

import pytest

from offline_core.errors import ConfigError
from tests.data.importing.factories import Row, parts, run_import, scattered, shuffled, steps, without, write_rows

REPEAT = {"last_new_obs": "repeat"}


def timed(start: int, by: int, *, first: int = 1) -> list[Row]:
    """Two episodes whose t goes on by so much."""
    rows = [*steps("a", 6), *steps("b", 4, end="X")]
    return without([row | {"t": start + by * (row["t"] + first)} for row in rows], "new_obs")


@pytest.mark.parametrize("start", [0, 3, 1_767_225_600_000])
@pytest.mark.parametrize("by", [2, 5, 100, 33_333_333])
@pytest.mark.parametrize("kind", [int, float])
def test_numbers_that_go_on_evenly_are_a_time_and_that_is_said(tmp_path: Path, start: int, by: int, kind: type) -> None:
    rows = [row | {"t": kind(row["t"])} for row in timed(start, by, first=0)]
    result, found = run_import(write_rows(tmp_path / "log.parquet", rows), tmp_path / "out", episodes=REPEAT)
    assert parts(found) == [("a0 a1 a2 a3 a4 a5", "T"), ("b0 b1 b2 b3", "X")]
    if kind is int or start == 0:
        assert any(f"Column t goes on by {by:,} in each episode" in note for note in result.notes)


def test_each_episode_may_have_a_pace_of_its_own_and_lack_steps(tmp_path: Path) -> None:
    rows = [row | {"t": row["t"] * (2 if row["eps_id"] == "a" else 7)} for row in timed(0, 1, first=0)]
    del rows[2]
    result, found = run_import(write_rows(tmp_path / "log.parquet", rows), tmp_path / "out", episodes=REPEAT)
    assert parts(found) == [("a0 a1 a3 a4 a5", "T"), ("b0 b1 b2 b3", "X")]
    assert any("goes on by 2 to 7" in note for note in result.notes)


def test_without_ids_a_time_begins_episodes_where_it_does_not_grow(tmp_path: Path) -> None:
    rows = without(timed(0, 10), "eps_id")
    _, found = run_import(write_rows(tmp_path / "log.parquet", rows), tmp_path / "out", episodes=REPEAT)
    assert parts(found) == [("a0 a1 a2 a3 a4 a5", "T"), ("b0 b1 b2 b3", "X")]


def test_uneven_numbers_are_refused_with_both_remedies(tmp_path: Path) -> None:
    rows = [row | {"t": 10 * row["t"] + row["t"] % 3} for row in timed(0, 1)]
    source = write_rows(tmp_path / "log.parquet", rows)
    with pytest.raises(ConfigError, match=r"go on by 8 to 11 in an episode.*episodes\.order: time.*episodes\.order: t:"):
        run_import(source, tmp_path / "out", episodes=REPEAT)
    _, found = run_import(source, tmp_path / "time", episodes=REPEAT | {"order": "time"})
    assert [len(episode) for episode in found] == [6, 4]
    _, found = run_import(source, tmp_path / "t", episodes=REPEAT | {"order": "t"})
    assert len(found) == 10


@pytest.mark.parametrize("per", ["file", "folder"])
def test_one_id_in_two_files_is_two_episodes_each_with_its_pace(tmp_path: Path, per: str) -> None:
    for number in range(2):
        rows = without([row | {"t": 100 * row["t"] + 37 * number} for row in steps("a", 4)], "new_obs")
        write_rows(tmp_path / "log" / str(number) / "a.parquet", rows)
    result, found = run_import(tmp_path / "log", tmp_path / "out", episodes=REPEAT | {"ids_per": per})
    assert parts(found) == [("a0 a1 a2 a3", "T")] * 2
    assert any("Column t goes on by 100 in each episode" in note for note in result.notes)


def test_a_first_row_begins_a_pace_where_ids_and_ends_are_missing(tmp_path: Path) -> None:
    rows = without(timed(0, 5, first=0), "eps_id", "new_obs", "terminateds", "truncateds")
    rows = [row | {"is_first": number in (0, 6), "t": row["t"] + 33 * (number > 5)} for number, row in enumerate(rows)]
    result, found = run_import(write_rows(tmp_path / "log.parquet", rows), tmp_path / "out", episodes=REPEAT)
    assert parts(found) == [("a0 a1 a2 a3 a4 a5", "X"), ("b0 b1 b2 b3", "X")]
    assert any("Column t goes on by 5 in each episode" in note for note in result.notes)


@pytest.mark.parametrize("seed", [None, 0])
def test_steps_that_lie_in_several_files_still_count(tmp_path: Path, seed: int | None) -> None:
    """In the first file alone every fourth one is there, as if it were a time."""
    rows = without([*steps("a", 16), *steps("b", 8)], "new_obs")
    if seed is None:
        folder = tmp_path / "dealt"
        for number in range(4):
            write_rows(folder / f"{number}.parquet", rows[number::4])
    else:
        folder = scattered(tmp_path / "scattered", shuffled(rows), files=6, seed=seed)
    result, found = run_import(folder, tmp_path / "out", episodes=REPEAT)
    assert sorted(len(episode) for episode in found) == [8, 16] and not any("taken for a time" in note for note in result.notes)


def test_a_counter_of_which_steps_are_lost_still_counts(tmp_path: Path) -> None:
    rows = timed(0, 1, first=0)
    del rows[2:4]
    _, found = run_import(write_rows(tmp_path / "log.parquet", rows), tmp_path / "out", episodes=REPEAT)
    assert parts(found) == [("a0 a1", "X"), ("a4 a5", "T"), ("b0 b1 b2 b3", "X")]


@pytest.mark.parametrize(("kind", "said"), [("time", "the clock is coarser than the steps"), ("t", "t comes twice")])
def test_two_rows_of_one_time_in_one_file_need_the_order_of_the_file(tmp_path: Path, kind: str, said: str) -> None:
    rows = [row | {"t": row["t"] // 2} for row in timed(0, 1, first=0)]
    source = write_rows(tmp_path / "log.parquet", rows)
    with pytest.raises(Exception, match=said) as refused:
        run_import(source, tmp_path / "out", episodes=REPEAT | {"order": kind})
    assert "episodes.order: stored" in str(refused.value) and "ids_per" not in str(refused.value)
    _, found = run_import(source, tmp_path / "stored", episodes=REPEAT | {"order": "stored"})
    assert parts(found) == [("a0 a1 a2 a3 a4 a5", "T"), ("b0 b1 b2 b3", "X")]


def test_two_rows_of_one_step_in_two_files_are_told_of_ids_per_file(tmp_path: Path) -> None:
    for number in range(2):
        rows = [row | {"rewards": float(number)} for row in timed(0, 1, first=0)]
        write_rows(tmp_path / "log" / f"{number}.parquet", rows)
    with pytest.raises(Exception, match=r"episodes\.ids_per: file"):
        run_import(tmp_path / "log", tmp_path / "out", episodes=REPEAT)
