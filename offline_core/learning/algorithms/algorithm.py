"""What every algorithm is: a policy, what is learned beside it, and the loss of each step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.config import Config
from offline_core.episodes import columns, nested
from offline_core.errors import ConfigError
from offline_core.learning.steps import Batch, Reading, Steps
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

ROWS_AT_A_TIME = 65_536
"""Rows that are looked at together outside of updates: bounds the memory."""


class Terms(NamedTuple):
    """One number a step, (B,) each: the learner takes means, over all learners and without what only fills up."""

    loss: Tensor
    watched: dict[str, Tensor]
    """Without gradients. Means are taken of them; of names that end in `_min` or `_max`, the smallest or largest."""
    errors: Tensor | None = None
    """Without gradients, not negative: how wrong the values of each step were. A prioritised replay buffer draws by them."""


class Algorithm(nn.Module):
    """Everything that is learned, and how: its `state_dict()` is all there is to checkpoint, so a DDP module may hold it.

    The learner calls
        prepare(steps, reading)                  once for steps that were loaded
        refresh(steps, reading)                  if `refresh_rows` is not 0: before the first update, and now and then
        forward(batch), after_update(means)      each update
        numbers(means)                           each report

    Arguments:
        observation_space, action_space: what the policy sees and does.
        network: layers of the policy, and of all networks beside it.
        config: an instance of `config_class`.
        seed: of the initial weights.

    Raises:
        ConfigError: it cannot learn to act in these spaces, or with such a network.
    """

    stored: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS)
    """Columns the dataset has to have."""
    batch_columns: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS)
    """Columns of a batch: stored ones, `new_obs`, and what `prepare` and `refresh` add to the steps."""
    looks_ahead: ClassVar[bool] = False
    """Needs the observation after an episode's last step."""
    loss_compares: ClassVar[bool] = False
    """The loss of the same steps means the same throughout a training: it is measured by nothing that is learned as well. Only
    then a lower one on data that is held out chooses the best policy where nobody plays, and can be waited for."""
    has_errors: ClassVar[bool] = False
    """Its `Terms` have errors."""
    config_class: ClassVar[type[Config]] = Config

    policy: Policy

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        network: NetworkConfig,
        config: Config,
        *,
        seed: int,
    ) -> None:
        super().__init__()
        if network.recurrent and columns.NEW_OBS in self.batch_columns:
            raise ConfigError(
                f"{type(self).__name__} values later observations, and a memory would meet them without what came before: set "
                "network.recurrent to None and network.frames to 4, say, or use bc or marwil."
            )

    def prepare(self, steps: Steps, reading: Reading) -> None:
        """Adds the columns that batches need besides the stored ones and those that will be refreshed.

        `reading` is that of the training.
        """

    def refresh(self, steps: Steps, reading: Reading) -> None:
        """Renews the columns that depend on the networks as they are now."""

    def refresh_rows(self, steps: Steps, reading: Reading) -> float:
        """What another refresh costs, in observations that a network looks at; 0: there is nothing to renew."""
        return 0.0

    def forward(self, batch: Batch) -> Terms:
        """The loss of each step of a batch, in float32 whatever the networks compute in.

        Observations and actions are nested as their spaces, all columns (B, …); observations as the policy takes them.
        """
        raise NotImplementedError

    def after_update(self, means: dict[str, Tensor]) -> None:
        """Moves what follows the update: `means` of what was watched, over the batches of all learners."""

    def numbers(self, means: dict[str, float]) -> dict[str, float]:
        """What to log, from means over the updates since the last report."""
        return means


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Within it nothing is dropped out and no statistics of batches are taken; each part is then as it was before."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@torch.no_grad()
def values_of(policy: Policy, steps: Steps, rows: Tensor, reading: Reading) -> Tensor:
    """The values (len(rows),) float32 of these rows' observations, as the policy sees them now, in evaluation mode.

    A recurrent policy goes once through each sequence with one of the rows in it, cut and warmed up as in training.
    Memory: `ROWS_AT_A_TIME` observations.
    """
    with evaluating(policy):
        if reading.sequence_steps is None:
            return torch.cat([_values(policy, steps, part, reading.frames) for part in rows.split(ROWS_AT_A_TIME)])
        since = rows - steps.first[steps.episode[rows].long()]
        starts, sequence = (rows - since % reading.sequence_steps).unique(return_inverse=True)
        episode, length = steps.episode[starts].long(), observations_a_sequence(reading)
        begin = torch.maximum(starts - reading.burn_in_steps, steps.first[episode])
        seen = torch.minimum(begin[:, None] + torch.arange(length, device=rows.device), steps.last[episode][:, None])
        values = torch.cat([_values(policy, steps, part) for part in seen.split(max(1, ROWS_AT_A_TIME // length))])
        return values[sequence, rows - begin[sequence]]


def _values(policy: Policy, steps: Steps, rows: Tensor, frames: int = 1) -> Tensor:
    """Of rows (B,), or of sequences of rows (S, L): in the shape of `rows`."""
    batch = steps.batch(rows.flatten(), Reading((columns.OBS,), frames=frames))
    batch = {path: column.unflatten(0, rows.shape) for path, column in batch.items()}
    values = policy.values(nested.unflatten(batch, columns.OBS, policy.observation_space))
    return values.reshape(rows.shape).float()


def observations_a_sequence(reading: Reading) -> int:
    """How many observations `values_of` looks at for a single value."""
    return 1 if reading.sequence_steps is None else reading.burn_in_steps + reading.sequence_steps


def observations_of_all(steps: Steps, reading: Reading) -> int:
    """How many observations `values_of` looks at for the values of all rows."""
    if reading.sequence_steps is None:
        return len(steps.episode)
    sequences = (steps.last - steps.first) // reading.sequence_steps + 1
    return int(sequences.sum()) * observations_a_sequence(reading)
