"""What Prefect's form shows: every parameter by its name, described, bounded where it can be, and no more than one can read."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect import Flow
from prefect.exceptions import ParameterTypeError
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from flows import short_forms
from flows.stages import import_data, train
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.planning.plan import plan_import
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.learning.config import TrainingConfig
from offline_core.runtime import config
from offline_core.runtime.config import EnvironmentSpec
from tests.deployments.flows import FLOWS, FORMS


def models(model: type[BaseModel]) -> set[type[BaseModel]]:
    found = {model}
    for field in model.model_fields.values():
        for part in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= models(part)
    return found


def is_one_line(field: FieldInfo) -> bool:
    """A group that is None unless it is opened: one line of a form."""
    kinds = typing.get_args(field.annotation)
    if config.is_closed(field):
        return True
    is_group = any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)
    return is_group and type(None) in kinds and field.default is None


ALL_MODELS = {
    found
    for flow in FLOWS
    for name, hint in typing.get_type_hints(flow.fn).items()
    if name != "return" and isinstance(hint, type) and issubclass(hint, BaseModel)
    for found in models(hint)
}


@pytest.mark.parametrize("flow", FORMS, ids=lambda flow: flow.fn.__name__)
def test_every_top_level_parameter_has_a_default_and_a_description(flow: Flow) -> None:
    schema = flow.parameters.model_dump()
    assert not schema.get("required")
    for name, entry in schema["properties"].items():
        assert entry.get("description"), f"{flow.name}: {name}"
        assert entry["title"] == name, f"{flow.name}: a label is the name of the parameter"


@pytest.mark.parametrize("flow", FORMS, ids=lambda flow: flow.fn.__name__)
def test_each_type_that_a_value_may_have_has_a_name_in_words(flow: Flow) -> None:
    assert None not in titles(flow.parameters.model_dump())


def titles(schema: dict[str, Any], definitions: dict[str, Any] | None = None) -> Iterator[str | None]:
    """What tabs show, of all parameters of a form, however deep; None where Prefect would show Python's "str" or "int"."""
    definitions = definitions if definitions is not None else schema["definitions"]
    for choice in schema.get("anyOf", ()):
        found = definitions[choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
        yield choice.get("title") or found.get("title")
    for part in schema.values():
        for each in part if isinstance(part, list) else [part]:
            if isinstance(each, dict):
                yield from titles(each, definitions)


MOST_SHOWN = {"ExpertConfig": 14, "NetworkConfig": 17, "SweepConfig": 13, "DecisionConfig": 13, "ImportConfig": 13}


@pytest.mark.parametrize("model", sorted(ALL_MODELS, key=lambda m: m.__name__), ids=lambda model: model.__name__)
def test_every_field_is_fit_for_a_form(model: type[BaseModel]) -> None:
    assert model.model_config["frozen"] and model.model_config["extra"] == "forbid"
    sections = model.model_json_schema()["properties"]
    shown = [field for name, field in model.model_fields.items() if name in sections and not is_one_line(field)]
    assert len(shown) <= MOST_SHOWN.get(model.__name__, 12), "more than a form shows at a glance: make groups"
    for name, field in model.model_fields.items():
        where = f"{model.__name__}.{name}"
        assert field.description and field.description.endswith((".", "}.")), where
        assert field.default_factory is None, f"{where}: a factory is invisible in the form"
        assert field.annotation is not SecretStr, where
        assert name not in sections or sections[name]["title"] == name, f"{where}: a label is the key in YAML"


@pytest.mark.parametrize("flow", FORMS, ids=lambda flow: flow.fn.__name__)
def test_the_defaults_are_valid_and_wrong_values_are_refused(flow: Flow) -> None:
    flow.validate_parameters({})
    with pytest.raises(Exception, match="nonsense"):
        flow.validate_parameters({"nonsense": 1})


def test_every_flow_has_a_form_of_few_fields() -> None:
    few = {flow.fn.__name__: len(list(leaves(flow.parameters.model_dump()["properties"], flow))) for flow in FORMS}
    for flow in FLOWS:
        name = flow.fn.__name__
        fields = few[f"{name}_short"] if name in short_forms.short_forms() else few[name]
        assert fields <= (8 if name in short_forms.short_forms() else 10), name


def leaves(properties: dict[str, Any], flow: Flow) -> Iterator[str]:
    """The inputs that a form shows before anything is opened."""
    definitions = flow.parameters.model_dump()["definitions"]
    for name, entry in properties.items():
        if group := opened(entry, definitions):
            yield from leaves(group["properties"], flow)
        else:
            yield name


def opened(entry: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    """The group whose fields a form shows for an entry before anything is opened."""
    first = entry if "$ref" in entry else next(iter(entry.get("anyOf", ())), {})
    group: dict[str, Any] = definitions.get(first.get("$ref", "").rpartition("/")[2], {})
    return group if "properties" in group and entry.get("default", {}) is not None else None


PAGE, GAP, LABEL, LINE, TABS, INPUT, SWITCH, EDITOR, NONE, CARD, TAB_GAP = 515, 16, 14, 20, 44, 44, 28, 36, 28, 34, 8
"""Pixels in Prefect 3.8's newer UI, 1,280 wide, each with the gap before it, as a browser measured them."""
CHARACTERS = 132
"""Of a description's line."""


def height(entry: dict[str, Any], definitions: dict[str, Any]) -> int:
    """About so many pixels a field of a form takes before anything is opened."""
    text = GAP + LABEL + (4 + LINE * -(-len(entry["description"]) // CHARACTERS) if entry.get("description") else 0)
    if group := opened(entry, definitions):
        inside = sum(height(each, definitions) for each in group["properties"].values())
        return text + inside + (TABS if "anyOf" in entry else CARD)
    if "anyOf" in entry:
        return text + TABS + (NONE if entry.get("default") is None else INPUT)
    kind = definitions[entry["$ref"].rpartition("/")[2]] if "$ref" in entry else entry
    return text + {"boolean": SWITCH, "object": EDITOR, "array": EDITOR}.get(kind.get("type", ""), INPUT)


@pytest.mark.parametrize("flow", FORMS, ids=lambda flow: flow.fn.__name__)
def test_no_form_is_much_longer_than_a_screen(flow: Flow) -> None:
    schema = flow.parameters.model_dump()
    found = PAGE + sum(height(entry, schema["definitions"]) for entry in schema["properties"].values())
    assert found <= (1_300 if flow.fn.__name__.endswith("_short") else 6_000)


def test_a_closed_group_is_its_defaults() -> None:
    assert TrainingConfig.model_validate({"marwil": None, "iql": None}) == TrainingConfig()
    form = TrainingConfig().model_dump() | {"algorithm": "iql", "preset": "locomotion"}
    shown = {name: None if config.is_closed(TrainingConfig.model_fields[name]) else form[name] for name in form}
    assert TrainingConfig.model_validate(shown) == TrainingConfig.model_validate({"algorithm": "iql", "preset": "locomotion"})


def test_a_short_form_runs_what_the_full_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(train, "fn", lambda **arguments: given.update(arguments))
    short_forms.train_short.fn(
        **{name: each.default for name, each in inspect.signature(short_forms.train_short.fn).parameters.items()}
        | {"algorithm": "iql", "preset": "locomotion", "max_updates": 500, "target_return": 99.0}
    )
    wanted = {
        "algorithm": "iql",
        "preset": "locomotion",
        "optimizer": {"max_updates": 500},
        "evaluation": {"target_return": 99.0},
    }
    assert given == {"config": TrainingConfig.model_validate(wanted)}
    assert given["config"].iql.beta == 3.0


def test_a_group_takes_the_yaml_that_a_plan_prints(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "episode,step,temperature,power,cost\n" + "".join(f"1,{t},{t}.5,1,-1\n" for t in range(9))
    )
    plan = plan_import(ImportConfig(), source=str(tmp_path / "log.csv"))
    commented = "".join(f"# {line}\n" for line in plan.page.splitlines()) + plan.yaml
    for text in (plan.yaml, commented):
        assert import_data.validate_parameters({"config": text})["config"] == plan.config


def test_a_group_in_a_group_takes_yaml_too_with_its_preset() -> None:
    text = "algorithm: iql\npreset: locomotion\niql: {beta: 5}"
    assert TrainingConfig.model_validate(text) == TrainingConfig.model_validate(
        {"algorithm": "iql", "preset": "locomotion", "iql": {"beta": 5}}
    )
    assert SweepConfig.model_validate({"training": text}) == SweepConfig.model_validate(
        {"training": {"algorithm": "iql", "preset": "locomotion", "iql": {"beta": 5}}}
    )
    assert ImportConfig.model_validate({"environment": "CartPole-v1"}).environment == EnvironmentSpec(id="CartPole-v1")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mapping: {obs: [", "config: is no YAML that can be read: .* in line 1, column 17"),
        ("mapping", "config: has to be a group of parameters, by their names"),
        ("maping: {obs: o}", "config.maping: there is no such parameter; did you mean config.mapping?"),
    ],
)
def test_yaml_that_is_wrong_is_refused_with_the_reason(text: str, told: str) -> None:
    with pytest.raises(ParameterTypeError, match=told):
        import_data.validate_parameters({"config": text})


def test_a_closed_group_of_a_chain_is_the_default_of_the_chain() -> None:
    from flows.logs_to_policy import logs_to_policy

    given = logs_to_policy.validate_parameters({"split": None, "pruning": "keep_top_fraction: 0.5"})
    assert given["split"].held_out_fraction == 0.3 and given["pruning"].keep_top_fraction == 0.5
    [_, fields, _] = logs_to_policy.parameters.properties["split"]["anyOf"]
    assert fields["default"]["held_out_fraction"] == 0.3, "what the fields begin with when they are opened"


def test_a_short_form_takes_logs_that_are_not_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(import_data, "fn", lambda **arguments: given.update(arguments))
    text = "columns: {fill: {tin: 0}, computed: {reward: -power}}\nepisodes: {order: time}\nmapping: {obs: tout}"
    form = short_forms.import_data_short
    form.fn(**form.validate_parameters({"source": "log.csv", "config": text, "mapping": {"obs": "tin"}}))
    wanted = {"columns": {"fill": {"tin": 0}, "computed": {"reward": "-power"}}, "episodes": {"order": "time"}}
    assert given == {"source": "log.csv", "config": ImportConfig.model_validate(wanted | {"mapping": {"obs": "tin"}})}


@pytest.mark.parametrize("name", ["logs_to_policy_short", "improve_policy_short"])
def test_short_forms_from_logs_take_all_that_an_import_does(name: str) -> None:
    form = getattr(short_forms, name)
    given = form.validate_parameters({"importing": "columns: {fill: {tin: 0}}\nepisodes: {order: time}"})
    assert given["importing"].columns.fill == {"tin": 0} and given["importing"].episodes.order == "time"


@pytest.mark.parametrize("name", ["train", "train_expert"])
def test_presets_are_a_list(name: str) -> None:
    [choice, none] = getattr(short_forms, f"{name}_short").parameters.properties["preset"]["anyOf"]
    assert ("locomotion" if name == "train" else "mujoco") in choice["enum"] and none["type"] == "null"
