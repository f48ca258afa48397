"""Runs killed by SIGKILL at random moments of their work: the next run makes the same, and nothing else is left.

    python -m benchmarks.kills [--kills 15] [--stages import,append,…] [--seed 0]

A run without a kill says what has to be there, and how long the work takes from the first change below the output. Then each
kill comes at a random moment of that time, and the same command is run to its end. Prints for each stage how many kills met the
work, and how many left other content or other files. Of these there must be none.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.data import write_foreign, write_recording
from benchmarks.figure import figure

OFFLINE = str(Path(sys.executable).with_name("offline"))
STEPS = 400_000
TRAINING = ["-s", "algorithm=bc", "-s", "optimizer.max_epochs=2", "-s", "evaluation.play=false", "-s", "compute.compile=false"]
DESCRIBING = (".md", ".html", ".png", ".verified", "metrics.jsonl")
"""Ends of names of what tells of a run, and when it ran."""
OF_TENSORBOARD = "events.out.tfevents."
"""Begins the names of logs, which have the time and the process."""
HASHED = (".safetensors", ".hdf5")


class Stage(NamedTuple):
    """A command that writes below `out`."""

    words: list[str]
    before: Sequence[list[str]] = ()
    """Commands that have to be done before."""


IMPORT = ["import", "foreign", "-o", "out"]
STAGES = {
    "import": Stage(IMPORT),
    "append": Stage([*IMPORT, "--append"], [["import", "foreign/first.parquet", "-o", "out", "--append"]]),
    "prune": Stage(["prune", "data", "out", "-s", "where=return > 0"]),
    "convert": Stage(["convert", "data", "out", "-s", "format=table"]),
    "compact": Stage(["compact", "data", "out", "-s", "files.max_bytes_per_file=4000000"]),
    "split": Stage(["split", "data", "out"]),
    "merge": Stage(["merge", "data", "small", "-o", "out"]),
    "export": Stage(["export", "data", "out", "-s", "format=d4rl"]),
    "train": Stage(["train", "small", "out", *TRAINING]),
    "promote": Stage(["promote", "out/registry/policy", "policy/best", "-s", "override=tried"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="offline-kills-") as root:
        sources = Path(root, "sources")
        make_sources(sources)
        for name in arguments.stages.split(","):
            killed(name, STAGES[name], sources, Path(root, name), arguments.kills, rng)


def make_sources(folder: Path) -> None:
    """A log in two files, datasets, and a policy."""
    write_recording(str(folder / "data"), STEPS, format="episodes", max_rows_per_file=500)
    write_recording(str(folder / "small"), STEPS // 10, format="episodes")
    write_recording(str(folder / "table"), STEPS, format="table", max_rows_per_file=STEPS // 2)
    write_foreign(sorted(map(str, (folder / "table").glob("*.parquet"))), str(folder / "foreign"), scrambled=True)
    first = min((folder / "foreign").glob("*.parquet"))
    first.rename(folder / "foreign" / "first.parquet")
    shutil.rmtree(folder / "table")
    done(["train", "small", "policy", *TRAINING], folder)


def killed(name: str, stage: Stage, sources: Path, work_folder: Path, kills: int, rng: random.Random) -> None:
    """Prints what became of the kills of one stage."""
    begun = work_folder / "begun"
    shutil.copytree(sources, begun)
    for words in stage.before:
        done(words, begun)
    shutil.copytree(begun, work_folder / "whole")
    worked_seconds = done(stage.words, work_folder / "whole")
    wanted = files(work_folder / "whole" / "out")
    met = other = left = 0
    for number in range(kills):
        folder = work_folder / str(number)
        shutil.copytree(begun, folder)
        met += kill(stage.words, folder, rng.uniform(0, worked_seconds))
        done(stage.words, folder)
        written = files(folder / "out")
        if more := sorted(written - wanted):
            left += 1
            print(f"{name}: left {more}", file=sys.stderr)
        if missing := sorted(wanted - written):
            other += 1
            print(f"{name}: lacks {missing}", file=sys.stderr)
        shutil.rmtree(folder)
    shutil.rmtree(work_folder)
    fields = {"kills": kills, "during_work": met, "work_seconds": round(worked_seconds, 2)}
    figure(f"kills.{name}.other_content", other, "kills", **fields)
    figure(f"kills.{name}.left_files", left, "kills", **fields)


def done(words: list[str], folder: Path) -> float:
    """Runs a command to its end; returns the seconds from its first change below `out`.

    Raises:
        CalledProcessError: it failed.
    """
    process, began = started(words, folder)
    output, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words, output)
    return time.monotonic() - began


def kill(words: list[str], folder: Path, after_seconds: float) -> bool:
    """Runs a command and kills it so long after its first change; whether it was still at work."""
    process, began = started(words, folder)
    time.sleep(max(0.0, began + after_seconds - time.monotonic()))
    is_at_work = process.poll() is None
    if is_at_work:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return is_at_work


def started(words: list[str], folder: Path) -> tuple[subprocess.Popen[bytes], float]:
    """(a command, when the first change below `out` was seen)."""
    before = entries(folder / "out")
    process = subprocess.Popen(
        [OFFLINE, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    while process.poll() is None and entries(folder / "out") == before:
        time.sleep(0.002)
    return process, time.monotonic()


def entries(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def files(folder: Path) -> set[str]:
    """The names of all files but those that tell of a run. Data files have their content in their names, others get it."""
    paths = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}" if name.suffix in HASHED else str(name)
        for name, path in paths.items()
        if not (name.name.endswith(DESCRIBING) or name.name.startswith(OF_TENSORBOARD))
    }


if __name__ == "__main__":
    main()
