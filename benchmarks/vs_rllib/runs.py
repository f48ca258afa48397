"""What was measured, a line a run, so that a benchmark that was broken off goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

SIDES = ("rllib", "our")
STAGES = ("expert", "record_episodes", "record_table", "convert", "bc", "marwil")
LEARNING = ("bc", "marwil")
"""Stages of which a further run, `<stage>_seen`, counts what is learned from."""
FILE = "runs.jsonl"

Outcome = Literal["finished", "limit", "error", "not_run"]


@dataclass(frozen=True)
class SideRun:
    """One side of one stage, once."""

    stage: str
    side: str
    round: int
    outcome: Outcome
    seconds: float = 0.0
    """From the start of the process to its end, or until it was ended at the limit."""
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of its imports, of Ray's start and of the stage itself, as far as the side can tell them apart."""
    load_before: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    """What the side says of itself."""
    counts: dict[str, float] = field(default_factory=dict)
    """What was found of it afterwards."""
    message: str = ""
    git: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.stage, self.side, self.round


def read(work: Path) -> list[SideRun]:
    """All that was measured in this folder; what could not be run is there again only if nothing came after it."""
    if not (file := work / FILE).exists():
        return []
    return latest(SideRun(**json.loads(line)) for line in file.read_text().splitlines())


def latest(runs: Iterable[SideRun]) -> list[SideRun]:
    """The last run of each key, in the order of the keys' first."""
    return list({run.key: run for run in runs}.values())


def append(work: Path, run: SideRun) -> None:
    with (work / FILE).open("a") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def source_of(stage: str, side: str, runs: Iterable[SideRun]) -> tuple[str | None, str]:
    """(the policy or data that a stage begins with, the name of what it is missing if there is none).

    Recorders play their own side's expert; everything after them reads what RLlib recorded, on both sides.
    """
    needed = {
        "expert": None,
        "record_episodes": ("expert", side, "policy"),
        "record_table": ("expert", side, "policy"),
        "convert": ("record_table", "rllib", "data"),
    }.get(stage, ("record_episodes", "rllib", "data"))
    if needed is None:
        return None, ""
    before, whose, fact = needed
    finished = [run for run in runs if (run.stage, run.side, run.outcome) == (before, whose, "finished")]
    return (finished[0].facts[fact], "") if finished else (None, f"{before} by {whose}")
