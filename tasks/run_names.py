"""Names of runs: what ran, on what; and those that people give, which stay."""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from offline_core.data.datasets.dataset import versions
from offline_core.data.datasets.folder_kind import BEST, LAST
from offline_core.errors import OfflineError
from offline_core.runtime.stage import STAGES, Stage
from offline_core.runtime.units import list_text
from offline_core.secrets import masked_text

MOST_CHARACTERS = 100


def name_of(template: str, parameters: Mapping[str, Any]) -> str:
    """Return a template with the parameters of a run filled in: "train marwil on recording@3, seed 0".

    Arguments:
        template: as `train {config.algorithm} on {dataset}`. A place is the last word of its URI, a dataset with its version.
    """
    values = dict(parameters)
    for name in values.keys() & _places():
        if isinstance(values[name], str | list | tuple):  # a chain's training is a config
            values[name] = _place(values[name])
    if isinstance(dataset := parameters.get("dataset"), str) and (version := _version(dataset, parameters.get("version"))):
        values["dataset"] = f"{values['dataset'].partition('@')[0]}@{version}"
    text = masked_text(template.format_map(values)).replace(", seed None", "")
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def template_of(stage: Stage[..., Any]) -> str:
    """Return the template of a stage's names: its own, or the stage and what it reads first, or writes."""
    if stage.run_name is not None:
        return stage.run_name
    places = sorted(
        (argument for argument in stage.arguments if argument.is_place), key=lambda argument: argument.kind == "output"
    )
    return " ".join([stage.title, *(f"{{{argument.name}}}" for argument in places[:1])])


class RunName:
    """The name of a run that begins: the one that a person gave it, else what `fill` makes of its parameters."""

    def __init__(self, fill: Callable[[Mapping[str, Any]], str]) -> None:
        self.fill = fill

    def __call__(self) -> str:
        from prefect.runtime import flow_run

        name = flow_run.name
        return name if name and not is_generated(name) else self.fill(flow_run.parameters or {})


def is_generated(name: str) -> bool:
    """Whether Prefect made this name up, as "fanatic-mantis": two words of the lists that it draws from."""
    return len(words := name.split("-")) == 2 and {*words} <= _generated_words()


@functools.cache
def _places() -> set[str]:
    """Return the parameters of stages and chains that are locations."""
    return {"root"} | {argument.name for stage in STAGES.values() for argument in stage.arguments if argument.is_place}


@functools.cache
def _generated_words() -> frozenset[str]:
    from coolname.data import config

    lists: Any = config
    return frozenset(str(word) for word_list in lists.values() if word_list["type"] == "words" for word in word_list["words"])


def _place(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list_text([_place(item) for item in value], 1) or "nothing"
    path = str(value).rstrip("/")
    head, last = posixpath.split(path)
    return posixpath.basename(head) if last in (BEST, LAST) and head else last


def _version(dataset: str, version: int | None) -> int | str | None:
    """The version that is read: the one that is named, else the latest one of a dataset on this machine."""
    if version is not None:
        return version
    if "@" in posixpath.basename(dataset):
        return dataset.rpartition("@")[2]
    try:
        return next(reversed(versions(dataset)), None) if os.path.isdir(dataset) else None
    except OfflineError:
        return None
