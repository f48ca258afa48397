"""The base of all algorithms: parameters, and what they make of networks and steps. Torch is imported later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import gymnasium as gym
from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config

if TYPE_CHECKING:
    from torch import Tensor, nn

    from offline_core.data.environments.vector_env import Spaces
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch, BatchSpec, Steps

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
