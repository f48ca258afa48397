"""Columns that observations were made of, as what episodes are split and grouped by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import offline_core as offline
from offline_core.data.curation.observed import UNKNOWN
from offline_core.data.curation.split import values_of
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.episodes import columns
from offline_core.errors import ConfigError


def imported(folder: Path, steps: int) -> Dataset:
    """Visits of so many steps to a zone of a town, each at its own time."""
    rng = np.random.default_rng(0)
    visits, hours = 30, np.arange(30 * steps) % 24
    frame = pl.DataFrame(
        {
            "visit": np.repeat(np.arange(visits), steps),
            "zone": np.repeat(rng.choice(["north", "south"], visits), steps),
            "hour": hours + 0.5,
            "item": rng.integers(0, 2, visits * steps),
            "click": rng.random(visits * steps).round(),
        }
    )
    folder.mkdir()
    frame.write_parquet(folder / "log.parquet")
    mapping = {"obs": ["zone", "hour"], "actions": "item", "rewards": "click"} | ({"eps_id": "visit"} if steps > 1 else {})
    config = {"mapping": mapping, "columns": {"encode": {"zone": {}}}} | (
        {"episodes": {"order": "single_step"}} if steps == 1 else {}
    )
    return open_dataset(offline.import_data(str(folder / "log.parquet"), output=folder / "data", **config).ref.uri)


def test_an_observed_column_has_one_value_in_an_episode_of_one_step(tmp_path: Path) -> None:
    log = imported(tmp_path / "one", 1)
    index = log.index([columns.EPS_ID])
    assert sorted({*values_of(log, index, "zone").tolist()}) == ["north", "south"]
    assert sorted(values_of(log, index, "hour").tolist()) == sorted(f"{hour % 24 + 0.5:g}" for hour in range(30))
    train, held_out = offline.split(log.location.uri, output=tmp_path / "split", held_out_fraction=0.5, by="zone")
    sides = [{*values_of(each, each.index([columns.EPS_ID]), "zone").tolist()} for each in (train, held_out)]
    assert sorted(map(len, sides)) == [1, 1] and sides[0] != sides[1]


def test_values_that_differ_are_told_apart(tmp_path: Path) -> None:
    """Numbers of many digits, and a label called other beside labels that the import did not know."""
    customers, zones = 1_234_560 + np.arange(30) % 20, ["north", "other", "west"] * 10
    frame = pl.DataFrame({"customer": customers, "zone": zones, "rate": np.arange(30) / 10, "item": np.arange(30) % 2})
    frame.with_columns(click=pl.col("item") * 1.0).write_parquet(tmp_path / "log.parquet")
    log = offline.import_data(
        str(tmp_path / "log.parquet"),
        output=tmp_path / "data",
        mapping={"obs": ["customer", "zone", "rate"], "actions": "item", "rewards": "click"},
        columns={"encode": {"zone": {"categories": ["north", "other"], "other": True}}},
        episodes={"order": "single_step"},
    )
    source = open_dataset(log.ref.uri)
    index = source.index([columns.EPS_ID])
    assert {*values_of(source, index, "customer").tolist()} == {*map(str, customers.tolist())}
    assert {*values_of(source, index, "zone").tolist()} == {"north", "other", UNKNOWN}
    assert {*values_of(source, index, "rate").tolist()} == {f"{rate / 10:g}" for rate in range(30)}


def test_of_longer_episodes_it_has_to_stay_the_same(tmp_path: Path) -> None:
    log = imported(tmp_path / "long", 3)
    index = log.index([columns.EPS_ID])
    assert len(values_of(log, index, "zone")) == 30
    with pytest.raises(ConfigError, match=r"cannot be split by 'hour': it changes within episode .*, or has no value there"):
        values_of(log, index, "hour")
    with pytest.raises(
        ConfigError, match=r"split by 'town': no column is called so\. Choose one of eps_id, .* there are: .*zone"
    ):
        values_of(log, index, "town")
