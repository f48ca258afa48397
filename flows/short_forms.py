"""Short forms: each runs one flow with the few of its parameters that matter most; the rest stays at defaults or a preset's.

`flows/short_forms.py:train_short` is a flow of the same name as `flows/stages.py:train`, so Prefect lists both
together. Titles, descriptions, limits and defaults are those of the models. A value that is not changed counts as not given, as
in any form.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType, UnionType
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from flows.local_flow import LocalFlow, flow
from flows.stages import flow_of
from offline_core.runtime.config import parse
from offline_core.runtime.overlay import overlaid
from offline_core.runtime.stage import STAGES, Stage
from offline_core.runtime.user_code import UserCode
from tasks.run_names import RunName

SUFFIX = "_short"


CHAINS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "expert_to_policy": (
            "root",
            "expert.environment.id",
            "expert.evaluation.target_return",
            "recording.episodes",
            "pruning.where",
            "training.algorithm",
        ),
        "logs_to_policy": (
            "source",
            "root",
            "importing",
            "pruning.where",
            "training.algorithm",
            "test",
        ),
        "improve_policy": (
            "source",
            "root",
            "registry",
            "importing",
            "pruning.where",
            "decision.risk",
            "approval",
        ),
    }
)
"""The fields of chains. Those of a stage are its places and what its `short` says."""


def short_forms() -> dict[str, dict[str, str]]:
    """Return by flow the name of each field and the path of its parameter; other flows have few fields in their own forms."""
    paths = {
        stage.attribute: [*_places(stage), *(_path(path) for path in stage.short)] for stage in STAGES.values() if stage.short
    }
    return {name: {_name(path): path for path in own_paths} for name, own_paths in (*CHAINS.items(), *paths.items())}


def _places(stage: Stage[..., Any]) -> list[str]:
    return [argument.name for argument in stage.arguments if argument.is_place]


def _path(field: str) -> str:
    return field if field == "config" else f"config.{field}"


def _name(path: str) -> str:
    """The last name of a path that says something."""
    return path.removesuffix(".id").rpartition(".")[2]


def __getattr__(name: str) -> LocalFlow[..., Any]:
    """The short form `NAME_short`; its flow is imported now."""
    full, known = name.removesuffix(SUFFIX), short_forms()
    if full not in known or not name.endswith(SUFFIX):
        raise AttributeError(
            f"There is no short form {name}; there are {', '.join(flow_name + SUFFIX for flow_name in known)}."
        )
    form = globals()[name] = _short(flow_of(full), known[full])
    return form


def _short(full: LocalFlow[..., Any], places: Mapping[str, str]) -> LocalFlow[..., Any]:
    def arguments(form: Mapping[str, Any]) -> dict[str, Any]:
        changed = (
            _nested(path.split("."), form[name])
            for name, path in places.items()
            if form[name] != signature.parameters[name].default
        )
        values: dict[str, Any] = reduce(overlaid, changed, {})
        models = {
            name: parse(type(default), overlaid(default.model_dump(exclude_unset=True), values[name]))
            for name, default in defaults.items()
            if name in values and isinstance(default, BaseModel)
        }
        return values | models

    def run(**form: Any) -> Any:
        return full.fn(**arguments(form))

    def run_name(form: Mapping[str, Any]) -> str:
        named = full.flow_run_name
        assert isinstance(named, RunName)
        return named.fill(defaults | arguments(form))

    defaults = _defaults(full)
    fields = {name: _field(full, path.split(".")) for name, path in places.items()}
    signature = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default, _) in fields.items()
        ]
    )
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {name: annotation for name, (annotation, _, _) in fields.items()}
    run.__name__ = run.__qualname__ = full.fn.__name__ + SUFFIX
    told = "\n".join(f"    {name}: {' '.join(description.split())}" for name, (_, _, description) in fields.items())
    run.__doc__ = f"{(full.description or '').partition(chr(10))[0]} The fields that matter most.\n\nArgs:\n{told}"
    return flow(name=full.name, run_name=run_name, is_short=True)(run)


def _nested(path: list[str], value: Any) -> Any:
    if not path:
        return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
    return {path[0]: _nested(path[1:], value)}


def _defaults(full: LocalFlow[..., Any]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(full.fn).parameters.items()}


def _field(full: LocalFlow[..., Any], path: list[str]) -> tuple[Any, Any, str]:
    """The annotation, the default and the description of what a path leads to."""
    name, *rest = path
    default = _defaults(full)[name]
    if not rest:
        if isinstance(default, BaseModel):
            return type(default), default, full.parameters.properties[name]["description"]
        hint = typing.get_type_hints(full.fn)[name]
        return _one_kind(hint, default), default, full.parameters.properties[name]["description"]
    for part in rest:
        info: FieldInfo = type(default).model_fields[part]
        default = getattr(default, part)
    kind = type(default) if isinstance(default, BaseModel) else _annotation(info, default)
    return kind, default, info.description or ""


def _one_kind(kind: Any, default: Any) -> Any:
    """A type with fewer choices: no code of the user's own, no list where one text will do, no None where a value is usual."""
    if typing.get_origin(kind) not in (typing.Union, UnionType):
        return kind
    left_out = [UserCode, *([list[str]] if isinstance(default, str) else []), *([] if default is None else [type(None)])]
    return typing.Union[tuple(choice for choice in typing.get_args(kind) if choice not in left_out)]  # noqa: UP007 - of a tuple


def _annotation(info: FieldInfo, default: Any) -> Any:
    """The annotation of a field, with its limits."""
    kind = _one_kind(info.annotation, default)
    extra: dict[str, Any] = {}
    for part in (info, *getattr(kind, "__metadata__", ())):
        if callable(change := getattr(part, "json_schema_extra", None)):  # pydantic leaves these out beside a position
            change(extra)
    if extra and typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    return Annotated[kind, *info.metadata, Field(json_schema_extra=extra)] if extra or info.metadata else kind
