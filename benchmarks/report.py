"""What the home page of a root costs: of many episodes, of many small row groups, and of many runs.

    python -m benchmarks.report [--episodes 10000] [--runs 10000]

Episodes of 200 steps with four observations, made up. Runs are copies of one short training in folders of their own.
`report.open_seconds` is from the address to the drawn page in headless Chromium, by Playwright; left out without one.
`report.served_*` is of `offline report --serve`: until it tells its address, imports included; its memory then, and after so
many episodes were asked for; until the first page is drawn; and how long an episode takes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from gymnasium import spaces

from benchmarks.figure import environment, figure
from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode
from offline_core.keeping.homepage.config import ReportConfig
from offline_core.keeping.homepage.report import report
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train

STEPS = 200
EPISODES = 500
"""Episodes that are asked for from a server."""
BATCH = 100
"""Episodes that are written together."""
SPACES: dict[str, Any] = {
    "observation_space": spaces.Box(-np.inf, np.inf, (4,), np.float32),
    "action_space": spaces.Discrete(2),
}


def write_episodes(folder: Path, count: int, batch: int = BATCH) -> None:
    """A dataset of so many episodes."""
    random = np.random.default_rng(0)
    with EpisodeWriter(prepare_dataset(str(folder)), "part", format="episodes", config=FilesConfig()) as writer:
        for start in range(0, count, batch):
            writer.write([_episode(number, random) for number in range(start, min(count, start + batch))])
    made = Operation(name="made_up")
    commit(str(folder), writer.files, format="episodes", operation=made, statistics=Statistics.of(writer.summaries), **SPACES)


def _episode(number: int, random: np.random.Generator) -> Episode:
    return Episode(
        eps_id=f"{number:032x}",
        observations=random.normal(size=(STEPS + 1, 4)).astype(np.float32),
        actions=random.integers(0, 2, STEPS),
        rewards=random.normal(size=STEPS),
        terminated=True,
    )


def write_one_by_one(folder: Path, count: int) -> None:
    """Write the same episodes, with a row group for each."""
    write_episodes(folder, count, batch=1)


def write_runs(folder: Path, count: int) -> None:
    """Write so many copies of one training."""
    write_episodes(folder / "data", 50)
    train(TrainingConfig(algorithm="bc"), dataset=str(folder / "data"), output=str(folder / "runs/000000"))
    result = json.loads((folder / "runs/000000/result.json").read_text())["result"]
    for number in range(1, count):
        run = folder / f"runs/{number:06d}"
        run.mkdir()
        for name in ("best", "last"):
            if (folder / "runs/000000" / name).is_dir():
                shutil.copytree(folder / "runs/000000" / name, run / name)
        moved = {"place": str(run), "identity": "", "made": {}, "result": result}
        (run / "result.json").write_text(json.dumps(moved))


def opened(address: str) -> float | None:
    """Seconds until the page at an address is drawn."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        begin = time.perf_counter()
        tab.goto(address)
        tab.wait_for_selector("#main table, #main p")
        took = time.perf_counter() - begin
        browser.close()
    return took


def served(root: Path, count: int) -> Iterator[tuple[str, float, str]]:
    """Return (name, value, unit) of a server of the root."""
    command = [sys.executable, "-c", "from flows.cli import main; main()", "report", str(root), "--serve"]
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        yield "served_start_seconds", time.perf_counter() - begin, "s"
        memory = psutil.Process(process.pid).memory_info
        yield "served_start_bytes", memory().rss, "B"
        if (first := opened(address)) is not None:
            yield "served_first_page_seconds", first, "s"
        with httpx.Client() as client:
            client.get(address)
            value = f"{address.partition('?')[0]}value"
            [name, *_] = client.get(value, params={"of": '["datasets"]'}).json()["rows"]
            total = client.get(value, params={"of": json.dumps(["episodes", name])}).json()["total"]
            before, begin = memory().rss, time.perf_counter()
            for number in range(count):
                client.get(value, params={"of": json.dumps(["episode", name, number * total // count])}).raise_for_status()
            yield "served_episode_seconds", (time.perf_counter() - begin) / count, "s"
            yield "served_grown_bytes", memory().rss - before, "B"
        process.send_signal(signal.SIGINT)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=10_000)
    chosen = parser.parse_args()
    figure("report.environment", 1, "", **environment("polars", "pyarrow"))
    for what, count, write in (
        ("episodes", chosen.episodes, write_episodes),
        ("row_groups", chosen.episodes, write_one_by_one),
        ("runs", chosen.runs, write_runs),
    ):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            root = Path(folder).resolve() / "root"
            write(root if what == "runs" else root / "data", count)
            made = report(ReportConfig(), root=str(root))
            figure(f"report.{what}.seconds", made.seconds, "s", count=count)
            figure(f"report.{what}.bytes", made.bytes, "B", count=count)
            if (open_seconds := opened(f"file://{root}/report.html#experiments")) is not None:
                figure(f"report.{what}.open_seconds", open_seconds, "s", count=count)
            for name, value, unit in served(root, EPISODES):
                figure(f"report.{what}.{name}", value, unit, count=count)


if __name__ == "__main__":
    main()
