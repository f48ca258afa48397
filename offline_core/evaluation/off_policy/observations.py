"""Recorded observations in memory, as a policy looks at them: single ones, the last frames, or whole episodes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from offline_core.episodes import columns, nested
from offline_core.episodes.nested import Nested
from offline_core.policies.encoder import Encoder
from offline_core.policies.policy import Policy

ROWS_AT_A_TIME = 8192
BYTES_AT_A_TIME = 64 * 2**20
"""Of observations as a network sees them; its layers may take some times as much."""


class Observations:
    """R observations of whole episodes, one after the other.

    Arguments:
        leaves: flat tensors (R, …) by path: `obs`, or `obs/position`, …
        starts: (R,) bool, the first of an episode.
        space: of one of them.
    """

    def __init__(self, leaves: dict[str, Tensor], starts: Tensor, space: gym.Space[Any]) -> None:
        self.leaves = leaves
        self.space = space
        self.starts = starts.nonzero().squeeze(1)
        """(E,) int64, the first of each episode."""
        self.lengths = torch.diff(self.starts, append=torch.tensor([len(starts)]))
        """(E,) int64"""
        self._first = self.starts.repeat_interleave(self.lengths)

    def __len__(self) -> int:
        return len(self._first)

    def at(self, rows: Tensor, *, frames: int = 1) -> Nested:
        """Those of these rows, nested as their space: rows of any shape → (*shape, …), or (*shape, frames, …).

        The oldest frame comes first; what would be before an episode's first observation is that observation.
        """
        if frames > 1:
            rows = torch.maximum(rows[..., None] + torch.arange(1 - frames, 1), self._first[rows][..., None])
        taken = {path: leaf[rows] for path, leaf in self.leaves.items()}
        return nested.unflatten(taken, columns.OBS, self.space)


@torch.no_grad()
def distribution_inputs(policy: Policy, observations: Observations) -> Tensor:
    """What the policy makes of each observation, with all it would remember of its episode by then: (R, inputs) float32.

    Memory: see `rows_at_a_time`, or one episode if it is recurrent.
    """
    at_a_time = rows_at_a_time(policy.encoder, frames=policy.network.frames)
    if policy.network.recurrent is None:
        rows = torch.arange(len(observations)).split(at_a_time)
        return torch.cat([policy(observations.at(part, frames=policy.network.frames)) for part in rows])
    inputs = torch.empty(len(observations), policy.head.inputs_size)
    for episodes in _of_like_lengths(observations.lengths, at_a_time):
        lengths = observations.lengths[episodes][:, None]
        time = torch.arange(int(lengths.max()))
        rows = observations.starts[episodes][:, None] + torch.minimum(time, lengths - 1)
        there = (time < lengths).flatten()  # what only fills up comes after the end, and is not remembered before it
        inputs[rows.flatten()[there]] = policy(observations.at(rows))[there]
    return inputs


def rows_at_a_time(encoder: Encoder, *, frames: int = 1) -> int:
    """How many observations are looked at together: `ROWS_AT_A_TIME`, or as many as take `BYTES_AT_A_TIME` as float32."""
    return max(1, min(ROWS_AT_A_TIME, BYTES_AT_A_TIME // (4 * max(1, encoder.size) * frames)))


def _of_like_lengths(lengths: Tensor, steps: int) -> list[Tensor]:
    """Episodes in groups that go through a memory together, of so many steps unless one alone is longer."""
    groups: list[Tensor] = []
    order = lengths.argsort(descending=True, stable=True)
    while len(order):
        together = max(1, steps // int(lengths[order[0]]))
        groups.append(order[:together])
        order = order[together:]
    return groups
