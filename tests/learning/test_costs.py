"""What `auto` chooses, from costs that are known; and that what is measured is of the right size."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.episodes.columns import ROW_GROUP
from offline_core.errors import ConfigError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.costs import (
    LEARNERS_SECONDS,
    POOL_SECONDS,
    RAY_SECONDS,
    Costs,
    Processes,
    choices,
    costs_of,
    measured,
    through_small_tables,
)
from offline_core.learning.train import train
from offline_core.learning.work import make_run
from offline_core.runtime.config import parse
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes

SMALL = Costs(
    steps=100_000,
    epochs=2,
    epoch_steps=100_000,
    batch_steps=1_000,
    streamed=False,
    read_seconds_per_step=1e-6,
    update_seconds=1e-3,
    parameter_bytes=20_000,
    cores=4,
    ray_is_up=False,
)
AUTO = parse(TrainingConfig, {"compute": {"learners": "auto"}})


def chosen(**changes: Any) -> Processes:
    costs = replace(SMALL, **changes)
    return costs.best(choices(AUTO, {"CPU": costs.cores}))


def test_seconds_are_added_up_by_hand() -> None:
    """0.1 s of reading and 200 updates of 1 ms; with a pool and two learners mostly their start."""
    assert SMALL.seconds(Processes(0, 0)) == pytest.approx(0.1 + 0.2)
    start = RAY_SECONDS + POOL_SECONDS + LEARNERS_SECONDS
    sync = 200 * (2e-3 + 2 * 20_000 / 1e9)
    assert SMALL.seconds(Processes(1, 2)) == pytest.approx(start + 0.1 / 0.7 + 0.1 + sync)
    assert replace(SMALL, ray_is_up=True).seconds(Processes(1, 0)) == pytest.approx(POOL_SECONDS + 0.1 / 0.7 + 0.2)


def test_little_data_and_a_small_network_stay_in_one_process() -> None:
    assert chosen() == (0, 0)


def test_an_expensive_prelearner_gets_a_pool() -> None:
    costs = replace(SMALL, read_seconds_per_step=5e-3)
    alone = parse(TrainingConfig, {"compute": {"learners": 0}})
    found = costs.best(choices(alone, {"CPU": 4}))
    assert found == (2, 0), "three would leave no CPU for reading, four are not there"
    assert chosen(read_seconds_per_step=5e-3) == (0, 4), "learners read for themselves"


def test_a_large_network_gets_learners() -> None:
    assert chosen(update_seconds=0.5, epochs=20) == (0, 4)


def test_a_stream_is_read_beside_the_learner() -> None:
    """Ten seconds of each an epoch: side by side already in one process, so a pool has nothing to add, and learners would
    halve what two cores do already."""
    assert chosen(streamed=True, read_seconds_per_step=1e-4, update_seconds=0.1, epochs=5, cores=2) == (0, 0)


def test_there_are_not_more_learners_than_shards() -> None:
    assert chosen(update_seconds=0.5, epochs=20, cores=32, most_learners=8).learners == 8


def test_what_all_learners_read_takes_as_often_as_there_are_learners() -> None:
    """Rows that only user code understands."""
    assert chosen(read_seconds_per_step=5e-3, divided=False).learners == 0


def test_what_is_fixed_stays_and_what_does_not_fit_is_left_out() -> None:
    fixed = parse(TrainingConfig, {"data": {"prelearners": [2, 4]}, "compute": {"learners": "auto"}})
    assert {choice.prelearners for choice in choices(fixed, {"CPU": 8})} == {2}
    assert max(choice.learners for choice in choices(fixed, {"CPU": 8})) == 2, "four would have a prelearner each"
    gpus = parse(TrainingConfig, {"compute": {"learners": "auto", "gpus_per_learner": 1}})
    assert {choice.learners for choice in choices(gpus, {"CPU": 8, "GPU": 2})} == {0, 2}


def test_a_data_class_reads_by_itself_and_is_learned_from_by_this_process() -> None:
    """It is not measured, so a plan of it may not choose learners that a run would not start."""
    config = parse(
        TrainingConfig, {"data": {"data_class": {"path": "tests.learning.own:Numbers"}}, "compute": {"learners": "auto"}}
    )
    assert choices(config, {"CPU": 8}) == [(0, 0)]


def test_a_cluster_whose_nodes_have_left_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a run, of whose costs advice is made."""
    monkeypatch.setattr("offline_core.learning.costs.ray_resources", lambda: {"CPU": 0.0})
    source = SimpleNamespace(row_groups=1)
    run: Any = SimpleNamespace(steps=100, source=source, config=AUTO, epoch_steps=100, total_steps=2_000, streamed=True)
    measured = {"read_seconds_per_step": 1e-6, "update_seconds": 1e-3, "parameter_bytes": 1, "ray_is_up": True}
    assert costs_of(run, **measured).seconds(Processes(1, 1)) > 0


