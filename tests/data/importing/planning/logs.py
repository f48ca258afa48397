"""Messy logs, as companies have them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

MORNING = datetime(2026, 3, 1, 6)


def room(day: int, number: int, steps: int = 40) -> pl.DataFrame:
    """A day of a room: a step each ten minutes."""
    rng = np.random.default_rng([day, number])
    inside, valve = 20 + np.cumsum(rng.normal(0, 0.1, steps)), rng.integers(0, 3, steps)
    return pl.DataFrame(
        {
            "timestamp": [(MORNING + timedelta(days=day, minutes=10 * i)).isoformat() for i in range(steps)],
            "room": [f"r{number}"] * steps,
            "temp_in": inside.round(2),
            "temp_out": rng.normal(5, 1, steps).round(2),
            "valve": valve,
            "energy_kwh": (valve * 0.5 + 0.013).round(3),
            "reward": (-np.abs(inside - 21)).round(4),
        }
    )


ROOM_ROLES = {"obs": ["temp_in", "temp_out"], "actions": "valve"}
"""What no name says of them."""


def daily_folders(folder: Path, days: int = 5, rooms: int = 3) -> Path:
    """A folder a day with a CSV a room; the ids of rooms come again each day."""
    for day in range(days):
        place = folder / f"2026-03-{day + 1:02d}"
        place.mkdir(parents=True)
        for number in range(rooms):
            room(day, number).write_csv(place / f"room{number}.csv")
    return folder


def nested_ndjson(folder: Path, episodes: int = 6, steps: int = 20) -> Path:
    """Structs, and a field that is null everywhere."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for day in range(2):
        rows = [
            {
                "episodeId": f"{day}-{episode}",
                "step": t,
                "state": {"tin": round(20 + rng.normal(), 2), "tout": round(rng.normal(), 2)},
                "action": int(rng.integers(0, 2)),
                "reward": round(rng.normal(), 3),
                "done": t == steps - 1,
                "meta": {"site": "A", "operator": None},
            }
            for episode in range(episodes)
            for t in range(steps)
        ]
        (folder / f"day{day}.ndjson").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


def with_nulls(folder: Path) -> Path:
    """A CSV in which each tenth row lacks its observation, two rows are nothing at all, and most have no comment."""
    folder.mkdir(parents=True)
    rows = pl.concat([room(0, number) for number in range(3)]).with_row_index()
    rows = rows.with_columns(
        temp_in=pl.when(pl.col("index") % 10 == 9).then(None).otherwise("temp_in"),
        comment=pl.when(pl.col("index") % 7 == 0).then(pl.lit("checked")),
    )
    lines = rows.drop("index").rename({"temp_in": "obs_0", "temp_out": "obs_1", "valve": "action"}).write_csv().splitlines()
    (folder / "log.csv").write_text("\n".join([*lines[:50], ",,,,,,,", *lines[50:], ",,,,,,,"]) + "\n")
    return folder


def parquet_times(folder: Path) -> Path:
    """Days of one room in one file, with real timestamps and no id."""
    folder.mkdir(parents=True)
    rows = pl.concat([room(day, 0) for day in range(4)]).drop("room")
    rows.with_columns(pl.col("timestamp").str.to_datetime()).write_parquet(folder / "all.parquet")
    return folder


