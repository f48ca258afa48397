"""Puts cards where people look: in Prefect's UI, and next to the data."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from prefect.artifacts import create_markdown_artifact
from pydantic import BaseModel

from offline_core.data.datasets.dataset import VERSIONS, DatasetRef, open_dataset
from offline_core.data.datasets.episode_index import episode_index
from offline_core.data.episodes import columns
from offline_core.data.store.location import Location
from offline_core.data.store.stores import LINK_SECONDS
from offline_core.errors import StorageError
from offline_core.runtime.config import without_defaults
from offline_core.runtime.provenance import provenance
from offline_core.runtime.reporting.card import Card, Ran, links
from offline_core.runtime.reporting.cards import Episodes, episodes_card
from offline_core.runtime.reporting.values import text_of
from offline_core.secrets import masked_text

if TYPE_CHECKING:
    from offline_core.policies.lineage import Lineage

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run


@contextmanager
def warn_without_card() -> Iterator[None]:
    """Turns an error of making or publishing a card into a warning: the stage itself is done."""
    try:
        yield
    except Exception as error:
        log.warning("The work is done, but its card could not be made or published: %s: %s", type(error).__name__, error)


class Page(NamedTuple):
    """A card, and where it belongs."""

    card: Card
    about: tuple[str, int | None]
    """URI, and version of a dataset, of what was made, or else of what was looked at."""
    beside: Sequence[Location]
    """Where its files go, each with the name that they have before `.md`, `.html` and `.png`."""


def publish(page: Page, *, key: str, operation: str, config: BaseModel | Mapping[str, BaseModel], reused: bool = False) -> None:
    """Leaves a card, with what ran on what, as an artifact of the running task and in files next to the data.

    Existing files stay if the result was reused: they describe the run that made it.

    Arguments:
        key: of the artifact's history; lower case, digits and dashes.
        config: parameters of the step, or by name those of several steps.
    """
    from offline_core.policies.lineage import lineage, mermaid, outline  # with torch, which deploying can do without
    from offline_core.policies.manifest import POLICY_FILE

    card, about, beside = page
    graph = lineage(*about)
    node = graph.nodes[0]
    made = node if node.operation == operation else None
    if reused:
        when = f", made {made.created_at:%Y-%m-%d %H:%M} UTC" if made and made.created_at else ""
        card = dataclasses.replace(card, rows={"Reused": f"yes{when}", **card.rows})
    ran = Ran(operation, parameters=_changed(config), versions=made.provenance if made else provenance())
    card = dataclasses.replace(card, ran=ran, lineage=mermaid(graph), ancestors=outline(graph))
    card = below(str(card.rows.get("Root", root_of(graph))), card)
    drawn = [place.parent.child(f"{_name(place)}.png") for place in beside] if reused else []
    if stored := next((file for file in drawn if file.is_file()), None):
        card = dataclasses.replace(card, draw=functools.cache(stored.read))
    for place in beside:
        _put(card, place, replace=not reused)
    manifest = POLICY_FILE if node.version is None else f"{VERSIONS}/{node.version:06d}.json"
    files = [place.parent.child(name) for place in beside for name in card.files(_name(place))]
    text = card.markdown() + _links([*files, Location.of(node.uri).child(manifest)])
    create_markdown_artifact(text, key=key, description=masked_text(_summary(card)))  # last: its server may be gone


def _summary(card: Card) -> str:
    """What lists of artifacts show."""
    return card.title if card.headline is None else f"{card.title}: {card.headline.word}. {card.headline.sentence}"


def datasets_page(
    title: str, rows: Mapping[str, object], datasets: Mapping[str, DatasetRef], *, made: Sequence[DatasetRef] | None = None
) -> Page:
    """A card with `rows`, and histograms of the returns and lengths of `datasets`, which are named by the picture's legend.

    Arguments:
        made: those that the stage wrote, and that get the card; all of `datasets` unless given.
    """
    made = [*datasets.values()] if made is None else made

    def episodes() -> dict[str, Episodes]:
        indices = {name: episode_index(open_dataset(ref.uri, ref.version)) for name, ref in datasets.items()}
        return {name: (index[columns.RETURN].to_list(), index[columns.LENGTH].to_list()) for name, index in indices.items()}

    return Page(
        episodes_card(title, rows=rows, episodes=episodes),
        (made[0].uri, made[0].version),
        [Location.of(ref.uri).child(f"_cards/{ref.version:06d}") for ref in made],
    )


def root_of(graph: Lineage) -> str:
    """The folder that holds all that a result was made from; empty if that is not one folder, or the top of a disk or store."""
    places = [node.uri.rstrip("/").split("/")[:-1] for node in graph.nodes]
    common = [names[0] for names in itertools.takewhile(lambda names: len({*names}) == 1, zip(*places, strict=False))]
    return "/".join(common) if len(common) > 2 else ""


def below(root: str, card: Card) -> Card:
    """The card with the names in its rows and headline relative to `root`, which is its last row."""
    if not root:
        return card

    def short(value: object) -> str:
        return text_of(value).replace(f"{root}/", "")

    headline = card.headline and dataclasses.replace(card.headline, sentence=short(card.headline.sentence))
    rows = {name: short(row) for name, row in card.rows.items()} | {"Root": root}
    return dataclasses.replace(card, headline=headline, rows=rows)


def _changed(config: BaseModel | Mapping[str, BaseModel]) -> dict[str, Any]:
    """The parameters that are not at their defaults, of one step or of several by name."""
    if isinstance(config, BaseModel):
        return without_defaults(config)
    return {name: changed for name, each in config.items() if (changed := _changed(each))}


def _links(files: Sequence[Location]) -> str:
    """Links to files that a browser can read; none for files on disks and missing ones."""
    addresses = {file.uri: link for file in files if (link := file.link()) and file.is_file()}
    return f"\n{links(addresses, hours=LINK_SECONDS / 3600)}" if addresses else ""


def _name(place: Location) -> str:
    return place.uri.rpartition("/")[2]


def _put(card: Card, place: Location, *, replace: bool) -> None:
    folder, name = place.parent, _name(place)
    try:
        if replace or not folder.child(f"{name}.md").is_file():
            for file, data in card.files(name).items():
                folder.child(file).write(data)
    except StorageError as error:  # read-only data can be looked at, and the card is in the UI
        log.warning("The card cannot be written next to the data: %s", error)
