"""What Prefect adds to the core: its own seconds and requests, the reuse of a finished chain, a queue of runs on one pool.

    python -m benchmarks.orchestration [--runs 50] [--repeats 3] [--database sqlite]

The chain is expert-to-policy, small, in processes of its own: core alone, with a temporary server, with a server that is
up, one after the other, `repeats` times. Run on a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from benchmarks.figure import figure, seconds
from tests.e2e.orchestra import FINAL, POOL, REPOSITORY, Orchestra, checkout, wait_until
from tests.e2e.postgres import postgres

CHAIN = {
    "expert": {"total_steps": 20_000, "evaluation": {"target_return": 60, "episodes": 5}},
    "recording": {"episodes": 40},
    "pruning": {"keep_top_fraction": 0.5},
    "training": {"optimizer": {"max_epochs": 2}, "evaluation": {"episodes": 5}},
    "evaluation": {"episodes": 5},
}
CORE = """
import sys, yaml
from offline_core.runtime.config import parse
from offline_core.policies.evaluation import EvaluationConfig
from offline_core.policies.evaluation import evaluate
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train
from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.quality.check import check
from offline_core.data.quality.config import QualityConfig
from offline_core.runtime.ray_session import ray_scope
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.record import record

root, values = sys.argv[1], yaml.safe_load(open(sys.argv[2]))
with ray_scope():
    expert = train_expert(parse(ExpertConfig, values["expert"]), output=f"{root}/expert")
    recording = parse(RecordingConfig, values["recording"])
    recorded = record(recording, policy=expert.checkpoint, output=f"{root}/recording").dataset
    pruned = prune(parse(PruningConfig, values["pruning"]), dataset=recorded.uri, output=f"{root}/pruned").dataset
    check(QualityConfig(), dataset=pruned.uri)
    trained = train(parse(TrainingConfig, values["training"]), dataset=pruned.uri, output=f"{root}/policy")
    evaluate(parse(EvaluationConfig, values["evaluation"]), policy=trained.checkpoint)
"""
RUNS_AT_ONCE = 2
"""Runs at once that the pool allows, in the queue."""
EVENTS_SECONDS = 10.0
"""After which the server has stored the events that it was sent."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="runs in the queue")
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres", help="of the server with the queue")
    parser.add_argument("--repeats", type=int, default=3, help="of each way to run the chain")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as folder:
        work_folder = Path(folder)
        (work_folder / "chain.yaml").write_text(yaml.safe_dump(CHAIN))
        with Orchestra.with_server(home=work_folder / "server", root=checkout(work_folder / "checkout")) as orchestra:
            chain(work_folder, orchestra, repeats=arguments.repeats)
        requests(work_folder)
        with contextlib.ExitStack() as stack:
            database = stack.enter_context(postgres()) if arguments.database == "postgres" else None
            settings = {} if database is None else {"PREFECT_API_DATABASE_CONNECTION_URL": database}
            queued = Orchestra.started(
                home=work_folder / "queue",
                root=checkout(work_folder / "queued"),
                deployments=["expert-to-policy-smoke", "evaluate-policy-smoke"],
                **settings,
            )
            queue(stack.enter_context(queued), runs=arguments.runs, database=arguments.database)


