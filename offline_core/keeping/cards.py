"""Keeps the card of a result next to what was made, with what ran, on what, and the command that repeats it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from pydantic import BaseModel

from offline_core.data.store.location import Location
from offline_core.data.store.partial_files import remove_partial_files_on_disk
from offline_core.errors import OfflineError, StorageError
from offline_core.policies.lineage import Lineage, lineage, mermaid, outline
from offline_core.runtime.config import without_defaults
from offline_core.runtime.provenance import provenance
from offline_core.runtime.reporting.card import Card, Ran, command
from offline_core.runtime.reporting.figures import Drawing
from offline_core.runtime.result import Result
from offline_core.runtime.stage import Stage, load
from offline_core.secrets import masked

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run

_observers: ContextVar[tuple[Callable[[Card], None], ...]] = ContextVar("card observers", default=())
REUSED = "Reused"
"""The fact that a result is one of before."""
Config = BaseModel | Mapping[str, BaseModel]
"""The parameters of a stage, or by name those of the stages of a chain."""


def keep_stage_card(stage: Stage[..., Any], result: Result, config: BaseModel, arguments: Mapping[str, Any]) -> Card:
    """Keep the card of what a stage returned for these parameters and arguments; if its gate refuses that, the card says so."""
    card = card_of(result, stage.title)
    try:
        if stage.gate is not None:
            load(stage.gate)(result, config)
    except OfflineError as error:
        if card.verdict != "bad":
            card = _refused(card, error)
    repeat, has_gate = repeating(stage, config, arguments), stage.gate is not None
    card = keep_card(card, stage.name, config, is_reused=result.reused, has_gate=has_gate, repeat=repeat)
    for observer in _observers.get():
        try:
            observer(card)
        except Exception as error:
            log.warning("The card could not be shown: %s: %s", type(error).__name__, error)
    return card


def _refused(card: Card, error: OfflineError) -> Card:
    """The card with what its gate says, without the lines that are among its warnings, and with no step to go on by."""
    lines = [line.strip() for line in str(error).splitlines()]
    rest = " ".join(line.removesuffix(":").rstrip(".") + "." for line in lines if line not in card.warnings)
    return dataclasses.replace(card, verdict="bad", word="Gate failed", warnings=[rest, *card.warnings], advice="", next="")


def card_of(result: Result, name: str) -> Card:
    """The card of a result; one that says nothing where it cannot be made, for the work is done."""
    try:
        return result.card()
    except Exception as error:
        log.warning("The work is done, but its card could not be made: %s: %s", type(error).__name__, error)
        return Card(name.capitalize(), word="Done", sentence="The card could not be made.")


@contextlib.contextmanager
def observe_cards(observer: Callable[[Card], None]) -> Iterator[None]:
    """Show the card of each stage that ends inside to `observer`."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def keep_card(card: Card, operation: str, config: Config, *, is_reused: bool, has_gate: bool = False, repeat: str = "") -> Card:
    """Write a card as files next to what it is about, and return it with all that is known; whatever fails is a warning.

    Arguments:
        is_reused: files that are there stay, as they describe the run that made the result; only missing ones are written.
        has_gate: files that say otherwise do not stay, for what the gate was asked may be another thing each time.
        repeat: the command that runs it again.
    """
    try:
        card = _described(card, operation, config, is_reused, repeat)
        lasting = dataclasses.replace(card, facts={name: value for name, value in card.facts.items() if name != REUSED})
        kept = []
        for uri in card.places:
            stem = Location.of(uri)
            if _put(lasting, stem, replace=not is_reused or (has_gate and _says_otherwise(lasting, stem))):
                kept.append(uri)
        card = dataclasses.replace(card, places=kept)
    except Exception as error:  # the work is done
        log.warning("The work is done, but its card could not be kept: %s: %s", type(error).__name__, error)
    return card


