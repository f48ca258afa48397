"""The base of all algorithms: parameters, and what they make of networks and steps. Torch is imported later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import gymnasium as gym
from pydantic import Field

from offline_core.data.episodes import columns, nested
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from offline_core.data.environments.vector_env import Spaces
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch, BatchSpec, Steps
    from offline_core.policies.policy import Policy

Gamma = Annotated[float, Field(ge=0, le=1, description="Discount of the rewards, per step.")]

ROWS_AT_A_TIME = 65_536
"""Rows that are evaluated together outside of updates: bounds the memory."""


class LossOutput(NamedTuple):
    """One number a step, (B,) each. The learner takes means over the steps of all learners, without padding."""

    loss: Tensor
    metrics: dict[str, Tensor]
    """To log: as means, but for names that end in `_min` or `_max` as the smallest or largest."""
    errors: Tensor | None = None
    """Value errors of the steps, without gradients, not negative. A prioritised replay buffer draws by them."""


class Algorithm(Config):
    """Parameters of a way to learn, and the functions of networks that it is. Fields are parameters, checked as in a form.

    An algorithm keeps nothing: what it learns, counts and remembers are parts of `Networks`, which calls it. A subclass has a
    `loss` at least.
    """

    stored: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS)
    """Columns that the dataset must have."""
    batch_columns: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS)
    """Columns of a batch: stored ones, `new_obs`, and what `prepare` and `refresh` add to the steps."""
    needs_next_obs: ClassVar[bool] = False
    """It needs the observation after an episode's last step."""
    has_value_function: ClassVar[bool] = False
    """It learns the value of an observation, too."""
    loss_compares: ClassVar[bool] = False
    """Losses of different updates can be compared, for no learned network defines them. Then the lowest held-out loss chooses
    the best policy where none is played, and `patience` can wait for it."""
    has_errors: ClassVar[bool] = False
    """Its `LossOutput`s have errors."""
    records_after_update: ClassVar[bool] = False
    """Its own `after_update` goes by tensors and plain attributes of the networks alone, so a GPU may replay what it did."""
    adam_epsilon: ClassVar[float] = 1e-8
    """Added to the root of the mean squared gradient that Adam divides by."""

    @property
    def sequence_steps(self) -> int | None:
        """It learns from sequences of so many steps, cut elsewhere in each epoch. None: as the network remembers."""
        return None

    @property
    def epochs_per_rollout(self) -> int | None:
        """It learns so often from each step that its policy plays, and then forgets it. None: it draws from all of them."""
        return None

    @property
    def reward_scale_gamma(self) -> float | None:
        """It learns from played rewards divided by the deviation of the returns so far, discounted by this. None: undivided."""
        return None

    def for_actions(self, space: gym.Space[Any]) -> Algorithm:
        """Return the algorithm to learn such actions by, which may be another one.

        Raises:
            ConfigError: A parameter has no effect with these actions.
        """
        return self

    def build(self, networks: Networks, spaces: Spaces, network: NetworkConfig, seed: int) -> None:
        """Set `networks.policy` and the networks beside it; by default, a policy of its `policy_network` alone.

        Raises:
            ConfigError: It cannot learn to act in these spaces, or with such a network.
        """
        from offline_core.policies.policy import Policy

        network = self.policy_network(network, spaces[1])
        networks.policy = Policy(*spaces, network, value_function=self.has_value_function, seed=seed)

    def policy_network(self, network: NetworkConfig, action_space: gym.Space[Any]) -> NetworkConfig:
        """Return the network of the policy: `network` with what the algorithm needs, such as an action distribution.

        Raises:
            ConfigError: It needs another one, or cannot act in this space.
        """
        return network

    def prepare(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        """Add the columns that batches need besides the stored and the refreshed ones. `spec` is that of the training."""

    def refresh(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        """Renew the columns that depend on the present networks."""

    def refresh_rows(self, networks: Networks, steps: Steps, spec: BatchSpec) -> float:
        """Return the cost of a refresh in observations that a network evaluates; 0 if there is nothing to renew."""
        return 0.0

    def before_update(self, networks: Networks) -> None:
        """Prepare for the next update, the one after `networks.updates`."""

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        """Return the loss of each step of a batch, in float32 whatever the networks compute in.

        Observations and actions are nested as their spaces, all columns (B, …); observations in the policy's layout.
        """
        raise NotImplementedError

    def after_update(self, networks: Networks, means: dict[str, Tensor]) -> None:
        """Update target networks and running means; `means` are those of the metrics, over the batches of all learners."""

    def log_metrics(self, networks: Networks, means: dict[str, float]) -> dict[str, float]:
        """Return the metrics to log, from means over the updates since the last report."""
        return means


def network_of(parameter: str) -> str:
    """Return the name of the network that a parameter belongs to: policy, value, critics, …"""
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


def values_of(policy: Policy, steps: Steps, rows: Tensor, spec: BatchSpec) -> Tensor:
    """Return the policy's present values (len(rows),) float32 of these rows' observations, in evaluation mode.

    A recurrent policy runs once through each sequence with one of the rows in it, with the burn-in of the training.
    Memory: `ROWS_AT_A_TIME` observations.
    """
    one_step = replace(spec, columns=(columns.OBS,), sequence_steps=None)
    with torch.no_grad(), evaluating(policy):
        if spec.sequence_steps is None:
            return torch.cat([_values(policy, steps, part, one_step) for part in rows.split(ROWS_AT_A_TIME)])
        since = rows - steps.first[steps.episode[rows].long()]
        starts, sequence = (rows - since % spec.sequence_steps).unique(return_inverse=True)
        episode, length = steps.episode[starts].long(), observations_a_sequence(spec)
        begin = torch.maximum(starts - spec.burn_in_steps, steps.first[episode])
        seen = torch.minimum(begin[:, None] + torch.arange(length, device=rows.device), steps.last[episode][:, None])
        values = torch.cat([_values(policy, steps, part, one_step) for part in seen.split(max(1, ROWS_AT_A_TIME // length))])
        return values[sequence, rows - begin[sequence]]


def _values(policy: Policy, steps: Steps, rows: Tensor, spec: BatchSpec) -> Tensor:
    """Return the values of rows (B,), or of sequences of rows (S, L), in the shape of `rows`."""
    batch = steps.batch(rows.flatten(), spec)
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
