"""Runs one side of one stage in a process of its own, and looks at what it left."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

from benchmarks.vs_rllib.counting import converted, files_of, learned_from, on_disk, steps_of
from benchmarks.vs_rllib.runs import Outcome, SideRun
from benchmarks.vs_rllib.task import ASKED_EPISODES, RESULT, Task, command
from offline_core.runtime.provenance import provenance

LOG = "output.log"
LOG_LINES = 15
"""Of a process that failed, kept in the results."""
CHECK_LIMIT_SECONDS = 900.0
"""Of a process that is not timed."""


def measure(task: Task, side: str, number: int, *, limit_seconds: float) -> SideRun:
    """Runs the task, into an empty folder, and counts."""
    shutil.rmtree(task.output, ignore_errors=True)
    os.makedirs(task.output)
    load = os.getloadavg()[0]
    outcome, seconds = in_process(side, task, limit_seconds=limit_seconds)
    measured: dict[str, Any] = {"seconds": {}, "facts": {}}
    message = ""
    if outcome == "finished":
        measured = json.loads(Path(task.output, RESULT).read_text())
    if outcome == "error":
        message = "\n".join(Path(task.output, LOG).read_text(errors="replace").splitlines()[-LOG_LINES:])
    run = SideRun(
        stage=task.stage,
        side=side,
        round=number,
        outcome=outcome,
        seconds=seconds,
        parts=measured["seconds"],
        load_before=load,
        facts=measured["facts"],
        message=message,
        git=provenance().get("git", ""),
    )
    return run if outcome != "finished" else counted(run, task)


def counted(run: SideRun, task: Task) -> SideRun:
    """With what can be found of it; not counting is no reason to lose a measurement."""
    try:
        counts = counts_of(run, task)
    except Exception as error:
        return SideRun(**{**run.__dict__, "message": f"Not counted: {type(error).__name__}: {error}"})
    return SideRun(**{**run.__dict__, "counts": counts})


def counts_of(run: SideRun, task: Task) -> dict[str, float]:
    match task.stage:
        case "record_episodes" | "record_table":
            data = run.facts["data"]
            return {**on_disk(steps_of(data), asked=ASKED_EPISODES), **files_of(data)}
        case "convert":
            return {**converted(source_steps(str(task.source)), steps_of(run.facts["data"])), **files_of(run.facts["data"])}
        case "bc_seen" | "marwil_seen":
            with np.load(Path(task.output, "seen.npz")) as batches:
                return {"updates": run.facts["updates"], **learned_from(source_steps(str(task.source)), batches)}
    played = Task(stage="play", output=f"{task.output}/play", source=run.facts["policy"])
    os.makedirs(played.output)
    in_process(run.side, played, limit_seconds=CHECK_LIMIT_SECONDS)
    return {"return": json.loads(Path(played.output, RESULT).read_text())["facts"]["return"]}


@functools.lru_cache(maxsize=1)
def source_steps(folder: str) -> pl.DataFrame:
    return steps_of(folder)


def in_process(side: str, task: Task, *, limit_seconds: float) -> tuple[Outcome, float]:
    """(how it ended, wall seconds from the start of the process to its end)."""
    env = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {"RAY_USAGE_STATS_ENABLED": "0"}
    with open(Path(task.output, LOG), "w") as log:
        begin = time.perf_counter()
        process = subprocess.Popen(command(side, task), stdout=log, stderr=subprocess.STDOUT, env=env)
        try:
            code = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            end(process)
            return "limit", time.perf_counter() - begin
        except BaseException:
            end(process)
            raise
        return ("finished" if code == 0 else "error"), time.perf_counter() - begin


def end(process: subprocess.Popen[Any]) -> None:
    """The process and all that it started."""
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=30)
    process.wait()
