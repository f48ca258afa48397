"""Presets: the references' settings below the user's."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

from offline_core.errors import ConfigError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.presets import TRAINING_PRESETS
from offline_core.learning.trainer_config import OptimizerConfig
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import parse
from tests.learning.algorithms.making import BOX, TWO, VECTOR, make_networks

ALL = [(algorithm, preset) for algorithm, presets in TRAINING_PRESETS.items() for preset in presets]


@pytest.mark.parametrize(("algorithm", "preset"), ALL)
def test_each_is_a_training_of_its_algorithm(algorithm: str, preset: str) -> None:
    config = TrainingConfig(algorithm=algorithm, preset=preset)
    own = getattr(config, algorithm)
    own = own.of_dataset(-1.0, 2.0) if algorithm == "dt" else own
    made = make_networks(algorithm, VECTOR, BOX, config.network, own)
    if algorithm != "dt":
        assert config.optimizer.max_updates == 1_000_000 and made.policy.network.hidden_sizes[0] == 256


def test_what_is_given_wins_nested() -> None:
    config = TrainingConfig(
        algorithm="iql", preset="locomotion", iql={"beta": 7.0}, optimizer=OptimizerConfig(batch_size=64, learning_rate=1e-3)
    )
    assert (config.iql.beta, config.iql.expectile) == (7.0, 0.7)
    assert (config.optimizer.batch_size, config.optimizer.learning_rate, config.optimizer.max_updates) == (64, 1e-3, 1_000_000)


def test_what_was_expanded_means_the_same_once_more() -> None:
    """Also a value that is set back to a default against the preset."""
    config = TrainingConfig(algorithm="iql", preset="locomotion", optimizer={"learning_rate": 1e-3})
    dumped = config.model_dump(mode="json")
    assert "preset" not in dumped and TrainingConfig(**dumped) == config


def test_a_form_gives_all_values_and_its_defaults_do_not_count() -> None:
    filled: dict[str, Any] = TrainingConfig().model_dump(mode="json") | {"algorithm": "td3_bc", "preset": "locomotion"}
    filled["optimizer"] = filled["optimizer"] | {"batch_size": 512}
    config = TrainingConfig(**filled)
    wanted = TrainingConfig(algorithm="td3_bc", preset="locomotion", optimizer={"batch_size": 512})
    assert config == wanted


def test_unknown_ones_are_refused() -> None:
    with pytest.raises(ConfigError, match="of the algorithm iql there is no preset 'humanoid'; there are locomotion, antmaze"):
        parse(TrainingConfig, {"algorithm": "iql", "preset": "humanoid"})
    with pytest.raises(ConfigError, match="of the algorithm dqn there is no preset 'locomotion'; there is none"):
        parse(TrainingConfig, {"algorithm": "dqn", "preset": "locomotion"})


def test_one_that_does_not_fit_the_spaces_is_refused_before_training() -> None:
    config = TrainingConfig(algorithm="iql", preset="locomotion")
    with pytest.raises(ConfigError, match=r"no Box, and network.bounded_mean is for Box"):
        make_networks("iql", VECTOR, TWO, config.network, config.iql)
    with pytest.raises(ConfigError, match=r"ReBRAC chooses continuous actions; it cannot act in Discrete"):
        make_networks("rebrac", VECTOR, gym.spaces.Discrete(3))


def test_a_model_says_what_was_set_in_it_also_to_a_default() -> None:
    config = TrainingConfig(algorithm="iql", preset="locomotion", network=NetworkConfig(bounded_mean=False))
    assert not config.network.bounded_mean and config.network.hidden_sizes == [256, 256]


def test_a_form_may_leave_out_what_is_none() -> None:
    """As one that was saved before these were there."""
    filled: dict[str, Any] = TrainingConfig().model_dump(mode="json", exclude={"initial_policy", "keep"})
    filled |= {"algorithm": "iql", "preset": "adroit", "bc": {}}
    assert TrainingConfig(**filled) == TrainingConfig(algorithm="iql", preset="adroit")


def test_a_form_that_chooses_sac_has_its_defaults() -> None:
    filled: dict[str, Any] = ExpertConfig().model_dump(mode="json") | {"algorithm": "sac"}
    assert ExpertConfig(**filled) == ExpertConfig(algorithm="sac") != ExpertConfig()


def test_the_text_of_yaml_says_as_much_as_its_values() -> None:
    said = {"algorithm": "iql", "preset": "locomotion"}
    text, values = {"network": "dropout: 0.1"}, {"network": {"dropout": 0.1}}
    assert parse(TrainingConfig, said | text) == parse(TrainingConfig, said | values)
    assert parse(ExpertConfig, {"algorithm": "sac"} | text) == parse(ExpertConfig, {"algorithm": "sac"} | values)
