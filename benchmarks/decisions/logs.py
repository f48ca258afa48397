"""The logs of the benchmark: each a behaviour, a number of episodes, and eight candidates whose values are known."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.decisions.simulators import PLAYED, WORLDS, World, play, value_of
from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.statistics import Statistics, Summary
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes.codecs import Format
from offline_core.data.episodes.episode import return_of
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy

STEPS_TOWARDS = (-0.4, -0.15, 0.0, 0.1, 0.25, 0.4, 0.6, 0.9)
"""How far candidates are on the way from the behaviour to a nearly best controller; below 0 they are worse than it."""
EPISODES = (30, 100, 300, 1_000, 3_000)
DISTANCES = {"random": 0.95, "medium": 0.6}
STEPS_AT_A_TIME = 20_000


@dataclass(frozen=True)
class Log:
    """One log of the benchmark."""

    world: str
    episodes: int
    behaviour: str
    """random, medium or near (of the best controller); greedy: medium without exploration; apart: candidates far from it."""
    known: bool
    """The probabilities of its actions are recorded."""
    seed: int

    @property
    def name(self) -> str:
        return f"{self.world}-{self.episodes}-{self.behaviour}-{'known' if self.known else 'unknown'}-{self.seed}"

    @property
    def must_be_refused(self) -> bool:
        """Nothing about other actions can be told from it."""
        return self.behaviour in ("greedy", "apart")


def all_logs(first_seed: int = 0) -> list[Log]:
    """Sixty logs that can be judged, if they are long enough, and twelve that must be refused."""
    numbers = itertools.count(first_seed)
    sound = [
        Log(world, episodes, behaviour, known, next(numbers))
        for episodes in EPISODES
        for world in PLAYED
        for behaviour, known in (("random", True), ("medium", False), ("near", True), ("medium", True))
    ]
    unsound = [
        Log(world, episodes, behaviour, known, next(numbers))
        for world in PLAYED
        for episodes, behaviour, known in (
            (300, "greedy", True),
            (1_000, "greedy", False),
            (300, "apart", True),
            (1_000, "apart", True),
        )
    ]
    return [*sound, *unsound]


@dataclass(frozen=True)
class Made:
    """A log on disk, and what is true of it."""

    data: str
    candidates: list[str]
    values: list[float]
    """Of the candidates."""
    behaviour_value: float


def make(log: Log, folder: Path) -> Made:
    """Play and write a log, its candidates, and their true values; what is there is not made again."""
    log_folder = folder / "logs" / log.name
    done = log_folder / "truth.json"
    if done.exists():
        return Made(**json.loads(done.read_text()))
    world = WORLDS[log.world]()
    rng = np.random.default_rng(log.seed)
    start, goal = behaviour_and_goal(log, world, rng)
    if log.behaviour == "apart":
        start, goal = apart(start), apart(goal, sign=-1.0)
    policies = [between(start, goal, share + (0.03 * rng.normal() if share else 0.0)) for share in STEPS_TOWARDS]
    if log.behaviour == "apart":
        policies = policies[-1:] * 1 + [between(start, goal, share) for share in np.linspace(0.7, 1, 7)]
    order = rng.permutation(len(policies))
    policies = [policies[number] for number in order]
    candidates = []
    for number, policy in enumerate(policies):
        candidates.append(str(log_folder / f"candidate-{number}"))
        save_policy(policy, candidates[-1], operation=Operation(name="benchmark"))
    write(world, start, log, log_folder / "data")
    values = [value_of(world, policy) for policy in policies]
    explored = value_of(world, start) if log.behaviour != "greedy" else greedy_value(world, start)
    made = Made(str(log_folder / "data"), candidates, values, explored)
    done.write_text(json.dumps(asdict(made)))
    return made


def behaviour_and_goal(log: Log, world: World, rng: np.random.Generator) -> tuple[Policy, Policy]:
    """What records the log, and a nearly best controller."""
    goal = world.controller(rng, 0.0)
    start = world.controller(rng, DISTANCES.get(log.behaviour, 0.6))
    if log.behaviour == "near":
        start = between(world.controller(rng, 0.6), goal, 0.7)
    return start, goal


def between(start: Policy, goal: Policy, share: float) -> Policy:
    """A policy on the way from one to the other, by its weights."""
    policy = copy.deepcopy(start)
    with torch.no_grad():
        for own, other in zip(policy.parameters(), goal.parameters(), strict=True):
            own.lerp_(other, share)
    return policy


def apart(policy: Policy, *, sign: float = 1.0) -> Policy:
    """A policy that nearly always takes its first action, or with the other sign its last one; or orders nothing, or all."""
    shifted = copy.deepcopy(policy)
    layer = getattr(shifted.head, "logits", None) or shifted.head.mean  # type: ignore[attr-defined]
    with torch.no_grad():
        layer.weight.mul_(0.1)
        layer.bias.copy_(torch.linspace(4.0, -4.0, len(layer.bias)) * sign if len(layer.bias) > 1 else torch.tensor([sign]))
        if hasattr(shifted.head, "log_std"):
            shifted.head.log_std.fill_(-2.0)
    return shifted


def write(world: World, policy: Policy, log: Log, data_folder: Path) -> None:
    """The episodes of the log as a dataset."""
    returns, lengths, ended = [], [], 0
    at_once = STEPS_AT_A_TIME // 40 if world.steps > 1 else STEPS_AT_A_TIME
    format: Format = "episodes" if world.steps > 1 else "table"
    with EpisodeWriter(prepare_dataset(str(data_folder)), "part", format=format) as writer:
        for begin in range(0, log.episodes, at_once):
            number = min(at_once, log.episodes - begin)
            explore = log.behaviour != "greedy"
            episodes = play(world, policy, number, seed=1_000 * log.seed + begin + 7, explore=explore, logp=log.known)
            writer.write(episodes)
            returns += [return_of(episode.get_rewards()) for episode in episodes]
            lengths += [len(episode) for episode in episodes]
            ended += sum(episode.terminated for episode in episodes)
    statistics = Statistics(
        episodes=log.episodes,
        steps=sum(lengths),
        terminated=ended,
        truncated=log.episodes - ended,
        returns=Summary.of(np.array(returns)),
        lengths=Summary.of(np.array(lengths)),
    )
    spaces = {"observation_space": world.observation_space, "action_space": world.action_space}
    operation = Operation(name="benchmark", config={"log": log.name})
    commit(str(data_folder), writer.files, format=format, operation=operation, statistics=statistics, **spaces)


def greedy_value(world: World, policy: Policy) -> float:
    """Mean discounted return without exploration."""
    episodes = play(world, policy, 2_000, seed=2**29, explore=False)
    return float(np.mean([sum(world.gamma**t * r for t, r in enumerate(episode.get_rewards())) for episode in episodes]))
