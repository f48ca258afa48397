"""examples/reader.py, reading what examples/writer.py writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.writer import Sqlite
from offline_core.config import EnvironmentSpec
from offline_core.conversion.config import ImportConfig
from offline_core.conversion.importing import import_dataset
from offline_core.conversion.report import ImportResult
from offline_core.episodes import Episode
from offline_core.errors import CorruptFileError
from offline_core.storage.dataset import open_dataset
from offline_core.storage.reader import episodes
from offline_core.storage.sources.opening import SourceConfig
from tests.examples.recordings import record


@pytest.fixture
def recorded(cartpole_policy: str, tmp_path: Path) -> list[Episode]:
    found = record(cartpole_policy, tmp_path / "recording")
    with Sqlite(f"{tmp_path}/steps.sqlite") as sink:
        sink.write(found)
    return found


def read(folder: Path, *, engine: Any = "local", **arguments: Any) -> ImportResult:
    config = ImportConfig(
        source=SourceConfig(format="examples.reader:Sqlite", arguments=arguments),
        environment=EnvironmentSpec(id="CartPole-v1"),
        engine=engine,
    )
    return import_dataset(config, source=f"{folder}/steps.sqlite", output=f"{folder}/imported")


@pytest.mark.parametrize("rows", [3, 10_000])
def test_it_reads_what_was_written(recorded: list[Episode], tmp_path: Path, rows: int) -> None:
    assert read(tmp_path, rows=rows).counts.steps == sum(map(len, recorded))
    found = {episode.eps_id: episode for episode in episodes(open_dataset(f"{tmp_path}/imported"))}
    assert found.keys() == {episode.eps_id for episode in recorded}
    for episode in recorded:
        again = found[episode.eps_id]
        for name in ("observations", "actions", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(again, name), getattr(episode, name))


def test_a_query_chooses(recorded: list[Episode], tmp_path: Path) -> None:
    result = read(tmp_path, query=f"SELECT * FROM steps WHERE eps_id = '{recorded[3].eps_id}'")
    assert (result.dataset.episodes, result.dataset.steps) == (1, len(recorded[3]))


@pytest.mark.usefixtures("ray_up")
def test_workers_of_ray_can_import_it(recorded: list[Episode], tmp_path: Path) -> None:
    assert read(tmp_path, engine="ray").counts.steps == sum(map(len, recorded))


def test_a_wrong_query_is_named(recorded: list[Episode], tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"reader examples.reader:Sqlite cannot read .*steps.sqlite: .*no such table"):
        read(tmp_path, query="SELECT * FROM step")
