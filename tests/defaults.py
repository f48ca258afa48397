"""The defaults of the stages whose results are found again, as a file that says with which version of a stage they go."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from offline_core.runtime.config import without_defaults
from offline_core.runtime.stage import Stage, load

FILE = Path(__file__).parent / "golden" / "defaults.json"
ACTS_ANEW = {"publish", "promote", "rollback", "vacuum", "report"}
"""Stages that find no result of before."""
WHAT_TO_DO = """Identities leave defaults out, so results of the old default would be found as those of the new one.
Raise the version in @stage(…), and look who reads the parameter of stored operations, where a missing one has the default of
that version. Then run `python -m tests.written`."""


class Defaults(TypedDict):
    """Of one stage."""

    version: int
    defaults: dict[str, Any]
    """By path; `*` stands for an item of a list or dict, and what is in a group that is None counts, too."""


def defaults(stages: Mapping[str, Stage[..., Any]]) -> dict[str, Defaults]:
    """Those of the stages whose results are found again."""
    return {
        name: {"version": stage.version, "defaults": dict(defaults_of(load(stage.config)))}
        for name, stage in stages.items()
        if name not in ACTS_ANEW
    }


def defaults_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(path, default) of all fields of a model, and of those of the models in it; {} stands for a group at its own defaults."""
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        path, default = f"{prefix}{name}", field.default
        if not field.is_required():
            yield path, without_defaults(default) if isinstance(default, BaseModel) else to_jsonable_python(default)
        for group, items in models_in(field.annotation):
            yield from defaults_of(group, f"{path}.{items}")


def models_in(annotation: Any, items: str = "") -> Iterator[tuple[type[BaseModel], str]]:
    """The models that a value may be or hold, with a `*.` for each list or dict around them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, items
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from models_in(arguments[0], items)
    elif origin in (typing.Union, types.UnionType):
        for choice in arguments:
            yield from models_in(choice, items)
    elif origin in (list, tuple, dict):
        for item in arguments:
            yield from models_in(item, f"{items}*.")


def unversioned(before: Mapping[str, Defaults], now: Mapping[str, Defaults]) -> list[str]:
    """A sentence for each default that changed while the version of its stage did not.

    A new field needs no new version: without it, the stage did what it does with the default. A field that is removed or
    renamed needs none either: a result of before that had another value is not found again.
    """
    return [
        f"{name}.{path} was {json.dumps(was)} by default and is {json.dumps(now[name]['defaults'][path])}, and version "
        f"{stage['version']} of the stage means both."
        for name, stage in before.items()
        if name in now and now[name]["version"] == stage["version"]
        for path, was in stage["defaults"].items()
        if path in now[name]["defaults"] and now[name]["defaults"][path] != was
    ]


def text(stages: Mapping[str, Stage[..., Any]]) -> str:
    """The file as it has to be.

    Raises:
        ValueError: A default changed, and the version of its stage did not.
    """
    now = defaults(stages)
    if wrong := unversioned(json.loads(FILE.read_text()) if FILE.exists() else {}, now):
        raise ValueError("\n".join([*wrong, WHAT_TO_DO]))
    return "{\n" + ",\n".join(f" {json.dumps(name)}: {_lines(each)}" for name, each in now.items()) + "\n}\n"


def _lines(stage: Defaults) -> str:
    """A line for each parameter."""
    lines = ",\n".join(f"   {json.dumps(path)}: {json.dumps(value)}" for path, value in stage["defaults"].items())
    return f'{{\n  "version": {stage["version"]},\n  "defaults": {{\n{lines}\n  }}\n }}'
