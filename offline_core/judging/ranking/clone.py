"""What acted, by cloning: how surprising an action is to a policy that was fitted to other episodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from offline_core.data.episodes import EpisodeBatch, columns, nested
from offline_core.judging.estimation.observations import Observations, tensors_of
from offline_core.judging.estimation.target import distribution_inputs
from offline_core.judging.ranking.config import OutlierConfig
from offline_core.judging.ranking.sample import PARTS, Sample
from offline_core.policies.categorical import CategoricalHead
from offline_core.policies.config import NetworkConfig
from offline_core.policies.gaussian import GaussianHead
from offline_core.policies.head import Head
from offline_core.policies.policy import Policy
from offline_core.runtime.adam import Adam
from offline_core.runtime.progress import progress
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_settings import torch_threads

BATCH_SIZE, LEARNING_RATE, MOST_EPOCHS = 512, 1e-3, 20
LARGEST_LOSS = 20.0
"""Nats of one step: those of an impossible action teach nothing."""
BEYOND = 1e-3
"""Share of the recorded actions, at each end, that are more than 1 in units made of them."""


class ActionUnits(NamedTuple):
    """The units in which a network learns actions: of numbers of a Box without bounds, those of what was recorded."""

    space: gym.Space[Any]
    """In these units."""
    center: np.ndarray | None = None
    """(*action shape) float64; None: actions stay as they are."""
    size: np.ndarray | None = None

    @classmethod
    def of(cls, space: gym.Space[Any], batch: EpisodeBatch) -> ActionUnits:
        if not isinstance(space, gym.spaces.Box) or (dtype := np.dtype(space.dtype)).kind != "f":
            return cls(space)
        acted = batch[columns.ACTIONS][batch.is_step].astype(np.float64)
        acted = acted[np.isfinite(acted).reshape(len(acted), -1).all(axis=1)]
        free = ~np.isfinite(np.subtract(space.high, space.low, dtype=np.float64))
        if not free.any() or not len(acted):
            return cls(space)
        low, high = np.quantile(acted, [BEYOND, 1 - BEYOND], axis=0)
        center = np.where(free, (low + high) / 2, 0.0)
        size = np.where(free & (high > low), (high - low) / 2, 1.0)
        lowest, highest = (((bound - center) / size).astype(dtype) for bound in (space.low, space.high))
        return cls(gym.spaces.Box(lowest, highest, dtype=dtype.type), center, size)  # type: ignore[arg-type]

    def of_batch(self, batch: EpisodeBatch) -> EpisodeBatch:
        """The batch with its actions in these units."""
        if self.center is None or self.size is None:
            return batch
        acted = batch[columns.ACTIONS]
        return batch | {columns.ACTIONS: ((acted - self.center) / self.size).astype(acted.dtype)}


class Clone:
    """A policy for each part of the episodes, fitted by maximum likelihood to the actions of the other part.

    Raises:
        ConfigError: no policy can have these spaces.
    """

    def __init__(self, sample: Sample, spaces: tuple[gym.Space[Any], gym.Space[Any]], config: OutlierConfig) -> None:
        observations = Observations(_finite(sample.batch), spaces[0])
        self._units = ActionUnits.of(spaces[1], sample.batch)
        spaces = spaces[0], self._units.space
        acted = self._units.of_batch(_finite(sample.batch))
        actions = tensors_of(acted, columns.ACTIONS, spaces[1])
        self._policies = []
        with torch_threads(1), progress(config.updates * PARTS, what="clone", unit="update") as bar:
            for number in range(PARTS):
                rows = torch.from_numpy(sample.outside(number))
                seed = derive_seed(config.seed, "outliers", "clone", number)
                policy = Policy(*spaces, NetworkConfig(hidden_sizes=[64, 64], normalize_observations=True), seed=seed)
                policy.encoder.update_statistics(observations.at(rows))
                updates = min(config.updates, MOST_EPOCHS * -(-len(rows) // BATCH_SIZE))
                _fit(policy, observations, actions, rows, updates, seed)
                self._policies.append(policy.eval().requires_grad_(False))
                bar.update(config.updates)

    @torch.no_grad()
    def look(self, batch: EpisodeBatch, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays (N,): how far -log π(a|s) is above its expectation, the entropy of π(·|s), and what `noise_of` says.

        Arguments:
            part: (E,) of each episode.
        """
        finite = self._units.of_batch(_finite(batch))
        surprise, noise = np.zeros(batch.rows), np.zeros(batch.rows)
        with torch_threads(1):
            for number, policy in enumerate(self._policies):
                if not batch.rows or not (own := part == number)[batch.episode].any():
                    continue
                some, rows = finite.select(own & (batch.lengths > 0)), own[batch.episode]
                inputs = distribution_inputs(policy, Observations(some, policy.observation_space))
                actions = tensors_of(some, columns.ACTIONS, policy.action_space)
                logs = policy.head.log_prob(inputs, actions)
                surprise[rows] = (-logs - policy.head.entropy(inputs)).double().numpy()
                noise[rows] = noise_of(policy.head, inputs, actions, logs)
        return surprise, noise


def noise_of(head: Head, inputs: Tensor, actions: Any, logs: Tensor) -> np.ndarray:
    """(N,) how little the state says of the action: near 0 for one that always acts alike, near 1 for one by lot.

    For an action of a list it is -log π(a|s) in units of that of equal chances. For one of a Box it is the squared distance
    from the mean in units of the variance of a uniform action. It is NaN for spaces of several kinds.
    """
    if isinstance(head, CategoricalHead):
        return (-logs.double() / float(np.sum(np.log(np.maximum(head.sizes, 2))))).numpy()
    if isinstance(head, GaussianHead):
        distance = head.scaled(actions).clamp(-1, 1) - head.mean_action(inputs).clamp(-1, 1)
        return (3 * distance.double().square().mean(dim=1)).numpy()
    return np.full(len(logs), np.nan)


def _fit(policy: Policy, observations: Observations, actions: Any, rows: Tensor, updates: int, seed: int) -> None:
    optimizer = Adam([{"params": [*policy.parameters()], "lr": LEARNING_RATE}])
    generator = torch.Generator().manual_seed(seed)
    for update in range(updates):
        some = rows[torch.randint(len(rows), (min(BATCH_SIZE, len(rows)),), generator=generator)]
        taken = nested.map_leaves(lambda leaf: leaf[some], actions)  # noqa: B023
        loss = -policy.head.log_prob(policy(observations.at(some)), taken).clamp(min=-LARGEST_LOSS).mean()
        optimizer.zero_grad()
        loss.backward()
        for rates in optimizer.param_groups:
            rates["lr"] = LEARNING_RATE * (1 - update / updates)
        optimizer.step()


def _finite(batch: EpisodeBatch) -> EpisodeBatch:
    """The batch with 0 in the place of NaN and infinity, which a network cannot see."""
    return batch | {
        name: np.nan_to_num(leaf, nan=0.0, posinf=0.0, neginf=0.0)
        for name, leaf in batch.columns.items()
        if leaf.dtype.kind == "f"
    }