def _described(card: Card, operation: str, config: Config, is_reused: bool, repeat: str) -> Card:
    graph = lineage(*card.about)
    node = graph.nodes[0]
    made = node if node.operation == operation else None
    facts = dict(card.facts)
    if is_reused:
        facts = {REUSED: f"yes, made {made.created_at:%Y-%m-%d %H:%M} UTC" if made and made.created_at else "yes"} | facts
    card = dataclasses.replace(
        card,
        facts=facts,
        ran=Ran(operation, _changed(config), made.provenance if made else provenance(), repeat),
        lineage=mermaid(graph),
        ancestors=outline(graph),
        root=_root_of(graph),
    )
    if is_reused and (stored := _stored_picture(card)):
        return dataclasses.replace(card, draw=lambda: stored)
    try:
        card.drawing()
    except OfflineError as error:
        log.warning("The card has no picture, for what it shows cannot be read: %s", error)
        return dataclasses.replace(card, draw=None)
    return card


def _stored_picture(card: Card) -> Drawing | None:
    """That of the run which made the result."""
    for file in (Location.of(f"{location}.png") for location in card.places):
        if file.is_file():
            data = file.read()
            return Drawing([data], data)
    return None


def _root_of(graph: Lineage) -> str:
    """The folder that holds all that a result was made from; empty if that is not one folder, or the top of a disk or store."""
    places = [node.uri.rstrip("/").split("/")[:-1] for node in graph.nodes]
    common = [names[0] for names in itertools.takewhile(lambda names: len({*names}) == 1, zip(*places, strict=False))]
    return "/".join(common) if len(common) > 2 else ""


def _says_otherwise(card: Card, stem: Location) -> bool:
    """Whether the files of a card that are there have another verdict, or other warnings."""
    file = stem.parent.child(f"{stem.uri.rpartition('/')[2]}.md")
    said = card.markdown("").partition("\n\n| | |")[0]
    return file.is_file() and not file.read().decode().startswith(said)


def _put(card: Card, stem: Location, *, replace: bool) -> bool:
    """Whether the files of the card are at this place now."""
    folder, name = stem.parent, stem.uri.rpartition("/")[2]
    remove_partial_files_on_disk(folder, recursive=False)
    try:
        if replace or not all(folder.child(f"{name}{ending}").is_file() for ending in (".html", ".md")):
            for file, data in card.files(name).items():
                if replace or not folder.child(file).is_file():
                    folder.child(file).write(data)
    except StorageError as error:  # read-only data can be looked at, and the card is shown
        log.warning("The card cannot be written next to the data: %s", error)
        return False
    return True


def repeating(stage: Stage[..., Any], config: BaseModel, arguments: Mapping[str, Any]) -> str:
    """The command that runs a stage again, without the parameters that are at their defaults."""
    words: list[object] = []
    for argument in stage.arguments:
        value = arguments.get(argument.name)
        if value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            words += [f"--{argument.name}", *values] if argument.is_option else values
    for name, text in _settings(config, masked(_changed(config))):
        words += ["-s", f"{name}={text}"]
    for group in (name for name in stage.groups if arguments.get(name) is not None):
        for name, text in _settings(arguments[group], masked(_changed(arguments[group]))):
            words += ["-s", f"{group}.{name}={text}"]
    return command("offline", stage.title, *words)


def _changed(config: Config) -> dict[str, Any]:
    """The parameters that are not at their defaults."""
    if isinstance(config, BaseModel):
        return without_defaults(config)
    return {name: values for name, value in config.items() if (values := _changed(value))}


def _settings(config: BaseModel, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Values as `-s` takes them: by dotted names down to those that are no group, as YAML in one line."""
    for name, value in values.items():
        group = getattr(config, name, None)
        if isinstance(group, BaseModel) and isinstance(value, Mapping) and value:
            for inner, text in _settings(group, value):
                yield f"{name}.{inner}", text
        else:
            yield name, _yaml(value)


def _yaml(value: Any) -> str:
    """A text as it is where it is read as that very text; else JSON, which YAML includes."""
    import yaml

    if isinstance(value, str):
        try:
            if yaml.safe_load(value) == value:
                return value
        except (yaml.YAMLError, ValueError):
            pass
    return json.dumps(value, ensure_ascii=False)
