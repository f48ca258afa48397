"""The last steps that a vector environment played: in memory that is taken once, and in files that are written once.

Their rewards may be scaled for learning.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Generator, Tensor

from offline_core.data.environments.vector_env import Spaces
from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import space_leaves
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.config import RewardsConfig
from offline_core.learning.returns import (
    HAS_NEW_ACTIONS,
    N_STEP_DISCOUNTS,
    N_STEP_REWARDS,
    NEW_ACTIONS,
    RETURNS_TO_GO,
    discounted_sums,
)
from offline_core.learning.state import read_tensors, write_tensors
from offline_core.learning.steps import Batch, Steps
from offline_core.policies.played_step import PlayedStep
from offline_core.policies.policy import tensor_dtype
from offline_core.runtime.result import StoredModel

log = logging.getLogger(__name__)

IS_STEP, ENDS = "is_step", "ends"
CLIP = 10.0
"""Largest size of a scaled reward."""


class StepRing:
    """Row t has what each of N copies saw before its step t, what it did, and what came of it.

    The observation after a step is in the next row, also after an episode's last step: the row that follows then only resets
    the copy (gymnasium's NEXT_STEP autoreset) and is never drawn. So each observation is stored once, and a step that was
    truncated is followed by the observation it ended with. Floats are stored as float32. Memory: that of
    `capacity_steps`, touched as it is filled. No Python object a step.

    Arguments:
        spaces: observation and action space of one copy.
        capacity_steps: of all copies together; steps that only reset count, too.
        rewards: what they are learned as, with a number as scale; they are stored as the environment gave them.
        returns_gamma: also keep `returns_to_go`, discounted by this: -inf until the episode of a step has ended. None: do not.

    Raises:
        ConfigError: the memory is not there.
    """

    def __init__(
        self,
        num_envs: int,
        spaces: Spaces,
        *,
        capacity_steps: int,
        rewards: RewardsConfig = RewardsConfig(),
        returns_gamma: float | None = None,
    ) -> None:
        self.num_envs, self.spaces = num_envs, spaces
        self.rows = -(-capacity_steps // num_envs) + 1
        """Of the memory; one of them is the newest, which has an observation and no step yet."""
        self.written = 0
        """Rows with steps since the beginning, of which the last `rows - 1` are there."""
        self.steps = 0
        """Drawable steps since the beginning."""
        leaves = space_leaves(spaces[0], columns.OBS) | space_leaves(spaces[1], columns.ACTIONS)
        kinds: dict[str, tuple[tuple[int, ...], Any]] = {
            path: (leaf.shape or (), _stored_type(leaf)) for path, leaf in leaves.items()
        }
        kinds |= {columns.REWARDS: ((), np.float32), columns.TERMINATEDS: ((), np.bool_)}
        kinds |= {ENDS: ((), np.bool_), IS_STEP: ((), np.bool_)}
        if returns_gamma is not None:
            kinds[RETURNS_TO_GO] = ((), np.float32)
        try:
            self._arrays = {path: np.zeros((self.rows, num_envs, *shape), kind) for path, (shape, kind) in kinds.items()}
        except MemoryError as error:
            step_bytes = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in kinds.values())
            raise ConfigError(
                f"A replay of {capacity_steps:,} steps of {step_bytes:,} bytes does not fit into memory: lower capacity_steps."
            ) from error
        self._flat = {path: torch.from_numpy(array).flatten(0, 1) for path, array in self._arrays.items()}
        """The same memory as tensors (rows · N, …)."""
        assert rewards.scale != "return_range"
        self._scale, self._shift = rewards.scale, rewards.shift
        self._returns_gamma = returns_gamma
        self._started = np.zeros(num_envs, np.int64)
        """The first row of each copy's open episode, counted from the beginning."""

    def begin(self, observations: Nested) -> None:
        """Take the first observations (N, …) of new episodes; those that are open end here, as if they were truncated."""
        if self.written:
            self._arrays[ENDS][(self.written - 1) % self.rows] = True
            self._advance()
        self._write(self.written % self.rows, columns.OBS, observations)
        self._started[:] = self.written

    def add(self, step: PlayedStep) -> None:
        """Take the step that follows the last observations."""
        row = self.written % self.rows
        self._write(row, columns.ACTIONS, step.actions)
        self._arrays[columns.REWARDS][row] = step.rewards
        self._arrays[columns.TERMINATEDS][row] = step.terminated
        np.logical_or(step.terminated, step.truncated, out=self._arrays[ENDS][row])
        self._arrays[IS_STEP][row] = step.counts
        if self._returns_gamma is not None:
            self._add_returns(step, self._returns_gamma)
        self._advance()
        self._write(self.written % self.rows, columns.OBS, step.next_observations)
        self.steps += int(step.counts.sum())

    def _add_returns(self, step: PlayedStep, gamma: float) -> None:
        self._arrays[RETURNS_TO_GO][self.written % self.rows] = -np.inf
        self._started[~step.counts] = self.written + 1
        for copy in np.flatnonzero(step.ends):
            first = max(self._started[copy], self.written - self.rows + 2)
            rows = np.arange(first, self.written + 1) % self.rows
            rewards = self._learned_rewards(torch.from_numpy(rows * self.num_envs + copy))
            left = torch.arange(len(rows), 0, -1)
            self._arrays[RETURNS_TO_GO][rows, copy] = discounted_sums(rewards, left, gamma).numpy()

    def _advance(self) -> None:
        self.written += 1
        self._arrays[IS_STEP][self.written % self.rows] = False

    def _write(self, row: int, prefix: str, value: Nested) -> None:
        if isinstance(value, np.ndarray):
            self._arrays[prefix][row] = value
            return
        for path, leaf in nested.flatten(value, prefix).items():
            self._arrays[path][row] = leaf

    def draw(self, size: int, generator: Generator) -> Tensor:
        """(size,) int64 indices of steps, uniformly and with replacement. At least one step has to be there."""
        filled = min(self.written + 1, self.rows) * self.num_envs
        drawn = torch.randint(filled, (size,), generator=generator)
        while len(missing := (~self._flat[IS_STEP][drawn]).nonzero().squeeze(1)):
            if len(missing) > 0.9 * size:  # most of the ring is lost, so that trying again takes longer than looking
                there = self._flat[IS_STEP][:filled].nonzero().squeeze(1)
                return there[torch.randint(len(there), (size,), generator=generator)]
            drawn[missing] = torch.randint(filled, (len(missing),), generator=generator)
        return drawn

    def batch(self, indices: Tensor, *, n_step: int, gamma: float) -> Batch:
        """Flat columns (B, …) of these steps: `obs`, `actions`, `new_obs`, `n_step_rewards`, `n_step_discounts`, `new_actions`.

        They are those of `add_n_step_columns`: `new_obs` is the observation after m = min(n, steps to the end) steps, with
        the discount γ^m, or 0 if the episode was terminated there. Of an open episode, its newest step is the end.
        """
        ends, is_step = self._flat[ENDS], self._flat[IS_STEP]
        last, rewards = indices, self._learned_rewards(indices)
        discounts = torch.full_like(rewards, gamma)
        for k in range(1, n_step):
            following = self._next(last)
            goes_on = ~ends.index_select(0, last) & is_step.index_select(0, following)
            last = following.where(goes_on, last)
            rewards = rewards + gamma**k * self._learned_rewards(last) * goes_on
            discounts = torch.where(goes_on, gamma ** (k + 1), discounts)
        discounts = discounts.masked_fill(self._flat[columns.TERMINATEDS].index_select(0, last), 0.0)
        after = self._next(last)
        goes_on = ~ends.index_select(0, last) & is_step.index_select(0, after)
        batch: Batch = {N_STEP_REWARDS: rewards, N_STEP_DISCOUNTS: discounts, HAS_NEW_ACTIONS: goes_on}
        for path, column in self._flat.items():
            name = path.partition(nested.PATH_SEPARATOR)[0]
            if name == columns.OBS:
                batch[path] = column.index_select(0, indices)
                batch[columns.NEW_OBS + path[len(columns.OBS) :]] = column.index_select(0, after)
            elif name in (columns.ACTIONS, RETURNS_TO_GO):
                batch[path] = column.index_select(0, indices)
                if path == columns.ACTIONS:
                    batch[NEW_ACTIONS] = column.index_select(0, after)
        return batch

    def last_rollout(self, rows: int, *, scale: RewardScale | None = None) -> Steps:
        """Return the steps of the last so many rows: whole and open episodes, one copy after the other.

        A row that only resets a copy holds the observation that the episode before it ended with.

        Arguments:
            scale: of the rewards; None: they are learned as `rewards` says.
        """
        last = np.arange(self.written - rows, self.written + 1) % self.rows
        arrays = {path: torch.from_numpy(array[last]) for path, array in self._arrays.items()}
        rewards = arrays[columns.REWARDS] * self._scale + self._shift
        if scale is not None:
            rewards[:-1] = scale.scaled(rewards[:-1], ends=arrays[ENDS][:-1], is_step=arrays[IS_STEP][:-1])
        arrays[columns.REWARDS] = rewards
        begins = torch.ones(rows + 1, self.num_envs, dtype=torch.bool)
        begins[1:] = ~arrays[IS_STEP][:-1]
        offsets = begins.T.flatten().nonzero().squeeze(1)
        flat = {path: array.transpose(0, 1).flatten(0, 1) for path, array in arrays.items() if path not in (ENDS, IS_STEP)}
        return Steps(flat, torch.cat([offsets, offsets.new_tensor([begins.numel()])]), has_last=True)

    def _learned_rewards(self, indices: Tensor) -> Tensor:
        return self._flat[columns.REWARDS].index_select(0, indices) * self._scale + self._shift

    def rows_from(self, first: int) -> dict[str, Tensor]:
        """Return copies of the rows from number `first` to the newest, counted from the beginning: (rows, N, …) by name."""
        rows = np.arange(max(first, self.first_row), self.written + 1) % self.rows
        return {path: torch.from_numpy(array[rows]) for path, array in self._arrays.items()}

    def put(self, first: int, columns: dict[str, Tensor]) -> None:
        """Put back what `rows_from(first)` returned."""
        rows = np.arange(first, first + len(columns[IS_STEP])) % self.rows
        for path, column in columns.items():
            self._arrays[path][rows] = column.numpy()

    def leave_out(self, first: int, last: int) -> None:
        """Never draw the steps of these rows, counted from the beginning."""
        self._arrays[IS_STEP][np.arange(first, last + 1) % self.rows] = False

    @property
    def first_row(self) -> int:
        """The number of the oldest row, counted from the beginning."""
        return max(0, self.written - self.rows + 1)

    def _next(self, indices: Tensor) -> Tensor:
        return (indices + self.num_envs) % (self.rows * self.num_envs)


def _stored_type(space: gym.Space[Any]) -> np.dtype:
    """float32 for floats, else what tensors of the space have."""
    kind = np.dtype(space.dtype)
    return np.dtype(np.float32) if kind.kind == "f" else tensor_dtype(kind)


class RowsFile(StoredModel):
    """A file of some rows of a ring, the newest of which has no step yet: the first row of the next file."""

    name: str
    first: int
    """The number of the first row, counted from the beginning of the ring."""
    written: int
    """The number of the last row."""
    sha256: str


class RingFiles:
    """Saves a ring as the states of a run want it: what a state names is there as long as the state before it, too.

    Arguments:
        folder: of the states.
    """

    def __init__(self, folder: Location, ring: StepRing) -> None:
        self._folder, self._ring = folder, ring
        self._files: list[RowsFile] = []
        self._dropped: list[RowsFile] = []

    def save(self) -> list[RowsFile]:
        """Write the rows since the last call; return the files that hold what the ring holds."""
        for file in self._dropped:
            self._folder.child(file.name).delete()
        first = max(self._files[-1].written if self._files else 0, self._ring.first_row)
        name, sha256 = write_tensors(self._folder, f"steps-{first:012d}", self._ring.rows_from(first))
        self._files.append(RowsFile(name=name, first=first, written=self._ring.written, sha256=sha256))
        self._dropped = [file for file in self._files if file.written <= self._ring.first_row]
        self._files = [file for file in self._files if file not in self._dropped]
        return self._files

    def load(self, files: Sequence[dict[str, Any]]) -> None:
        """Fill the ring with what `save` returned, as JSON; the rows of a file that is damaged or missing are left out.

        Raises:
            StorageUnavailableError: the storage does not answer now.
        """
        self._files = [RowsFile.model_validate(file) for file in files]
        for file in self._files:
            rows = read_tensors(self._folder.child(file.name), file.sha256)
            if rows is not None:
                self._ring.put(file.first, rows)
            else:
                self._ring.leave_out(file.first, file.written)
                log.warning(
                    "%s is damaged or missing; its steps are not learned from again.", self._folder.child(file.name).uri
                )


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted returns so far.

    As gymnasium's NormalizeReward and Stable-Baselines3 (Engstrom et al. 2020, "Implementation Matters in Deep Policy
    Gradients"), but a rollout at a time: its returns count before its rewards are divided. Then they are clipped.
    They are for learning alone: what is recorded has the environment's rewards.

    Arguments:
        num_envs: copies of the environment.
        gamma: of the returns.
    """

    def __init__(self, num_envs: int, *, gamma: float) -> None:
        self._gamma = gamma
        self.returns = torch.zeros(num_envs, dtype=torch.float64)
        """(N,), of the open episode of each copy so far."""
        self.count, self.mean, self.variance = 0, 0.0, 1.0
        """Of all returns, one a step."""

    def scaled(self, rewards: Tensor, *, ends: Tensor, is_step: Tensor) -> Tensor:
        """Return rewards (T, N) scaled, once their returns are counted.

        Arguments:
            ends: (T, N) bool, the step is the last of its episode.
            is_step: (T, N) bool; others only reset a copy, for a reward of 0.
        """
        returns = torch.empty(rewards.shape, dtype=torch.float64)
        for t, now in enumerate(rewards):
            returns[t] = self.returns.mul_(self._gamma).add_(now)
            self.returns.masked_fill_(ends[t], 0.0)
        self._count(returns[is_step])
        scaled: Tensor = rewards / (self.variance + 1e-8) ** 0.5
        return scaled.clamp(-CLIP, CLIP)

    def _count(self, values: Tensor) -> None:
        """Chan et al. 1979."""
        variance, mean = (float(moment) for moment in torch.var_mean(values, correction=0))
        total, delta = self.count + len(values), mean - self.mean
        squares = self.variance * self.count + variance * len(values) + delta**2 * self.count * len(values) / total
        self.mean += delta * len(values) / total
        self.count, self.variance = total, squares / total

    def state(self) -> Tensor:
        """Return the counts (3,) float64, without the open episodes."""
        return torch.tensor([self.count, self.mean, self.variance], dtype=torch.float64)

    def restore(self, state: Tensor) -> None:
        """Go on from what `state` returned, with new episodes."""
        count, self.mean, self.variance = state.tolist()
        self.count = int(count)
        self.returns.zero_()
