"""What one process of either side does, and how it tells the time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ENVIRONMENT = "CartPole-v1"
ASKED_EPISODES = 500
BATCH_STEPS = 1024
HIDDEN_SIZES = (256, 256)
"""Layers of the clones, with tanh: RLlib's default, and ours in this benchmark."""
LEARNING_RATE = 1e-4
"""Learning rate of the clones: RLlib's default, and ours in this benchmark."""
COUNTED_UPDATES = 60
"""Updates of a run that only counts which steps are learned from."""
COUNTED_SECONDS = 120.0
"""After which such a run ends with the updates it has made."""
PLAYED_EPISODES = 100
RESULT = "result.json"


@dataclass(frozen=True)
class Task:
    """One stage of one side."""

    stage: str
    output: str
    """Folder of this run alone."""
    source: str | None = None
    """The policy to play, or the data to read."""
    target_return: float = 450.0
    seed: int = 0
    """Seed of our side; the document sets none for RLlib."""


@dataclass
class Clock:
    """Seconds of the parts of a process."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[part] = time.perf_counter() - begin


Stages = Mapping[str, Callable[[Task, Clock], dict[str, Any]]]
"""What each stage does; gives what there is to tell of it."""


def run(stages: Stages) -> None:
    """Does the task on the command line and leaves seconds and facts in its folder."""
    task, clock = Task(**json.loads(sys.argv[1])), Clock()
    facts = stages[task.stage](task, clock)
    Path(task.output, RESULT).write_text(json.dumps({"seconds": clock.seconds, "facts": facts}))


def command(side: str, task: Task) -> list[str]:
    """Starts a process that does the task."""
    return [sys.executable, "-m", f"benchmarks.vs_rllib.{side}_side", json.dumps(asdict(task))]


def play(act: Callable[[Any], Any], *, target: int = PLAYED_EPISODES) -> dict[str, Any]:
    """Mean return of the policy over episodes with seeds that no training has seen, one environment each, by neither system.

    Arguments:
        act: (B, 4) float32 observations to (B,) actions, the most likely ones.
    """
    import gymnasium as gym
    import numpy as np

    envs = [gym.make(ENVIRONMENT) for _ in range(target)]
    observations = [env.reset(seed=1_000_000 + number)[0] for number, env in enumerate(envs)]
    returns, playing = np.zeros(target), list(range(target))
    while playing:
        actions, still = act(np.stack([observations[number] for number in playing])), []
        for number, action in zip(playing, actions, strict=True):
            observations[number], reward, terminated, truncated, _ = envs[number].step(int(action))
            returns[number] += float(reward)
            if not (terminated or truncated):
                still.append(number)
        playing = still
    return {"return": float(returns.mean()), "episodes": target}
