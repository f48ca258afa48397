"""What is learned from may be read by code of one's own: every step once, the same however it is read, or a clear error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray import cloudpickle

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.errors import (
    ConfigError,
    DataError,
    DatasetNotFoundError,
    EmptyDatasetError,
    LocationError,
    OfflineError,
    SchemaError,
)
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.dqn import DQN
from offline_core.learning.algorithms.marwil import MARWIL
from offline_core.learning.config import DataConfig, TrainingConfig
from offline_core.learning.data_loader import loader_of, make_data_loader
from offline_core.learning.result import TrainingResult
from offline_core.learning.source import RawRows, Recorded, StepSource, UserData, count
from offline_core.learning.steps import Steps
from offline_core.learning.train import train
from offline_core.learning.work import make_run
from offline_core.plans.training import plan_training
from offline_core.policies.manifest import fingerprint_of
from offline_core.runtime.config import parse
from tests.cases import slow_but
from tests.learning.datasets import SPACES, dataset_of

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


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Three episodes of 100 steps of CartPole, a row a step."""
    rng = np.random.default_rng(0)
    episodes = [
        Episode(
            eps_id=f"{number}",
            observations=rng.uniform(-1, 1, (101, 4)).astype(np.float32),
            actions=rng.integers(0, 2, 100),
            rewards=np.ones(100),
            truncated=True,
            observation_space=SPACES[0],
            action_space=SPACES[1],
        )
        for number in range(3)
    ]
    return dataset_of(tmp_path / "table", episodes, format="table")


def own(name: str, **arguments: Any) -> dict[str, Any]:
    return {"path": f"tests.learning.own:{name}", "arguments": arguments}


def lines(**more: Any) -> DataConfig:
    return parse(DataConfig, {"source": {"format": "read_text"}, "prelearner": own("Lines"), **more})


def numbers(**arguments: Any) -> DataConfig:
    return parse(DataConfig, {"data_class": own("Numbers", **arguments)})


def read(source: StepSource, config: DataConfig, *, streamed: bool = False) -> list[float]:
    loader = make_data_loader(source, config, BC, streamed=streamed, seed=0)
    return [float(value) for steps in loader.windows(0) for value in steps.columns["obs"][:, 0]]


def training(data: DataConfig, **more: Any) -> TrainingConfig:
    optimizer = {"batch_size": 8, "max_epochs": 2, "updates_per_iteration": 2}
    return parse(TrainingConfig, {"data": data.model_dump(), "optimizer": optimizer, "network": {"hidden_sizes": [4]}} | more)


KEPT = {"resident_bytes": "rows", "window_steps": 4}
POOL = {"prelearners": 1, "cpus_per_prelearner": 0.5}


@pytest.mark.parametrize("changes", [{}, {"window_steps": 4}, KEPT, pytest.param(KEPT | POOL, marks=pytest.mark.slow)], ids=str)
def test_rows_become_steps_each_once(text: str, changes: dict[str, Any]) -> None:
    config = lines(**changes)
    source = RawRows.of(text, config)
    assert (*count(source, BC), source.origin.ref.version) == (4, 11, 0)
    found = read(source, config, streamed="window_steps" in changes)
    assert found == OBSERVED


def test_rows_that_a_data_class_reads_cannot_be_kept() -> None:
    with pytest.raises(ConfigError, match="reads by itself, so its rows cannot be kept"):
        parse(DataConfig, {"data_class": own("Numbers"), "resident_bytes": "rows"})


@pytest.mark.parametrize("pool", slow_but([{}, POOL], {}), ids=["here", "pool"])
def test_rows_of_another_reader_than_rays(tmp_path: Path, pool: dict[str, Any]) -> None:
    (tmp_path / "rows.csv").write_text("text\n" + "\n".join(LINES) + "\n")
    config = lines(source={"format": "csv"}, **pool)
    assert read(RawRows.of(str(tmp_path), config), config) == OBSERVED


def test_a_data_class_gives_its_batches(tmp_path: Path) -> None:
    source = UserData.of(str(tmp_path), numbers())
    assert count(source, BC) == (10, 100)
    assert read(source, numbers()) == list(range(100))


def test_what_a_data_class_takes_is_planned(tmp_path: Path) -> None:
    """It tells no times of its own."""
    config = training(numbers(), evaluation={"play": False})
    assert plan_training(config, dataset=str(tmp_path), output=str(tmp_path / "out")).seconds > 0


def test_connectors_run_on_what_own_code_makes(text: str, tmp_path: Path) -> None:
    for config, kind in ((lines(connectors=[own("Evens")]), RawRows), (numbers(), UserData)):
        config = parse(DataConfig, config.model_dump() | {"connectors": [own("Evens")]})
        found = read(kind.of(text, config), config)
        assert not any(number % 2 for number in found) and len(found) in (11, 100)


