"""Steps that only times put in order: where one episode ends and another begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.data.importing.config import EpisodesConfig
from offline_core.data.importing.times import time_gaps
from offline_core.errors import ConfigError, EpisodeError
from offline_core.runtime.config import parse
from tests.cases import examples
from tests.data.importing.factories import Row, assembled, nonzero, parts, run_import, shuffled, steps, without, write_rows

MORNING = datetime(2026, 3, 1, 8, tzinfo=UTC)


def session(eps_id: str, day: int, length: int = 6, *, seconds: float = 10, hours: float = 0.0, end: str = "") -> list[Row]:
    """A day's episode, a step every so many seconds; tags `<id><day>.<t>`."""
    start = MORNING + timedelta(days=day, hours=hours)
    rows = without(steps(eps_id, length, end=end), "new_obs", "t")
    return [row | {"t": start + timedelta(seconds=seconds * t), "tag": f"{eps_id}{day}.{t}"} for t, row in enumerate(rows)]


def tags(*sessions: list[Row]) -> list[str]:
    return sorted(" ".join(row["tag"] for row in rows) for rows in sessions)


def timed(*files: list[Row], **rules: Any) -> Any:
    """Times as an import has them, (N, 1) nanoseconds."""
    lying = [[row | {"t": [int(row["t"].timestamp()) * 10**9]} for row in rows] for rows in files]
    return assembled(*lying, **{"order": "time", "last_new_obs": "repeat"} | rules)


DAYS = [session(name, day) for day in range(4) for name in "ab"]
ROWS = [row for rows in DAYS for row in rows]


def test_ids_that_come_again_each_day_are_episodes_of_a_day_each(tmp_path: Path) -> None:
    write_rows(tmp_path / "in/x.parquet", shuffled(ROWS))
    result, found = run_import(tmp_path / "in", tmp_path / "out", episodes={"last_new_obs": "repeat"})
    assert sorted(words for words, _ in parts(found)) == tags(*DAYS)
    assert len({e.eps_id for e in found}) == 8
    counts = result.counts
    assert (counts.time_gaps, counts.open_ends, counts.gaps, counts.restarted_ids) == (6, 8, 0, 0)
    assert counts.shortest_time_gap == timedelta(days=1).total_seconds() - 50
    assert result.notes[-1].startswith(
        "6 times so much time lies between two steps of one id that another episode begins there; 86,350 "
    )
    assert result.notes[-1].endswith("If these are no ends, set a larger one: episodes: {max_gap: 87000}.")
    assert [np.diff(e.extras["time"]).tolist() for e in found] == [[10**10] * 5] * 8


def test_the_largest_gap_is_declared_in_seconds() -> None:
    """Or in the unit of t; whatever new_obs says."""
    rows = session("a", 0, 3) + session("a", 0, 3, hours=1)
    assert timed(rows, max_gap=3600)[1].time_gaps == 0
    found, counts = timed(rows, max_gap=60)
    assert ([len(e) for e in found], counts.time_gaps) == ([3, 3], 1)
    linked = [row | {"t": [0, 1, 2, 50, 51][row["t"]]} for row in steps("a", 5)]
    assert [len(e) for e in assembled(linked, order="time", max_gap=10)[0]] == [3, 2]
    assert [len(e) for e in assembled(linked, order="time")[0]] == [5], "new_obs says that they follow"


def test_a_gap_is_an_end_and_no_missing_steps() -> None:
    """Whole episodes stay when those without an end are dropped."""
    found, counts = timed(session("a", 0), session("a", 1, end="T"), incomplete="drop", max_gap=3600)
    assert parts(found) == [(tags(session("a", 1))[0], "T")]
    assert (counts.dropped_episodes, counts.dropped_steps) == (1, 6)


def test_each_episode_has_its_own_pace() -> None:
    """It may vary, and nearly a quarter of the steps may be gaps; fewer than 16 times between steps tell nothing."""
    rng = np.random.default_rng(0)
    took = np.concatenate([rng.uniform(0.8, 1.2, 300), [1e4] * 99])
    rng.shuffle(took)
    assert gaps_of(took[None]).sum() == 99
    slow = np.append(np.full(15, 1000), 15_000)
    assert np.flatnonzero(gaps_of(np.stack([np.append(np.ones(15), 100), slow]))).tolist() == [16]
    assert gaps_of(np.append(np.ones(14), 100)[None]).sum() == 0
    assert gaps_of(np.append(np.zeros(30), 1)[None]).sum() == 0, "equal times are no pace"


