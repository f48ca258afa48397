"""Puts cards where people look: in Prefect's UI."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from prefect.artifacts import create_markdown_artifact
from prefect.settings import PREFECT_UI_URL

from offline_core.data.datasets.dataset import VERSIONS
from offline_core.data.store.location import Location
from offline_core.data.store.stores import LINK_SECONDS
from offline_core.policies.manifest import POLICY_FILE
from offline_core.runtime.reporting.card import Card, links
from offline_core.secrets import masked_text

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run


def publish(card: Card, *, key: str) -> None:
    """Leave a card as an artifact of the running task; a failure is a warning, for the stage itself is done.

    Arguments:
        key: of the artifact's history; lower case, digits and dashes.
    """
    if PREFECT_UI_URL.value() == "":  # of a temporary server: it has no UI to see it in
        return
    uri, version = card.about
    manifest = POLICY_FILE if version is None else f"{VERSIONS}/{version:06d}.json"
    files = [f"{stem}.{kind}" for stem in card.places for kind in ("png", "html", "md")]
    try:
        text = card.markdown() + _links([Location.of(file) for file in [*files, f"{uri}/{manifest}"]])
        summary = ": ".join(filter(None, (card.title, card.headline)))
        create_markdown_artifact(text, key=key, description=masked_text(summary))  # its server may be gone
    except Exception as error:
        log.warning("The work is done, but its card could not be published: %s: %s", type(error).__name__, error)


def _links(files: Sequence[Location]) -> str:
    """Links to files that a browser can read; none for files on disks and missing ones."""
    addresses = {file.uri: link for file in files if (link := file.link()) and file.is_file()}
    return f"\n{links(addresses, hours=LINK_SECONDS / 3600)}" if addresses else ""
