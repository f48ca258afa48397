"""Point 14: what can be watched; pictures and tables in Prefect are proven in `tests/tasks/test_artifacts.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from offline_core.learning.result import TrainingResult
from tests.acceptance.forms import metrics, run_train


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("watched")


@pytest.fixture(scope="module")
def trained(recording: str, output: Path) -> TrainingResult:
    return run_train(recording, output)


@pytest.mark.slow
def test_14_update_time_and_data_wait_time(trained: TrainingResult, output: Path) -> None:
    """Of each iteration; the whole run has a moment more, after the last of them."""
    records = [record for record in metrics(output) if "update_seconds" in record]
    for name in ("update_seconds", "data_wait_seconds", "gather_seconds"):
        total = getattr(trained, name)
        assert sum(record[name] for record in records) == pytest.approx(total, abs=1e-3)
    assert trained.update_seconds > 0
    assert trained.update_seconds + trained.data_wait_seconds + trained.gather_seconds < trained.seconds


def test_14_rows_per_second_of_each_layer(trained: TrainingResult, output: Path) -> None:
    """Of each iteration: reading and mapping once, for the data then is in memory, and learning; and what to turn."""
    speeds = [float(text.replace(",", "")) for text in re.findall(r"([\d,]+) steps/s", trained.bottleneck)]
    assert re.match(r"Read and laid out .* steps/s \(.* MB/s\)\. Learned .* steps/s, waiting", trained.bottleneck)
    assert len(speeds) == 2 and speeds[1] == pytest.approx(trained.steps_per_second, abs=1)
    records = [record for record in metrics(output) if "steps_per_second" in record]
    assert all(record["steps_per_second"] > 0 and record["learner_steps_per_second"] > 0 for record in records)
    for layer in ("read", "prelearner"):
        assert [f"{layer}_steps_per_second" in record for record in records] == [True] + [False] * (len(records) - 1)
        assert records[0][f"{layer}_steps_per_second"] > 0


@pytest.mark.parametrize("prelearners", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_14_rates_of_each_layer_in_each_iteration(recording: str, tmp_path: Path, prelearners: int) -> None:
    """Of a stream, which each epoch reads and maps anew; in this process, or in actors."""
    data = {"resident_bytes": 0, "prelearners": prelearners, "cpus_per_prelearner": 0.5}
    run_train(
        recording, tmp_path, data=data, optimizer={"updates_per_iteration": None, "max_epochs": 3}, evaluation={"play": False}
    )
    records = [record for record in metrics(tmp_path) if "steps_per_second" in record]
    assert len(records) == 3
    for layer in ("read", "prelearner", "learner"):
        rates = [record[f"{layer}_steps_per_second"] for record in records]
        assert all(rate > 0 for rate in rates) and len(set(rates)) == 3


@pytest.mark.slow
def test_14_tensorboard(trained: TrainingResult, output: Path) -> None:
    """The same numbers as in the file of metrics."""
    board = EventAccumulator(str(output / "tensorboard")).Reload()
    for name in ("loss", "steps_per_second", "update_seconds", "data_wait_seconds", "episode_return_mean"):
        drawn = {event.step: event.value for event in board.Scalars(name)}
        assert drawn == pytest.approx({r["updates"]: r[name] for r in metrics(output) if name in r}, rel=1e-5)


@pytest.mark.usefixtures("ray_up")
def test_14_rays_dashboard_is_that_of_a_cluster_one_joins() -> None:
    """A Ray that is started here, for one run, has none unless `OFFLINE_RAY_DASHBOARD` is set (see `test_ray_session`)."""
    import ray

    assert not ray.get_runtime_context().worker.node.address_info["webui_url"]
