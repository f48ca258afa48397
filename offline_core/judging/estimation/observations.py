"""Recorded observations as a policy takes them: single ones, the last frames, or whole episodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, cast

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from offline_core.data.episodes import EpisodeBatch, columns, nested
from offline_core.data.episodes.nested import Nested
from offline_core.policies.config import NetworkConfig
from offline_core.policies.head import Head
from offline_core.policies.policy import Policy, as_tensors

ROWS_AT_A_TIME = 8192
BYTES_AT_A_TIME = 64 * 2**20
"""Memory of the observations that a network sees together; its layers may take some times as much."""


class TargetPolicy(Protocol):
    """All that estimates know of a policy, besides its `distribution_inputs`; a checkpoint's `Policy` is one."""

    @property
    def observation_space(self) -> gym.Space[Any]: ...
    @property
    def action_space(self) -> gym.Space[Any]: ...
    @property
    def network(self) -> NetworkConfig:
        """How it looks at observations (frames, image layout) and whether it squashes its actions."""
        ...

    @property
    def head(self) -> Head:
        """What its distribution inputs mean."""
        ...


class StatedPolicy(TargetPolicy, Protocol):
    """A policy that is no checkpoint, see `stated`."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of the log that it needs besides observations."""
        ...

    def inputs_at(self, observations: Observations) -> Tensor:
        """The inputs of its head for each observation, (R, inputs) float32.

        Raises:
            ConfigError: It fails, or does not answer as it has to.
        """
        ...


class Observations:
    """The R observations of a batch of whole episodes, as tensors.

    Arguments:
        batch: flat, with the column `obs`, or `obs/position`, …
        space: of one observation.
    """

    def __init__(self, batch: EpisodeBatch, space: gym.Space[Any]) -> None:
        self._values = tensors_of(batch, columns.OBS, space)
        self.batch = batch
        self.starts = torch.from_numpy(batch.offsets[:-1])
        """(E,) int64, the first of each episode."""
        self.lengths = torch.from_numpy(np.diff(batch.offsets))
        """(E,) int64"""
        self._first = torch.from_numpy(batch.first)

    def __len__(self) -> int:
        return len(self._first)

    def at(self, rows: Tensor, *, frames: int = 1) -> Nested:
        """The observations of rows of any shape, nested as their space: (*shape, …), or (*shape, frames, …).

        The oldest frame comes first; before an episode's first observation stands that observation.
        """
        if frames > 1:
            rows = torch.maximum(rows[..., None] + torch.arange(1 - frames, 1), self._first[rows][..., None])
        return nested.map_leaves(lambda leaf: leaf[rows], self._values)


def leaves_of(batch: EpisodeBatch, name: str) -> dict[str, np.ndarray]:
    """The leaves of a column by path."""
    return {path: leaf for path, leaf in batch.columns.items() if path.partition(nested.PATH_SEPARATOR)[0] == name}


def tensors_of(batch: EpisodeBatch, name: str, space: gym.Space[Any]) -> Nested:
    """A column as tensors (R, …), nested as its space."""
    return nested.unflatten(as_tensors(leaves_of(batch, name)), name, space)


@torch.no_grad()
def distribution_inputs(policy: TargetPolicy, observations: Observations) -> Tensor:
    """The policy's distribution inputs for each observation, (R, inputs) float32, after all before it in its episode.

    Memory: see `rows_at_a_time`, or one episode if it is recurrent.
    """
    if not isinstance(policy, Policy):
        return cast(StatedPolicy, policy).inputs_at(observations)
    at_a_time = rows_at_a_time(policy.encoder.size, frames=policy.network.frames)
    if policy.network.recurrent is None:
        rows = torch.arange(len(observations)).split(at_a_time)
        return torch.cat([policy(observations.at(part, frames=policy.network.frames)) for part in rows])
    inputs = torch.empty(len(observations), policy.head.inputs_size)
    for episodes in _of_like_lengths(observations.lengths, at_a_time):
        lengths = observations.lengths[episodes][:, None]
        time = torch.arange(int(lengths.max()))
        rows = observations.starts[episodes][:, None] + torch.minimum(time, lengths - 1)
        is_step = (time < lengths).flatten()  # padding comes after the end, so the memory before it is not affected
        inputs[rows.flatten()[is_step]] = policy(observations.at(rows))[is_step]
    return inputs


def columns_read(policies: Iterable[TargetPolicy]) -> list[str]:
    """Columns of the log that some of these policies need besides observations."""
    return [name for policy in policies if not isinstance(policy, Policy) for name in cast(StatedPolicy, policy).reads]


def rows_at_a_time(size: int, *, frames: int = 1) -> int:
    """How many observations of so many numbers are looked at together: `ROWS_AT_A_TIME`, or as many as take `BYTES_AT_A_TIME`
    as float32."""
    return max(1, min(ROWS_AT_A_TIME, BYTES_AT_A_TIME // (4 * max(1, size) * frames)))


def _of_like_lengths(lengths: Tensor, steps: int) -> list[Tensor]:
    """Episodes in groups that a recurrent network processes together, of so many steps unless one alone is longer."""
    groups: list[Tensor] = []
    order = lengths.argsort(descending=True, stable=True)
    while len(order):
        together = max(1, steps // int(lengths[order[0]]))
        groups.append(order[:together])
        order = order[together:]
    return groups
