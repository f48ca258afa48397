"""Parameters of all stages, by the names that files and `-s` give them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from pydantic import BaseModel

from flows.settings import arguments_of

CHAINS = ("expert_to_policy", "logs_to_policy")
"""Their parameters are groups, one a stage."""
FLOWS = [
    "expert_to_policy",
    "logs_to_policy",
    "train_expert",
    "record_episodes",
    "import_dataset",
    "convert_table",
    "check_dataset",
    "prune_dataset",
    "compact_dataset",
    "split_dataset",
    "merge_datasets",
    "mix_datasets",
    "export_dataset",
    "train_policy",
    "evaluate_policy",
    "estimate_policy",
    "export_policy",
]


def _fills_in(flow: str, values: dict[str, Any]) -> None:
    function = getattr(import_module(f"flows.{flow}"), flow).fn
    arguments_of(function, values if flow in CHAINS else {"config": values}, show=False)


STAGES: list[Callable[[dict[str, Any]], None]] = [partial(_fills_in, flow) for flow in FLOWS]
"""Each raises ConfigError for values that are not its parameters."""


def names() -> set[str]:
    """Every parameter and group of them, from the model of its stage on: `optimizer.batch_size`, `batch_size`, `where`."""
    found: set[str] = set()
    for flow in FLOWS:
        function = getattr(import_module(f"flows.{flow}"), flow).fn
        hints = typing.get_type_hints(function)
        for name in inspect.signature(function).parameters:
            found |= set(_names(hints[name])) | (
                {f"{name}.{inner}" for inner in _names(hints[name])} if flow in CHAINS else set()
            )
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
