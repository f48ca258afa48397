"""The registry: names and aliases over checkpoints, as a history of moves. It reads no checkpoint itself.

A name has a numbered log of moves, each chained to the one before. What its aliases name is a fold over it.

<registry>/<name>/history/000001.json     the moves; those of earlier versions of this package are not chained
<registry>/<name>/checkpoints/<digest>    copies of the checkpoints that aliases named
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, StringConstraints, ValidationError

from offline_core.data.store.json_files import reason_of
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.errors import (
    CheckpointError,
    ConfigError,
    CorruptFileError,
    LocationError,
    PromotionError,
    VersionExistsError,
)
from offline_core.runtime.result import StoredModel
from offline_core.runtime.signing import signature_of, wrong_with
from offline_core.runtime.units import list_text

log = logging.getLogger(__name__)

READS: Literal[1] = 1
"""The version of the format that is written and read."""

MoveKind = Literal["promote", "assign", "rollback"]
"""promote: by a decision. assign: by an override. rollback: back to an earlier checkpoint."""

ALIAS = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
Alias = Annotated[str, StringConstraints(pattern=ALIAS)]

HISTORY = "history"
CHECKPOINTS = "checkpoints"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MOST_NAMED = 20
"""Names in a message."""


class PromotionEvidence(StoredModel):
    """What a decision said when it moved an alias; the folder of the decision has the numbers."""

    decision: str = Field(description="URI of the folder of the decision.")
    identity: str = Field(description="Of what was decided on: data, candidates and parameters.")
    verdict: str
    sentence: str = Field(description="The verdict in one sentence.")
    against: str = Field(description="What the checkpoint was compared with: behaviour, or a checkpoint.")
    explore: bool | None = Field(
        None, description="What was judged samples its actions; otherwise it takes the likeliest one. None: not noted."
    )
    signature: str | None = Field(None, description="Of the decision; None: it was made without a key.")


class Move(StoredModel):
    """A committed move of an alias; frozen, and never changed."""

    registry_version: Literal[1] = READS
    number: int = Field(0, ge=0, description="In the history of its name, from 1 on.")
    kind: MoveKind
    alias: Alias
    checkpoint: str = Field(
        pattern=r"^checkpoints/[0-9a-f]{16}$", description="Folder of the checkpoint, below that of the name: a copy."
    )
    fingerprint: str = Field(description="Of that checkpoint.")
    source: str = Field(description="URI that it was copied from; that may hold another policy by now.")
    previous: str | None = Field(None, description="Checkpoint that the alias named before; None: it is new.")
    restores: int | None = Field(None, description="Of a rollback: the move whose checkpoint the alias names again.")
    evidence: PromotionEvidence | None = Field(None, description="The decision; None: an override, or a rollback.")
    reason: str | None = Field(None, description="Why, in the words of the one who moved it: of an override or a rollback.")
    moved_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    moved_by: str = Field(max_length=200)
    signature: str | None = Field(
        None, description="By the key of those who may move aliases, over all else and the name; None: there was no key."
    )

    def signed(self, name: str) -> Move:
        """It as it is written to the history of a name, which signs it if a key is set."""
        return self.model_copy(update={"signature": signature_of("move", self._content(name))})

    def wrong_signature(self, name: str) -> str | None:
        """Why the key did not sign it for this name, as the end of a sentence; None if it did, or if no key is set."""
        return wrong_with("move", self._content(name), self.signature)

    def _content(self, name: str) -> dict[str, Any]:
        return {"name": name, **self.model_dump(mode="json", exclude={"signature"}, exclude_defaults=True)}

    @property
    def because(self) -> str:
        """Why, in one line."""
        if self.kind == "rollback":
            return f"back to move {self.restores}{f': {self.reason}' if self.reason else ''}"
        if self.reason is not None:
            return f"override: {self.reason}"
        return "" if self.evidence is None else self.evidence.sentence

    def __str__(self) -> str:
        return f"{self.alias} to {self.fingerprint} ({self.kind}, {self.moved_at:%Y-%m-%d %H:%M} UTC, by {self.moved_by})"


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

    def decided_by(self, move: Move) -> PromotionEvidence | None:
        """The decision on what an alias names after a move, of a rollback that of the move it leads back to; None: none."""
        while move.restores is not None:
            move = self.moves[move.restores - 1]
        return move.evidence

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


def name_in_registry(registry: str) -> Location:
    """The folder of a name in a registry, and not that of a registry, or one below a name: what is there would be hidden.

    Raises:
        ConfigError: It is none, or the last part cannot be a name.
    """
    entry = entry_of(registry)
    if count_moves(entry):
        return entry
    if names := names_in(entry):
        raise ConfigError(
            f"{entry.uri} is a registry with the names {list_text(names, MOST_NAMED)}, and no name itself. Give one of them, "
            f"as {entry.child(names[0]).uri}, or a new one there."
        )
    if count_moves(entry.parent):
        raise ConfigError(
            f"{entry.parent.uri} is a name in a registry, and has no names below it. Give it, or a new one beside it, as "
            f"{entry.parent.parent.child(entry.uri.rpartition('/')[2]).uri}."
        )
    return entry


def names_in(registry: Location) -> list[str]:
    """The names in a registry; none if it is none."""
    return [name for name in registry.folders() if not name.startswith(".") and count_moves(registry.child(name))]


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
            raise CheckpointError(
                f"{missing} {self.entry.uri} has the aliases {list_text(read_history(self.entry).aliases, MOST_NAMED)}."
            )
        registry = self.entry.parent
        if names := names_in(registry):
            raise CheckpointError(f"{missing} {registry.uri} has the names {list_text(names, MOST_NAMED)}.")
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
    return [read_history(location.child(name)) for name in names_in(location)]