def epochs(folder: Path) -> Path:
    """Seconds since 1970 as the time, single letters as names."""
    folder.mkdir(parents=True)
    rng, n = np.random.default_rng(0), 200
    steps = {"traj": np.arange(n) // 20, "ts": 1_700_000_000 + np.arange(n) * 15, "s0": rng.normal(size=n)}
    steps |= {"s1": rng.normal(size=n), "a": rng.normal(size=n), "r": rng.normal(size=n)}
    pl.DataFrame(steps | {"terminal": (np.arange(n) % 20 == 19).astype(int)}).write_csv(folder / "x.csv")
    return folder


def file_an_episode(folder: Path) -> Path:
    """Nothing but the files tells episodes apart; steps are counted from 1."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(5):
        n = int(rng.integers(10, 20))
        steps = {
            "step": np.arange(1, n + 1),
            "obs": rng.normal(size=(n, 3)).tolist(),
            "action": rng.normal(size=(n, 2)).tolist(),
        }
        notes = pl.Series("note", [None] * (n - 1) + ["last"])
        rows = pl.DataFrame(steps | {"reward": rng.normal(size=n), "note": notes})
        rows.write_parquet(folder / f"{number}.parquet")
    return folder


def mixed_types(folder: Path) -> Path:
    """One file has whole numbers, where the others have real ones; ids begin at 0 in each file."""
    folder.mkdir(parents=True)
    for number in range(3):
        values = [t % 5 if number == 0 else t % 5 + 0.5 for t in range(20)]
        lines = [f"{t // 10},{t % 10},{values[t] + number},{t % 2},{t / 2},{int(t % 10 == 9)}" for t in range(20)]
        (folder / f"{number}.csv").write_text("\n".join(["episode,t,obs,act,rew,done", *lines]) + "\n")
    return folder


def unnamed(folder: Path) -> Path:
    """Names that say nothing."""
    folder.mkdir(parents=True)
    rng, n = np.random.default_rng(0), 300
    steps = {"c0": np.arange(n) // 30, "c1": np.arange(n) % 30, "c2": rng.normal(size=n), "c3": rng.normal(size=n)}
    pl.DataFrame(steps | {"c4": rng.integers(0, 2, n), "c6": np.arange(n) % 30 == 29}).write_csv(folder / "x.csv")
    return folder


def robot(folder: Path, names: dict[str, str] | None = None, files: int = 2, episodes: int = 20) -> Path:
    """A robot's Parquet files with a struct and lists, in which rows are missing and others are there twice.

    Arguments:
        names: other names of columns.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(files):
        rows = []
        for episode in range(number * episodes, (number + 1) * episodes):
            steps = int(rng.integers(20, 30))
            for t in range(steps):
                x, y, heading, v, w, reward = rng.normal(size=6).round(3).tolist()
                rows.append(
                    {
                        "episode_uuid": f"{episode * 7919 % 997:08x}",
                        "tick": t,
                        "robot": f"r{episode % 3}",
                        "pose": {"x": x, "y": y, "heading": heading},
                        "lidar": rng.normal(size=4).round(3).tolist(),
                        "v": v,
                        "w": w,
                        "reward": reward,
                        "success": bool(episode % 2) if t == steps - 1 else None,
                    }
                )
        frame = pl.DataFrame(rows).rename(names or {})
        inside = [row for row in range(1, len(rows) - 1) if rows[row]["tick"] > 2 and rows[row]["success"] is None]
        lost = rng.choice(inside, 2, replace=False)
        kept = np.setdiff1d(np.arange(len(rows)), lost)
        frame[np.sort(np.append(kept, rng.choice(kept, 4, replace=False)))].write_parquet(folder / f"{number}.parquet")
    return folder


def heating(file: Path, days: int = 6, steps: int = 24) -> Path:
    """A CSV of a heating: costs, of which three are not known, a sensor of what flows back, and few comments."""
    rng = np.random.default_rng(0)
    n = days * steps
    rows = {
        "building": np.repeat([f"b{day}" for day in range(days)], steps),
        "timestamp": [(MORNING + timedelta(hours=hour)).isoformat() for hour in range(n)],
        "outdoor_temp": rng.normal(5, 2, n).round(2),
        "return_temp": rng.normal(35, 2, n).round(2),
        "setpoint": rng.integers(18, 23, n),
        "energy_cost": [None if row in (5, 50, 100) else round(1 + row % 7 / 3, 3) for row in range(n)],
        "comment_code": [1.0 if row % 5 == 0 else None for row in range(n)],
    }
    pl.DataFrame(rows).write_csv(file)
    return file


def tickets(file: Path, rows: int = 40) -> Path:
    """Tickets and whom they were assigned to, with its probability, the customer in a struct, and no episode."""
    rng = np.random.default_rng(0)
    lines = []
    for number in range(rows):
        assigned = int(rng.integers(2))
        customer = {"segment": [None, "small", "large"][rng.integers(3)], "tenure_days": int(rng.integers(2_000))}
        ticket = {
            "ts": f"2026-03-01T08:{number:02d}:00Z",
            "ticket": f"T-{number:05d}",
            "customer": customer,
            "priority": ["low", "high"][rng.integers(2)],
            "queue": int(rng.integers(40)),
            "assigned_to": ["bot", "person"][assigned],
            "propensity": [0.7, 0.3][assigned],
            "cost": [0.1, 3.0][assigned],
            "csat": round(float(rng.uniform(1, 5)), 2),
        }
        lines.append(json.dumps(ticket))
    file.write_text("\n".join([*lines, ""]))
    return file
