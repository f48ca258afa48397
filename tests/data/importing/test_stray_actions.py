"""Actions of a few steps that make an inferred space larger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offline_core.data.importing.stray_actions import Seen, stray_values
from tests.data.importing.factories import Row, run_import, scattered, steps

EPISODES = [steps(f"{i:03d}", 5) for i in range(50)]


def rows(**changes: Any) -> list[Row]:
    """250 steps with actions 0 to 2; step 3 of episode 007 is changed."""
    found = [dict(row) for episode in EPISODES for row in episode]
    next(row for row in found if row["eps_id"] == "007" and row["t"] == 3).update(changes)
    return found


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_stray_action_is_told_of(tmp_path: Path, partitions: int) -> None:
    result, _ = run_import(scattered(tmp_path / "in", rows(actions=7), 2), tmp_path / "out", partitions=partitions)
    assert result.notes == [
        "In 1 of 250 steps actions is 7 (first: episode 007, step 3), in all others 0 to 2: the action space is larger for "
        "these alone. If they are mistakes, leave them out by source.where; else declare action_space."
    ]
    assert result.action_space == "Discrete(8)"
    declared = {"action_space": {"space": "discrete", "n": 8}}
    assert run_import(tmp_path / "in", tmp_path / "declared", **declared)[0].notes == []


def test_most_choices_that_no_row_has_are_told_of(tmp_path: Path) -> None:
    found = [row | {"actions": 5 * row["actions"]} for row in rows()]
    result, _ = run_import(scattered(tmp_path / "in", found, 2), tmp_path / "out")
    assert result.action_space == "Discrete(11)"
    assert result.notes == [
        "The action space Discrete(11) has 8 choices that no row has: actions are 0, 5, 10. A policy may choose what was "
        "never done; give each value a code by columns.encode, with form: index."
    ]
    coded = {"columns": {"encode": {"actions": {"form": "index"}}}}
    result, _ = run_import(tmp_path / "in", tmp_path / "coded", **coded)
    assert (result.action_space, result.notes) == ("Discrete(3)", [])


def test_each_dimension_is_by_itself(tmp_path: Path) -> None:
    found = [row | {"actions": [row["actions"], row["t"]]} for row in rows()]
    found[100]["actions"] = [0, 40]
    result, _ = run_import(scattered(tmp_path / "in", found, 1), tmp_path / "out")
    assert [note.partition(" (")[0] for note in result.notes] == ["In 1 of 250 steps actions[1] is 40"]
    assert result.action_space == "MultiDiscrete([ 3 41])"


@pytest.mark.parametrize(
    ("values", "stray"),
    [
        ({0: 500, 1: 499, 7: 1}, [7]),
        ({0: 500, 1: 480, 7: 20}, []),  # so many are no mistake
        ({0: 500, 1: 499, 2: 1}, []),  # rare, but next to the others
        ({**dict.fromkeys(range(100), 50), 120: 1}, []),  # one that few choose, among many
        ({0: 5000, 1: 5000, 500: 1, 999: 1}, [500, 999]),
        ({-1: 500, 1: 499}, []),
        ({3: 10}, []),
        ({-1: 1, 0: 500, 1: 499}, [-1]),  # what is missing
        ({-999: 1, 0: 500, 1: 499, 7: 1}, [-999, 7]),
        ({-900: 1, -1: 500, 0: 499, 1: 500}, [-900]),
        ({-2: 1, -1: 500, 0: 499, 1: 500}, []),
        ({1: 1, 600: 500, 601: 499}, []),  # the space begins at zero anyway
        ({0: 500, 1: 499, 2**64 - 1: 1}, [2**64 - 1]),
    ],
)
def test_what_is_stray(values: dict[int, int], stray: list[int]) -> None:
    assert stray_values({value: Seen(steps, "a", 0) for value, steps in values.items()}) == stray
