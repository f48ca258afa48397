"""Puts cards where people look: in Prefect's UI, and beside the data."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from prefect.artifacts import create_markdown_artifact
from pydantic import BaseModel

from offline_core.episodes import columns
from offline_core.errors import StorageError
from offline_core.provenance import provenance
from offline_core.reporting.card import Card, Ran, links
from offline_core.reporting.cards import episodes_card
from offline_core.storage.dataset import VERSIONS, DatasetRef, open_dataset
from offline_core.storage.episode_index import episode_index
from offline_core.storage.location import Location
from offline_core.storage.stores import LINK_SECONDS

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run


@contextmanager
def telling() -> Iterator[None]:
    """Inside, a card is made and published. What goes wrong with it is a warning: what it tells of is done, and stays done."""
    try:
        yield
    except Exception as error:
        log.warning("The work is done, but its card could not be made or told: %s: %s", type(error).__name__, error)


def publish(
    card: Card,
    *,
    key: str,
    operation: str,
    config: BaseModel | Mapping[str, BaseModel],
    about: tuple[str, int | None],
    beside: Sequence[Location] = (),
    reused: bool = False,
) -> None:
    """Leaves `card`, with what ran on what, with the running task and in files beside the data.

    Files that are there already stay if the result was reused: they tell of the run that made it.

    Arguments:
        key: of the artifact's history; lower case, digits and dashes.
        config: parameters of the step, or by name those of several steps.
        about: URI, and version of a dataset, of what was made, or else of what was looked at.
        beside: where the files go, each with the name that they have before `.md` and `.png`.
    """
    from offline_core.lineage import lineage, mermaid  # with torch, which deploying can do without
    from offline_core.policies.checkpoint import POLICY_FILE

    graph = lineage(*about)
    node = graph.nodes[0]
    made = node if node.operation == operation else None
    if reused:
        when = f", made {made.created_at:%Y-%m-%d %H:%M} UTC" if made and made.created_at else ""
        card = dataclasses.replace(card, rows={"Reused": f"yes{when}", **card.rows})
    ran = Ran(
        operation,
        parameters=_changed(config),
        versions=made.provenance if made else provenance(),
    )
    card = dataclasses.replace(card, ran=ran, lineage=mermaid(graph))
    for place in beside:
        _put(card, place, replace=not reused)
    manifest = POLICY_FILE if node.version is None else f"{VERSIONS}/{node.version:06d}.json"
    files = [place.parent.child(name) for place in beside for name in card.files(_name(place))]
    text = card.markdown() + _links([*files, Location.of(node.uri).child(manifest)])
    create_markdown_artifact(text, key=key, description=card.title)  # last: its server may be gone


def publish_datasets(
    title: str,
    datasets: Mapping[str, DatasetRef],
    *,
    made: Sequence[DatasetRef],
    rows: Mapping[str, object],
    key: str,
    operation: str,
    config: BaseModel,
    reused: bool,
) -> None:
    """A card beside each dataset that was made, with `rows` and histograms of the returns and lengths of all `datasets`.

    Arguments:
        datasets: by the name in the picture's legend.
    """
    indices = {name: episode_index(open_dataset(ref.uri, ref.version)) for name, ref in datasets.items()}
    returns, lengths = ({name: index[column] for name, index in indices.items()} for column in (columns.RETURN, columns.LENGTH))
    publish(
        episodes_card(title, rows=rows, returns=returns, lengths=lengths),
        key=key,
        operation=operation,
        config=config,
        about=(made[0].uri, made[0].version),
        beside=[Location.of(ref.uri).child(f"_cards/{ref.version:06d}") for ref in made],
        reused=reused,
    )


def _changed(config: BaseModel | Mapping[str, BaseModel]) -> dict[str, Any]:
    """The parameters that are not at their defaults, of one step or of several by name."""
    if isinstance(config, BaseModel):
        return config.model_dump(mode="json", exclude_defaults=True)
    return {name: changed for name, each in config.items() if (changed := _changed(each))}


def _links(files: Sequence[Location]) -> str:
    """Where these can be read in a browser; nothing for those on disks, and those that are not there."""
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
        log.warning("The card is not kept beside the data: %s", error)
