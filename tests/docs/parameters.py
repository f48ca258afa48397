"""Parameters of all stages, by the names that files and `-s` give them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from flows.settings import configs_of, defaults_of
from flows.stages import flow_of
from offline_core.runtime.stage import STAGES

CHAINS = ("expert_to_policy", "logs_to_policy", "improve_policy")
"""Their parameters are groups, one a stage."""
_STAGES = {each.attribute: each for each in STAGES.values()}
FLOWS = [*CHAINS, *_STAGES]


def fill_in(flow: str, values: dict[str, Any]) -> None:
    """Fills values into the models of a flow.

    Raises:
        ConfigError: they are not its parameters.
    """
    function = flow_of(flow).fn
    configs_of(defaults_of(function), {}, values if flow in CHAINS else {"config": values})


def names() -> set[str]:
    """Every parameter and group of them, from the model of its stage on: `optimizer.batch_size`, `batch_size`, `where`."""
    found: set[str] = set()
    for flow in FLOWS:
        function = flow_of(flow).fn
        hints = typing.get_type_hints(function)
        for name in inspect.signature(function).parameters:
            found |= set(_names(hints[name]))
            if flow in CHAINS or name in _STAGES[flow].groups:
                found |= {f"{name}.{inner}" for inner in _names(hints[name])}
    return found


def _names(hint: Any) -> Iterator[str]:
    for model in _models(hint):
        for name, field in model.model_fields.items():
            yield name
            for inner in _names(field.annotation):
                yield f"{name}.{inner}"
                yield inner


def _models(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for argument in typing.get_args(hint):
        yield from _models(argument)
