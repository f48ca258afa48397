"""The logs of a building: imported, they are what the truth beside them says, and again when the next day has come."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import offline_core as offline
from examples.logs.building import FIRST_DAY, VALVES, write_day
from offline_core.runtime.yaml_values import load_yaml
from tests.docs.blocks import blocks

DAYS = 3
OBS = ["tin", "tout", "occupied", "hour_sin", "hour_cos", "eur_per_kwh", "weekday", "weekend"]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for number in range(DAYS):
        write_day(tmp_path / "logs", _day(number), first=number == 0)
    return tmp_path / "logs"


def _day(number: int) -> date:
    return FIRST_DAY + timedelta(days=number)


def test_an_import_and_the_next_days_are_the_truth(logs: Path, tmp_path: Path) -> None:
    config = _config(logs)
    data = offline.import_data(f"{logs}/*/zones.ndjson", output=tmp_path / "data", config=config)
    assert _account(data) == _expected_account(logs, DAYS, since=0)
    _assert_steps_equal(_steps(data), _truth(logs, DAYS))
    write_day(logs, _day(DAYS), first=False)
    grown = offline.import_data(f"{logs}/*/zones.ndjson", output=tmp_path / "data", config=config, append=True)
    assert grown.manifest.version == 2
    assert (grown.result.appended.files_new, grown.result.appended.files_read_again) == (1, 0)
    assert _account(grown) == _expected_account(logs, DAYS + 1, since=DAYS)
    _assert_steps_equal(_steps(grown), _truth(logs, DAYS + 1))


def _config(logs: Path) -> dict[str, object]:
    text = next(block.text for block in blocks("docs/logs.md") if block.text.startswith("# building.yaml"))
    parsed: dict[str, object] = load_yaml(text.replace("data/building/logs", str(logs)))
    return parsed


def _truth(logs: Path, days: int) -> pl.DataFrame:
    """The steps whose rows have arrived after so many days, as an import has to have them."""
    read = [pl.read_parquet(logs.parent / "truth" / f"{_day(number)}.parquet") for number in range(days)]
    steps = pl.concat(read).filter(
        (pl.col("fate") != "lost") & ((pl.col("fate") != "late") | (pl.col("at").dt.date() < _day(days - 1)))
    )
    zone_day = ["zone", pl.col("at").dt.date()]
    angle = pl.col("at").dt.hour() / 24 * 2 * np.pi
    return (
        steps.sort("zone", "at")
        .with_columns(
            pl.when("has_tout").then("tout").otherwise(5.0).alias("tout"),
            (pl.col("at").diff().over(zone_day) > timedelta(hours=1)).fill_null(False).cum_sum().over(zone_day).alias("part"),
        )
        .select(
            "zone",
            "at",
            "part",
            "tin",
            "tout",
            pl.col("occupied").cast(pl.Float64),
            angle.sin().alias("hour_sin"),
            angle.cos().alias("hour_cos"),
            "eur_per_kwh",
            *((pl.col("mode") == mode).cast(pl.Float64).alias(mode) for mode in ("weekday", "weekend")),
            pl.col("valve").replace_strict({valve: number for number, valve in enumerate(VALVES)}).alias("action"),
            pl.col("p").log().alias("log_p"),
            (-pl.col("kwh") * pl.col("eur_per_kwh") - 0.2 * pl.col("complaints")).alias("reward"),
            (pl.col("at").dt.hour() == 23).alias("ends"),
        )
    )


def _steps(data: offline.Dataset) -> pl.DataFrame:
    """The same out of a dataset; parts are numbered in the order of time."""
    frames = [
        pl.DataFrame(
            {
                "zone": [episode.eps_id[:3]] * len(episode),
                "at": pl.Series(episode.extras["time"]).cast(pl.Datetime("ns")).cast(pl.Datetime("us")),
                "part": [number] * len(episode),
                **dict(zip(OBS, episode.observations[:-1].T, strict=True)),
                "action": episode.actions,
                "log_p": episode.extras["action_logp"],
                "reward": episode.rewards,
                "ends": [*[False] * (len(episode) - 1), episode.terminated],
            }
        )
        for number, episode in enumerate(data.episodes())
    ]
    zone_day = ["zone", pl.col("at").dt.date()]
    steps = pl.concat(frames).sort("zone", "at")
    return steps.with_columns(pl.col("part").rle_id().over(zone_day))


def _assert_steps_equal(found: pl.DataFrame, truth: pl.DataFrame) -> None:
    assert found.select("zone", "at", "ends").equals(truth.select("zone", "at", "ends"))
    assert found["part"].cast(int).equals(truth["part"].cast(int)), "episodes are cut where rows are missing, and nowhere else"
    for name in (*OBS, "action", "log_p", "reward"):
        np.testing.assert_allclose(found[name], truth[name], rtol=1e-6, atol=1e-9, err_msg=name)


def _account(data: offline.Dataset) -> dict[str, int]:
    counts = data.result.counts
    return {"rows": counts.rows, "duplicates": counts.duplicates, "quarantined": counts.quarantined_rows}


def _expected_account(logs: Path, days: int, *, since: int) -> dict[str, int]:
    """Of the files of these days."""
    read = [pl.read_ndjson(logs / str(_day(number)) / "zones.ndjson") for number in range(since, days)]
    truth = pl.concat(pl.read_parquet(logs.parent / "truth" / f"{_day(number)}.parquet") for number in range(since, days))
    return {
        "rows": sum(map(len, read)),
        "duplicates": int((truth["fate"] == "twice").sum()),
        "quarantined": sum(int(rows["zone"].null_count()) for rows in read),
    }
