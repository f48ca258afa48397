"""examples/writer.py."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

import offline_core as offline
from examples.writer import Sqlite
from tests.examples.recordings import record


def returns(path: Path) -> dict[str, float]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT eps_id, sum(rewards) FROM steps GROUP BY eps_id"))


def test_each_step_is_a_row(cartpole_policy: str, tmp_path: Path) -> None:
    recorded = record(cartpole_policy, tmp_path / "recording")
    result = offline.export(tmp_path / "recording", format="examples.writer:Sqlite", output=tmp_path / "steps.sqlite")
    assert (result.episodes, result.steps) == (20, sum(map(len, recorded)))
    assert returns(tmp_path / "steps.sqlite") == {episode.eps_id: episode.return_ for episode in recorded}


def test_a_table_is_replaced_whole_or_not_at_all(cartpole_policy: str, tmp_path: Path) -> None:
    recorded = record(cartpole_policy, tmp_path / "recording")
    for some in (recorded[:5], recorded[5:9]):
        with Sqlite(f"{tmp_path}/steps.sqlite") as sink:
            sink.write(some)
        assert returns(tmp_path / "steps.sqlite").keys() == {episode.eps_id for episode in some}
    with pytest.raises(AttributeError), Sqlite(f"{tmp_path}/steps.sqlite") as sink:
        sink.write([recorded[0], replace(recorded[1], observations={"not": "an array"})])
    assert returns(tmp_path / "steps.sqlite").keys() == {episode.eps_id for episode in recorded[5:9]}


def test_an_output_that_cannot_be_written_is_named(cartpole_policy: str, tmp_path: Path) -> None:
    record(cartpole_policy, tmp_path / "recording")
    with pytest.raises(offline.errors.StorageError, match=r"writer examples.writer:Sqlite failed at .*: .*unable to open"):
        offline.export(tmp_path / "recording", format="examples.writer:Sqlite", output=tmp_path / "no_folder/steps.sqlite")
