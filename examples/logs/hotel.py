"""Write the pricing log of a hotel: a row an hour and kind of room, with what goes wrong in such logs.

    python -m examples.logs.hotel logs --days 10

    logs/pricing.csv      timestamp, room, occupancy, price, revenue
    truth/pricing.parquet every step as it was, and what became of its row (sent, twice, late or silent)

Some rows say no occupancy (silent), some are sent twice, and one comes at the end of the file, long after its time.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

ROOMS = ("single", "double", "suite")
PRICES = {"single": (79.0, 89.0, 99.0), "double": (119.0, 139.0, 159.0), "suite": (219.0, 259.0, 299.0)}
FIRST = datetime(2026, 5, 1)
STEPS_A_DAY = 24
SILENT, TWICE = 0.01, 0.02
"""Shares of the rows."""


def steps_of(days: int, seed: int = 0) -> pl.DataFrame:
    """Every step, in the order of time: the columns of the log, and as `fate` what becomes of its row."""
    rng, rows = np.random.default_rng(seed), []
    occupancy = dict.fromkeys(ROOMS, 0.5)
    for hour in range(days * STEPS_A_DAY):
        for room in ROOMS:
            price = float(rng.choice(PRICES[room]))
            sold = rng.binomial(6, 0.9 - 0.5 * PRICES[room].index(price) / 2 - 0.3 * occupancy[room])
            at = FIRST + timedelta(hours=hour)
            rows.append((at, room, round(occupancy[room], 3), price, round(sold * price, 2)))
            occupancy[room] = float(np.clip(occupancy[room] + 0.03 * sold - 0.07, 0, 1))
    steps = pl.DataFrame(rows, ["timestamp", "room", "occupancy", "price", "revenue"], orient="row")
    fate = rng.choice(["silent", "twice", "sent"], len(steps), p=[SILENT, TWICE, 1 - SILENT - TWICE])
    fate[len(steps) // 3] = "late"
    return steps.with_columns(pl.Series("fate", fate))


def write(folder: Path, days: int, seed: int = 0) -> None:
    """Write the log to a folder, and the truth beside it."""
    truth = folder.parent / "truth"
    for each in (folder, truth):
        each.mkdir(parents=True, exist_ok=True)
    steps = steps_of(days, seed)
    steps.write_parquet(truth / "pricing.parquet")
    is_late = pl.col("fate") == "late"
    lying = pl.concat([steps.filter(~is_late), steps.filter(is_late)])
    lying = lying[np.repeat(np.arange(len(lying)), 1 + (lying["fate"] == "twice").to_numpy())]
    occupancy = pl.when(pl.col("fate") != "silent").then("occupancy")
    lying.with_columns(occupancy).drop("fate").write_csv(folder / "pricing.csv")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write(given.folder, given.days, given.seed)


if __name__ == "__main__":
    main()
