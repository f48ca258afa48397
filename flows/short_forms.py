"""Short forms: each runs one flow with the few of its parameters that matter most; the rest stays at defaults or a preset's.

`flows/short_forms.py:train_policy_short` is a flow of the same name as `flows/stages.py:train`, so Prefect lists both
together. Titles, descriptions, limits and defaults are those of the models. A value that is not changed counts as not given, as
in any form.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType, UnionType
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from flows.local_flow import LocalFlow, NamedChoices, flow, label
from flows.stages import flow_of
from offline_core.runtime.config import parse
from offline_core.runtime.overlay import overlaid
from offline_core.runtime.user_code import UserCode

SUFFIX = "_short"


def _config(*names: str, **more: str) -> dict[str, str]:
    return {name: f"config.{name}" for name in names} | {name: f"config.{path}" for name, path in more.items()}


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


SHORT_FORMS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "expert_to_policy": _same("root", "seed")
        | {
            "environment": "expert.environment.id",
            "target_return": "expert.target_return",
            "episodes": "recording.episodes",
            "where": "pruning.where",
            "algorithm": "training.algorithm",
            "max_epochs": "training.optimizer.max_epochs",
        },
        "logs_to_policy": _same("source", "root")
        | {"mapping": "importing.mapping", "environment": "importing.environment", "where": "pruning.where"}
        | {"algorithm": "training.algorithm"}
        | _same("test", "seed"),
        "improve_policy": _same("source", "root", "registry")
        | {"mapping": "importing.mapping", "where": "pruning.where", "risk": "decision.risk"}
        | _same("approval", "seed"),
        "train_expert": _same("output")
        | _config("algorithm", "preset", environment="environment.id")
        | _config("total_steps", "target_return", "seed"),
        "record": _same("policy", "output") | _config("episodes", "explore", "format", "num_recorders", "seed"),
        "import": _same("source", "output") | _config("mapping", "environment", "append", "unreadable", format="source.format"),
        "prune": _same("dataset", "output", "version") | _config("where", "keep_top_fraction", "drop_duplicates"),
        "split": _same("dataset", "output") | _config("held_out_fraction", "by", "seed"),
        "mix": _same("output") | _config("datasets", "policies", "environment", "steps", "seed"),
        "train": _same("dataset", "output")
        | _config("algorithm", "preset", max_updates="optimizer.max_updates", target_return="evaluation.target_return")
        | _config("seed"),
        "fine_tune": _same("training", "dataset", "output")
        | _config("environment", "total_steps", "target_return", "offline_share", "seed"),
        "sweep": _same("dataset", "output")
        | _config("grid", "seeds", "score", algorithm="training.algorithm", preset="training.preset"),
        "estimate": _same("policy", "dataset") | _config("gamma", "horizon", "methods", "require_return", "seed"),
        "decide": _same("dataset", "candidates", "output") | _config("against", "by", "risk", "margin", gamma="estimate.gamma"),
    }
)
"""By flow: the name of each field, and where it goes. Flows that are not here have few fields in their own forms."""


def __getattr__(name: str) -> LocalFlow[..., Any]:
    """The short form `NAME_short`; its flow is imported now."""
    full = name.removesuffix(SUFFIX)
    if full not in SHORT_FORMS or not name.endswith(SUFFIX):
        raise AttributeError(f"There is no short form {name}; there are {', '.join(each + SUFFIX for each in SHORT_FORMS)}.")
    found = globals()[name] = _short(flow_of(full), SHORT_FORMS[full])
    return found


def _short(full: LocalFlow[..., Any], places: Mapping[str, str]) -> LocalFlow[..., Any]:
    def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
        changed = (
            _nested(path.split("."), given[name])
            for name, path in places.items()
            if given[name] != signature.parameters[name].default
        )
        values: dict[str, Any] = reduce(overlaid, changed, {})
        models = {
            name: parse(type(default), overlaid(default.model_dump(exclude_unset=True), values[name]))
            for name, default in defaults.items()
            if name in values and isinstance(default, BaseModel)
        }
        return values | models

    def run(**given: Any) -> Any:
        return full.fn(**arguments(given))

    defaults = _defaults(full)
    fields = {name: _field(full, path.split(".")) for name, path in places.items()}
    signature = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default, _) in fields.items()
        ]
    )
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__ = run.__qualname__ = full.fn.__name__ + SUFFIX
    told = "\n".join(f"    {name}: {' '.join(description.split())}" for name, (_, _, description) in fields.items())
    run.__doc__ = f"{(full.description or '').partition(chr(10))[0]} The fields that matter most.\n\nArgs:\n{told}"
    return flow(name=full.name, flow_run_name=_run_name(full, places), refuses=False)(run)


def _run_name(full: LocalFlow[..., Any], places: Mapping[str, str]) -> str | None:
    """The template of the flow's run names, with the names of the short form, or the defaults where it has none."""
    if full.flow_run_name is None:
        return None
    names = {path: f"{{{name}}}" for name, path in places.items()}
    defaults = _defaults(full)
    return re.sub(r"{(.+?)}", lambda found: names.get(found[1]) or found[0].format(**defaults), str(full.flow_run_name))


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    return {path[0]: _nested(path[1:], value) if path[1:] else value}


def _defaults(full: LocalFlow[..., Any]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(full.fn).parameters.items()}


def _field(full: LocalFlow[..., Any], path: list[str]) -> tuple[Any, Any, str]:
    """The annotation, the default and the description of what a path leads to."""
    name, *rest = path
    default = _defaults(full)[name]
    if not rest:
        hint = typing.get_type_hints(full.fn, include_extras=True)[name]
        return hint, default, full.parameters.properties[name]["description"]
    for part in rest:
        info: FieldInfo = type(default).model_fields[part]
        default = getattr(default, part)
    return _annotation(info, title=info.title or label(path[-1])), default, info.description or ""


def _annotation(info: FieldInfo, *, title: str) -> Any:
    """The annotation of a field, with its limits, under a title. Code of the user's own is no choice of a short form."""
    kind: Any = info.annotation
    if typing.get_origin(kind) in (typing.Union, UnionType):
        kind = typing.Union[tuple(each for each in typing.get_args(kind) if each is not UserCode)]  # noqa: UP007 - of a tuple
    extra: dict[str, Any] = {}
    for each in (info, *getattr(kind, "__metadata__", ())):
        if callable(change := getattr(each, "json_schema_extra", None)):  # pydantic leaves these out beside a title
            change(extra)
    if extra and typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    return Annotated[kind, *info.metadata, Field(json_schema_extra=extra | {"title": title}), NamedChoices()]
