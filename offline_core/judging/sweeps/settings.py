"""The settings of a sweep: what its grid and its draws make of the training's parameters."""

from __future__ import annotations

import itertools
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union

import numpy as np
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from offline_core.data.datasets.manifest import digest
from offline_core.errors import ConfigError
from offline_core.judging.sweeps.config import Distribution, SweepConfig
from offline_core.learning.config import TrainingConfig
from offline_core.runtime.config import parse
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.units import list_text

Parameters = dict[str, Any]
"""Values by dotted path."""
Asked = TypeVar("Asked")
Made = TypeVar("Made")
FIRST_SAMPLES = 10
"""Samples that a search draws at random, before there is anything to learn from; Optuna's own number."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One set of a training's parameters, for all seeds."""

    parameters: Parameters
    """The parameters that the sweep set, without those of algorithms that are not this setting's."""
    config: TrainingConfig

    @property
    def name(self) -> str:
        """The parameters in words: "algorithm=iql, iql.beta=3"."""
        return ", ".join(f"{path}={_text(value)}" for path, value in self.parameters.items()) or "as it is"

    @property
    def digest(self) -> str:
        """16 hex digits of all that decides what is learned, but the seed and the data."""
        parameters, initial = self.config.decisive(), self.config.initial_policy
        parameters.pop("seed", None)
        return digest([parameters, self.config.evaluation.held_out, *([] if initial is None else [initial])])


def settings_of(config: SweepConfig) -> list[Setting]:
    """Return the settings, each once: those of the grid in its order, each with what was drawn.

    Of a search it returns those that the search begins with.

    Raises:
        ConfigError: Some are no parameters of a training; the message lists all that is wrong.
    """
    settings: dict[str, Setting] = {}
    made = each(
        combinations(config),
        lambda parameters: setting_of(config, parameters),
        lambda parameters: Setting(parameters, config.training).name,
        "cannot be",
    )
    for setting in made:
        settings.setdefault(setting.digest, setting)
    return [*settings.values()]


def setting_of(config: SweepConfig, parameters: Parameters) -> Setting:
    """Return the training of the sweep with these values.

    Raises:
        ConfigError: They cannot be.
    """
    values = _with(config.training.model_dump(exclude_unset=True), parameters)
    training = parse(TrainingConfig, values)
    training = parse(TrainingConfig, {name: value for name, value in values.items() if name not in training.unused})
    own = {path: value for path, value in parameters.items() if path.partition(".")[0] not in training.unused}
    return Setting(own, training)


def each(asked: Iterable[Asked], make: Callable[[Asked], Made], name: Callable[[Asked], str], what: str) -> list[Made]:
    """Return what a function makes of each setting.

    Arguments:
        make: raises a ConfigError for a setting that cannot be.
        name: of a setting, for messages.
        what: "cannot be trained".

    Raises:
        ConfigError: Some settings cannot be; the message lists all that is wrong.
    """
    made: list[Made] = []
    wrong: dict[str, list[str]] = {}
    for setting in asked:
        try:
            made.append(make(setting))
        except ConfigError as error:
            wrong.setdefault(str(error), []).append(name(setting))
    if wrong:
        lines = [f"{list_text(names, 3, separator='; ')}: {message}" for message, names in wrong.items()]
        number = sum(map(len, wrong.values()))
        raise ConfigError("\n".join([f"Nothing was started, as {number:,} of the settings {what}:", *lines]))
    return made


def combinations(config: SweepConfig) -> Iterator[Parameters]:
    """Yield the values of each combination, as they were written or drawn."""
    draws = draws_of(config)
    for values in grid_of(config):
        for draw in draws:
            yield values | draw


def grid_of(config: SweepConfig) -> list[Parameters]:
    """Return the combinations of the grid, in its order."""
    return [dict(zip(config.grid, values, strict=True)) for values in itertools.product(*config.grid.values())]


def draws_of(config: SweepConfig) -> list[Parameters]:
    """Return all that is drawn at random; of a search, the samples that it begins with."""
    number = config.samples if config.search == "random" else min(config.samples, FIRST_SAMPLES)
    return [_drawn(config, n) for n in range(number)] if config.random else [{}]


def _drawn(config: SweepConfig, number: int) -> Parameters:
    """Draw by the seed, the path and the number alone, so that more paths or samples leave the others as they are."""
    generators = {path: np.random.default_rng(derive_seed(config.seed, "sweep", path, number)) for path in config.random}
    return {path: _value(choice, path, generators[path]) for path, choice in config.random.items()}


def _value(choice: Distribution | list[Any], path: str, generator: np.random.Generator) -> Any:
    if isinstance(choice, list):
        return choice[int(generator.integers(len(choice)))]
    low, high, whole = choice.low, choice.high, is_whole(path)
    if whole and math.ceil(low) > math.floor(high):
        raise ConfigError(f"{path} is a whole number, and there is none from {low:g} to {high:g}: widen random.{path}.")
    if whole and not choice.log:
        return int(generator.integers(math.ceil(low), math.floor(high), endpoint=True))
    number = math.exp(generator.uniform(math.log(low), math.log(high))) if choice.log else generator.uniform(low, high)
    number = min(max(number, low), high)  # not a last bit beyond
    return min(max(round(number), math.ceil(low)), math.floor(high)) if whole else number


def is_whole(path: str) -> bool:
    """Whether a training's parameter is a whole number; False for unknown ones."""
    kinds: list[Any] = [TrainingConfig]
    for name in path.split("."):
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        fields = [model.model_fields[name] for model in models if name in model.model_fields]
        kinds = [kind for field in fields for kind in _kinds(field.annotation)]
    return int in kinds and float not in kinds


def _kinds(hint: Any) -> Iterator[Any]:
    """Yield the types that a parameter may have: the parts of a union."""
    if typing.get_origin(hint) is Annotated:
        yield from _kinds(typing.get_args(hint)[0])
    elif typing.get_origin(hint) in (Union, types.UnionType):
        for part in typing.get_args(hint):
            yield from _kinds(part)
    else:
        yield hint


def _with(base: Mapping[str, Any], parameters: Parameters) -> dict[str, Any]:
    """Return the base with these values at their paths.

    Raises:
        ConfigError: A path goes into a value.
    """
    merged = dict(base)
    for path, value in parameters.items():
        *groups, last = path.split(".")
        level = merged
        for group in groups:
            inner = level.get(group, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{path} goes into {group!r}, which is a value and no group.")
            level[group] = level = dict(inner)
        level[last] = value
    return merged


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    value = to_jsonable_python(value, fallback=str)
    return value if isinstance(value, str) else json.dumps(value)
