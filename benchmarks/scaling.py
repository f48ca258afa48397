"""How training scales: with the dataset, with prelearners and learners, over two Ray nodes; and a cost model of all that.

    python -m benchmarks.scaling [--max-steps 10000000] [--base-steps 1000000] [--repeats 2] [--minutes 12]
                                 [--report benchmarks/results/DATE-scaling]
    python -m benchmarks.scaling --from FILE.jsonl [--report …]      # model and report of runs that were measured before

Each run is `train_policy` with the default network, in a process of its own. Settings take turns, forwards and then backwards;
what does not fit into the minutes is named. The grid goes by the cores of this machine; run it on a quiet one.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.cost_model import Setting
from benchmarks.data import write_recording
from benchmarks.figure import environment, figure
from benchmarks.scaling_page import report
from benchmarks.scaling_processes import measured

SIZES = (100_000, 1_000_000, 10_000_000)
LARGE_BATCH = 8192
"""Beside the default one, to tell what a step costs from what an update costs."""
STREAM_TIMES = 3
"""As large is the dataset that more and more prelearners stream: their start is a smaller part of it."""
LEARNED_STEPS = 1_000_000
"""At least, by more epochs of small datasets; of streams, whose epochs each start a pool of actors, at most three."""
LIMIT_SECONDS = 240.0
SHORT_SECONDS = 60.0
"""That a run gets when the minutes are nearly over."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-steps", type=int, default=SIZES[-1], help="of the datasets, which are 0.1 M, 1 M and 10 M large")
    parser.add_argument("--base-steps", type=int, default=1_000_000, help="of the dataset, where something else is varied")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=12.0, help="for all runs; what does not fit is left out, and named")
    parser.add_argument("--limit-seconds", type=float, default=LIMIT_SECONDS, help="for a run; it is ended then, and named")
    parser.add_argument("--algorithm", default="bc")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="that this machine really gives us")
    parser.add_argument("--report", default=None, help="where to write .md, .jsonl and .png, without the ending")
    parser.add_argument("--from", dest="source", default=None, help="a .jsonl of earlier runs, in place of measuring")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    lines = read(arguments.source) if arguments.source else []
    for line in () if arguments.source else measure(arguments):
        figure(**line)
        lines.append(line)
    if arguments.report:
        report(lines, Path(arguments.report))


def read(path: str) -> list[dict[str, Any]]:
    """The measured lines of an earlier report; not what was derived from them."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [line for line in lines if line["name"] in ("scaling.machine", "scaling.stages", "scaling.run", "scaling.left_out")]


def grid(cores: int, *, sizes: Sequence[int], base: int) -> dict[Setting, list[str]]:
    """All settings, with the curves that each is a point of.

    Prelearners and learners by powers of two, up to the cores and, simulated by fractions of CPUs, twice as many.
    """
    curves: dict[Setting, list[str]] = {}

    def add(curve: str, steps: int = base, **settings: Any) -> None:
        epochs = max(1, LEARNED_STEPS // steps)
        if settings.get("streamed"):
            epochs = min(3, epochs)
        curves.setdefault(Setting(steps, epochs, cores=cores, **settings), []).append(curve)

    counts = [2**power for power in range(12) if 2**power <= 2 * cores]
    for steps in sizes:
        for streamed in (False, True):
            add("size", steps, prelearners=1, streamed=streamed)
    for prelearners in (0, *counts):
        add("prelearners", STREAM_TIMES * base, prelearners=prelearners, streamed=True)
    for prelearners in counts[1:]:
        add("loading", prelearners=prelearners)
    for learners in (0, *counts):
        add("learners", learners=learners)
    for learners in (0, 2):
        add("batch", learners=learners, batch_size=LARGE_BATCH)
    for nodes in (1, 2):
        add("nodes", prelearners=1, learners=2, streamed=True, nodes=nodes)
    return curves


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Lines as `figure` takes them: of the machine, of the stages, of each run, of what was left out."""
    cores, begin = arguments.cores, time.monotonic()
    yield {"name": "scaling.machine", "value": cores, "unit": "cores", **machine(), "algorithm": arguments.algorithm}
    sizes = [steps for steps in SIZES if steps <= arguments.max_steps]
    base = min(arguments.base_steps, arguments.max_steps)
    settings = grid(cores, sizes=sizes, base=base)
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
        for steps in sorted({setting.steps for setting in settings}):
            write_recording(f"{root}/{steps}", steps, format="episodes")
        spent: dict[Setting, float] = {}
        for repeat in range(arguments.repeats):
            yield from run_stages(f"{root}/{base}", arguments.limit_seconds)
            for setting in list(settings)[:: 1 if repeat % 2 == 0 else -1]:
                fields = {"curves": settings[setting], "repeat": repeat, "setting": asdict(setting)}
                left = arguments.minutes * 60 - (time.monotonic() - begin)
                if left < spent.get(setting, 0.0) or left <= 0:
                    yield {"name": "scaling.left_out", "value": 0, "unit": "s", "why": "no time left", **fields}
                    continue
                before = time.monotonic()
                job = {"dataset": f"{root}/{setting.steps}", "algorithm": arguments.algorithm, "setting": fields["setting"]}
                found, peak = in_process("train", job, min(arguments.limit_seconds, max(SHORT_SECONDS, left)))
                spent[setting] = time.monotonic() - before
                if found is None:
                    why = "it had not ended by then"
                    yield {"name": "scaling.left_out", "value": spent[setting], "unit": "s", "why": why, **fields}
                else:
                    yield {"name": "scaling.run", "value": found.pop("seconds"), "unit": "s", **found, **asdict(peak), **fields}


def run_stages(dataset: str, limit_seconds: float) -> Iterator[dict[str, Any]]:
    """What happens to a window of steps, each part by itself."""
    found, _ = in_process("stages", {"dataset": dataset}, limit_seconds)
    if found is None:
        why = "it had not ended by then"
        yield {"name": "scaling.left_out", "value": limit_seconds, "unit": "s", "why": why, "curves": ["stages"]}
    else:
        yield {"name": "scaling.stages", "value": found["read"] * 1e6, "unit": "s per million steps read", **found}


def in_process(kind: str, job: dict[str, Any], limit_seconds: float) -> tuple[dict[str, Any] | None, Any]:
    """What `benchmarks.scaling_run` found, and the memory that took."""
    command = [sys.executable, "-m", "benchmarks.scaling_run", kind, json.dumps(job)]
    output, peak = measured(command, limit_seconds=limit_seconds)
    return None if output is None else json.loads(output.splitlines()[-1]), peak


def machine() -> dict[str, Any]:
    """Where this is measured, and how busy it was before."""
    facts = environment("ray", "torch")
    command = " ".join(["python -m benchmarks.scaling", *sys.argv[1:]])
    return {**facts, "load_before": round(sum(os.getloadavg()[:2]) / 2, 2), "command": command}


if __name__ == "__main__":
    main()
