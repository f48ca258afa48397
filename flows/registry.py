"""Prints a registry: what its aliases name, since when, by whom and why."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from flows.results import console_of_output
from offline_core.data.store.location import Location
from offline_core.errors import CheckpointError
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.policies.registry.address import read_registry
from offline_core.policies.registry.history import History
from offline_core.policies.registry.move import Move


def print_registry(uri: str) -> None:
    """The aliases of all names; of one name, its history as well."""
    histories = read_registry(uri)
    if not histories:
        location = Location.of(uri)
        location.check_bucket()
        raise CheckpointError(f"{location.uri} is no registry, and no name in one. 'offline promote' makes one.")
    rows = (
        [f"{history.name}@{alias}", history.entry.child(move.checkpoint).uri, *_facts(move)]
        for history in histories
        for alias, move in history.aliases.items()
    )
    console = console_of_output()
    console.print(_table("Aliases", ["address", "checkpoint", "policy", "moved", "by", "because"], rows))
    if len(histories) == 1:
        console.print(_history(histories[0]))


def print_promotion(result: PromotionResult) -> None:
    """What an alias names now."""
    move = result.move
    lines = [
        f"{result.address} names policy {move.fingerprint}",
        f"checkpoint: {result.checkpoint}",
        f"because: {move.because}",
    ]
    if result.reused:
        lines[0] += f" since {move.moved_at:%Y-%m-%d %H:%M} UTC; nothing is moved"
    console_of_output().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _history(history: History) -> Table:
    rows = ([str(move.number), move.kind, move.alias, move.source, *_facts(move)] for move in history.moves)
    columns = ["move", "kind", "alias", "copied from", "policy", "moved", "by", "because"]
    return _table(f"History of {history.name}", columns, rows)


def _facts(move: Move) -> list[str]:
    return [move.fingerprint, f"{move.moved_at:%Y-%m-%d %H:%M} UTC", move.moved_by, move.because]


def _table(title: str, columns: Iterable[str], rows: Iterable[list[str]]) -> Table:
    table = Table(title=title)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # which is no markup, whatever it contains
    return table
