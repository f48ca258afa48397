"""The last line of a training: rates, the largest share of the time, and the choice that would have been faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offline_core.learning.config import TrainingConfig
from offline_core.learning.costs import Costs, bottleneck
from offline_core.learning.experience import Seconds
from offline_core.learning.prelearner.mapper import ReadSoFar
from offline_core.learning.train import train
from offline_core.runtime.config import parse
from tests.learning.datasets import dataset_of
from tests.learning.test_costs import SMALL
from tests.learning.test_train import balancing_episodes


def said(
    seconds: Seconds,
    *,
    loading: float,
    resident: bool = True,
    read: ReadSoFar = ReadSoFar(),
    costs: Costs | None = None,
    **config: Any,
) -> str:
    parsed = parse(TrainingConfig, {"data": {"prelearners": 0}} | config)
    return bottleneck(parsed, seconds, read, resident=resident, loading=loading, steps=6_000, costs=costs)


READ = ReadSoFar(steps=24_000, bytes=48_000_000, seconds=6.0)


def test_reading_that_a_run_begins_with_is_not_its_start() -> None:
    """Of 10 s, 7 passed before the first batch, 6 of them reading."""
    line = said(Seconds(update=3.0), loading=7.0, read=READ)
    assert line.startswith("Read and laid out 4,000 steps/s (8 MB/s). Learned 2,000 steps/s, waiting 0 % of that time. ")
    assert "60 % of all time went into reading the data" in line


def test_a_stream_is_read_while_others_learn() -> None:
    """The same 6 s of reading, of which the learner waited for 4."""
    line = said(Seconds(wait=4.0, update=1.0), loading=3.0, resident=False, read=READ)
    assert line.startswith("Read and laid out 4,000 steps/s (8 MB/s). Learned 1,200 steps/s, waiting 80 % of that time. ")
    assert "50 % of all time went into waiting for data: reading is slower than learning." in line


@pytest.mark.parametrize(
    ("seconds", "loading", "where"),
    [
        (Seconds(update=1.0), 3.0, "75 % of all time went into starting: it is once a run"),
        (Seconds(gather=3.0, update=1.0), 0.0, "75 % of all time went into gathering batches: raise optimizer.batch_size"),
        (Seconds(update=1.0, pause=3.0), 0.0, "75 % of all time went into reports, checkpoints and held-out loss: raise"),
        (Seconds(update=4.0), 0.0, "100 % of all time went into updating: the learner is busy, as it should be"),
    ],
)
def test_the_largest_share_is_named(seconds: Seconds, loading: float, where: str) -> None:
    line = said(seconds, loading=loading)
    assert line.startswith("Learned ") and where in line


def test_a_pool_for_little_data_is_advised_against(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this process reads 100 times as fast as a pool has started, more prelearners are no advice."""
    monkeypatch.setenv("OFFLINE_RAY_CPUS", "4")
    line = said(Seconds(update=1.0), loading=6.0, costs=SMALL, data={"prelearners": 1}, compute={"learners": 2})
    assert "data.prelearners=0 and compute.learners=0 would take about 4 % as long." in line
    alone = said(Seconds(update=1.0), loading=0.1, costs=SMALL)
    assert alone.endswith("No other number of prelearners or learners would be clearly faster on 4 CPUs.")


@pytest.mark.slow
def test_the_advice_helps(tmp_path: Path) -> None:
    """As advised, the same training takes less than half as long."""
    data = dataset_of(tmp_path / "data", balancing_episodes(20))

    def run_train(name: str, prelearners: int, learners: int) -> Any:
        config = parse(
            TrainingConfig,
            {
                "optimizer": {"max_epochs": 2},
                "evaluation": {"play": False},
                "data": {"prelearners": prelearners, "cpus_per_prelearner": 0.2},
                "compute": {"learners": learners, "cpus_per_learner": 0.25},
            },
        )
        return train(config, dataset=data, output=str(tmp_path / name))

    advised_against = run_train("pool", 1, 2)
    assert "data.prelearners=0 and compute.learners=0 would take" in advised_against.bottleneck
    assert run_train("alone", 0, 0).seconds < 0.5 * advised_against.seconds
