"""Write logs as a company has them: the heating of a building, a folder a day, with what goes wrong in such logs.

    python -m examples.logs.building logs --days 20
    python -m examples.logs.building logs --first-day 2026-03-21 --days 1    # the next day

    logs/2026-03-01/zones.ndjson     what a controller saw and did, every hour in each zone: nested JSON
    logs/2026-03-01/meters.csv       what it used, and complaints: rewards come from here
    logs/prices/2026-03-01.parquet   what a kWh costs, whenever that changes
    truth/2026-03-01.parquet         every step as it was, and what became of its row

Some rows of `zones.ndjson` are lost, some arrive a day late, some are sent twice, some hold nothing, and in some a sensor says
nothing. The truth beside the logs says which, so that an import can be held against it. What a day holds depends on its date.
"""

from __future__ import annotations

import argparse
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

ZONES = 40
STEPS = 24
"""A day, of an hour each."""
VALVES = ("off", "half", "full")
FIRST_DAY = date(2026, 3, 1)
LOST, LATE, TWICE, NO_SENSOR, EMPTY = 0.003, 0.004, 0.01, 0.01, 0.002
"""Shares of rows; the empty ones come on top."""


def steps_of(day: date) -> pl.DataFrame:
    """Every step of a day: what was seen, done and paid, and as `fate` what becomes of its row.

    Columns: zone, at, tin, tout, occupied, mode, eur_per_kwh, valve, p (probability of the valve), kwh, complaints,
    fate (sent, twice, late or lost), has_tout.
    """
    rng = np.random.default_rng(day.toordinal())
    weekend = day.weekday() >= 5
    tin, weather = rng.uniform(15, 21, ZONES), rng.normal(4, 3)
    rows = []
    for step in range(STEPS):
        hour = step
        tout = weather + 4 * np.sin((hour - 9) / 24 * 2 * np.pi) + rng.normal(0, 0.3, ZONES)
        occupied = np.full(ZONES, 8 <= hour < 18 and not weekend)
        p = _behaviour(tin)
        valve = (p.cumsum(axis=1) < rng.random((ZONES, 1))).sum(axis=1)
        kwh = np.round(valve * rng.uniform(0.9, 1.1, ZONES), 3)
        complaints = np.where(occupied, rng.poisson(np.clip(20 - tin, 0, None)), 0)
        rows.append(
            pl.DataFrame(
                {
                    "zone": [f"Z{number:02d}" for number in range(ZONES)],
                    "at": [datetime(day.year, day.month, day.day) + timedelta(hours=step)] * ZONES,
                    "tin": tin.round(2),
                    "tout": tout.round(2),
                    "occupied": occupied,
                    "mode": ["weekend" if weekend else "weekday"] * ZONES,
                    "eur_per_kwh": [_price(hour)] * ZONES,
                    "valve": [VALVES[each] for each in valve],
                    "p": p[np.arange(ZONES), valve].round(6),
                    "kwh": kwh,
                    "complaints": complaints,
                }
            )
        )
        tin = tin + 0.2 * (tout - tin) + 3 * kwh + rng.normal(0, 0.1, ZONES)
    steps = pl.concat(rows).sort("zone", "at")
    fate = rng.choice(["lost", "late", "twice", "sent"], len(steps), p=[LOST, LATE, TWICE, 1 - LOST - LATE - TWICE])
    fate[::STEPS] = "sent"  # the first of each zone
    follows_sent = np.concatenate([[False], np.isin(fate[:-1], ("sent", "twice"))]) & (np.arange(len(steps)) % STEPS > 0)
    silent = follows_sent & np.isin(fate, ("sent", "twice")) & (rng.random(len(steps)) < NO_SENSOR)
    return steps.with_columns(pl.Series("fate", fate), pl.Series("has_tout", ~silent))


def _behaviour(tin: np.ndarray) -> np.ndarray:
    """(zones, valves) probabilities: a thermostat that knows neither prices nor whether a room is in use."""
    wanted = np.clip((22 - tin) / 2, 0, 2)
    preference = np.exp(-1.2 * np.abs(wanted[:, None] - np.arange(3)))
    return np.asarray(preference / preference.sum(axis=1, keepdims=True))


def _price(hour: float) -> float:
    return 0.35 if 17 <= hour < 21 else 0.12 if hour < 6 else 0.22


def write_day(folder: Path, day: date, *, first: bool) -> None:
    """Write what arrives on a day: its own rows, and the late ones of the day before, unless it is the first."""
    steps = steps_of(day)
    arrive = [steps.filter(pl.col("fate").is_in(["sent", "twice"])), steps.filter(pl.col("fate") == "twice")]
    if not first:
        arrive.append(steps_of(day - timedelta(days=1)).filter(pl.col("fate") == "late"))
    rng = np.random.default_rng([day.toordinal(), 1])
    sent = pl.concat(arrive)
    sent = sent.select(
        "zone",
        pl.col("at").dt.strftime("%Y-%m-%dT%H:%M:%S"),
        pl.struct("tin", pl.when("has_tout").then("tout").alias("tout"), "occupied").alias("sensors"),
        "mode",
        "valve",
        "p",
    )
    empty = pl.DataFrame({name: [None] * _empty_rows(steps) for name in sent.columns}, schema=sent.schema)
    sent = pl.concat([sent, empty])
    (folder / str(day)).mkdir(parents=True, exist_ok=True)
    sent[rng.permutation(len(sent))].write_ndjson(folder / str(day) / "zones.ndjson")
    steps.select("zone", "at", "kwh", "complaints").sort("at", "zone").write_csv(
        folder / str(day) / "meters.csv", datetime_format="%Y-%m-%dT%H:%M:%S"
    )
    (folder / "prices").mkdir(exist_ok=True)
    prices = steps.filter(pl.col("zone") == "Z00").select("at", "eur_per_kwh")
    changes = prices.filter(pl.col("eur_per_kwh").ne_missing(pl.col("eur_per_kwh").shift()))
    changes.write_parquet(folder / "prices" / f"{day}.parquet")
    truth = folder.parent / "truth"
    truth.mkdir(exist_ok=True)
    steps.write_parquet(truth / f"{day}.parquet")


def _empty_rows(steps: pl.DataFrame) -> int:
    return round(len(steps) * EMPTY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=int, default=20)
    parser.add_argument("--first-day", type=date.fromisoformat, default=FIRST_DAY)
    given = parser.parse_args()
    for number in range(given.days):
        day = given.first_day + timedelta(days=number)
        write_day(given.folder, day, first=day == FIRST_DAY)


if __name__ == "__main__":
    main()
