"""Parameters from files and `name=value` settings to the models of a flow."""

from __future__ import annotations

import inspect
import math
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.runtime.config import parse
from offline_core.runtime.parameter_names import is_model, meant_parameters, paths_of
from offline_core.runtime.yaml_values import load_yaml


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
        mapping = values
        for group in groups:
            if mapping.get(group) is None:  # absent, or without a value in the file
                mapping[group] = {}
            mapping = mapping[group]
            if not isinstance(mapping, dict):
                raise ConfigError(f"The setting {name.strip()!r} goes into {group!r}, which is a value and no group.")
        try:
            mapping[last] = load_yaml(text)
        except ValueError:
            mapping[last] = text
    return values


def defaults_of(flow: Callable[..., Any]) -> dict[str, BaseModel]:
    """The models among a flow's parameters, at their defaults, by name."""
    hints = typing.get_type_hints(flow)
    parameters = inspect.signature(flow).parameters
    return {name: parameter.default for name, parameter in parameters.items() if is_model(hints[name])}


def configs_of(
    defaults: Mapping[str, BaseModel], optional: Mapping[str, type[BaseModel]], values: Mapping[str, Any]
) -> dict[str, BaseModel]:
    """The configs of a verb, with `values` filled in, by the name of their group; the empty name stands for none.

    Arguments:
        optional: groups that are there only if there are values for them.

    Raises:
        ConfigError: a group or a parameter is unknown or out of bounds; the message lists all.
    """
    groups = {name: type(config) for name, config in defaults.items()} | dict(optional)
    if unknown := sorted(values.keys() - groups.keys()):
        if "" not in defaults:
            raise ConfigError("\n".join(_no_group(name, groups, unused_of(defaults)) for name in unknown))
        values = {"": {name: values[name] for name in values.keys() - optional.keys()}} | {
            name: values[name] for name in optional if name in values
        }
    set_fields = {name: dict(config.model_dump(exclude_unset=True)) for name, config in defaults.items()}
    return {
        name: parse(model, set_fields.get(name, {}) | (values.get(name) or {}))
        for name, model in groups.items()
        if name in defaults or name in values
    }


def unused_of(configs: Mapping[str, BaseModel]) -> set[str]:
    """The groups that nothing reads, by their paths."""
    return {f"{name}.{path}".lstrip(".") for name, config in configs.items() for path in getattr(config, "unused", ())}


def _no_group(name: str, groups: Mapping[str, type[BaseModel]], unused: Collection[str]) -> str:
    meant = meant_parameters(name, groups, unused)
    hint = f" (did you mean {' or '.join(meant)}?)" if meant else ""
    return f"There is no group of parameters {name}{hint}; there are {', '.join(groups)}."


def completions(models: Mapping[str, type[BaseModel]], incomplete: str) -> dict[str, str]:
    """What an incomplete name may become, up to the next dot, with descriptions: `optimizer.`, or `optimizer.schedule=`."""
    begin = incomplete[: incomplete.rfind(".") + 1]
    words: dict[str, str] = {}
    for name, model in models.items():
        for path, field in paths_of(model, f"{name}." if name else "").items():
            if path.startswith(incomplete) and not is_model(field.annotation):
                word, dot, _ = path.removeprefix(begin).partition(".")
                words.setdefault(begin + word + (dot or "="), "" if dot else field.description or "")
    return words


def print_parameters(configs: Mapping[str, BaseModel], optional: Mapping[str, type[BaseModel]]) -> None:
    """YAML of the configs, each value with its description as a comment; grouped by name, but for a config without one.

    Groups that nothing reads, such as those of other algorithms than the chosen one, are left out.

    Arguments:
        optional: groups that are shown as comments unless they are among the configs.
    """
    for name, config in configs.items():
        sys.stdout.writelines(_described(type(config), config, name or None, unused=set(getattr(config, "unused", ()))))
    for name, model in optional.items():
        if name not in configs:
            sys.stdout.write(f"# {inspect.cleandoc(model.__doc__ or '').splitlines()[0]} Only if these are given:\n")
            sys.stdout.writelines(f"# {line}" for line in _described(model, None, name))


def _described(
    model: type[BaseModel], config: BaseModel | None, name: str | None, depth: int = 0, unused: Collection[str] = ()
) -> Iterator[str]:
    """The lines of one group.

    Arguments:
        config: its values; None: the defaults.
        unused: paths of groups inside that are left out.
    """
    indent = "  " * depth
    if name is not None:
        yield f"{indent}{name}:\n"
        indent += "  "
    for key, info in model.model_fields.items():
        if key in unused:
            continue
        yield f"{indent}# {info.description}\n"
        is_needed = config is None and info.is_required()
        value = info.get_default(call_default_factory=True) if config is None else getattr(config, key)
        if isinstance(value, BaseModel):
            inside = {path.removeprefix(f"{key}.") for path in unused if path.startswith(f"{key}.")}
            yield from _described(type(value), value, key, len(indent) // 2, inside)
        else:
            yield f"{indent}{key}: {'# needed' if is_needed else _text(value)}\n"
    if left_out := [key for key in model.model_fields if key in unused]:
        yield f"{indent}# Not shown, as nothing reads them now: {', '.join(left_out)}.\n"


def _text(value: Any) -> str:
    plain = to_jsonable_python(value, inf_nan_mode="constants")
    return yaml.safe_dump(plain, default_flow_style=True, width=math.inf).removesuffix("\n").removesuffix("\n...")
