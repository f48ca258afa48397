"""Parameters: checked on construction, frozen, described, and wrong ones named all at once."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
from typing import Any

import pytest
from pydantic import Field, ValidationError, model_validator

import offline_core
from offline_core.errors import ConfigError
from offline_core.policies.evaluation import EvaluationConfig
from offline_core.runtime.config import Config, parse
from offline_core.runtime.parameter_names import SYNONYMS, paths_of
from offline_core.runtime.stage import STAGES, load
from offline_core.runtime.stage import Stage as _Stage


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
    assert lines[0] == "5 wrong parameters of stage:"
    by_name = {line.strip().partition(":")[0]: line for line in lines[1:]}
    assert by_name.keys() == {"rate", "range.low", "range.middle", "speed", "names.1"}
    assert by_name["rate"] == "  rate: has to be greater than 0.0 (got -1.5)"
    assert "'left'" in by_name["range.low"]
    assert "there is no such parameter" in by_name["speed"]


@pytest.mark.parametrize(
    ("model", "wrong", "meant"),
    [
        ("learning.config:TrainingConfig", {"environment": {"id": "CartPole-v1"}}, "evaluation.environment"),
        ("learning.config:TrainingConfig", {"batch_size": 32}, "optimizer.batch_size"),
        ("policies.recording.config:RecordingConfig", {"max_rows_per_file": 25}, "files.max_rows_per_file"),
        ("data.importing.config:ImportConfig", {"last_new_obs": "drop"}, "episodes.last_new_obs"),
        ("learning.config:TrainingConfig", {"optimiser": {}}, "optimizer"),
        ("learning.config:TrainingConfig", {"optimizer": {"batch_sise": 8}}, "optimizer.batch_size"),
        ("learning.config:TrainingConfig", {"target_retrun": 8}, "evaluation.target_return"),
        ("learning.config:TrainingConfig", {"lr": 1e-3}, "optimizer.learning_rate"),
        ("learning.config:TrainingConfig", {"optimizer": {"lr": 1e-3}}, "optimizer.learning_rate"),
        (
            "learning.config:TrainingConfig",
            {"optimizer": {"networks": {"policy": {"lr": 1e-3}}}},
            "optimizer.networks.policy.learning_rate",
        ),
        ("learning.config:TrainingConfig", {"epochs": 3}, "optimizer.max_epochs"),
        ("learning.config:TrainingConfig", {"training": {"max_updates": 3}}, "optimizer.max_updates"),
        ("learning.config:TrainingConfig", {"net_arch": [64]}, "network.hidden_sizes"),
        ("learning.config:TrainingConfig", {"random_state": 1}, "seed"),
        ("learning.config:TrainingConfig", {"discount": 0.9, "algorithm": "cql"}, "cql.gamma"),
        (
            "learning.config:TrainingConfig",
            {"algorithm": "td3_bc", "td3_bc": {"policy_freq": 2}},
            "td3_bc.policy_interval_updates",
        ),
        ("learning.config:TrainingConfig", {"algorithm": "iql", "iql": {"temperature": 0.3}}, "iql.beta"),
        ("learning.experts.config:ExpertConfig", {"total_timesteps": 9}, "total_steps"),
        ("learning.experts.config:ExpertConfig", {"lr": 1e-3, "algorithm": "sac"}, "optimizer.learning_rate"),
        ("judging.sweeps.config:SweepConfig", {"lr": 1e-3}, "training.optimizer.learning_rate"),
    ],
)
def test_a_parameter_of_another_group_is_named_where_it_is(model: str, wrong: dict[str, Any], meant: str) -> None:
    module, _, name = model.partition(":")
    kind = getattr(importlib.import_module(f"offline_core.{module}"), name)
    with pytest.raises(ConfigError, match=rf"there is no such parameter; did you mean {re.escape(meant)}( or .*)?\? \(got"):
        parse(kind, wrong)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"algorithm": "margwil"}, "there is no algorithm 'margwil' (did you mean marwil?); there are bc, marwil, dqn"),
        ({"algorithm": "TD3+BC"}, "did you mean td3_bc?"),
        (
            {"network": {"activation": "ReLu"}},
            "has to be tanh, relu, silu, gelu, elu or linear; did you mean relu? (got 'ReLu')",
        ),
        ({"algorithm": "cql", "preset": "locomation"}, "no preset 'locomation' (did you mean locomotion?)"),
        ({"compute": {"learners": "atuo"}}, "has to be auto, or a whole number; did you mean auto? (got 'atuo')"),
        ({"optimizer": "adam"}, "has to be a group of parameters, by their names, such as {learning_rate: …}"),
    ],
)
def test_a_value_that_is_not_one_of_the_choices_is_said_with_the_nearest(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        parse(load("learning.config:TrainingConfig"), wrong)


def test_people_s_other_names_lead_to_parameters_that_exist() -> None:
    ours = {path.rpartition(".")[2] for stage in STAGES.values() for path in paths_of(load(stage.config), "")}
    assert not SYNONYMS.keys() - ours


WRONG: list[Any] = ["none_at_all", "", 1.5, -1, 10**30, "9" * 5_000, float("nan"), float("inf"), True, None, [], [[]], [1] * 5]
WRONG += [{}, {"x": 1}, {1: 2}, "\ud800", b"\xff", object(), {1, 2}]


@pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.name)
def test_what_is_wrong_is_never_said_in_pydantic_s_words(stage: _Stage[..., Any]) -> None:
    """Whatever a parameter is given: each of them, each kind of wrong value."""
    model = load(stage.config)
    told = set()
    for path in paths_of(model, ""):
        *groups, last = path.split(".")
        for value in WRONG:
            values: Any = {last: value}
            for group in reversed(groups):
                values = {group: values}
            with contextlib.suppress(ValidationError):
                model.model_validate(values)
                continue
            with pytest.raises(ConfigError) as caught:
                parse(model, values)
            told.add(str(caught.value))
    assert told
    raw = re.compile(
        r"Input should|Value error|a valid|should (be|have)|Field required|Extra inputs|is not accepted \(|[Uu]nable"
    )
    assert [text for text in told if raw.search(text)] == []


def test_parse_names_the_model_when_no_single_parameter_is_wrong() -> None:
    with pytest.raises(ConfigError, match=r"range: .*low has to be at most high"):
        parse(Range, {"low": 2.0, "high": 1.0})


def test_configs_are_frozen_and_their_defaults_are_checked() -> None:
    class Wrong(Config):
        rate: float = Field(-1.0, gt=0)

    with pytest.raises(ValidationError, match="rate"):
        Wrong()
    with pytest.raises(ValidationError, match="frozen"):
        EvaluationConfig().episodes = 3  # type: ignore[misc]


@pytest.mark.parametrize("model", all_configs(), ids=lambda model: model.__name__)
def test_every_parameter_is_described(model: type[Config]) -> None:
    """The descriptions are the form in Prefect's UI."""
    assert [name for name, field in model.model_fields.items() if not field.description] == []
    assert model.__doc__


def test_no_parameters_have_keys() -> None:
    """Prefect calls dict() on each model that it is given, which calls a method or property `keys` wherever there is one."""
    for stage in STAGES.values():
        load(stage.config)
    waiting = [Config]
    for model in waiting:  # it grows meanwhile
        waiting += model.__subclasses__()
        assert not hasattr(model, "keys"), model
    assert len(waiting) > 50
