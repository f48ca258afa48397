"""What `offline outliers` advises for six small logs, beside an alternative: what their policies return in the same worlds.

    python -m benchmarks.advice --output runs/benchmark

Each log is written anew, its advice is carried out by the commands that it prints, and so is what it names second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np

import offline_core as offline
from benchmarks.decisions.simulators import Array, Inventory, Queue, World, play
from benchmarks.outliers import write
from offline_core.data.episodes import Episode
from offline_core.judging.ranking import trainings
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.policy import Policy

Act = Callable[[Array, np.random.Generator], Array]
PLAYED = 400
"""Episodes, greedy, of each policy."""


@dataclass
class Corridor:
    """A walk in a square of which one corner pays 1, once, and ends the episode: a list of actions, sparse rewards."""

    observation_space: ClassVar[gym.Space[Any]] = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space: ClassVar[gym.Space[Any]] = gym.spaces.Discrete(4)
    steps: ClassVar[int] = 60
    gamma: ClassVar[float] = 0.97

    def reset(self, episodes: int, rng: np.random.Generator) -> Array:
        self.at = rng.uniform(-1, 0, (episodes, 2))
        return self.at.astype(np.float32)

    def step(self, actions: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        moves = 0.12 * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])[actions] + 0.03 * rng.normal(size=(len(actions), 2))
        self.at = np.clip(self.at + moves, -1, 1)
        there = (self.at > 0.7).all(axis=1)
        return self.at.astype(np.float32), there.astype(float), there


@dataclass
class Tank:
    """A level that is held by a flow in litres an hour, which has no bound, seen in millimetres: rewards in thousands."""

    observation_space: ClassVar[gym.Space[Any]] = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: ClassVar[gym.Space[Any]] = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    steps: ClassVar[int] = 40
    gamma: ClassVar[float] = 0.97

    def reset(self, episodes: int, rng: np.random.Generator) -> Array:
        self.level, self.drain = 60 * rng.normal(size=episodes), rng.choice([-8.0, 8.0], episodes)
        return self._seen()

    def step(self, actions: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        self.level = np.clip(self.level + actions[:, 0] / 50 + self.drain + 2 * rng.normal(size=len(actions)), -300, 300)
        return self._seen(), -(self.level**2) - 1e-4 * actions[:, 0] ** 2, np.zeros(len(actions), bool)

    def _seen(self) -> Array:
        return np.stack([self.level, self.drain], axis=1).astype(np.float32)


class Chosen(NamedTuple):
    actions: Array
    extras: dict[str, Array]


@dataclass(frozen=True)
class Scripted:
    """What acts by a rule, as `play` asks a policy."""

    act: Act
    seed: int

    def choose(self, seen: Array, *, explore: bool, generator: object) -> Chosen:
        rng = np.random.default_rng([self.seed, int(abs(float(seen.sum())) * 1e6) % 2**31])
        return Chosen(self.act(seen, rng), {"action_logp": np.zeros(len(seen), np.float32)})


def expert_queue(seed: int) -> list[Episode]:
    world = Queue()
    return play(world, world.controller(np.random.default_rng(seed), 0.0), 300, seed=seed, explore=False, logp=False)


def medium_queue(seed: int) -> list[Episode]:
    world = Queue()
    return play(world, world.controller(np.random.default_rng(seed), 0.6), 300, seed=seed, logp=False)


def mixed_inventory(seed: int) -> list[Episode]:
    world = Inventory()
    policies = [
        world.controller(np.random.default_rng(seed + number), distance) for number, distance in enumerate((0, 0.4, 1, 1))
    ]
    return [
        episode
        for number, policy in enumerate(policies)
        for episode in play(world, policy, 100, seed=seed + number, logp=False)
    ]


def random_inventory(seed: int) -> list[Episode]:
    return scripted(Inventory(), lambda seen, rng: rng.uniform(0, 20, (len(seen), 1)).astype(np.float32), 400, seed)


def sparse_corridor(seed: int) -> list[Episode]:
    """Drifts to where it pays in some of the steps."""
    drift = np.array([0.32, 0.32, 0.18, 0.18])
    return scripted(Corridor(), lambda seen, rng: rng.choice(4, len(seen), p=drift), 300, seed)


def unbounded_tank(seed: int) -> list[Episode]:
    """Three gains, of which one is good, with noise."""

    def act(gain: float) -> Act:
        return lambda seen, rng: (-gain * seen[:, :1] + 300 * rng.normal(size=(len(seen), 1))).astype(np.float32)

    return [episode for number, gain in enumerate((0.5, 5, 30)) for episode in scripted(Tank(), act(gain), 120, seed + number)]


def scripted(world: World, act: Act, episodes: int, seed: int) -> list[Episode]:
    policy: Any = Scripted(act, seed)
    return play(world, policy, episodes, seed=seed, logp=False)


LOGS: dict[str, tuple[type[World], Callable[[int], list[Episode]]]] = {
    "queue-expert": (Queue, expert_queue),
    "queue-discrete": (Queue, medium_queue),
    "inventory-mixed": (Inventory, mixed_inventory),
    "inventory-random": (Inventory, random_inventory),
    "corridor-sparse": (Corridor, sparse_corridor),
    "tank-unbounded": (Tank, unbounded_tank),
}
"""By name: the world, and what writes episodes of it from a seed."""


def returned(world: World, checkpoint: str) -> tuple[float, float]:
    """Mean return of a policy that plays greedily, and its standard error."""
    policy: Policy = load_policy(checkpoint)
    totals = np.array([episode.rewards.sum() for episode in play(world, policy, PLAYED, seed=2**30, explore=False)])
    return float(totals.mean()), float(totals.std() / len(totals) ** 0.5)


def carried_out(commands: list[str]) -> str:
    """Run commands as they are printed; the policy that the last one made."""
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "offline"
        subprocess.run([f"{os.path.dirname(sys.executable)}/offline", *words[1:]], check=True, stdout=subprocess.DEVNULL)
    return f"{words[3]}/best"


def measure(name: str, output: Path, seed: int) -> dict[str, Any]:
    """Return the advice for one log, and the returns of its first and second choice next to that of the log."""
    world, episodes_of = LOGS[name]
    episodes = episodes_of(seed)
    with working_in(output / name):
        write(Path("runs/log"), episodes)
        advice = offline.outliers("runs/log", output="runs/outliers").advice
        measured: dict[str, Any] = {
            "log": name,
            "recorded": float(np.mean([episode.rewards.sum() for episode in episodes])),
            "kind": advice.kind,
            "confidence": advice.confidence,
        }
        for rank, training in (("first", advice.first), ("second", advice.second)):
            begin = time.perf_counter()
            checkpoint = carried_out(training.commands)
            measured[rank] = training.what, *returned(world(), checkpoint), round(time.perf_counter() - begin)
            measured[f"{rank}_commands"] = training.commands
        return measured


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """The commands name folders relative to the current one."""
    folder.mkdir(parents=True, exist_ok=True)
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", default=[*LOGS])
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks/advice"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--updates", type=int, default=trainings.UPDATES, help="Of what learns values, in place of the advised."
    )
    arguments = parser.parse_args()
    trainings.UPDATES = arguments.updates
    for name in arguments.logs:
        print(json.dumps(measure(name, arguments.output, arguments.seed), indent=1), flush=True)


if __name__ == "__main__":
    main()
