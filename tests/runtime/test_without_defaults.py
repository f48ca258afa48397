"""What was asked for: a config without its defaults, of which identities are made."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from offline_core.data.curation.config import PruningConfig
from offline_core.data.importing.config import ImportConfig
from offline_core.errors import ConfigError
from offline_core.judging.estimation.config import EstimateConfig, FQEConfig
from offline_core.learning.config import TrainingConfig
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config, EnvironmentSpec, parse, without_defaults
from offline_core.runtime.overlay import overlaid
from offline_core.runtime.stage import STAGES, load
from tests.defaults import models_in
from tests.runtime.test_config import all_configs

ENVIRONMENTS = [None, {}, {"id": "CartPole-v1"}, {"kwargs": {}}, {"action_mask": True}]
ENVIRONMENTS += [{"kwargs": {"limit": each}} for each in (None, {}, 0.0, inf, -inf)]
CODE: list[dict[str, Any]] = [{"path": "a:B"}, {"path": "a:B", "arguments": {}}, {"path": "a:B", "arguments": {"x": None}}]
VALUES: dict[type[Config], dict[str, list[Any]]] = {
    TrainingConfig: {
        "algorithm": ["bc", "marwil", *CODE],
        "marwil": [None, {}, {"beta": 1.0}, {"beta": 3.0}],
        "network": [None, {}, {"squash": False}, {"squash": True}, {"hidden_sizes": []}],
        "optimizer.learning_rate": [1e-3, 1e-4],
        "optimizer.networks": [{}, {"policy": {}}, {"policy": {"schedule": "constant"}}, {"policy": {"schedule": "cosine"}}],
        "evaluation.environment": ENVIRONMENTS,
        "evaluation.play": [True, False],
        "keep": [None, {"last": 2}],
        "data.buffer": [None, {}, {"read_episodes": 3}],
        "data.rewards": [{}, {"scale": 1}, {"scale": 1.0}, {"scale": "return_range"}],
        "data.connectors": [[], *([each] for each in CODE), CODE],
    },
    EstimateConfig: {
        "fqe.network": [None, {}, {"activation": "relu"}, {"activation": "relu", "normalize_observations": True}],
        "horizon": ["recorded", 5, None],
    },
    ImportConfig: {
        "mapping": [{}, {"obs": "o"}, {"obs": ["a", "b"]}],
        "columns": [{}, {"computed": {}}, {"computed": {"r": "a + 1"}}],
        "columns.encode": [{}, {"mode": {}}, {"mode": {"categories": "auto"}}, {"mode": {"categories": ["a", "b"]}}],
        "environment": ENVIRONMENTS,
        "observation_space": [None, {}],
        "recorded_action_range": [None, (-1, 1), (-1.0, 1.0), (0, 1)],
        "source.arguments": [{}, {"separator": ";"}, {"separator": None}],
    },
}


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Values by path as groups; a group that is there by itself has the values below it."""
    made: dict[str, Any] = {}
    for path, value in values.items():
        for name in reversed(path.split(".")):
            value = {name: value}
        made = overlaid(made, value)
    return made


@st.composite
def two_configs(draw: st.DrawFn) -> tuple[Config, Config]:
    """Two that differ in one value at most, which may be another way to say the same."""
    model = draw(st.sampled_from([*VALUES]))
    paths = VALUES[model]
    given_paths = draw(st.lists(st.sampled_from([*paths]), max_size=4, unique=True))
    values = {path: draw(st.sampled_from(paths[path])) for path in given_paths}
    path = draw(st.sampled_from([*paths]))
    others = values | {path: draw(st.sampled_from(paths[path]))}
    try:
        return parse(model, nested(values)), parse(model, nested(others))
    except ConfigError:
        assume(False)
        raise


@given(two_configs())
def test_configs_have_the_same_values_exactly_if_they_are_equal(configs: tuple[Config, Config]) -> None:
    one, other = (json.dumps(without_defaults(each), sort_keys=True) for each in configs)
    assert (one == other) == (configs[0] == configs[1])
    for config, text in zip(configs, (one, other), strict=True):
        assert type(config).model_validate(json.loads(text)) == config


@pytest.mark.parametrize("name", STAGES)
def test_nothing_is_asked_for_by_the_defaults(name: str) -> None:
    config: type[BaseModel] = load(STAGES[name].config)
    if not any(field.is_required() for field in config.model_fields.values()):
        assert without_defaults(config()) == {}


def test_a_group_is_told_from_none_and_from_another_default() -> None:
    assert without_defaults(PruningConfig(where="length > 3")) == {"where": "length > 3"}
    assert without_defaults(EstimateConfig(fqe=FQEConfig(network=NetworkConfig()))) == {"fqe": {"network": {}}}
    assert without_defaults(ImportConfig(environment=EnvironmentSpec())) == {"environment": {}}


def test_no_parameter_may_be_either_of_two_groups() -> None:
    """Both at their defaults would be the same: {}."""
    for config in all_configs():
        for name, field in config.model_fields.items():
            groups = {group for group, _ in models_in(field.annotation)}
            assert len(groups) < 2, f"{config.__name__}.{name}: without_defaults has to keep what tells {groups} apart"


def test_a_group_of_which_only_excluded_values_differ_is_not_asked_for() -> None:
    config = parse(TrainingConfig, {"compute": {"learners": 2}, "evaluation": {"environment": {}}})
    assert without_defaults(config, exclude={"compute": {"learners"}}) == {"evaluation": {"environment": {}}}


def test_arguments_of_an_environment_are_kept_whole() -> None:
    """Also a model among them, whose defaults are not those of a parameter here."""
    spec = EnvironmentSpec(kwargs={"inner": EnvironmentSpec(), "none": None})
    assert without_defaults(spec) == {
        "kwargs": {"inner": {"id": "CartPole-v1", "kwargs": {}, "action_mask": False}, "none": None}
    }
