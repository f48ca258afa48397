"""Rows that hold an episode each: read as steps, and said so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.step_reader import Unreadable, note_of
from offline_core.errors import UnsafeDataError
from tests.data.formats.sources.factories import check_steps, imported_episodes, tables_of, write_steps

OBS = np.arange(14, dtype=np.float32).reshape(7, 2)


def episodes(**changes: Any) -> list[dict[str, Any]]:
    """The two episodes of `factories.steps`, a row each, with an observation more than there are actions."""
    common = {name: [value, value] for name, value in changes.items()}
    first = {
        "episode_id": "a",
        "observations": OBS[:4].tolist(),
        "actions": [0, 1, 0],
        "rewards": [0.5, 1.0, 1.5],
        "terminated": True,
    }
    second = {"episode_id": "b", "observations": OBS[4:].tolist(), "actions": [1, 1], "rewards": [2.0, 2.5], "terminated": True}
    rows = [{**row, **{name: values[i] for name, values in common.items()}} for i, row in enumerate((first, second))]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        write_steps(path, pa.Table.from_pylist(rows))
    return path


def read(path: Path, **config: Any) -> pa.Table:
    [reader] = open_source([str(path)], SourceConfig(**config))
    return pa.concat_tables(tables_of(reader))


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl", "x.arrow"])
def test_lists_of_steps_are_steps(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, episodes())
    table = read(path)
    assert table["episode_id"].to_pylist() == ["a"] * 3 + ["b"] * 2
    assert table["t"].to_pylist() == [0, 1, 2, 0, 1] and table["_source_row"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["observations"].to_pylist() == OBS[[0, 1, 2, 4, 5]].tolist()
    assert table["new_obs"].to_pylist() == OBS[[1, 2, 3, 5, 6]].tolist()
    assert table["terminated"].to_pylist() == [False, False, True, False, True], (
        "the end of the episode is that of its last step"
    )
    assert "Each row is an episode, with a list of steps in observations, actions, rewards, of which observations has" in str(
        note_of(table)
    )
    mapping = {"eps_id": "episode_id", "obs": "observations"}
    check_steps(imported_episodes(tmp_path, path, mapping=mapping))


def test_other_columns_are_repeated_and_records_of_lists_are_records(tmp_path: Path) -> None:
    rows = [
        {"obs": {"x": [1.0, 2.0], "y": [[1], [2]]}, "act": [0, 1], "rew": [1.0, 2.0], "goal": [0.1, 0.2, 0.3], "task": "pick"},
        {"obs": {"x": [3.0], "y": [[3]]}, "act": [2], "rew": [3.0], "goal": [0.4, 0.5, 0.6], "task": "place"},
    ]
    table = read(write(tmp_path / "x.parquet", rows))
    assert table["obs"].to_pylist() == [{"x": 1.0, "y": [1]}, {"x": 2.0, "y": [2]}, {"x": 3.0, "y": [3]}]
    assert table["goal"].to_pylist() == [[0.1, 0.2, 0.3]] * 2 + [[0.4, 0.5, 0.6]]
    assert table["task"].to_pylist() == ["pick", "pick", "place"]
    [first, same, other] = table["eps_id"].to_pylist()
    assert first == same != other and first.startswith("x-") and first.endswith("/0"), "no column names the episode"
    assert "No column says how episodes end" in str(note_of(table))


def test_a_list_of_records_is_rldss_steps(tmp_path: Path) -> None:
    def step(t: int, last: int) -> dict[str, Any]:
        flags = {"is_first": t == 0, "is_last": t == last, "is_terminal": t == last}
        return {"observation": {"state": [float(t), 0.0]}, "action": t, "reward": t / 2, "discount": 1.0, **flags}

    rows = [
        {"episode_metadata": {"file": f"{n}"}, "steps": [step(t, last) for t in range(last + 1)]}
        for n, last in ((1, 3), (2, 2))
    ]
    table = read(write(tmp_path / "x.parquet", rows))
    assert (
        table["is_last"].to_pylist() == [False] * 3 + [True] + [False] * 2 + [True] and "truncateds" not in table.column_names
    )
    mapping = {"obs": "observation.state", "actions": "action", "rewards": "reward"}
    found = imported_episodes(tmp_path, tmp_path / "x.parquet", mapping=mapping)
    assert sorted((len(each), each.observations[-1].tolist(), each.terminated) for each in found) == [
        (2, [2.0, 0.0], True),
        (3, [3.0, 0.0], True),
    ]


def test_chosen_columns_are_those_of_the_file(tmp_path: Path) -> None:
    rows = [{**row, "task": task, "other": [1, 2]} for row, task in zip(episodes(), ("pick", "place"), strict=True)]
    table = read(write(tmp_path / "x.parquet", rows), columns=["task"], where="task = 'place'")
    assert table["task"].to_pylist() == ["place"] * 2, "a value a step, as of all columns"
    assert {*table.column_names} == {"_source_row", "task", "t", "new_obs"}


def test_ids_differ_between_files(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        write(tmp_path / "in" / folder / "x.parquet", episodes(episode_id=None))
    assert len(imported_episodes(tmp_path, tmp_path / "in", mapping={"obs": "observations"})) == 4


def test_a_row_with_lists_of_other_lengths_is_unreadable(tmp_path: Path) -> None:
    bad = {"episode_id": "c", "observations": OBS[:3].tolist(), "actions": [1], "rewards": [1.0, 2.0], "terminated": True}
    empty = {"episode_id": "d", "observations": OBS[:1].tolist(), "actions": [], "rewards": [], "terminated": False}
    path = write(tmp_path / "x.jsonl", [*episodes(), bad, empty])
    [reader] = open_source([str(path)])
    [found, table] = reader.batches()
    assert isinstance(found, Unreadable) and (found.row, found.rows, table.num_rows) == (2, 2, 5)
    assert "Column 'actions' has not the 2 values of 'rewards' in this row" in str(found)


@pytest.mark.parametrize(
    "columns",
    [
        {"o": [[0.1, 0.2], [0.3, 0.4]], "actions": [[0.1], [0.2]], "rewards": [1.0, 2.0]},
        {"items": [[1, 2], [3]], "scores": [[0.1, 0.2], [0.3]], "actions": [0, 1], "rewards": [1.0, 0.0]},
        {"obs": [[1.0, 2.0, 3.0]] * 2, "actions": [[1, 2]] * 2, "rewards": [[1.0, 2.0]] * 2},
        {"episode": ["a", "a"], "obs": [[1.0, 2.0]] * 2, "actions": [[1, 2]] * 2, "rewards": [[1.0, 2.0]] * 2},
    ],
    ids=["vectors", "choices of a bandit", "two rewards, observations of another length", "two rewards a step of one episode"],
)
def test_rows_that_are_steps_stay_so(tmp_path: Path, columns: dict[str, Any]) -> None:
    if columns["rewards"] == [[1.0, 2.0]] * 2 and "episode" not in columns:
        columns = columns | {"obs": [[1.0, 2.0, 3.0, 4.0]] * 2}
    pl.DataFrame(columns).write_parquet(tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet").num_rows == 2


def test_a_text_that_would_fill_the_memory_is_refused_and_the_others_can_be_chosen(tmp_path: Path) -> None:
    row = {"obs": [[0.0]] * 10_000, "actions": [0] * 10_000, "rewards": [0.0] * 10_000, "note": "x" * 100_000}
    path = write(tmp_path / "x.parquet", [row])
    with pytest.raises(UnsafeDataError, match=r"note is one value an episode, and comes to 1,000,000,000 bytes"):
        read(path)
    assert read(path, columns=["obs", "actions", "rewards"]).num_rows == 10_000


def test_many_small_files_of_episodes(tmp_path: Path) -> None:
    for number, row in enumerate(episodes()):
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / f"{number}.parquet")
    check_steps(imported_episodes(tmp_path / "out", tmp_path, mapping={"eps_id": "episode_id", "obs": "observations"}))
