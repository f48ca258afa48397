"""The history of a name: a numbered log of moves, each chained to the one before. What aliases name is a fold over it.

<registry>/<name>/history/000001.json     the moves; those of earlier versions of this package are not chained
<registry>/<name>/checkpoints/<digest>    copies of the checkpoints that aliases named
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from offline_core.data.store.json_files import reason_of
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.errors import ConfigError, CorruptFileError, PromotionError, VersionExistsError
from offline_core.policies.registry.move import READS, Move

HISTORY = "history"
CHECKPOINTS = "checkpoints"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class History:
    """All moves of a name, the first one first."""

    entry: Location
    """Folder of the name."""
    moves: Sequence[Move]

    @property
    def name(self) -> str:
        return self.entry.uri.rpartition("/")[2]

    @property
    def aliases(self) -> dict[str, Move]:
        """The last move of each alias, which says what it names."""
        return dict(sorted({move.alias: move for move in self.moves}.items()))

    @property
    def unsigned(self) -> list[str]:
        """The moves that the key did not sign as they are, a sentence each; empty if no key is set."""
        wrong = ((move, move.wrong_signature(self.name)) for move in self.moves)
        return [f"Move {move.number} of {self.entry.uri}, {move}, {why}." for move, why in wrong if why is not None]

    def before(self, alias: str) -> Move | None:
        """The move whose checkpoint a rollback leads to; None: there is none.

        Rollbacks go back one by one: the second one leads to what was there two promotions ago, never forth again.
        """
        undo = _undo_stack(self.entry, [move for move in self.moves if move.alias == alias])
        return undo[-2] if len(undo) > 1 else None

    def checkpoint(self, move: Move) -> Location:
        """The checkpoint that an alias named after a move."""
        return self.entry.inside(move.checkpoint)


def entry_of(registry: str) -> Location:
    """The folder of a name in a registry, such as `runs/registry/hvac`.

    Raises:
        ConfigError: The last part cannot be a name.
    """
    path = registry.rstrip("/")
    name = path.rpartition("/")[2]
    if not _NAME.fullmatch(name):
        hint = f" Give {path.rpartition('@')[0]}, and the alias as a parameter." if "@" in name else ""
        raise ConfigError(
            f"{registry!r} ends in {name[:120]!r}, which is no name of a policy. Give a folder and a name, as "
            f"runs/registry/hvac; a name begins with a letter or a digit, and has letters, digits, '.', '_' and '-'.{hint}"
        )
    return Location.of(path)


def read_history(entry: Location) -> History:
    """All moves of a name; none if it does not exist.

    Raises:
        CorruptFileError: A move is missing, damaged, or does not follow from those before.
    """
    moves = [_move_of(entry, values) for values in _log(entry).entries()]
    held: dict[str, Move] = {}
    for move in moves:
        before = held.get(move.alias)
        if move.previous != (before.checkpoint if before else None):
            file = _log(entry).file(move.number).uri
            raise CorruptFileError(
                f"{file} does not follow from the moves before it: {move.alias} did not name {move.previous}. Restore the log "
                "from a copy.",
                uri=file,
            )
        held[move.alias] = move
    return History(entry, moves)


def last_move(entry: Location, alias: str) -> Move | None:
    """The last move of an alias; None if it has none. Later moves are read, and no earlier ones.

    Raises:
        CorruptFileError: A move is missing or damaged.
    """
    moves = (_move_of(entry, values) for values in _log(entry).newest_first())
    return next((move for move in moves if move.alias == alias), None)


def count_moves(entry: Location) -> int:
    """The number of moves of a name, by a listing.

    Raises:
        CorruptFileError: One is missing.
    """
    return _log(entry).count()


def commit_move(history: History, move: Move) -> Move:
    """Add a move that was chosen by what `history` says: compare and swap of its alias.

    Raises:
        PromotionError: The alias was moved meanwhile, and is left as it is.
        StorageError: The registry cannot be written.
    """
    seen = history.aliases.get(move.alias)
    while True:
        move = move.model_copy(update={"number": len(history.moves) + 1}).signed(history.name)
        try:
            _log(history.entry).append(move.model_dump(mode="json"), after=len(history.moves))
            return move
        except VersionExistsError as error:
            history = read_history(history.entry)
            now = history.aliases.get(move.alias)
            if now is not None and now != seen:
                raise PromotionError(
                    f"{move.alias} of {history.entry.uri} was moved meanwhile, and is left so: {now}, because {now.because} "
                    f"Look with 'offline registry {history.entry.uri}'; then decide against what it names now, and promote "
                    "again.",
                    uri=history.entry.uri,
                ) from error


def _log(entry: Location) -> NumberedLog:
    return NumberedLog(entry, HISTORY)


def _move_of(entry: Location, values: Mapping[str, Any]) -> Move:
    try:
        return Move.model_validate(values)
    except ValidationError as error:
        file = _log(entry).file(values["number"]).uri
        raise CorruptFileError(
            f"{file} is no move of an alias that can be read: {reason_of(error, 'registry_version', READS)}.", uri=file
        ) from error


def _undo_stack(entry: Location, moves: Sequence[Move]) -> list[Move]:
    """The moves of one alias that rollbacks lead through: each rollback takes the last one away."""
    stack: list[Move] = []
    for move in moves:
        if move.kind != "rollback":
            stack.append(move)
            continue
        if len(stack) < 2 or (stack[-2].number, stack[-2].checkpoint) != (move.restores, move.checkpoint):
            file = _log(entry).file(move.number).uri
            raise CorruptFileError(f"{file} does not lead back to what was there. Restore the history from a copy.", uri=file)
        stack.pop()
    return stack
