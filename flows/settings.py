"""Parameters from files and `name=value` settings to the models of a flow."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel

from flows.yaml_values import load_yaml
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.runtime.config import parse


def read_values(settings: Sequence[str], config_file: str | None) -> dict[str, Any]:
    """Nested values of a YAML or JSON file, overridden by `a.b=value` settings whose values are YAML.

    Raises:
        ConfigError: the file is no mapping, or a setting has no `=`.
    """
    values: dict[str, Any] = {}
    if config_file is not None:
        try:
            loaded = load_yaml(Location.of(config_file).read())
        except ValueError as error:
            raise ConfigError(f"{config_file} is no YAML that can be read: {error}.") from None
        if not isinstance(loaded, dict):
            raise ConfigError(f"{config_file} has to hold names and values, found {type(loaded).__name__}.")
        values = loaded
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            words = re.match(r"[\w.]*", setting)  # what follows may be a secret
            raise ConfigError(
                f"The setting that begins with {words and words[0]!r} is not NAME=VALUE, such as optimizer.batch_size=2048."
            )
        *groups, last = name.strip().split(".")
        place = values
        for group in groups:
            if place.get(group) is None:  # absent, or without a value in the file
                place[group] = {}
            place = place[group]
            if not isinstance(place, dict):
                raise ConfigError(f"The setting {name.strip()!r} goes into {group!r}, which is a value and no group.")
        try:
            place[last] = load_yaml(text)
        except ValueError:
            place[last] = text
    return values


def models_of(flow: Callable[..., Any]) -> dict[str, type[BaseModel]]:
    """The models among a flow's parameters, by name."""
    hints = typing.get_type_hints(flow)
    return {name: hints[name] for name in inspect.signature(flow).parameters if _is_model(hints[name])}


def arguments_of(flow: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, BaseModel]:
    """The models among the flow's parameters, with `values` filled in.

    Raises:
        ConfigError: a group or a parameter is unknown or out of bounds; the message lists all.
    """
    models = models_of(flow)
    if unknown := sorted(values.keys() - models.keys()):
        raise ConfigError(f"There is no group of parameters {', '.join(unknown)}; there are {', '.join(models)}.")
    defaults = {name: inspect.signature(flow).parameters[name].default for name in models}
    return {
        name: parse(model, defaults[name].model_dump(exclude_unset=True) | (values.get(name) or {}))
        for name, model in models.items()
    }


def parameter_names(models: Mapping[str, type[BaseModel]]) -> dict[str, str]:
    """All parameters as `-s` names them, with their descriptions; grouped by name, but for a model without one."""
    found: dict[str, str] = {}
    for name, model in models.items():
        found |= _named(model, f"{name}." if name else "")
    return found


def _named(model: type[BaseModel], prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, info in model.model_fields.items():
        if _is_model(info.annotation):
            found |= _named(typing.cast(type[BaseModel], info.annotation), f"{prefix}{name}.")
        else:
            found[prefix + name] = info.description or ""
    return found


def print_parameters(models: Mapping[str, type[BaseModel]], optional: Mapping[str, type[BaseModel]]) -> None:
    """YAML of the defaults, each with its description as a comment; grouped by name, but for a model without one.

    Arguments:
        optional: groups that are not there by default, and so are comments.
    """
    for name, model in models.items():
        sys.stdout.writelines(_described(model, name or None))
    for name, model in optional.items():
        sys.stdout.write(f"# {inspect.cleandoc(model.__doc__ or '').splitlines()[0]} Only if these are given:\n")
        sys.stdout.writelines(f"# {line}" for line in _described(model, name))


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _described(model: type[BaseModel], name: str | None, depth: int = 0) -> Iterator[str]:
    indent = "  " * depth
    if name is not None:
        yield f"{indent}{name}:\n"
        indent += "  "
    for key, info in model.model_fields.items():
        yield f"{indent}# {info.description}\n"
        if _is_model(info.annotation):
            yield from _described(typing.cast(type[BaseModel], info.annotation), key, len(indent) // 2)
        else:
            default = None if info.is_required() else info.get_default(call_default_factory=True)
            value = default.model_dump(mode="json") if isinstance(default, BaseModel) else default
            text = yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")
            yield f"{indent}{key}: {'# needed' if info.is_required() else text}\n"
