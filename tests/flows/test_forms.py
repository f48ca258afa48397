"""What Prefect's form shows: every parameter described, bounded where it can be, no trap that reference knows of."""

from __future__ import annotations

import typing

import pytest
from prefect import Flow
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from tests.deployments.flows import FLOWS


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
    is_group = any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)
    return is_group and type(None) in kinds and field.default is None


ALL_MODELS = {
    found
    for flow in FLOWS
    for name, hint in typing.get_type_hints(flow.fn).items()
    if name != "return" and isinstance(hint, type) and issubclass(hint, BaseModel)
    for found in models(hint)
}


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_every_top_level_parameter_has_a_default_and_a_description(flow: Flow) -> None:
    schema = flow.parameters.model_dump()
    assert not schema.get("required")
    for name, entry in schema["properties"].items():
        assert entry.get("description"), f"{flow.name}: {name}"


MOST_SHOWN = {"TrainingConfig": 23, "ExpertConfig": 18, "NetworkConfig": 15, "SweepConfig": 13, "ImportConfig": 13}
"""Of trainings and experts a section each for an algorithm, of which one is used, and initial_policy, which is one line."""


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


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_the_defaults_are_valid_and_wrong_values_are_refused(flow: Flow) -> None:
    flow.validate_parameters({})
    with pytest.raises(Exception, match="nonsense"):
        flow.validate_parameters({"nonsense": 1})
