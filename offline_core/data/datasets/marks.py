"""Episodes that people marked as bad when they looked at them. A pruning drops them where it is asked to.

    <uri>/_marks/marks.json     one file, replaced whole: which episodes, when, by whom

Marks are of the dataset and not of a version: they name episodes, and an episode is the same in all versions. A file that
holds all marks can lose those of episodes that are forgotten, which a log of moves could not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import polars as pl
from pydantic import Field, ValidationError

from offline_core.data.episodes import columns
from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError
from offline_core.runtime.parameter_errors import problems
from offline_core.runtime.provenance import this_user
from offline_core.runtime.result import StoredModel

FOLDER, FILE = "_marks", "marks.json"


class EpisodeName(NamedTuple):
    """What tells an episode, or a piece of one, from all others of a dataset."""

    eps_id: str
    t_started: int


class Mark(StoredModel):
    """An episode that was marked as bad."""

    eps_id: str
    t_started: int = 0
    marked_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    marked_by: str = Field(default_factory=this_user, max_length=200)

    @property
    def episode(self) -> EpisodeName:
        return EpisodeName(self.eps_id, self.t_started)


class Marks(StoredModel):
    """All marks of a dataset."""

    marks: list[Mark] = Field([])

    @property
    def sha256(self) -> str:
        """The hash of which episodes are marked, not of when or by whom: two prunings that drop the same are the same."""
        return hashlib.sha256(repr(sorted({mark.episode for mark in self.marks})).encode()).hexdigest()

    def of(self, index: pl.DataFrame) -> np.ndarray:
        """(episodes,) booleans: which rows of an `index` of the dataset are marked."""
        marked = {mark.episode for mark in self.marks}
        return np.fromiter((row in marked for row in index[columns.EPS_ID, columns.T_STARTED].iter_rows()), bool, len(index))


def read_marks(location: Location) -> Marks:
    """The marks of a dataset; none if nothing was ever marked.

    Raises:
        CorruptFileError: the file is not what was written.
    """
    file = location.child(f"{FOLDER}/{FILE}")
    if not file.is_file():
        return Marks()
    try:
        return Marks.model_validate_json(without_checksum(location.inside(f"{FOLDER}/{FILE}").read(), file.uri))
    except ValidationError as error:
        raise CorruptFileError(f"{file.uri} has no marks of episodes: {problems(error)}.", uri=file.uri) from error


def mark_episode(location: Location, episode: EpisodeName, *, is_bad: bool) -> Marks:
    """Mark an episode of a dataset as bad, or take the mark away; all marks as they are then.

    Raises:
        BusyError: another process marks an episode of it at this moment.
        CorruptFileError: the marks that are there cannot be read.
    """
    with location.child(FOLDER).make_folder().locked():
        known = read_marks(location)
        others = [mark for mark in known.marks if mark.episode != episode]
        if is_bad == (len(others) < len(known.marks)):
            return known
        new = [Mark(eps_id=episode.eps_id, t_started=episode.t_started)] if is_bad else []
        return _write(location, [*others, *new])


def forget_marks(location: Location, ids: Collection[str]) -> None:
    """Take away the marks of episodes with these ids, for good.

    Raises:
        BusyError, CorruptFileError: as `mark_episode`.
    """
    if any(mark.eps_id in ids for mark in read_marks(location).marks):
        with location.child(FOLDER).locked():
            _write(location, [mark for mark in read_marks(location).marks if mark.eps_id not in ids])


def _write(location: Location, marks: list[Mark]) -> Marks:
    made = Marks(marks=marks)
    location.child(f"{FOLDER}/{FILE}").write(with_checksum(made.model_dump_json(indent=2)))
    return made
