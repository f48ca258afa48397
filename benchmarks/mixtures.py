"""Datasets of which it is known what is in them, for measuring what is learned from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.trainer_config import EvaluationsConfig
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.policy import Policy
from offline_core.policies.recording.player import EpisodesToPlay, play
from offline_core.runtime.config import EnvironmentSpec

CARTPOLE = EnvironmentSpec(id="CartPole-v1")
HIDDEN = EnvironmentSpec(id="benchmarks.hidden:HiddenCartPole-v1")


def expert(folder: Path, seed: int, *, target_return: float | None = None) -> Policy:
    """A policy for CartPole that PPO trained until it was as good as that."""
    config = ExpertConfig(seed=seed, evaluation=EvaluationsConfig(target_return=target_return), rollouts_per_iteration=1)
    return load_policy(train_expert(config, output=str(folder)).checkpoint)


def adversary(policy: Policy) -> Policy:
    """Prefers the action that `policy` would not take."""
    other = load_state(policy)
    with torch.no_grad():
        other.head.logits.weight.neg_()
        other.head.logits.bias.neg_()
    return other


def at_random(policy: Policy) -> Policy:
    """Takes each action as often."""
    other = load_state(policy)
    torch.nn.init.zeros_(other.head.logits.weight)
    torch.nn.init.zeros_(other.head.logits.bias)
    return other


def load_state(policy: Policy) -> Policy:
    copy = Policy(policy.observation_space, policy.action_space, policy.network, value_function=policy.value_function)
    copy.load_state_dict(policy.state_dict())
    return copy.eval()


def played(
    policy: Policy, steps: int, *, seed: int, name: str, environment: EnvironmentSpec = CARTPOLE, explore: bool = True
) -> Iterator[Episode]:
    """Whole episodes of at least so many steps."""
    done = 0
    for round_ in range(1000):
        assignment = EpisodesToPlay(round=round_, recorder=0, episodes=32)
        for episodes in play(policy, environment, assignment, identity=name, num_envs=32, seed=seed, explore=explore):
            for episode in episodes:
                if done < steps:
                    yield episode
                    done += len(episode)
        if done >= steps:
            return


def write(uri: Path, episodes: Sequence[Episode], environment: EnvironmentSpec | None = None) -> str:
    """Commits the episodes as a dataset; its URI."""
    with EpisodeWriter(prepare_dataset(str(uri)), "part", format="episodes") as writer:
        for start in range(0, len(episodes), 256):
            writer.write(episodes[start : start + 256])
    commit(
        str(uri),
        writer.files,
        format="episodes",
        operation=Operation(name="benchmark"),
        statistics=writer.statistics,
        environment=environment,
        observation_space=episodes[0].observation_space,
        action_space=episodes[0].action_space,
    )
    return str(uri)


def hidden(episodes: Sequence[Episode]) -> list[Episode]:
    """CartPole's episodes without the velocities."""
    space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return [replace(e, observations=e.observations[:, [0, 2]].copy(), observation_space=space) for e in episodes]
