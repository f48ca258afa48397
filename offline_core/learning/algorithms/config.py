"""Parameters of the algorithms; behaviour cloning has none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
from pydantic import Field

from offline_core.config import Config
from offline_core.errors import ConfigError


class MARWILConfig(Config):
    """Cloning that weighs each step by how well it went on (Wang et al. 2018)."""

    beta: float = Field(
        1.0, ge=0, le=100, title="Beta", description="How much better steps count more; 0 is behaviour cloning."
    )
    gamma: float = Field(0.99, ge=0, le=1, title="Gamma", description="Discount of the rewards, per step.")
    gae_lambda: float = Field(
        1.0,
        ge=0,
        le=1,
        title="Lambda",
        description="Value targets: 1 trusts the rewards that came, 0 the value function one step on.",
    )
    value_coefficient: float = Field(
        1.0, gt=0, le=1e6, title="Value coefficient", description="Weight of the value function's loss."
    )
    max_weight: float = Field(20.0, gt=0, le=1e6, title="Largest weight", description="A step counts this much at most.")
    normalizer_rate: float = Field(
        0.01,
        gt=0,
        le=1,
        title="Normaliser rate",
        description="How far an update moves the mean squared advantage, which advantages are divided by the root of.",
    )
    normalizer_start: float | None = Field(
        None,
        gt=0,
        title="Normaliser start",
        description="The mean squared advantage to begin with; None: that of the data, of 65,536 steps at most, and when "
        "streaming of the first window. RLlib's is 100, with a rate of 1e-8.",
    )


class DQNConfig(Config):
    """Q-learning from saved experience (Mnih et al. 2015)."""

    gamma: float = Field(0.99, ge=0, le=1, title="Gamma", description="Discount of the rewards, per step.")
    n_step: int = Field(
        3, ge=1, le=1_000, title="Steps", description="Rewards that are summed up before the target network is asked."
    )
    double: bool = Field(
        True, title="Double", description="The learned network chooses the next action, the target network values it."
    )
    dueling: bool = Field(True, title="Dueling", description="Q is the sum of a value and the actions' advantages.")
    target_network_interval_updates: int = Field(
        500, ge=1, le=10**9, title="Target interval", description="Updates after which the target network is replaced."
    )


class CQLConfig(DQNConfig):
    """Q-learning that keeps what it has not seen below what it has (Kumar et al. 2020)."""

    n_step: int = Field(
        1,
        ge=1,
        le=1_000,
        title="Steps",
        description="Rewards that are summed up before the target networks are asked: 1 in the paper and in RLlib. With more, "
        "actions are worth what whoever acted in the data made of them.",
    )
    alpha: float = Field(
        1.0,
        ge=0,
        le=1e6,
        title="Alpha",
        description="Weight of the conservative penalty; 0 is plain Q-learning. It stands beside δ² for continuous actions, as "
        "in RLlib, and beside Huber's δ²/2 for others, where the same alpha is twice as much.",
    )
    action_samples: int = Field(
        10,
        ge=1,
        le=1_000,
        title="Action samples",
        description="Continuous actions only: how many of each kind the penalty is estimated from. There double, dueling and "
        "the target interval are refused.",
    )
    target_rate: float = Field(
        0.005,
        gt=0,
        le=1,
        title="Target rate",
        description="Continuous actions only: how far an update moves the target critics to the learned ones.",
    )


FOR_LISTED_ACTIONS = ("double", "dueling", "target_network_interval_updates")
FOR_CONTINUOUS_ACTIONS = ("action_samples", "target_rate")


def refuse_changed(names: Iterable[str], config: CQLConfig, actions: gym.Space[Any]) -> None:
    """Parameters that have no say with these actions have to be as they are by default.

    Raises:
        ConfigError: some of them are not; the message names them.
    """
    fields = CQLConfig.model_fields
    if changed := [f"cql.{name}" for name in names if getattr(config, name) != fields[name].default]:
        raise ConfigError(f"With actions in {actions}, {' and '.join(changed)} would change nothing: leave that out.")


class IQLConfig(Config):
    """Values from the better actions of the data alone (Kostrikov et al. 2021)."""

    beta: float = Field(
        3.0, ge=0, le=1e4, title="Beta", description="How much better actions count more, per unit of reward; 0 clones."
    )
    expectile: float = Field(
        0.7, gt=0, lt=1, title="Expectile", description="0.5 values the data's average action, towards 1 its best."
    )
    gamma: float = Field(0.99, ge=0, le=1, title="Gamma", description="Discount of the rewards, per step.")
    max_weight: float = Field(100.0, gt=0, le=1e6, title="Largest weight", description="A step counts this much at most.")
    target_rate: float = Field(
        0.005, gt=0, le=1, title="Target rate", description="How far an update moves the target networks to the learned ones."
    )
