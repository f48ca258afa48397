"""What becomes of the ends of a source, and how later steps learn that they were lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.importing.ends import lost_terminations
from tests.cases import examples
from tests.data.datasets.factories import edit_json
from tests.data.importing.factories import assembled, parts, run_import, scattered, shuffled, steps, without

EPISODES = [*(steps(f"a{i}", 3 + i % 4) for i in range(6)), *(steps(f"b{i}", 5, end="X") for i in range(2))]
ROWS = [row for rows in EPISODES for row in rows]


def d4rl(path: Path) -> Path:
    """These episodes as D4RL keeps them, without next observations."""
    names = {"observations": "obs", "actions": "actions", "rewards": "rewards"}
    names |= {"terminals": "terminateds", "timeouts": "truncateds"}
    with h5py.File(path, "w") as file:
        for name, ours in names.items():
            file[name] = np.array([row[ours] for row in ROWS])
    return path


def test_terminations_of_d4rl_are_kept_and_timeouts_lose_their_last_step(tmp_path: Path) -> None:
    result, found = run_import(d4rl(tmp_path / "x.hdf5"), tmp_path / "out", episodes={"last_new_obs": "drop"})
    statistics = open_dataset(result.dataset.uri).manifest.statistics
    assert (statistics.terminated, statistics.truncated) == (6, 2)
    assert [len(e) for e in found] == [3, 4, 5, 6, 3, 4, 4, 4]
    counts = result.counts
    assert (counts.terminations, counts.dropped_last_steps, counts.repeated_last_obs) == (6, 2, 6)
    assert result.notes == [
        "2 episodes that do not terminate lost their last step, as its next observation is not known; 6 terminated ones are "
        "whole.",
        "The observation after 6 last steps is not in the source; the one before is repeated.",
    ]
    assert open_dataset(result.dataset.uri).manifest.report["notes"] == result.notes
    assert lost_terminations(open_dataset(result.dataset.uri)) is None


@pytest.mark.parametrize("unreadable", ["flag", "next"])
def test_terminations_in_rows_that_cannot_be_read_are_counted(tmp_path: Path, unreadable: str) -> None:
    """As where new_obs is missing just there. They alone refuse nothing: a corrupt row of a log that goes on may say so."""
    lost = {"new_obs": [None, None]} if unreadable == "next" else {"terminateds": None}
    rows = [row | (lost if row["terminateds"] else {}) for row in ROWS]
    result, found = run_import(scattered(tmp_path / "in", rows, 2), tmp_path / "out", unreadable="quarantine", partitions=2)
    assert {end for _, end in parts(found)} == {"X"}
    assert result.counts.terminations == (6 if unreadable == "next" else 0)
    dataset = open_dataset(result.dataset.uri)
    if unreadable == "next":
        said = "6 of 6 terminations of the source are in no episode, 6 of them in rows that cannot be read."
        assert (result.notes[1:], result.counts.quarantined_terminations) == ([said], 6)
    assert lost_terminations(dataset) is None


def lossy(tmp_path: Path, **rules: Any) -> str:
    """The URI of an import whose terminated episodes all lack their first step, and are dropped."""
    rows = [row for row in ROWS if row["t"] or row["eps_id"].startswith("b")]
    episodes = {"incomplete": "drop"} | rules
    return run_import(scattered(tmp_path / "in", rows, 1), tmp_path / "out", episodes=episodes)[0].dataset.uri


def test_what_is_made_of_an_import_without_its_terminations_is_known(tmp_path: Path) -> None:
    uri = lossy(tmp_path)
    pruned = prune(PruningConfig(keep_top_fraction=0.5), dataset=uri, output=str(tmp_path / "pruned")).dataset
    said = f"{uri} version 1 kept none of the 6 terminations of its source"
    assert lost_terminations(open_dataset(pruned.uri)) == said


def test_declared_time_limits_are_no_lost_terminations(tmp_path: Path) -> None:
    rows = without([row for rows in (steps("a", 4), steps("b", 4)) for row in rows], "truncateds")
    result, _ = run_import(scattered(tmp_path / "in", rows, 1), tmp_path / "out", episodes={"time_limit_steps": 4})
    assert result.notes == []
    assert lost_terminations(open_dataset(result.dataset.uri)) is None


def test_imports_from_when_the_drop_lost_terminations_are_known(tmp_path: Path) -> None:
    rows = without(ROWS, "new_obs")
    rules = {"last_new_obs": "drop"}
    dataset = run_import(scattered(tmp_path / "in", rows, 1), tmp_path / "out", episodes=rules)[0].dataset
    place = tmp_path / "out/_versions/000001.json"
    manifest = json.loads(place.read_text())
    manifest["operation"]["version"], manifest["statistics"]["terminated"] = 3, 0
    edit_json(place, operation=manifest["operation"], statistics=manifest["statistics"])
    assert "when last_new_obs: drop lost every termination" in str(lost_terminations(open_dataset(dataset.uri)))


@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_ends_are_as_the_source_has_them_whatever_is_missing_or_there_twice(data: st.DataObject) -> None:
    """By t: rows in any order, some of them lost, some in two files; terminations survive with their row."""
    ends = data.draw(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["T", "X", ""])), min_size=1, max_size=6))
    rows = [row for i, (n, end) in enumerate(ends) for row in without(steps("abcdef"[i], n, end=end), "new_obs")]
    kept = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    there = [row for row, keep in zip(rows, kept, strict=True) if keep]
    twice = there[: data.draw(st.integers(0, len(there)))]
    last_new_obs, incomplete = (
        data.draw(st.sampled_from(["repeat", "drop"])),
        data.draw(st.sampled_from(["cut", "keep", "drop"])),
    )
    if not there:
        return
    rules = {"order": "t", "last_new_obs": last_new_obs, "incomplete": incomplete}
    found, counts = assembled(shuffled(there, 1), *([shuffled(twice, 2)] if twice else []), **rules)
    assert counts.rows == len(there) + len(twice) and counts.duplicates == len(twice)
    terminated = [row["tag"] for row in there if row["terminateds"]]
    assert counts.terminations == len(terminated)
    last_tags = {e.extras["tag"][-1] for e in found if e.terminated}
    if incomplete == "drop":
        assert last_tags <= set(terminated)
    else:
        assert last_tags == set(terminated)
        assert counts.dropped_last_steps == (last_new_obs == "drop") * (len(there) - counts.steps)
