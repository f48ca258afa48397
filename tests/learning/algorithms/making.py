"""Steps of made-up episodes, and what the tests of all algorithms do with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.algorithms.registry import algorithms
from offline_core.learning.steps import Batch, BatchSpec, Steps
from offline_core.policies.config import NetworkConfig

VECTOR = gym.spaces.Box(-np.inf, np.inf, (3,))
TWO = gym.spaces.Discrete(2)
BOX = gym.spaces.Box(-1.0, 3.0, (2,))
ONLY_BOX = ("sac", "td3", "td3_bc", "rebrac", "cal_ql")
"""Algorithms of continuous actions alone."""
LINEAR = NetworkConfig(hidden_sizes=[], activation="linear")


def make_networks(
    name: str,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    network: NetworkConfig = NetworkConfig(),
    algorithm: Algorithm | None = None,
    *,
    seed: int = 0,
) -> Networks:
    """Those of the algorithm of this name, with its default parameters if `algorithm` is None."""
    return Networks(algorithm or algorithms()[name](), observation_space, action_space, network, seed=seed)


def made_steps(lengths: Sequence[int], terminated: Sequence[bool], *, seed: int = 0, actions: int = 2) -> Steps:
    """Episodes of these lengths, observations (3,), actions from 0 on; what is not terminated was truncated, or goes on.

    What stands in rewards and actions of the rows after the last steps is there to be found out if it is used.
    """
    rng = np.random.default_rng(seed)
    rows = sum(lengths) + len(lengths)
    ends = np.cumsum(np.asarray(lengths) + 1) - 1
    terminateds, is_last = np.zeros(rows, bool), np.isin(np.arange(rows), ends)
    terminateds[ends - 1] = terminated
    rewards = rng.normal(size=rows)
    rewards[ends] = np.nan
    return Steps(
        {
            "obs": torch.from_numpy(rng.normal(size=(rows, 3)).astype(np.float32)),
            "actions": torch.from_numpy(np.where(is_last, -9, rng.integers(0, actions, rows))),
            "rewards": torch.from_numpy(rewards),
            "terminateds": torch.from_numpy(terminateds),
        },
        torch.from_numpy(np.append(0, ends + 1)),
        has_last=True,
    )


def space_of(name: str) -> gym.Space[Any]:
    """Actions that the algorithm of this name can choose."""
    return BOX if name in ONLY_BOX else TWO


def steps_for(name: str, lengths: Sequence[int], terminated: Sequence[bool]) -> Steps:
    """`made_steps` with actions of `space_of`."""
    steps = made_steps(lengths, terminated)
    return with_box_actions(steps) if name in ONLY_BOX else steps


def with_box_actions(steps: Steps) -> Steps:
    """The same steps with actions from `BOX`."""
    shares = torch.rand(len(steps.episode), 2, generator=torch.Generator().manual_seed(0))
    steps.columns["actions"] = shares * 4 - 1
    return steps


def loaded(networks: Networks, steps: Steps, reading: BatchSpec) -> Steps:
    """Steps as the first update finds them."""
    networks.algorithm.prepare(networks, steps, reading)
    if networks.algorithm.refresh_rows(networks, steps, reading):
        networks.algorithm.refresh(networks, steps, reading)
    return steps


def whole_batch(networks: Networks, steps: Steps) -> Batch:
    """All steps in one batch, in order."""
    reading = BatchSpec(networks.algorithm.batch_columns)
    loaded(networks, steps, reading)
    return steps.batch(steps.indices(reading), reading)


def update(networks: Networks, optimizer: torch.optim.Optimizer, batch: Batch) -> dict[str, torch.Tensor]:
    """What a learner does by itself."""
    networks.algorithm.before_update(networks)
    terms = networks(batch)
    optimizer.zero_grad()
    terms.loss.mean().backward()
    optimizer.step()
    means = {name: value.mean() for name, value in terms.metrics.items()}
    networks.algorithm.after_update(networks, means)
    networks.updates += 1
    return means


def numpy_of(module: Any) -> dict[str, np.ndarray]:
    """Parameters and buffers in float64."""
    return {name: tensor.detach().double().numpy() for name, tensor in module.state_dict().items()}


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
