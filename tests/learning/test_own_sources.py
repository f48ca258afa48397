"""What is learned from may be read by code of one's own: every step once, the same however it is read, or a clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offline_core.config import parse
from offline_core.errors import ConfigError, DataError, EmptyDatasetError, OfflineError, SchemaError
from offline_core.learning.config import DataConfig, TrainingConfig
from offline_core.learning.own_data import OwnData
from offline_core.learning.raw_rows import RawRows
from offline_core.learning.source import Source, make_feed
from offline_core.learning.train import train_policy
from offline_core.policies.checkpoint import fingerprint_of

pytestmark = pytest.mark.usefixtures("ray_up")

LINES = ["3 1 4 1 5", "9 2", "6 5 3 5 8 9", "7 9"]
OBSERVED = [3, 1, 4, 1, 9, 6, 5, 3, 5, 8, 7]


@pytest.fixture
def text(tmp_path: Path) -> str:
    folder = tmp_path / "text"
    folder.mkdir()
    for number, lines in enumerate((LINES[:2], LINES[2:])):
        (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")
    return str(folder)


def own(name: str, **arguments: Any) -> dict[str, Any]:
    return {"path": f"tests.learning.own:{name}", "arguments": arguments}


def lines(**more: Any) -> DataConfig:
    return parse(DataConfig, {"source": {"format": "read_text"}, "prelearner": own("Lines"), **more})


def numbers(**arguments: Any) -> DataConfig:
    return parse(DataConfig, {"data_class": own("Numbers", **arguments)})


def read(source: Source, config: DataConfig, *, streamed: bool = False) -> list[float]:
    feed = make_feed(
        source, config, stored=("obs", "actions"), kept=("obs", "actions"), looks_ahead=False, streamed=streamed, seed=0
    )
    return [float(value) for steps in feed.chunks(0) for value in steps.columns["obs"][:, 0]]


def training(data: DataConfig, **more: Any) -> TrainingConfig:
    optimizer = {"batch_size": 8, "max_epochs": 2, "updates_per_iteration": 2}
    return parse(TrainingConfig, {"data": data.model_dump(), "optimizer": optimizer, "network": {"hidden_sizes": [4]}} | more)


@pytest.mark.parametrize("changes", [{}, {"prelearners": 1, "cpus_per_prelearner": 0.5}, {"window_steps": 4}], ids=str)
def test_rows_become_steps_each_once(text: str, changes: dict[str, Any]) -> None:
    config = lines(**changes)
    source = RawRows.of(text, config)
    assert (source.ref.episodes, source.ref.steps, source.ref.version) == (4, 11, 0)
    found = read(source, config, streamed="window_steps" in changes)
    assert found == OBSERVED


def test_rows_of_another_reader_than_rays(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text\n" + "\n".join(LINES) + "\n")
    for pool in ({}, {"prelearners": 1, "cpus_per_prelearner": 0.5}):
        config = lines(source={"format": "csv"}, **pool)
        assert read(RawRows.of(str(tmp_path), config), config) == OBSERVED


def test_a_data_class_gives_its_parts(tmp_path: Path) -> None:
    source = OwnData.of(str(tmp_path), numbers())
    assert (source.ref.episodes, source.ref.steps) == (10, 100)
    assert read(source, numbers()) == list(range(100))


def test_connectors_run_on_what_own_code_makes(text: str, tmp_path: Path) -> None:
    for config, kind in ((lines(connectors=[own("Evens")]), RawRows), (numbers(), OwnData)):
        config = parse(DataConfig, config.model_dump() | {"connectors": [own("Evens")]})
        found = read(kind.of(text, config), config)
        assert not any(number % 2 for number in found) and len(found) in (11, 100)


@pytest.mark.parametrize("data", [lines(), numbers()], ids=["lines", "numbers"])
def test_learners_see_the_same_and_a_second_call_finds_the_first(text: str, tmp_path: Path, data: DataConfig) -> None:
    alone = train_policy(training(data), dataset=text, output=str(tmp_path / "out" / "alone"))
    both = train_policy(
        training(data, compute={"learners": 2, "cpus_per_learner": 0.25}), dataset=text, output=str(tmp_path / "out" / "both")
    )
    assert both.steps == alone.steps == 2 * alone.dataset.steps
    np.testing.assert_allclose([loss for _, loss in both.losses], [loss for _, loss in alone.losses], rtol=1e-4)
    again = train_policy(training(data), dataset=text, output=str(tmp_path / "out" / "alone"))
    assert again.reused and fingerprint_of(again.checkpoint) == fingerprint_of(alone.checkpoint)


def test_changed_rows_are_learned_anew(text: str, tmp_path: Path) -> None:
    output = str(tmp_path / "out")
    before = train_policy(training(lines()), dataset=text, output=output)
    Path(text, "0.txt").write_text("1 2 3\n")
    after = train_policy(training(lines()), dataset=text, output=output)
    assert not after.reused and after.dataset.fingerprint != before.dataset.fingerprint


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"source": {"format": "read_text"}}, ConfigError, "Our prelearner cannot know .* name yours by data.prelearner"),
        ({"source": {}, "prelearner": own("Lines")}, ConfigError, "Name the format of the rows"),
        ({"source": {"format": "read_text"}, "prelearner": own("Unspoken")}, ConfigError, "has to say what the spaces are"),
        ({"source": {"format": "read_text"}, "prelearner": own("Evens")}, ConfigError, "has to be a subclass"),
        ({"source": {"format": "read_text"}, "prelearner": own("Lines", size=3)}, ConfigError, r"cannot be made .*size"),
        ({"source": {"format": "read_text"}, "prelearner": own("Confused")}, SchemaError, "own:Confused: the column actions"),
        ({"source": {"format": "read_nonsense"}, "prelearner": own("Lines")}, ConfigError, "Ray Data has no 'read_nonsense'"),
        ({"data_class": own("Numbers"), "prelearner": own("Lines")}, ConfigError, "reads and maps by itself"),
        ({"data_class": own("Numbers", fail="spaces")}, ConfigError, "own:Numbers failed to say its spaces: .*no idea"),
        ({"data_class": own("Numbers", fail="parts")}, DataError, r"own:Numbers failed on .*lost the thread"),
        ({"data_class": own("Numbers", steps=0)}, EmptyDatasetError, "holds no steps"),
        ({"data_class": own("Evens")}, ConfigError, "cannot be made"),
        ({"data_class": own("NoBC")}, ConfigError, "cannot be made"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, tmp_path: Path, data: dict, error: type[OfflineError], message: str) -> None:
    with pytest.raises(error, match=message):
        train_policy(training(parse(DataConfig, data)), dataset=text, output=str(tmp_path / "out"))
    assert not (tmp_path / "out" / "best").exists()


def test_bad_rows_are_told_from_a_pool_as_from_here(text: str, tmp_path: Path) -> None:
    Path(text, "1.txt").write_text("six 5\n")
    for pool in ({}, {"prelearners": 1, "cpus_per_prelearner": 0.5}):
        with pytest.raises(DataError, match=r"The prelearner tests.learning.own:Lines failed on rows of .*could not convert"):
            train_policy(training(lines(**pool)), dataset=text, output=str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("NoBC", {}, "has to be a subclass of offline_core's Algorithm"),
        ("Nobody", {}, "'tests.learning.own:Nobody' cannot be imported"),
        ("Loud", {}, r"own:Loud failed with Box.*too loud"),
        ("Loud", {"volume": 3}, "1 wrong parameter"),
    ],
)
def test_an_algorithm_that_is_none(text: str, tmp_path: Path, name: str, arguments: dict, message: str) -> None:
    config = training(lines(), algorithm=own(name, **arguments))
    with pytest.raises(ConfigError, match=message):
        train_policy(config, dataset=text, output=str(tmp_path / "out"))


def test_a_version_is_only_for_datasets(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave the version out"):
        train_policy(training(lines()), dataset=text, output=str(tmp_path / "out"), version=2)