def chain(work_folder: Path, orchestra: Orchestra, *, repeats: int) -> None:
    """Prefect's share of a run, and how fast a run is that finds everything made."""
    own = {"PREFECT_HOME": str(work_folder / "temporary")}
    up = {"PREFECT_API_URL": orchestra.api_url, "PREFECT_HOME": str(work_folder / "temporary")}
    settings = str(work_folder / "chain.yaml")
    first = seconds(_offline, str(work_folder / "first"), settings, own)
    took: dict[str, list[float]] = {"core": [], "temporary": [], "server": [], "reuse": [], "reuse temporary": []}
    for i in range(repeats):
        took["core"].append(seconds(_run, [sys.executable, "-c", CORE, str(work_folder / f"core-{i}"), settings], {}))
        took["temporary"].append(seconds(_offline, str(work_folder / f"temporary-{i}"), settings, own))
        took["server"].append(seconds(_offline, str(work_folder / f"server-{i}"), settings, up))
        took["reuse"].append(seconds(_offline, str(work_folder / f"server-{i}"), settings, up))
        took["reuse temporary"].append(seconds(_offline, str(work_folder / f"temporary-{i}"), settings, own))
    medians = {name: statistics.median(values) for name, values in took.items()}
    figure("core.seconds", medians["core"], "s")
    figure(
        "overhead.temporary.seconds",
        medians["temporary"] - medians["core"],
        "s",
        first_run_ever=round(first - medians["core"], 1),
    )
    figure("overhead.server.seconds", medians["server"] - medians["core"], "s")
    figure("reuse.seconds", medians["reuse"], "s", temporary=round(medians["reuse temporary"], 1))


def requests(work_folder: Path) -> None:
    """What one chain asks of the server, by kind, and the events that come of it: each of them is a write to its database."""
    home = work_folder / "counted"
    with Orchestra.with_server(home=home, root=work_folder / "checkout", PREFECT_SERVER_LOGGING_LEVEL="INFO") as orchestra:
        before = len((home / "server.log").read_text())
        up = {"PREFECT_API_URL": orchestra.api_url, "PREFECT_HOME": str(work_folder / "temporary")}
        _offline(str(work_folder / "counted-runs"), str(work_folder / "chain.yaml"), up)
        time.sleep(EVENTS_SECONDS)
        events = orchestra.ask("POST", "/events/filter", {"filter": {}})["total"]
        asked = re.findall(r'"([A-Z]+) /api/([a-z_]+)\S* HTTP', (home / "server.log").read_text()[before:])
    kinds = Counter(kind for method, kind in asked if method != "GET")
    figure("requests.per_run", len(asked), "requests", reads=len(asked) - kinds.total(), **kinds, events_stored=events)


def queue(orchestra: Orchestra, *, runs: int, database: str) -> None:
    """Many runs submitted at once to one pool: how many come to a good end, in what time, and what the database refused."""
    root = str(orchestra.root / "runs")
    orchestra.wait_for(orchestra.submit("expert-to-policy/expert-to-policy-smoke", {"root": root}), "COMPLETED")
    start = time.perf_counter()
    orchestra.prefect("work-pool", "set-concurrency-limit", POOL, str(RUNS_AT_ONCE))
    parameters = {"policy": f"{root}/policy/best"}

    def submit(seed: int) -> str:
        return orchestra.submit("evaluate-policy/evaluate-policy-smoke", parameters | {"config": {"episodes": 5, "seed": seed}})

    with ThreadPoolExecutor(runs) as people:
        names = [*people.map(submit, range(runs))]
    submitted = time.perf_counter() - start

    def ended() -> Counter[str] | None:
        states = Counter(orchestra.flow_run(name)["state_type"] for name in names)
        return states if states.keys() <= set(FINAL) else None

    states = wait_until(ended, seconds=60.0 * runs, what="the queue")
    took = time.perf_counter() - start
    figure(
        "queue.completed",
        states["COMPLETED"],
        "runs",
        database=database,
        submitted=runs,
        submitting_seconds=round(submitted, 1),
        seconds=round(took, 1),
        states=dict(states),
    )
    figure(
        "queue.lock_errors",
        (orchestra.home / "server.log").read_text().count("database is locked"),
        "errors",
        database=database,
    )


def _offline(root: str, settings: str, variables: dict[str, str]) -> None:
    _run([sys.executable, "-c", "from flows.cli import main; main()", "expert-to-policy", root, "-c", settings], variables)


def _run(command: list[str], variables: dict[str, str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")} | variables
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    main()
