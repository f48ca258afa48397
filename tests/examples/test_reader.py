"""examples/reader.py, reading what examples/writer.py writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offline_core as offline
from examples.writer import Sqlite
from offline_core.data.episodes import Episode
from tests.examples.recordings import record


@pytest.fixture
def recorded(cartpole_policy: str, tmp_path: Path) -> list[Episode]:
    found = record(cartpole_policy, tmp_path / "recording")
    with Sqlite(f"{tmp_path}/steps.sqlite") as sink:
        sink.write(found)
    return found


def read(folder: Path, *, engine: str = "local", **arguments: Any) -> offline.Dataset:
    source = {"format": "examples.reader:Sqlite", "arguments": arguments}
    environment = {"id": "CartPole-v1"}
    return offline.import_data(
        folder / "steps.sqlite", output=folder / "imported", source=source, environment=environment, engine=engine
    )


@pytest.mark.parametrize("rows", [3, 10_000])
def test_it_reads_what_was_written(recorded: list[Episode], tmp_path: Path, rows: int) -> None:
    imported = read(tmp_path, rows=rows)
    assert imported.ref.steps == sum(map(len, recorded))
    found = {episode.eps_id: episode for episode in imported.episodes()}
    assert found.keys() == {episode.eps_id for episode in recorded}
    for episode in recorded:
        again = found[episode.eps_id]
        for name in ("observations", "actions", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(again, name), getattr(episode, name))


def test_a_query_chooses(recorded: list[Episode], tmp_path: Path) -> None:
    result = read(tmp_path, query=f"SELECT * FROM steps WHERE eps_id = '{recorded[3].eps_id}'")
    assert (result.ref.episodes, result.ref.steps) == (1, len(recorded[3]))


@pytest.mark.usefixtures("ray_up")
def test_workers_of_ray_can_import_it(recorded: list[Episode], tmp_path: Path) -> None:
    assert read(tmp_path, engine="ray").ref.steps == sum(map(len, recorded))


def test_a_wrong_query_is_named(recorded: list[Episode], tmp_path: Path) -> None:
    with pytest.raises(
        offline.errors.CorruptFileError, match=r"examples.reader:Sqlite cannot read .*steps.sqlite: .*no such table"
    ):
        read(tmp_path, query="SELECT * FROM step")
