"""What a new day costs, beside importing all days again; and two nightly runs at once.

    python -m benchmarks.append [--steps 10000000] [--days 365]

Logs of a building, made up: a Parquet file a day, 200 steps an episode, a row a step (id, t, four observations, action, reward,
end). `append.ratio_to_full` is the time of an append of one more day over that of importing all files at once, in one process.
The last of those days lacks the second half of every tenth episode. `append.late_in_large_file_ratio_to_full` is of the day
that brings them: a large file of the first import is written again. `append.late_ratio_to_full` is of a day with such late rows
for the day before it, which was appended and lies in a file of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.figure import environment, figure, seconds
from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.importing.config import EpisodesConfig, ImportConfig
from offline_core.data.importing.importing import import_data

EPISODE_STEPS = 200
LATE_SHARE = 0.1
"""Of a day's episodes: their second half comes the next day."""
CONFIG = ImportConfig(append=True, episodes=EpisodesConfig(last_new_obs="repeat"))
NIGHTS = 2
"""Runs at once."""


def day_of_logs(number: int, steps: int) -> pa.Table:
    """A day's rows, whole episodes of it in order."""
    episodes = max(2, steps // EPISODE_STEPS)
    count, random = episodes * EPISODE_STEPS, np.random.default_rng(number)
    t = np.tile(np.arange(EPISODE_STEPS), episodes)
    names = pa.array([f"{number:05d}-{i:05d}" for i in range(episodes)])
    observations = random.normal(size=(count, 4)).astype(np.float32)
    return pa.table(
        {
            "eps_id": names.take(pa.array(np.repeat(np.arange(episodes), EPISODE_STEPS))),
            "t": t,
            "obs": pa.FixedSizeListArray.from_arrays(observations.reshape(-1), 4),
            "actions": random.integers(0, 4, count),
            "rewards": random.normal(size=count),
            "terminateds": t == EPISODE_STEPS - 1,
        }
    )


def with_late_rows(day: pa.Table) -> tuple[pa.Table, pa.Table]:
    """(the day without the second half of some episodes, these rows)."""
    number, t = np.arange(day.num_rows) // EPISODE_STEPS, day["t"].to_numpy()
    late = (number % round(1 / LATE_SHARE) == 0) & (t >= EPISODE_STEPS // 2)
    return day.filter(pa.array(~late)), day.filter(pa.array(late))


def write(folder: Path, number: int, day: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(day, folder / f"{number:05d}.parquet")


def run(source: str, output: str) -> None:
    import_data(CONFIG, source=source, output=output)


def append_day(logs: Path, data: str, number: int, day: pa.Table, *late: pa.Table) -> float:
    """Seconds of an append; all rows have to be in the dataset then."""
    write(logs, number, pa.concat_tables([*late, day]))
    before = open_dataset(data).statistics.steps
    took = seconds(run, str(logs), data)
    assert open_dataset(data).statistics.steps == before + day.num_rows + sum(rows.num_rows for rows in late)
    return took


def measure(root: Path, steps: int, days: int) -> None:
    per_day = steps // days
    logs, data = root / "logs", str(root / "data")
    last, late = with_late_rows(day_of_logs(days - 1, per_day))
    for number in range(days - 1):
        write(logs, number, day_of_logs(number, per_day))
    write(logs, days - 1, last)
    run(str(logs / "00000.parquet"), str(root / "warm"))
    full = seconds(run, str(logs), data)
    first = open_dataset(data)
    facts = {"steps": first.statistics.steps, "days": days, "files": len(first.manifest.files)}
    figure("append.full_seconds", full, "s", **facts, **environment("pyarrow", "polars"))

    added = append_day(logs, data, days, day_of_logs(days, per_day))
    figure("append.day_seconds", added, "s", steps=per_day)
    figure("append.ratio_to_full", added / full, "1", target=0.05)
    part, rest = with_late_rows(day_of_logs(days + 1, per_day))
    append_day(logs, data, days + 1, part)
    completed = append_day(logs, data, days + 2, day_of_logs(days + 2, per_day), rest)
    figure("append.late_ratio_to_full", completed / full, "1", late_steps=rest.num_rows)
    completed = append_day(logs, data, days + 3, day_of_logs(days + 3, per_day), late)
    figure("append.late_in_large_file_ratio_to_full", completed / full, "1", late_steps=late.num_rows)
    figure("append.nothing_new_ratio_to_full", seconds(run, str(logs), data) / full, "1")

    before = versions(data)
    write(logs, days + 4, day_of_logs(days + 4, per_day))
    held = open_dataset(data).statistics.steps
    runs = [multiprocessing.get_context("spawn").Process(target=run, args=(str(logs), data)) for _ in range(NIGHTS)]
    for process in runs:
        process.start()
    for process in runs:
        process.join()
    new = len(versions(data)) - len(before)
    lost = held + (per_day // EPISODE_STEPS) * EPISODE_STEPS - open_dataset(data).statistics.steps
    figure(
        "append.two_runs_at_once",
        new,
        "versions",
        failed=sum(bool(process.exitcode) for process in runs),
        lost_or_doubled_steps=lost,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=365)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="append-"))
    try:
        measure(root, arguments.steps, arguments.days)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
