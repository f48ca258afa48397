"""Ends, first and last rows and next observations are understood by the names that other programs give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offline_core as offline
from offline_core.data.formats.sources.names import CANONICAL
from offline_core.data.importing.recognised import recognised, with_ends
from offline_core.errors import DataError
from tests.data.importing.factories import Row, parts, renamed, run_import, steps, summary, without, write_rows

PAIR = [*steps("a", 3), *steps("b", 2, end="X")]


def rows_of(names: dict[str, list[Any]]) -> pa.Table:
    return pa.table({"obs": [[0.0], [1.0]], "actions": [0, 1], "rewards": [0.0, 0.0]} | names)


def rlds(*episodes: list[Row], filler: Row) -> list[Row]:
    """Steps and the row after the last one, which has the last observation."""
    found = []
    for rows in episodes:
        last = rows[-1] | {"obs": rows[-1]["new_obs"], "t": len(rows), "tag": "filler"} | filler
        for number, row in enumerate([*rows, last]):
            flags = {"is_first": number == 0, "is_last": row is last, "is_terminal": row is last and last["terminateds"]}
            found.append(flags | {name: row[name] for name in ("eps_id", "obs", "actions", "rewards", "tag")})
    return found


@pytest.mark.parametrize("name", [name for name, role in CANONICAL.items() if role in ("terminateds", "truncateds", "dones")])
@pytest.mark.parametrize("kind", [bool, int, str])
def test_each_name_of_an_end_is_taken_for_it_and_said(name: str, kind: type) -> None:
    flags = [kind(False), kind(True)]
    mapping, notes = recognised(rows_of({name: flags}), {})
    assert mapping == {CANONICAL[name]: name}
    assert notes == ([] if CANONICAL[name] == name else [f"{CANONICAL[name]} is {name}, by its name."])


@pytest.mark.parametrize(("name", "values"), [("timeout", [30.0, 60.0]), ("terminal", ["B12", "A3"]), ("done", [0.25, 0.5])])
def test_a_name_of_an_end_whose_values_are_no_flags_is_said(name: str, values: list[Any]) -> None:
    mapping, notes = recognised(rows_of({name: values}), {})
    assert mapping == {}
    assert notes == [f"Column {name} is an extra output, and not {CANONICAL[name]}: its values are no flags."]


@pytest.mark.parametrize("name", ["d", "o2", "s"])
def test_one_or_two_letters_are_taken_for_nothing(name: str) -> None:
    assert recognised(rows_of({name: [0, 1]}), {})[0] == {}


def test_a_second_name_of_the_same_is_said() -> None:
    mapping, notes = recognised(rows_of({"terminated": [0, 1], "terminal": [0, 1]}), {})
    assert mapping == {"terminateds": "terminated"}
    assert notes[1] == "Column terminal is an extra output, and not terminateds, which is terminated."


def test_an_id_that_is_not_mapped_and_a_step_type_are_said() -> None:
    notes = recognised(rows_of({"episode_id": [0, 1], "step_type": [0, 2]}), {})[1]
    assert (
        notes[0]
        == "Column episode_id is an extra output, and not eps_id; if it names episodes, set mapping.eps_id: episode_id."
    )
    assert "mapping: {dones: ended}" in notes[1]


@pytest.mark.parametrize(
    ("columns", "mapping", "found"),
    [
        ({"next_observation": [[1.0], [2.0]]}, {}, "next_observation"),
        ({"nextObs": [[1.0], [2.0]]}, {}, "nextObs"),
        ({"next_state": ["idle", "busy"]}, {}, None),
        ({"next_obs": [[1.0, 2.0], [1.0, 2.0]]}, {}, None),
        ({"x": [0.0, 1.0], "y": [0, 1], "next_x": [1.0, 2.0], "next_y": [1, 2]}, {"obs": ["x", "y"]}, ["next_x", "next_y"]),
        ({"x": [0.0, 1.0], "y": [0, 1], "next_obs": [[1.0, 2.0], [1.0, 2.0]]}, {"obs": ["x", "y"]}, "next_obs"),
        ({"next_obs": [[1.0], [2.0]], "legal": [[1], [1]]}, {"action_mask": "legal"}, None),
    ],
)
def test_next_observations_are_taken_where_they_are_like_observations(
    columns: dict[str, list[Any]], mapping: dict[str, Any], found: Any
) -> None:
    completed, notes = recognised(rows_of(columns), mapping)
    assert completed.get("new_obs") == found
    assert notes


def test_a_next_observation_of_other_columns_than_made_ones_is_not_taken() -> None:
    assert "new_obs" not in recognised(rows_of({"next_obs": [[1.0], [2.0]]}), {}, changed={"obs"})[0]


@pytest.mark.parametrize(
    ("given", "terminated", "truncated"),
    [
        ({"dones": "FTTT"}, "FTTT", None),
        ({"dones": "FTTT", "truncateds": "FFTF"}, "FTFT", "FFTF"),
        ({"dones": "FTTT", "terminateds": "FFTT"}, "FFTT", "FTFF"),
        ({"dones": "FTTT", "terminateds": "FFTT", "truncateds": "FFTF"}, "FFTT", "FTTF"),
        ({"is_last": "FTTT", "terminateds": "FFTT"}, "FFTT", "FTFF"),
    ],
)
def test_one_flag_for_both_ends(given: dict[str, str], terminated: str, truncated: str | None) -> None:
    found = with_ends({name: np.array([letter == "T" for letter in letters]) for name, letters in given.items()})
    words = {name: "".join("FT"[int(flag)] for flag in flags) for name, flags in found.items() if name != "is_last"}
    assert words == {"terminateds": terminated} | ({} if truncated is None else {"truncateds": truncated})


def test_ends_and_next_observations_by_gymnasiums_names_need_no_mapping(tmp_path: Path) -> None:
    names = {"terminateds": "terminated", "truncateds": "truncated", "new_obs": "next_obs"}
    source = write_rows(tmp_path / "log.parquet", renamed(PAIR, names))
    result, found = run_import(source, tmp_path / "out")
    assert parts(found) == [("a0 a1 a2", "T"), ("b0 b1", "X")]
    assert [episode.observations[-1].tolist() for episode in found] == [rows[-1]["new_obs"] for rows in (PAIR[:3], PAIR[3:])]
    assert result.notes[:2] == ["terminateds is terminated, by its name.", "truncateds is truncated, by its name."]


@pytest.mark.parametrize("filler", [{}, {"actions": None, "rewards": None}, {"rewards": float("nan"), "actions": 99}])
@pytest.mark.parametrize("ids", [True, False])
def test_rldss_last_row_is_an_observation_and_no_step(tmp_path: Path, filler: Row, ids: bool) -> None:
    rows = rlds(steps("a", 3), steps("b", 2, end="X"), filler=filler)
    source = write_rows(tmp_path / "log.parquet", rows if ids else without(rows, "eps_id"))
    result, found = run_import(source, tmp_path / "out")
    assert parts(found) == [("a0 a1 a2", "T"), ("b0 b1", "X")]
    assert [episode.observations[-1].tolist() for episode in found] == [rows[3]["obs"], rows[6]["obs"]]
    assert result.counts.final_observations == 2 and result.counts.repeated_last_obs == 0
    assert any(note.startswith("2 rows with is_last are no steps") for note in result.notes)


def test_a_last_row_of_other_programs_is_a_step(tmp_path: Path) -> None:
    rows = [row | {"is_last": row["terminateds"] or row["truncateds"]} for row in PAIR]
    source = write_rows(tmp_path / "log.parquet", without(rows, "terminateds", "truncateds", "new_obs"))
    result, found = run_import(source, tmp_path / "out", episodes={"last_new_obs": "repeat"})
    assert parts(found) == [("a0 a1 a2", "T"), ("b0 b1", "T")]
    assert any("each row is a step" in note for note in result.notes)


def test_first_rows_begin_episodes(tmp_path: Path) -> None:
    rows = [row | {"episode_start": row["t"] == 0} for row in PAIR]
    source = write_rows(tmp_path / "log.parquet", without(rows, "terminateds", "truncateds", "new_obs", "eps_id", "t"))
    _, found = run_import(source, tmp_path / "out", episodes={"last_new_obs": "repeat"})
    assert parts(found) == [("a0 a1 a2", "X"), ("b0 b1", "X")]


def test_columns_of_other_names_are_taken_where_a_plan_is_certain(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "log.parquet", renamed(PAIR, {"actions": "action", "rewards": "reward"}))
    result, found = run_import(source, tmp_path / "out")
    assert parts(found) == [("a0 a1 a2", "T"), ("b0 b1", "X")]
    assert result.notes[:2] == ["actions is action: another name for actions.", "rewards is reward: another name for rewards."]
    assert result.recognised == result.notes and result.warnings == []
    card = result.card()
    assert (card.verdict, card.word) == ("good", "Imported") and "  note: actions is action" in card.terminal()


def test_what_a_missing_column_may_be_called_is_in_the_error_with_all_that_is_to_decide(tmp_path: Path) -> None:
    names = {"actions": "valve", "obs": "level", "rewards": "reward"}
    source = write_rows(tmp_path / "log.parquet", renamed(without(PAIR, "new_obs"), names))
    with pytest.raises(DataError, match=r"There is no column actions and none") as refused:
        run_import(source, tmp_path / "out")
    assert "1. actions: no name says which columns are the action. Candidates: valve." in str(refused.value)
    assert "\nmapping:\n" in str(refused.value) and "offline import" in str(refused.value)


def test_ids_that_are_mapped_keep_their_order(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "log.parquet", renamed(PAIR, {"terminateds": "done"}))
    _, found = run_import(source, tmp_path / "out")
    assert summary(found) == [("a", "a0 a1 a2", "T"), ("b", "b0 b1", "X")]


EPISODES, STEPS = 3, 6


def log(order: Sequence[int] | None = None, **more: Callable[[int, int], Any]) -> pa.Table:
    """Steps of three episodes, with further columns by the numbers of episode and step; rewards number the rows."""
    rows = [divmod(row, STEPS) for row in (range(EPISODES * STEPS) if order is None else order)]
    rewards = [float(episode * STEPS + step) for episode, step in rows]
    columns = {"obs": [[reward] for reward in rewards], "actions": [step % 2 for _, step in rows], "rewards": rewards}
    return pa.table(columns | {name: [made(*row) for row in rows] for name, made in more.items()})


TURNS = [episode * STEPS + step for step in range(STEPS) for episode in range(EPISODES)]
MIXED = [4, 1, 5, 0, 3, 2, 8, 6, 11, 7, 10, 9, 17, 12, 14, 13, 16, 15]
EPISODE, STEP, DONE = (lambda e, s: f"e{e}"), (lambda e, s: s), (lambda e, s: s == STEPS - 1)
OF_EACH = [[float(episode * STEPS + step) for step in range(STEPS)] for episode in range(EPISODES)]


def rewards_of(tmp_path: Path, table: pa.Table, **config: Any) -> tuple[list[str], list[list[float]]]:
    """Import a table; return the notes, and the rewards of each episode, the least first."""
    pq.write_table(table, tmp_path / "log.parquet")
    data = offline.import_data(tmp_path / "log.parquet", output=tmp_path / "data", **config)
    return data.result.notes, sorted(episode.rewards.tolist() for episode in data)


@pytest.mark.parametrize(
    "table",
    [
        log(TURNS, episode_id=EPISODE, t=STEP, dones=DONE),
        log(TURNS, episode_id=EPISODE, timestep=STEP, dones=DONE),
        log(MIXED, eps_id=EPISODE, timestep=STEP),
        log(episode=EPISODE, step=STEP, dones=lambda e, s: DONE(e, s) and e == 1),  # other ends have no flag
    ],
)
def test_episodes_and_steps_of_other_names_are_taken_where_they_make_better_episodes(tmp_path: Path, table: pa.Table) -> None:
    notes, rewards = rewards_of(tmp_path, table)
    assert rewards == OF_EACH and "by its name" not in str(notes) and ": another name for " in notes[0]


@pytest.mark.parametrize(
    "more",
    [
        {"eps_id": EPISODE, "step": lambda e, s: STEPS - s},
        {"time": lambda e, s: float(STEPS - s)},
        {"time": lambda e, s: (e * STEPS + s) % 4},
        {"timestamp": lambda e, s: s // 2},
        {"frame": lambda e, s: 0},
        {"cycle": lambda e, s: (e * STEPS + s) * 7 % 5},
        {"eps_id": EPISODE, "timestamp": lambda e, s: float(s)},
        {"run": lambda e, s: "one"},
    ],
)
def test_what_is_named_so_and_would_break_episodes_stays_an_extra(tmp_path: Path, more: dict[str, Any]) -> None:
    notes, rewards = rewards_of(tmp_path, log(dones=DONE, **more))
    assert rewards == OF_EACH and not any(": another name for" in note for note in notes)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (log(eps_id=EPISODE, step=lambda e, s: STEPS - 1 - s), "step is named like t"),  # the newest first, or the time left
        (log(MIXED, eps_id=EPISODE, step=lambda e, s: s + 1), "step is named like t"),  # from which step it counts is a guess
        (log(dones=DONE, episode=lambda e, s: s / STEPS), "episode is named like eps_id"),
    ],
)
def test_what_may_be_meant_either_way_is_asked_for(tmp_path: Path, table: pa.Table, said: str) -> None:
    with pytest.raises(DataError, match=rf"{said}, and other episodes come of it[\s\S]*This YAML"):
        rewards_of(tmp_path, table)
    name = said.partition(" ")[0]
    stored = [table["rewards"].to_pylist()[at : at + STEPS] for at in range(0, EPISODES * STEPS, STEPS)]
    assert rewards_of(tmp_path, table, mapping={f"{name}_of_source": name})[1] == stored


def test_ids_that_each_file_may_use_again_are_asked_for_where_files_are_appended(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"episode_id is named like eps_id[\s\S]* set episodes.ids_per: file"):
        rewards_of(tmp_path, log(TURNS, episode_id=EPISODE, dones=DONE), append=True)


def test_what_turns_out_to_be_none_is_said_with_what_was_taken(tmp_path: Path) -> None:
    """After the first rows, which are all that is looked at of a file of five megabytes."""
    rows = np.arange(60_000)
    ids = [None if row == 50_000 else f"{row // 100}-{row % 2}" for row in rows]
    table = {"obs": [*np.random.default_rng(0).normal(size=(len(rows), 11))], "actions": rows % 2, "rewards": rows * 1.0}
    table |= {"episode_id": ids, "timestep": rows % 100 // 2, "dones": rows % 100 >= 98}
    with pytest.raises(DataError, match=r"eps_id is episode_id: another name for eps_id; .*: if one is none, map its column"):
        rewards_of(tmp_path, pa.table(table))


def test_several_columns_are_one_id(tmp_path: Path) -> None:
    table = log(TURNS, house=lambda e, s: ["a", "a/b", "a%2Fb"][e], room=lambda e, s: s % 2, t=lambda e, s: s // 2)
    pq.write_table(table, tmp_path / "log.parquet")
    mapping = {"eps_id": ["house", "room"]}
    data = offline.import_data(tmp_path / "log.parquet", output=tmp_path / "data", mapping=mapping)
    assert {episode.eps_id for episode in data} == {f"{house}/{n}" for n in "01" for house in ("a", "a%2Fb", "a%252Fb")}
    table = table.set_column(table.column_names.index("house"), "house", pa.array(["", *table["house"].to_pylist()[1:]]))
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(DataError, match="row 0: Column 'eps_id' is null"):
        offline.import_data(tmp_path / "log.parquet", output=tmp_path / "data", mapping=mapping)


def test_files_without_a_row_are_named(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name, rows in (("a", PAIR), ("b", [])):
        table = pa.Table.from_pylist(PAIR)
        pq.write_table(table if rows else table.slice(0, 0), tmp_path / "logs" / f"{name}.parquet")
    result, found = run_import(str(tmp_path / "logs"), tmp_path / "out")
    [note] = [note for note in result.notes if "no row" in note]
    assert len(found) == 2 and note.startswith("1 of 2 files gave no row: ") and "b.parquet" in note
