"""The card of a registry: what its aliases name, since when, by whom and why."""

from __future__ import annotations

from offline_core.data.store.location import Location
from offline_core.errors import CheckpointError
from offline_core.policies.registry.address import read_registry
from offline_core.policies.registry.move import Move
from offline_core.runtime.reporting.card import Card, Section
from offline_core.runtime.units import count_text


def registry_card(uri: str) -> Card:
    """The aliases of all names; of one name, its history as well."""
    histories = read_registry(uri)
    if not histories:
        location = Location.of(uri)
        location.check_bucket()
        raise CheckpointError(f"{location.uri} is no registry, and no name in one. 'offline promote' makes one.")
    aliases = [
        (f"{history.name}@{alias}", history.entry.child(move.checkpoint).uri, *_facts(move))
        for history in histories
        for alias, move in history.aliases.items()
    ]
    moves = [
        (f"{history.name} {move.number}", move.kind, move.alias, move.source, *_facts(move))
        for history in histories
        for move in history.moves
    ]
    return Card(
        "Registry",
        word="Registry",
        sentence=f"{count_text(len(aliases), 'alias', 'aliases')} of {count_text(len(histories), 'policy', 'policies')}, "
        f"moved {count_text(len(moves), 'time')}.",
        sections=[
            Section("Aliases", columns=("address", "checkpoint", "policy", "moved", "by", "because"), rows=aliases),
            Section(
                "History",
                columns=("move", "kind", "alias", "copied from", "policy", "moved", "by", "because"),
                rows=moves if len(histories) == 1 else [],
            ),
        ],
    )


def _facts(move: Move) -> tuple[str, ...]:
    return move.fingerprint, f"{move.moved_at:%Y-%m-%d %H:%M} UTC", move.moved_by, move.because
