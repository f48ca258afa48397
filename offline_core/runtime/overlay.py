"""Parameters below parameters: settings of a preset, or of an algorithm, under what the user gives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from offline_core.runtime.config import is_closed, values_of_text


def overlaid(under: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, nested; `values` win."""
    both = dict(under)
    for name, value in values.items():
        below = both.get(name)
        both[name] = overlaid(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return both


def given_values(values: Mapping[str, Any], model: type[BaseModel], *, but: Collection[str] = ()) -> dict[str, Any]:
    """Return what the user gave, nested: of models inside, the fields that were set.

    A form gives all values, those at their defaults too. If all are there, those that are defaults count as not given. Those
    that are None by default may be missing.

    Arguments:
        values: of `model`.
        but: names that are left out.
    """
    groups = {name for name, field in model.model_fields.items() if is_closed(field)}
    values = {name: _of_text(value, model, name) for name, value in values.items()}
    settings = {
        name: _said(value) for name, value in values.items() if name not in but and not (value is None and name in groups)
    }
    fields = {name: field for name, field in model.model_fields.items() if name not in groups | {*but}}
    always = {name for name, field in fields.items() if field.default is not None and not field.exclude}
    return _changed(settings, model().model_dump()) if always <= settings.keys() else settings


def _of_text(value: Any, model: type[BaseModel], name: str) -> Any:
    """What the YAML of a group says; other values as they are."""
    field = model.model_fields.get(name)
    kinds = () if field is None else (field.annotation, *get_args(field.annotation))
    is_group = isinstance(value, str) and any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)
    return values_of_text(value) if is_group and str not in kinds else value


def _said(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _said(getattr(value, name)) for name in value.model_fields_set}
    return value


def _changed(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    changed = {}
    for name, value in values.items():
        default = defaults.get(name)
        if isinstance(value, Mapping) and isinstance(default, Mapping) and default:
            if inner := _changed(value, default):
                changed[name] = inner
        elif to_jsonable_python(value) != to_jsonable_python(default):
            changed[name] = value
    return changed