@pytest.mark.parametrize("data", [lines(), numbers()], ids=["lines", "numbers"])
@pytest.mark.parametrize("streamed", [False, True])
def test_each_of_several_learners_keeps_its_share(text: str, tmp_path: Path, data: DataConfig, streamed: bool) -> None:
    """They are actors in other processes, to which the run is sent; each reads all, window after window."""
    run = make_run(training(data.model_copy(update={"window_steps": 30})), text, str(tmp_path), None)
    sent = replace(cloudpickle.loads(cloudpickle.dumps(run)), streamed=streamed)
    alone, *shares = (
        [steps.columns["obs"][steps.rows, 0].tolist() for steps in loader_of(sent, rank=rank, world=world).windows(0)]
        for world, rank in ((1, 0), (2, 0), (2, 1))
    )
    assert [first + second for first, second in zip(*shares, strict=True)] == alone
    assert len(alone) == (1 if not streamed or len(alone[0]) < 30 else 4)


@pytest.mark.parametrize("data", [lines(), numbers()], ids=["lines", "numbers"])
def test_a_second_call_finds_the_first_unless_files_have_changed(text: str, tmp_path: Path, data: DataConfig) -> None:
    def run_train() -> TrainingResult:
        return train(training(data), dataset=text, output=str(tmp_path / "out"))

    first, again = run_train(), run_train()
    assert first.steps == 2 * first.dataset.steps
    assert again.reused and fingerprint_of(again.checkpoint) == fingerprint_of(first.checkpoint)
    Path(text, "0.txt").write_text("1 2 3\n")
    after = run_train()
    assert not after.reused and after.dataset.fingerprint != first.dataset.fingerprint


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
        ({"data_class": own("Numbers", fail="one space")}, ConfigError, "has to give a pair of gymnasium spaces"),
        ({"data_class": own("Numbers", fail="none")}, SchemaError, "by the data class .*an EpisodeBatch is needed"),
        ({"source": {"format": "read_text"}, "prelearner": own("OneSpace")}, ConfigError, "has to give a pair"),
        ({"data_class": own("Numbers", steps=0)}, EmptyDatasetError, "holds no steps"),
        ({"data_class": own("Evens")}, ConfigError, "cannot be made"),
        ({"data_class": own("NoBC")}, ConfigError, "cannot be made"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, tmp_path: Path, data: dict, error: type[OfflineError], message: str) -> None:
    with pytest.raises(error, match=message):
        train(training(parse(DataConfig, data)), dataset=text, output=str(tmp_path / "out"))
    assert not (tmp_path / "out" / "best").exists()


@pytest.mark.parametrize("pool", slow_but([{}, POOL], {}), ids=["here", "pool"])
def test_bad_rows_are_told_from_a_pool_as_from_here(text: str, pool: dict[str, Any]) -> None:
    Path(text, "1.txt").write_text("six 5\n")
    config = lines(**pool)
    with pytest.raises(DataError, match=r"The prelearner .*own:Lines failed on [12] rows: .*could not convert"):
        read(RawRows.of(text, config), config)


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
        train(config, dataset=text, output=str(tmp_path / "out"))


def test_an_epoch_is_what_connectors_leave(table: str, tmp_path: Path) -> None:
    half = parse(DataConfig, {"connectors": [own("Halves")]})
    result = train(training(half, evaluation={"episodes": 1}), dataset=table, output=str(tmp_path / "out"))
    assert result.dataset.steps == 300 and result.steps == 2 * 200, "of three episodes two are left"
    assert result.epochs == 2.0


def whole(table: str, algorithm: type[Algorithm], data: dict[str, Any]) -> Steps:
    source = Recorded.of(open_dataset(table), parse(DataConfig, data))
    [steps] = make_data_loader(source, source.config, algorithm, streamed=False, seed=0).windows(0)
    return steps


def test_a_prelearner_makes_other_episodes_of_a_dataset(table: str) -> None:
    there, back = (whole(table, MARWIL, given) for given in ({}, {"prelearner": own("Backwards")}))
    assert (back.columns["obs"][0] == there.columns["obs"][there.last[0]]).all()
    assert len(back) == len(there)


def test_next_observations_of_a_connector_do_not_stand_in_for_those_n_steps_on(table: str) -> None:
    plain, other = (whole(table, DQN, given) for given in ({}, {"connectors": [own("NextObs")]}))
    assert plain.columns.keys() == other.columns.keys()


def test_data_that_cannot_be_told_apart_is_neither_reused_nor_gone_on_with(tmp_path: Path) -> None:
    config = training(parse(DataConfig, {"data_class": own("Anywhere")}))
    for _ in range(2):
        result = train(config, dataset="mydb://table", output=str(tmp_path))
        assert not result.reused and result.steps == 2 * 20
    assert not UserData.of("mydb://table", config.data).origin.changes_show


def test_credentials_in_a_place_are_refused_before_anybody_is_told(tmp_path: Path) -> None:
    config = training(parse(DataConfig, {"data_class": own("Anywhere")}))
    with pytest.raises(LocationError) as told:
        train(config, dataset="postgresql://me:hunter2@host/db", output=str(tmp_path))
    assert "hunter2" not in str(told.value) and not list(tmp_path.iterdir())


def test_nothing_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="There is nothing at"):
        train(training(lines()), dataset=str(tmp_path / "none.txt"), output=str(tmp_path / "out"))


def test_a_version_is_only_for_datasets(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave the version out"):
        train(training(lines()), dataset=text, output=str(tmp_path / "out"), version=2)
