"""Tags: names of versions of a dataset. Each move of a tag is an entry in a log, and the last entry has all tags.

    <uri>/_versions/tags/000001.json     who let which tag stand for which version, when, and what it stood for before

`<uri>@<name>` is that version wherever a dataset is read, and `<uri>@<number>` the version of that number.
"""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime

from pydantic import Field, ValidationError

from offline_core.data.store.holds import writing
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.errors import ConfigError, CorruptFileError, VersionExistsError, VersionNotFoundError
from offline_core.runtime.parameter_errors import problems
from offline_core.runtime.provenance import this_user
from offline_core.runtime.result import StoredModel

VERSIONS = "_versions"
FOLDER = f"{VERSIONS}/tags"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")
_NUMBER = re.compile(r"[0-9]{1,18}")


class TagMove(StoredModel):
    """A committed move of a tag."""

    number: int = Field(0, ge=0, description="In the log, from 1 on.")
    tag: str
    version: int | None = Field(description="What the tag stands for from now on; None: it is removed.")
    previous: int | None = Field(description="What it stood for before; None: nothing.")
    tags: dict[str, int] = Field(description="What each tag of the dataset stands for from now on.")
    moved_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    moved_by: str = Field(default_factory=this_user, max_length=200)


def tag_moves(location: Location) -> list[TagMove]:
    """All moves of the tags of a dataset, the first one first.

    Raises:
        CorruptFileError: one is missing, damaged, or does not follow from those before it.
    """
    moves = [_move_of(location, values) for values in _log(location).entries()]
    for before, move in itertools.pairwise(moves):
        if move.tags != _after(before.tags, move.tag, move.version) or move.previous != before.tags.get(move.tag):
            file = _log(location).file(move.number).uri
            raise CorruptFileError(f"{file} does not follow from the moves before it. Restore the log from a copy.", uri=file)
    return moves


def read_tags(location: Location) -> dict[str, int]:
    """All tags of a dataset, by name.

    Raises:
        CorruptFileError: the last move is damaged, or one before it is missing; or another version of this package wrote a tag.
    """
    return _read(location)[1]


def write_tag(location: Location, name: str, version: int) -> None:
    """Let a name stand for a version, whatever it stood for before.

    Raises:
        ConfigError: the name is none.
        VersionNotFoundError: the version is not there any more.
        CorruptFileError: the log of tags is damaged.
    """
    checked(name)
    with writing(location.child(VERSIONS)):
        if not NumberedLog(location, VERSIONS).file(version).is_file():
            raise VersionNotFoundError(f"Dataset {location.uri} has no version {version}, so {name!r} cannot stand for it.")
        _move(location, name, version)


def remove_tag(location: Location, name: str) -> None:
    """Remove a tag; the version stays.

    Raises:
        VersionNotFoundError: there is no such tag.
        CorruptFileError: the log of tags is damaged.
    """
    resolve(location, checked(name))
    _move(location, name, None)


def checked(name: str) -> str:
    """The name of a tag.

    Raises:
        ConfigError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name[:120]!r} is no tag: a tag begins with a letter, and has letters, digits, '.', '_' and '-'.")
    return name


def split_address(uri: str) -> tuple[str, str] | None:
    """(URI of the dataset, tag or number) of `<uri>@<tag>`; None: it is no such address."""
    path, _, name = uri.rstrip("/").rpartition("@")
    is_below = "/" in path.partition("://")[2] if "://" in path else bool(path)  # and no user before a bucket
    return (path, name) if is_below and (_NUMBER.fullmatch(name) or _NAME.fullmatch(name)) else None


def resolve(location: Location, name: str) -> int:
    """The version that a tag, or a number as text, stands for.

    Raises:
        VersionNotFoundError: there is no such tag; the message lists those that exist.
        CorruptFileError: the log of tags is damaged.
    """
    if _NUMBER.fullmatch(name):
        return int(name)
    tags = read_tags(location)
    if checked(name) not in tags:
        raise VersionNotFoundError(f"Dataset {location.uri} has no tag {name!r}; it has {', '.join(sorted(tags)) or 'none'}.")
    return tags[name]


def _read(location: Location) -> tuple[int, dict[str, int]]:
    """(number of the last move, 0 if there is none; all tags after it)."""
    log = _log(location)
    listed = log.listed()
    if listed.highest and (last := next(log.newest_first(), None)) is not None:
        move = _move_of(location, last)
        return move.number, dict(sorted(move.tags.items()))
    if tags := [name for name in listed.others if _NAME.fullmatch(name)]:
        file = log.folder.child(tags[0]).uri
        raise CorruptFileError(
            f"{file} is a tag as another version of this package wrote it. Delete the file, and set the tag again.", uri=file
        )
    return 0, {}


def _move(location: Location, name: str, version: int | None) -> None:
    """Add the move of a tag to the log; none if the tag stands for that version already."""
    while True:
        number, tags = _read(location)
        if number and tags.get(name) == version:
            return
        move = TagMove(tag=name, version=version, previous=tags.get(name), tags=_after(tags, name, version))
        try:
            _log(location).append(move.model_dump(mode="json"), after=number)
            return
        except VersionExistsError:  # another writer moved a tag meanwhile
            continue


def _after(tags: dict[str, int], name: str, version: int | None) -> dict[str, int]:
    rest = {tag: number for tag, number in tags.items() if tag != name}
    return rest if version is None else {**rest, name: version}


def _log(location: Location) -> NumberedLog:
    return NumberedLog(location, FOLDER)


def _move_of(location: Location, values: object) -> TagMove:
    try:
        return TagMove.model_validate(values)
    except ValidationError as error:
        folder = location.child(FOLDER).uri
        raise CorruptFileError(f"A file in {folder} is no move of a tag: {problems(error)}.", uri=folder) from error
