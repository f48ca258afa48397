"""Addresses of policies, `<registry>/<name>@<alias>`, and what they name."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import NamedTuple

from offline_core.data.store.location import Location
from offline_core.errors import CheckpointError, ConfigError, LocationError
from offline_core.policies.registry.history import History, count_moves, entry_of, last_move, read_history
from offline_core.policies.registry.move import ALIAS, Move

log = logging.getLogger(__name__)

MOST_NAMED = 20
"""Names in a message."""


class Address(NamedTuple):
    """A policy by its name and alias."""

    entry: Location
    """Folder of the name."""
    alias: str

    @property
    def exists(self) -> bool:
        """Whether its name is registered."""
        return count_moves(self.entry) > 0

    def move(self) -> Move:
        """Return the last move of the alias, which says what it names.

        Raises:
            CheckpointError: The registry, the name or the alias does not exist; it lists those that do.
            CorruptFileError: A move is missing or damaged.
        """
        if (move := last_move(self.entry, self.alias)) is not None:
            if (why := move.wrong_signature(self.entry.uri.rpartition("/")[2])) is not None:
                log.warning("Move %d of %s, %s, %s.", move.number, self.entry.uri, move, why)
            return move
        missing = f"There is no policy at {self.entry.uri}@{self.alias}:"
        if self.exists:
            raise CheckpointError(f"{missing} {self.entry.uri} has the aliases {_listed(read_history(self.entry).aliases)}.")
        registry = self.entry.parent
        if names := [history.name for history in read_registry(registry.uri)]:
            raise CheckpointError(f"{missing} {registry.uri} has the names {_listed(names)}.")
        registry.check_bucket()
        raise CheckpointError(f"{missing} {registry.uri} is no registry. 'offline promote' makes one.")


def parse_address(policy: str) -> Address | None:
    """The address that a text is; None: it is the URI of a checkpoint."""
    path, _, alias = policy.rpartition("@")
    if not path or not re.fullmatch(ALIAS, alias):
        return None
    try:
        entry = entry_of(path)
        entry.parent  # noqa: B018  # a whole bucket is no name
    except (ConfigError, LocationError):
        return None
    return Address(entry, alias)


def read_registry(uri: str) -> list[History]:
    """The histories of all names in a registry, or that of one name; none if there are none.

    Raises:
        CorruptFileError: A move is missing or damaged.
    """
    location = Location.of(uri)
    if count_moves(location):
        return [read_history(location)]
    entries = [location.child(name) for name in location.folders() if not name.startswith(".")]
    return [read_history(entry) for entry in entries if count_moves(entry)]


def _listed(names: Iterable[str]) -> str:
    all_names = [*names]
    more = f" and {len(all_names) - MOST_NAMED} more" if len(all_names) > MOST_NAMED else ""
    return f"{', '.join(all_names[:MOST_NAMED])}{more}"
