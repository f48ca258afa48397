"""Record the datasets of the suite by our own stages, and export them to Minari for the other sides."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import offline_core as offline
from benchmarks.reference.suite import STEPS, TASKS
from offline_core.data.episodes import columns


def prepare(folder: Path, task: str, kind: str) -> tuple[offline.Dataset, str, Path]:
    """Return the dataset of a task, 16 hex digits of what its episodes hold, in order, and the same in Minari's format.

    The digits are not the dataset's fingerprint, which also tells the versions of the stages that made it. What exists is
    reused, and an expert whose training was interrupted goes on.

    Random is played by a policy with random weights, as D4RL's is.
    """
    data_folder = folder / "data" / task / kind
    if kind == "medium-replay":
        data = offline.compact(_medium(folder, task).recording, output=data_folder)
    else:
        data = offline.mix(policies=_shares(folder, task, kind), steps=STEPS, output=data_folder)
    content = "".join(data.index([columns.CONTENT])[columns.CONTENT])
    recording = hashlib.sha256(content.encode()).hexdigest()[:16]
    exported = folder / "minari" / task / f"{kind}-{recording}-v0"
    if not exported.exists():
        offline.export(data, output=exported.parent, format="minari", arguments={"dataset_id": exported.name})
    return data, recording, exported


def _shares(folder: Path, task: str, kind: str) -> dict[str, float]:
    if kind == "random":
        return {_trained(folder / "experts" / f"{task}-random", task, _UNTRAINED[TASKS[task].expert["algorithm"]]).best: 1.0}
    best = {"medium": lambda: _medium(folder, task).best, "expert": lambda: _trained(folder / "experts" / task, task, {}).best}
    parts = kind.split("-")
    return {best[part](): 1 / len(parts) for part in parts}


def _medium(folder: Path, task: str) -> Any:
    """A training that ends at medium, as D4RL's does, with all that it played."""
    settings = {"evaluation": {"target_return": TASKS[task].medium_return}, "recording": {"replay": True}}
    return _trained(folder / "experts" / f"{task}-medium", task, settings)


_UNTRAINED: dict[str, dict[str, Any]] = {
    "sac": {"total_steps": 100, "replay": {"learning_starts_steps": 1_000}},
    "ppo": {
        "total_steps": 128,
        "num_envs": 64,
        "rollout_steps": 2,
        "optimizer": {"learning_rate": 1e-8},
    },
}


def _trained(output: Path, task: str, settings: dict[str, Any]) -> Any:
    known = TASKS[task]
    return offline.train_expert(known.environment, output=output, seed=0, **(known.expert | settings))
