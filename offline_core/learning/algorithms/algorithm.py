"""The base of all algorithms: a policy, the networks learned beside it, and the loss of each step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.data.episodes import columns, nested
from offline_core.errors import ConfigError
from offline_core.learning.steps import Batch, BatchSpec, Steps
from offline_core.learning.together import is_alone, summed
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.runtime.config import Config

ROWS_AT_A_TIME = 65_536
"""Rows that are evaluated together outside of updates: bounds the memory."""


class LossOutput(NamedTuple):
    """One number a step, (B,) each. The learner takes means over the steps of all learners, without padding."""

    loss: Tensor
    metrics: dict[str, Tensor]
    """To log, without gradients: as means, but for names that end in `_min` or `_max` as the smallest or largest."""
    errors: Tensor | None = None
    """Value errors of the steps, without gradients, not negative. A prioritised replay buffer draws by them."""


class Algorithm(nn.Module):
    """A policy, the networks learned beside it, and their loss. Its `state_dict()` holds all that a checkpoint needs.

    The learner calls
        prepare(steps, spec)                     once for steps that were loaded
        refresh(steps, spec)                     if `refresh_rows` is not 0: before the first update, and now and then
        before_update(updates), forward(batch), after_update(means)      each update
        log_metrics(means)                       each report

    Arguments:
        observation_space, action_space: of the policy.
        network: layers of the policy, and of all networks beside it.
        config: an instance of `config_class`; None for its defaults.
        seed: of the initial weights.

    Raises:
        ConfigError: It cannot learn to act in these spaces, or with such a network.
    """

    stored: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS)
    """Columns that the dataset must have."""
    batch_columns: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS)
    """Columns of a batch: stored ones, `new_obs`, and what `prepare` and `refresh` add to the steps."""
    needs_next_obs: ClassVar[bool] = False
    """It needs the observation after an episode's last step."""
    loss_compares: ClassVar[bool] = False
    """Losses of different updates can be compared, for no learned network defines them. Then the lowest held-out loss chooses
    the best policy where none is played, and `patience` can wait for it."""
    has_errors: ClassVar[bool] = False
    """Its `LossOutput`s have errors."""
    config_class: ClassVar[type[Config]] = Config

    config: Any
    policy: Policy
    updates: int = 0
    """Updates so far."""
    counts: bool = True
    """This learner's batch is its share of the global one. False: it has no share, and the batch stands in."""
    sequence_steps: int | None = None
    """It learns from sequences of so many steps, which are cut elsewhere in each epoch. None: as the network remembers."""

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        network: NetworkConfig = NetworkConfig(),
        config: Config | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if network.recurrent and columns.NEW_OBS in self.batch_columns:
            raise ConfigError(
                f"{type(self).__name__} values later observations, which a recurrent network would see without those "
                "before them: set network.recurrent to None and network.frames to 4, say, or use bc or marwil."
            )
        if network.imitation_threshold is not None:
            raise ConfigError(
                "network.imitation_threshold is what bcq sets in its policy: leave it out, and set bcq.threshold."
            )
        if network.transformer is not None:
            raise ConfigError("network.transformer is what dt sets in its policy: leave it out, and set the parameters of dt.")
        self.config = config or self.config_class()
        self.build(observation_space, action_space, network, seed)

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        """Create the policy and the networks beside it; by default, a policy without a value function."""
        self.policy = Policy(observation_space, action_space, network, seed=seed)

    def prepare(self, steps: Steps, spec: BatchSpec) -> None:
        """Add the columns that batches need besides the stored and the refreshed ones. `spec` is that of the training."""

    def refresh(self, steps: Steps, spec: BatchSpec) -> None:
        """Renew the columns that depend on the present networks."""

    def refresh_rows(self, steps: Steps, spec: BatchSpec) -> float:
        """Return the cost of a refresh in observations that a network evaluates; 0 if there is nothing to renew."""
        return 0.0

    def before_update(self, updates: int) -> None:
        """Prepare for the update after so many."""
        self.updates = updates

    def forward(self, batch: Batch) -> LossOutput:
        """Return the loss of each step of a batch, in float32 whatever the networks compute in.

        Observations and actions are nested as their spaces, all columns (B, …); observations in the policy's layout.
        """
        raise NotImplementedError

    def mean_of_all(self, values: Tensor) -> Tensor:
        """Return the mean, over the batches of all learners while they learn; without gradients then."""
        if is_alone() or not torch.is_grad_enabled():
            return values.mean()
        sums = summed(torch.stack([values.detach().sum(), values.new_tensor(float(values.numel()))]) * self.counts)
        return sums[0] / sums[1]

    def after_update(self, means: dict[str, Tensor]) -> None:
        """Update target networks and running means; `means` are those of the metrics, over the batches of all learners."""

    def log_metrics(self, means: dict[str, float]) -> dict[str, float]:
        """Return the metrics to log, from means over the updates since the last report."""
        return means


def network_of(parameter: str) -> str:
    """Return the name of the network that a parameter of an algorithm belongs to: policy, value, critics, …"""
    return "value" if parameter.startswith("policy.value") else parameter.partition(".")[0]


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put the module in evaluation mode, and each part back into its own mode afterwards."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@torch.no_grad()
def values_of(policy: Policy, steps: Steps, rows: Tensor, spec: BatchSpec) -> Tensor:
    """Return the policy's present values (len(rows),) float32 of these rows' observations, in evaluation mode.

    A recurrent policy runs once through each sequence with one of the rows in it, with the burn-in of the training.
    Memory: `ROWS_AT_A_TIME` observations.
    """
    with evaluating(policy):
        if spec.sequence_steps is None:
            return torch.cat([_values(policy, steps, part, spec.frames) for part in rows.split(ROWS_AT_A_TIME)])
        since = rows - steps.first[steps.episode[rows].long()]
        starts, sequence = (rows - since % spec.sequence_steps).unique(return_inverse=True)
        episode, length = steps.episode[starts].long(), observations_a_sequence(spec)
        begin = torch.maximum(starts - spec.burn_in_steps, steps.first[episode])
        seen = torch.minimum(begin[:, None] + torch.arange(length, device=rows.device), steps.last[episode][:, None])
        values = torch.cat([_values(policy, steps, part) for part in seen.split(max(1, ROWS_AT_A_TIME // length))])
        return values[sequence, rows - begin[sequence]]


def _values(policy: Policy, steps: Steps, rows: Tensor, frames: int = 1) -> Tensor:
    """Return the values of rows (B,), or of sequences of rows (S, L), in the shape of `rows`."""
    batch = steps.batch(rows.flatten(), BatchSpec((columns.OBS,), frames=frames))
    batch = {path: column.unflatten(0, rows.shape) for path, column in batch.items()}
    values = policy.values(nested.unflatten(batch, columns.OBS, policy.observation_space))
    return values.reshape(rows.shape).float()


def observations_a_sequence(spec: BatchSpec) -> int:
    """Return how many observations `values_of` evaluates for a single value."""
    return 1 if spec.sequence_steps is None else spec.burn_in_steps + spec.sequence_steps


def observations_of_all(steps: Steps, spec: BatchSpec) -> int:
    """Return how many observations `values_of` evaluates for the values of all rows."""
    if spec.sequence_steps is None:
        return len(steps.episode)
    sequences = (steps.last - steps.first) // spec.sequence_steps + 1
    return int(sequences.sum()) * observations_a_sequence(spec)
