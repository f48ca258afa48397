"""What Prefect's form shows: every parameter described, bounded where it can be, no trap that reference knows of."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from prefect import Flow
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from flows import short_forms
from flows.stages import train
from offline_core.learning.config import TrainingConfig
from offline_core.runtime.config import closed
from tests.deployments.flows import FLOWS, FORMS


def models(model: type[BaseModel]) -> set[type[BaseModel]]:
    found = {model}
    for field in model.model_fields.values():
        for part in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= models(part)
    return found


def is_closed(field: FieldInfo) -> bool:
    """A group that is None unless it is opened: one line of a form."""
    kinds = typing.get_args(field.annotation)
    if field.json_schema_extra is closed:
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
        shown = entry.get("title") or schema["definitions"][entry["$ref"].rpartition("/")[2]]["title"]
        assert shown[:1].isupper() and "_" not in shown and "Config" not in shown, f"{flow.name}: {name} is called {shown}"


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


MOST_SHOWN = {"ExpertConfig": 14, "NetworkConfig": 16, "SweepConfig": 13, "ImportConfig": 13}


@pytest.mark.parametrize("model", sorted(ALL_MODELS, key=lambda m: m.__name__), ids=lambda model: model.__name__)
def test_every_field_is_fit_for_a_form(model: type[BaseModel]) -> None:
    assert model.model_config["frozen"] and model.model_config["extra"] == "forbid"
    sections = model.model_json_schema()["properties"]
    shown = [field for name, field in model.model_fields.items() if name in sections and not is_closed(field)]
    assert len(shown) <= MOST_SHOWN.get(model.__name__, 12), "more than a form shows at a glance: make groups"
    for name, field in model.model_fields.items():
        where = f"{model.__name__}.{name}"
        assert field.description and field.description.endswith((".", "}.")), where
        assert field.default_factory is None, f"{where}: a factory is invisible in the form"
        assert field.annotation is not SecretStr, where
        if type(None) in typing.get_args(field.annotation):
            assert field.title, f"{where}: an optional field without a title is called 'Field (Optional)'"


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
        if "$ref" in entry and "properties" in (group := definitions[entry["$ref"].rpartition("/")[2]]):
            yield from leaves(group["properties"], flow)
        else:
            yield name


def test_a_closed_group_is_its_defaults() -> None:
    assert TrainingConfig.model_validate({"marwil": None, "iql": None}) == TrainingConfig()
    form = TrainingConfig().model_dump() | {"algorithm": "iql", "preset": "locomotion"}
    shown = {name: None if TrainingConfig.model_fields[name].json_schema_extra is closed else form[name] for name in form}
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
