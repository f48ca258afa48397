"""The last line of a training: rates, and the largest share of the time, from seconds that are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from offline_core.config import parse
from offline_core.learning.bottleneck import bottleneck
from offline_core.learning.config import TrainingConfig
from offline_core.learning.feed import ReadSoFar
from offline_core.learning.loop import Seconds


def said(seconds: Seconds, *, loading: float, resident: bool = True, read: ReadSoFar = ReadSoFar(), **config: Any) -> str:
    feed: Any = SimpleNamespace(resident=resident, read=read)
    return bottleneck(parse(TrainingConfig, config), seconds, feed, loading=loading, steps=6_000)


READ = ReadSoFar(steps=24_000, bytes=48_000_000, seconds=6.0)


def test_reading_that_a_run_begins_with_is_not_its_start() -> None:
    """Of 10 s, 7 passed before the first batch, 6 of them reading."""
    line = said(Seconds(update=3.0), loading=7.0, read=READ)
    assert line.startswith("Read and laid out 4,000 steps/s (8 MB/s); Learned 2,000 steps/s, waiting 0% of that time. ")
    assert "60% of all time went into reading the data: more data.prelearners read faster" in line


def test_a_stream_is_read_while_others_learn() -> None:
    """The same 6 s of reading, of which the learner waited for 4."""
    line = said(Seconds(wait=4.0, update=1.0), loading=3.0, resident=False, read=READ, data={"prelearners": 0})
    assert line.startswith("Read and laid out 4,000 steps/s (8 MB/s); Learned 1,200 steps/s, waiting 80% of that time. ")
    assert line.endswith("50% of all time went into waiting for data: raise data.prelearners.")


@pytest.mark.parametrize(
    ("seconds", "loading", "knob"),
    [
        (Seconds(update=1.0), 3.0, "75% of all time went into starting: there is nothing to turn"),
        (Seconds(gather=3.0, update=1.0), 0.0, "75% of all time went into gathering batches: raise optimizer.batch_size"),
        (Seconds(update=1.0, pause=3.0), 0.0, "75% of all time went into reports, checkpoints and held-out loss: raise"),
        (Seconds(update=4.0), 0.0, "100% of all time went into updating: the learner is busy, as it should be"),
    ],
)
def test_the_largest_share_names_the_knob(seconds: Seconds, loading: float, knob: str) -> None:
    line = said(seconds, loading=loading)
    assert line.startswith("Learned ") and knob in line
