"""Recorded steps by row, as Q functions are fitted to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from offline_core.data.episodes import EpisodeBatch, columns, nested
from offline_core.judging.estimation.logged import inputs_of
from offline_core.judging.estimation.observations import Observations, rows_at_a_time, tensors_of
from offline_core.judging.estimation.q_function import QFunction
from offline_core.policies.policy import Policy


class FQESteps:
    """N steps in R rows, and what policies would do in them.

    Arguments:
        logged: with observations, actions and distribution inputs, see `read_logged`.
        policies: those of the inputs.
        horizon: steps that count; None: all until the episode terminates.
    """

    def __init__(self, logged: EpisodeBatch, policies: Sequence[Policy], horizon: int | None) -> None:
        self.policies = policies
        self.observations = Observations(logged, policies[0].observation_space)
        self.taken = tensors_of(logged, columns.ACTIONS)
        self.inputs = [torch.from_numpy(logged[inputs_of(number)]) for number in range(len(policies))]
        """(R, inputs) of each policy."""
        self.rows = torch.from_numpy(np.flatnonzero(logged.is_step))
        """(N,) the row of each; what follows is in the next."""
        self.remaining = (horizon or 0) - torch.from_numpy(np.arange(logged.rows) - logged.first)
        """(R,) steps that count from a row on, if there is a horizon."""
        self.goes_on = torch.ones(len(self.rows))
        """(N,) float32, 0 after a terminal step, and after the last that counts."""
        self.last = torch.from_numpy(np.cumsum(logged.lengths) - 1)
        """(E,) the last step of each episode."""
        self.goes_on[self.last[torch.from_numpy(logged.at_end(columns.TERMINATEDS))]] = 0.0
        if horizon is not None:
            self.goes_on[self.remaining[self.rows] == 1] = 0.0
        self.precise_rewards = torch.from_numpy(logged.of_steps(columns.REWARDS))
        self.rewards = self.precise_rewards.float()
        self._lengths = logged.lengths

    def of(self, episodes: np.ndarray) -> Tensor:
        """Numbers of the steps of the episodes where (E,) bool is True, in order."""
        return torch.from_numpy(np.flatnonzero(np.repeat(episodes, self._lengths)))

    def seen(self, rows: Tensor, *, frames: int) -> nested.Nested:
        """Observations, nested (*rows, …), or (*rows, frames, …)."""
        return self.observations.at(rows, frames=frames)

    def actions(self, rows: Tensor) -> nested.Nested:
        """What was done in rows, nested (*rows, …)."""
        taken = {path: leaf[rows] for path, leaf in self.taken.items()}
        return nested.unflatten(taken, columns.ACTIONS, self.policies[0].action_space)

    def in_parts(self, function: QFunction, rows: Tensor) -> tuple[Tensor, ...]:
        """As many at a time as the function may look at."""
        parts: tuple[Tensor, ...] = rows.split(rows_at_a_time(function.encoder, frames=function.frames))
        return parts

    def fill_statistics(self, function: QFunction, steps: Tensor) -> None:
        """Of the filters that normalise what the function sees."""
        for rows in self.in_parts(function, self.rows[steps]):
            if function.encoder.normalize:
                function.encoder.update_statistics(self.observations.at(rows))
            if not function.listed:
                function.actions.update_statistics(self.actions(rows))
