"""Parameters: checked on construction, frozen, described, and wrong ones named all at once."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from pydantic import Field, ValidationError, model_validator

import offline_core
from offline_core.errors import ConfigError, OfflineError
from offline_core.evaluation.config import EvaluationConfig
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config, EnvironmentSpec, parse


class Range(Config):
    low: float = Field(0.0, description="Lower end.")
    high: float = Field(1.0, description="Upper end.")

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if self.low > self.high:
            raise ValueError("low has to be at most high")
        return self


class Stage(Config):
    rate: float = Field(0.1, gt=0, description="A rate.")
    range: Range = Field(Range(), description="A range.")
    names: list[str] = Field([], description="Some names.")


def all_configs() -> list[type[Config]]:
    """Every parameter model of the core, wherever it is defined."""
    for module in pkgutil.walk_packages(offline_core.__path__, "offline_core."):
        if module.name.endswith("config"):
            importlib.import_module(module.name)
    pending, found = [Config], []
    while pending:
        children = [child for child in pending.pop().__subclasses__() if child.__module__.startswith("offline_core.")]
        found += children
        pending += children
    return found


def test_parse_names_every_wrong_parameter_with_what_was_given() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Stage, {"rate": -1.5, "range": {"low": "left", "middle": 3}, "speed": 9, "names": ["fine", 4]})
    lines = str(caught.value).splitlines()
    assert lines[0] == "5 wrong parameter(s) for Stage:"
    by_name = {line.strip().partition(":")[0]: line for line in lines[1:]}
    assert by_name.keys() == {"rate", "range.low", "range.middle", "speed", "names.1"}
    assert "greater than 0" in by_name["rate"] and "-1.5" in by_name["rate"]
    assert "'left'" in by_name["range.low"]
    assert "not permitted" in by_name["speed"]


def test_parse_names_the_model_when_no_single_parameter_is_wrong() -> None:
    with pytest.raises(ConfigError, match=r"Range: .*low has to be at most high"):
        parse(Range, {"low": 2.0, "high": 1.0})


def test_parse_returns_the_model() -> None:
    assert parse(Stage, {"rate": "0.5", "range": {"high": 7}}) == Stage(rate=0.5, range=Range(low=0.0, high=7.0))


def test_a_wrong_parameter_is_an_error_of_this_package_and_a_value_error() -> None:
    for kind in (OfflineError, ValueError):
        with pytest.raises(kind):
            parse(Stage, {"rate": 0})


def test_configs_are_frozen() -> None:
    config = EvaluationConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.episodes = 3  # type: ignore[misc]
    assert config == EvaluationConfig()


def test_unknown_names_are_refused_on_construction() -> None:
    with pytest.raises(ValidationError, match="episode_count"):
        EvaluationConfig(episode_count=3)  # type: ignore[call-arg]


def test_defaults_are_checked_too() -> None:
    class Wrong(Config):
        rate: float = Field(-1.0, gt=0)

    with pytest.raises(ValidationError, match="rate"):
        Wrong()


def test_instances_do_not_share_their_defaults() -> None:
    NetworkConfig().hidden_sizes.append(3)
    EnvironmentSpec().kwargs["a"] = 1
    assert NetworkConfig().hidden_sizes == [64, 64]
    assert EnvironmentSpec().kwargs == {}


@pytest.mark.parametrize("sizes", [[0], [64, -1], [65_537], [1] * 11, ["many"]])
def test_impossible_layers_are_refused(sizes: list[Any]) -> None:
    with pytest.raises(ConfigError, match="hidden_sizes"):
        parse(NetworkConfig, {"hidden_sizes": sizes})


@pytest.mark.parametrize("values", [{"episodes": 0}, {"episodes": 1_000_001}, {"seed": -1}, {"environment": {"name": "x"}}])
def test_impossible_evaluations_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        parse(EvaluationConfig, values)


@pytest.mark.parametrize("model", all_configs(), ids=lambda model: model.__name__)
def test_every_parameter_is_described(model: type[Config]) -> None:
    """The descriptions are the form in Prefect's UI."""
    assert [name for name, field in model.model_fields.items() if not field.description] == []
    assert model.__doc__


def test_configs_survive_json() -> None:
    environment = EnvironmentSpec(id="Pendulum-v1", kwargs={"g": 9.8, "nested": {"a": [1, None]}})
    config = EvaluationConfig(episodes=3, seed=9, explore=True, environment=environment)
    assert EvaluationConfig.model_validate_json(config.model_dump_json()) == config