def gaps_of(took: np.ndarray) -> np.ndarray:
    """The gaps of ids, a row of times between steps each."""
    t = np.cumsum(np.pad(took, ((0, 0), (1, 0))), axis=1)
    starts = np.zeros(t.shape, bool)
    starts[:, 0] = True
    return time_gaps(t.ravel(), np.repeat(np.arange(len(t)), t.shape[1]), starts.ravel())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("length", [3, 10, 50, 200])
@pytest.mark.parametrize("sigma", [None, 2.0], ids=["poisson", "lognormal"])
def test_events_at_random_times_are_not_cut(sigma: float | None, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (2000, length - 1)
    assert gaps_of(rng.exponential(1.0, shape) if sigma is None else rng.lognormal(0, sigma, shape)).sum() == 0


def test_days_of_a_building_are_found() -> None:
    """1,380 steps, one a minute, and an hour and more until the next day."""
    took = np.full((2, 5 * 1380 - 1), 60.0)
    took[:, 1379::1380] = 3700.0
    assert gaps_of(took).sum() == 8


@pytest.mark.parametrize(("per", "mixed"), [("file", False), ("folder", False), ("date", True), ("source", True)])
def test_ids_of_files_at_the_same_time(per: str, mixed: bool) -> None:
    """Two robots that number their episodes by themselves: nothing but the place tells them apart, and it is told."""
    one, other = (
        session("a", 0),
        [row | {"t": row["t"] + timedelta(seconds=3), "tag": f"x{i}"} for i, row in enumerate(session("a", 0))],
    )
    found, counts = timed(one, other, ids_per=per)
    assert (len(found), counts.alternating_ids) == ((1, 1) if mixed else (2, 0))
    assert len({e.eps_id for e in found}) == len(found)


def test_ids_per_date() -> None:
    """Midnight is in UTC."""
    found, counts = timed([row for rows in DAYS for row in rows], ids_per="date")
    assert sorted(words for words, _ in parts(found)) == tags(*DAYS)
    assert nonzero(counts) == {"rows": 48, "steps": 48, "episodes": 8, "open_ends": 8, "repeated_last_obs": 8}
    assert len({e.eps_id for e in found}) == 8
    with pytest.raises(ConfigError, match="Ids per date need a column 't' of timestamps"):
        assembled(steps("a", 3), ids_per="date")


def test_days_of_a_time_zone_have_23_to_25_hours() -> None:
    start = datetime(2026, 3, 27, 23, tzinfo=UTC)  # midnight in Berlin, whose clock is set forward on the 29th
    rows = [row | {"t": start + timedelta(hours=row["t"])} for row in without(steps("a", 24 + 23 + 24), "new_obs")]
    found, _ = timed(rows, ids_per="date", time_zone="Europe/Berlin")
    assert sorted(map(len, found)) == [23, 24, 24]
    assert sorted(map(len, timed(rows, ids_per="date")[0])) == [1, 22, 24, 24]
    with pytest.raises(ConfigError, match="'Europe/Nowhere' is no time zone"):
        parse(EpisodesConfig, {"ids_per": "date", "time_zone": "Europe/Nowhere"})
    with pytest.raises(ConfigError, match="set it with ids_per: date"):
        parse(EpisodesConfig, {"time_zone": "Europe/Berlin"})


@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_every_row_is_kept_or_told_of_and_every_end_is_as_it_was(data: st.DataObject) -> None:
    """Whatever the ids, days, ends, lengths and the place of the rows."""
    drop = data.draw(st.booleans(), label="drop")
    truth, rows = [], []
    for number in range(data.draw(st.integers(1, 6), label="sessions")):
        eps_id, end = data.draw(st.sampled_from("ab")), data.draw(st.sampled_from(["T", "X", ""]))
        day = [session(eps_id, number, data.draw(st.integers(3, 9)), end=end, seconds=data.draw(st.sampled_from([1, 10, 60])))]
        truth.append((day[0], end))
        rows += day[0]
    seed, files = data.draw(st.integers(0, 99)), data.draw(st.integers(1, 3))
    lying = shuffled(rows, seed)
    found, counts = timed(*(lying[i::files] for i in range(files)), last_new_obs="drop" if drop else "repeat", max_gap=3600)
    expected = []
    for session_rows, end in truth:
        kept = session_rows[:-1] if drop and end != "T" else session_rows
        expected.append((tags(kept)[0], "T" if end == "T" else "X"))
    assert sorted(parts(found)) == sorted(expected)
    assert counts.rows == len(rows) == counts.steps + counts.dropped_last_steps
    assert counts.terminations == sum(end == "T" for _, end in truth) == sum(e.terminated for e in found)


def quarters(*parts: tuple[str, int], eps_id: str = "a") -> list[Row]:
    """Rows of 15 minutes from these times on, in their order: (the first one, how many)."""
    rows = without(steps(eps_id, sum(count for _, count in parts), end=""), "new_obs")
    minutes = np.concatenate([np.datetime64(first, "m") + 15 * np.arange(count) for first, count in parts])
    return [row | {"t": minute.item().replace(tzinfo=UTC)} for row, minute in zip(rows, minutes, strict=True)]


SET_BACK = quarters(("2025-10-25T12:00", 60), ("2025-10-26T02:00", 40))
"""The hour from 2:00 comes twice."""


@pytest.mark.parametrize("max_gap", [None, 3600])
def test_rows_in_stored_order_show_gaps_by_their_times(tmp_path: Path, max_gap: float | None) -> None:
    """A clock that is set back is none, and times stay beside the steps, as with order: time."""
    rows = SET_BACK + [row | {"t": row["t"] + timedelta(hours=25)} for row in quarters(("2025-10-26T12:00", 40))]
    source = write_rows(tmp_path / "x.parquet", rows)
    how = {"order": "stored", "last_new_obs": "repeat", "max_gap": max_gap}
    result, found = run_import(source, tmp_path / "out", episodes=how)
    assert [len(e) for e in found] == [100, 40] and result.counts.time_gaps == 1
    assert result.counts.shortest_time_gap == timedelta(hours=25, minutes=15).total_seconds()
    assert np.diff(found[0].extras["time"]).min() == -45 * 60 * 10**9


def test_rows_in_stored_order_are_appended_with_their_times(tmp_path: Path) -> None:
    how: dict[str, Any] = {"episodes": {"order": "stored", "last_new_obs": "repeat"}}
    write_rows(tmp_path / "in/0.parquet", quarters(("2025-10-25T12:00", 20)))
    run_import(tmp_path / "in", tmp_path / "out", **how)
    write_rows(tmp_path / "in/1.parquet", quarters(("2025-10-25T12:00", 20), ("2025-10-27T12:00", 5), eps_id="b"))
    _, found = run_import(tmp_path / "in", tmp_path / "out", append=True, **how)
    assert [(len(e), "time" in e.extras) for e in found] == [(20, True), (20, True), (5, True)]


def test_numbers_in_stored_order_show_gaps_only_if_one_is_declared() -> None:
    """They may be anything: steps counted by a slower clock, for example."""
    rows = [row | {"t": [0, 0, 1, 1, 90, 91][row["t"]]} for row in without(steps("a", 6), "new_obs")]
    rules: Any = {"order": "stored", "last_new_obs": "repeat"}
    found, counts = assembled(rows, **rules)
    assert ([len(e) for e in found], counts.time_gaps, "time" in found[0].extras) == ([6], 0, False)
    found, counts = assembled(rows, **rules, max_gap=10)
    assert ([len(e) for e in found], counts.time_gaps) == ([4, 2], 1)
    assert found[0].extras["time"].tolist() == [0, 0, 1, 1]


def test_a_time_of_the_day_in_stored_order_shows_no_gaps() -> None:
    """It goes back each midnight, so it is no time by which steps follow one another; a night is no gap then."""
    hours = [hour for _ in range(3) for hour in (*np.arange(0, 6, 0.25), 23.0)]
    rows = [row | {"t": [int(hours[row["t"]] * 3600) * 10**9]} for row in without(steps("a", len(hours)), "new_obs")]
    found, counts = assembled(rows, order="stored", last_new_obs="repeat")
    assert ([len(e) for e in found], counts.time_gaps) == ([75], 0)


@pytest.mark.parametrize("minutes", [1, 15, 60])
def test_local_times_that_come_twice_are_told_as_such(tmp_path: Path, minutes: int) -> None:
    """Also hourly ones, of which the second hour has the time of the first."""
    before = MORNING + timedelta(minutes=minutes) * np.arange(80)
    times = [*before, *(before[-1] - timedelta(minutes=60 - minutes) + timedelta(minutes=minutes) * np.arange(80))]
    rows = [row | {"t": times[row["t"]]} for row in without(steps("a", 160), "new_obs")]
    source = write_rows(tmp_path / "x.parquet", rows)
    with pytest.raises(EpisodeError, match="as in local times when the clock is set back") as refused:
        run_import(source, tmp_path / "out", episodes={"last_new_obs": "repeat"})
    last, first = (f"{time:%Y-%m-%d %H:%M:%S}" for time in times[79:81])
    assert f"{last} is followed by {first}" in str(refused.value)
    assert f"Write UTC or offsets, as {first.replace(' ', 'T')}+01:00" in str(refused.value)
    _, found = run_import(source, tmp_path / "stored", episodes={"last_new_obs": "repeat", "order": "stored"})
    assert [len(e) for e in found] == [160]


@pytest.mark.parametrize(
    ("minutes", "count", "back", "told"),
    [
        (7, 40, [59.5], 1),
        (7, 40, [71], 0),
        (7, 40, [10], 0),
        (41, 40, [19], 1),
        (41, 40, [25], 0),
        (7, 5, [53], 1),
        (7, 5, [50], 0),
        (55, 9_556, [5, 5], 1),
        (7, 40, [53, 53], 0),
    ],
)
def test_local_times_that_are_mixed_up_without_coming_twice_are_told(
    tmp_path: Path, minutes: int, count: int, back: list[float], told: int
) -> None:
    """Steps longer than half an hour, few rows, and two years, too."""
    times = [MORNING + timedelta(minutes=minutes) * t for t in range(count)]
    for by in back:
        times += [times[-1] - timedelta(minutes=by) + timedelta(minutes=minutes) * t for t in range(count)]
    rows = [row | {"t": times[row["t"]]} for row in without(steps("a", len(times)), "new_obs")]
    result, _ = run_import(write_rows(tmp_path / "x.parquet", rows), tmp_path / "out", episodes={"last_new_obs": "repeat"})
    assert result.counts.set_back_ids == told
    assert told == sum("as local times do when the clock is set back" in note for note in result.notes)


def test_files_in_another_order_than_time_are_no_clock_set_back(tmp_path: Path) -> None:
    times = [MORNING + timedelta(minutes=1.5 * t) for t in range(40)]
    rows = [row | {"t": times[row["t"]]} for row in without(steps("a", 40), "new_obs")]
    for name, half in {"x": rows[:20], "a": rows[20:]}.items():
        write_rows(tmp_path / "in" / f"{name}.parquet", half)
    result, _ = run_import(tmp_path / "in", tmp_path / "out", episodes={"last_new_obs": "repeat"})
    assert result.counts.set_back_ids == 0


@pytest.mark.parametrize("hours", [-5, -0.25])
def test_times_that_go_back_otherwise_are_no_clock_set_back(tmp_path: Path, hours: float) -> None:
    times = [MORNING + timedelta(minutes=5 * t) for t in range(80)]
    times += [times[-1] + timedelta(hours=hours) + timedelta(minutes=5 * t) for t in range(80)]
    rows = [row | {"t": times[row["t"]]} for row in without(steps("a", 160), "new_obs")]
    with pytest.raises(EpisodeError, match="the clock is coarser than the steps"):
        run_import(write_rows(tmp_path / "x.parquet", rows), tmp_path / "out", episodes={"last_new_obs": "repeat"})