def test_prelearners_that_want_what_a_node_has_are_as_many_as_there_is_for_them() -> None:
    wanting = parse(TrainingConfig, {"data": {"prelearner_options": {"resources": {"decoder": 1}}}})
    assert {choice.prelearners for choice in choices(wanting, {"CPU": 8})} == {0}
    assert {choice.prelearners for choice in choices(wanting, {"CPU": 8, "decoder": 1})} == {0, 1}


def test_a_buffer_makes_the_updates_that_are_drawn_from_it() -> None:
    assert replace(SMALL, epoch_steps=10 * SMALL.steps).seconds(Processes(0, 0)) == pytest.approx(0.1 + 2.0)


def test_learners_on_gpus_of_other_nodes_are_not_measured(tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(2))
    config = parse(TrainingConfig, {"evaluation": {"play": False}, "compute": {"learners": "auto", "gpus_per_learner": 1}})
    with pytest.raises(ConfigError, match="sees no GPU"):
        train(config, dataset=data, output=str(tmp_path / "policy"))


def test_auto_says_what_it_chose_and_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(20))
    config = parse(
        TrainingConfig,
        {"optimizer": {"max_epochs": 1}, "evaluation": {"play": False}, "compute": {"learners": "auto"}},
    )
    with caplog.at_level(logging.INFO):
        automatic = train(config, dataset=data, output=str(tmp_path / "auto"))
    (line,) = [record.getMessage() for record in caplog.records if "Measured here" in record.getMessage()]
    assert "this process reads, this process learns" in line
    fixed = parse(TrainingConfig, {"optimizer": {"max_epochs": 1}, "evaluation": {"play": False}, "data": {"prelearners": 0}})
    alone = train(fixed, dataset=data, output=str(tmp_path / "fixed"))
    weights = [(tmp_path / name / "last").glob("*.safetensors") for name in ("auto", "fixed")]
    first, second = (next(files).read_bytes() for files in weights)
    assert first == second, "measuring leaves no trace in the policy"
    assert automatic.updates == alone.updates


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_costly_reading_is_measured_on_a_few_episodes(tmp_path: Path, format: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a row group of 200: mapping all of them would take as long as a whole epoch."""
    dataset = dataset_of(tmp_path / "data", balancing_episodes(200, 10), rows=200, format=format)
    monkeypatch.setattr("tests.learning.test_costs.SEEN", seen := [])
    monkeypatch.setattr(time, "perf_counter", lambda: SLOW_SECONDS * 10 * sum(seen))  # ten steps an episode
    data = {"connectors": [{"path": f"{__name__}:slow"}]}
    config = parse(TrainingConfig, {"data": data, "compute": {"learners": "auto"}, "evaluation": {"play": False}})
    costs = measured(make_run(config, dataset, str(tmp_path / "out"), None))
    assert costs.read_seconds_per_step == pytest.approx(SLOW_SECONDS)
    assert seen[:4] == [1, 2, 4, 8] and sum(seen) < 200
    assert costs.steps == open_dataset(dataset).ref.steps


def test_rows_that_only_own_code_understands_are_measured_as_they_are_read() -> None:
    """Whatever their columns are called."""
    rows = pa.table({"item": ["a", "b", "c"], "eps_id": ["1", "2", "1"]})
    of_dataset = rows.append_column(ROW_GROUP, pa.array([0, 0, 0]))
    sizes = [
        [part.num_rows for part in through_small_tables(None, lambda _, table=table: [table])] for table in (of_dataset, rows)
    ]
    assert sizes == [[1, 2], [3]]


SLOW_SECONDS = 2e-3
"""Of a step in the connector below, by the clock of its test."""
SEEN: list[int] = []


def slow(steps: EpisodeBatch) -> EpisodeBatch:
    """A connector that notes how many episodes it is given."""
    SEEN.append(steps.num_episodes)
    return steps
