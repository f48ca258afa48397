"""Parameters from files and `name=value` settings to a flow's models, and results back to people."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import yaml
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from flows.yaml_values import load_yaml
from offline_core.config import parse
from offline_core.errors import ConfigError
from offline_core.storage.dataset import DatasetRef
from offline_core.storage.location import Location

_LEFT_OUT = ("columns",)
"""Statistics of columns are for 'offline inspect'."""


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
            raise ConfigError(f"{config_file} is no YAML that can be read: {error}.") from error
        if not isinstance(loaded, dict):
            raise ConfigError(f"{config_file} has to hold names and values, found {type(loaded).__name__}.")
        values = loaded
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"The setting {setting!r} is not NAME=VALUE, such as optimizer.batch_size=2048.")
        *groups, last = name.strip().split(".")
        place = values
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise ConfigError(f"The setting {setting!r} goes into {group!r}, which is a value and no group.")
        try:
            place[last] = load_yaml(text)
        except ValueError:
            place[last] = text
    return values


def arguments_of(flow: Callable[..., Any], values: dict[str, Any], *, show: bool) -> dict[str, BaseModel]:
    """The models among the flow's parameters, with `values` filled in; with `show`, prints them instead and exits.

    Raises:
        ConfigError: a group or a parameter is unknown or out of bounds; the message lists all.
    """
    hints = typing.get_type_hints(flow)
    models = {name: hints[name] for name in inspect.signature(flow).parameters if _is_model(hints[name])}
    if show:
        for name, model in models.items():
            sys.stdout.writelines(_described(model, name if len(models) > 1 else None))
        raise SystemExit(0)
    if unknown := sorted(values.keys() - models.keys()):
        raise ConfigError(f"There is no group of parameters {', '.join(unknown)}; there are {', '.join(models)}.")
    defaults = {name: inspect.signature(flow).parameters[name].default for name in models}
    return {name: parse(model, _given(defaults[name]) | (values.get(name) or {})) for name, model in models.items()}


def print_result(result: BaseModel) -> None:
    """The numbers and names in a result, as a table; long lists stay out."""
    table = Table(show_header=False, box=None)
    for name, value in _plain(result.model_dump(mode="json")):
        table.add_row(name, f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value))
    console = Console()
    console.print(table)
    for ref in (value for _, value in result if isinstance(value, DatasetRef) and value.latest is not None):
        console.print(
            f"{ref.uri}: version {ref.version} is reused; the latest is version {ref.latest}. "
            f"Give the next command --version {ref.version}, for without it the latest is read.",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )


def print_chain(title: str, result: Any) -> None:
    """What each stage of a chain took and came to."""
    table = Table("stage", "seconds", "result", title=title)
    table.columns[1].justify = "right"
    for stage in result.stages:
        table.add_row(stage.name, f"{stage.seconds:.1f}", stage.outcome)
    table.add_section()
    table.add_row("all", f"{result.seconds:.1f}", "Ray's start and end included")
    Console().print(table)


def _given(default: Any) -> dict[str, Any]:
    """What a flow's own default sets beside the defaults of the model."""
    return default.model_dump(exclude_unset=True) if isinstance(default, BaseModel) else {}


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _described(model: type[BaseModel], name: str | None, depth: int = 0) -> Iterator[str]:
    """YAML of the defaults, each with its description as a comment."""
    indent = "  " * depth
    if name is not None:
        yield f"{indent}{name}:\n"
        indent += "  "
    for key, info in model.model_fields.items():
        yield f"{indent}# {info.description}\n"
        if _is_model(info.annotation):
            yield from _described(typing.cast(type[BaseModel], info.annotation), key, len(indent) // 2)
        else:
            default = info.get_default(call_default_factory=True)
            value = default.model_dump(mode="json") if isinstance(default, BaseModel) else default
            text = yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")
            yield f"{indent}{key}: {text}\n"


def _plain(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if name in _LEFT_OUT:
            continue
        if isinstance(item, dict):
            yield from _plain(item, f"{prefix}{name}.")
        elif not isinstance(item, list) and not (prefix == "counts." and not item):
            yield f"{prefix}{name}", item
