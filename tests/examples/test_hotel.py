"""The pricing log of a hotel: the first attempt says all that is to decide, and the second one imports the truth."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import offline_core as offline
from examples.logs.hotel import write
from offline_core.runtime.yaml_values import load_yaml

DAYS = 10


def test_two_attempts_from_the_raw_file_to_a_checked_version(tmp_path: Path) -> None:
    write(tmp_path / "logs", DAYS)
    source = tmp_path / "logs" / "pricing.csv"
    with pytest.raises(offline.OfflineError, match="All that is in the way") as refused:
        offline.import_data(source, output=tmp_path / "data")
    asked = [line.split(":")[0] for line in str(refused.value).splitlines() if line[:1].isdigit()]
    assert asked == ["1. obs", "2. actions", "3. rewards"]
    data = offline.import_data(source, output=tmp_path / "data", config=_completed(str(refused.value)))
    _assert_is_truth(data, tmp_path)
    assert offline.check(data).verdict == "pass"


def _completed(message: str) -> dict[str, object]:
    """The YAML in the message, once a person took the signs of comments from what is proposed for a step and for gaps."""
    lines = message[message.index(":\n", message.index("This YAML")) + 2 :].splitlines()
    wanted = ("mapping", "actions", "rewards", "obs", "columns")
    text = "\n".join(line.replace("# ", "", 1) if line.lstrip("# ").startswith(wanted) else line for line in lines)
    parsed: dict[str, object] = load_yaml(text)
    return parsed


def _assert_is_truth(data: offline.Dataset, folder: Path) -> None:
    truth = pl.read_parquet(folder / "truth" / "pricing.parquet")
    twice = truth.filter(pl.col("fate") == "twice").height
    counts = data.result.counts
    assert (counts.rows, counts.steps, counts.duplicates) == (truth.height + twice, truth.height, twice)
    silent = pl.col("fate") == "silent"
    for episode in data.episodes():
        own = truth.filter(pl.col("room") == episode.eps_id)
        assert (
            episode.observations[:-1, 0].tolist()
            == own.select(pl.when(~silent).then("occupancy").otherwise(0)).to_series().to_list()
        )
        assert episode.actions.tolist() == own["price"].to_list()
        assert episode.rewards.tolist() == own["revenue"].to_list()
