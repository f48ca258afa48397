"""Every error that this package raises.

    OfflineError
    ├── ConfigError                a parameter, or a combination of parameters, is invalid
    │   └── EnvironmentNotFoundError   gymnasium has no environment of that id
    ├── DataError                  recorded data is invalid
    │   ├── EpisodeError           an episode contradicts itself (lengths, shapes, order)
    │   ├── SpaceError             a space cannot be stored, or does not fit the data
    │   ├── SchemaError            a column is missing or has the wrong type
    │   │   └── NotImportedError       files have no manifest, so they are no dataset yet
    │   ├── NonFiniteError         NaN or infinity in place of a number
    │   ├── EmptyDatasetError      no episode, or none left
    │   ├── CorruptFileError       a file cannot be read
    │   ├── QualityError           a dataset breaks the rules of the quality gate
    │   └── UnsafeDataError        reading it would run code (pickles), or fill the memory
    ├── StorageError               a location cannot be read or written
    │   ├── StorageUnavailableError    a network or a disk does not answer now
    │   ├── BusyError              another run is writing there
    │   ├── LocationError          the URI cannot be opened
    │   ├── DatasetNotFoundError   the location has no dataset
    │   ├── VersionNotFoundError   the dataset has no such version
    │   └── VersionExistsError     another writer committed that version first
    ├── CheckpointError            a policy cannot be loaded
    ├── ClusterError               Ray cannot be reached, or lacks resources
    │   └── RayLostError               Ray's process on this machine died
    ├── RecorderError              recorders died more often than allowed
    ├── PromotionError             a policy is not shown to be good enough
    ├── LearningError              training cannot continue
    │   └── LearnersLostError      learners died more often than allowed
    └── SweepError                 runs of a sweep failed

A message says what failed, where, and what to do; `uri`, `episode`, `column` and `step` say where as data. Errors that may
pass (`may_pass`) are worth another attempt; the others would come again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

from offline_core.control_characters import visible
from offline_core.secrets import masked_text


class OfflineError(Exception):
    """Base of all errors of this package: catch it to catch them all."""

    uri: str | None = None
    """The file, folder or dataset that failed."""

    episode: str | None = None
    """The id of the episode that failed."""

    column: str | None = None
    """The column that failed."""

    step: int | None = None
    """The step inside the episode."""

    may_pass: bool = False
    """The same call may succeed later, with nothing changed."""

    def __init__(
        self,
        message: object = "",
        *,
        uri: str | None = None,
        episode: object = None,
        column: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(masked_text(message) if isinstance(message, str) else message)
        # In __dict__, which pickle keeps beside the message.
        self.uri, self.column, self.step = uri and masked_text(uri), column, step
        self.episode = None if episode is None else str(episode)

    def __str__(self) -> str:
        """The message, with the control characters of names that it repeats written out."""
        return visible(super().__str__())

    def within(self, where: str, **fields: Any) -> OfflineError:
        """Return the error with its place before the message; `fields` fill `uri`, `episode`, `column`, `step` if unset."""
        kind = next(kind for kind in type(self).__mro__ if kind.__module__ == __name__)  # user classes may take other arguments
        known = {name: value for name in FIELDS if (value := getattr(self, name)) is not None}
        told = str(self) if str(self).startswith(where) else f"{where}: {self}"
        return kind(told, **(fields | known))  # type: ignore[no-any-return]


FIELDS = ("uri", "episode", "column", "step")
"""What an error carries as data."""


class ConfigError(OfflineError, ValueError):
    """A parameter, or a combination of parameters, is invalid."""


class EnvironmentNotFoundError(ConfigError):
    """Gymnasium has no environment of that id."""


class DataError(OfflineError):
    """Recorded data is invalid."""

    rows: Mapping[int, str] = {}
    """The rows of a table that it is of, by their place, with what is said of each alone; empty: not known."""

    def with_rows(self, rows: Mapping[int, str]) -> Self:
        """Return the error, which names the rows that it is of: the others may be good."""
        self.rows = rows
        return self


class EpisodeError(DataError):
    """An episode contradicts itself: lengths, shapes or order."""


class SpaceError(DataError):
    """A space cannot be stored, or does not fit the data."""


class SchemaError(DataError):
    """A column is missing or has the wrong type."""


class NotImportedError(SchemaError, TypeError):
    """Files have no manifest, so it is not known how many episodes they have. As a TypeError it lets `list` do without that."""


class NonFiniteError(DataError):
    """NaN or infinity in place of a number."""


class EmptyDatasetError(DataError):
    """A dataset has no episode, or none left."""


class CorruptFileError(DataError):
    """A file cannot be read."""


class QualityError(DataError):
    """A dataset breaks the rules of the quality gate."""


class UnsafeDataError(DataError):
    """Reading this data would run code, open other files, or take far more memory than its size warrants."""


class StorageError(OfflineError):
    """A location cannot be read or written."""


class StorageUnavailableError(StorageError):
    """A network or a disk does not answer now."""

    may_pass = True


class BusyError(StorageError):
    """Another run is writing to the same place."""

    may_pass = True


class LocationError(StorageError):
    """The URI cannot be opened."""


class DatasetNotFoundError(StorageError):
    """The location has no dataset."""


class VersionNotFoundError(StorageError):
    """The dataset has no such version."""


class VersionExistsError(StorageError):
    """Another writer committed that version first."""

    may_pass = True


class CheckpointError(OfflineError):
    """A policy cannot be loaded."""


class ClusterError(OfflineError):
    """Ray cannot be reached, or lacks resources."""


class RayLostError(ClusterError):
    """Ray's process on this machine died."""


class RecorderError(OfflineError):
    """Recorders died more often than allowed."""

    may_pass = True


class PromotionError(OfflineError):
    """A policy is not shown to be good enough."""


class LearningError(OfflineError):
    """Training cannot continue."""


class LearnersLostError(LearningError):
    """Learners died more often than allowed."""

    may_pass = True


class SweepError(OfflineError):
    """Runs of a sweep failed; the others are done, and reused by the next call."""


@contextlib.contextmanager
def within(where: str | None = None, *, uri: str | None = None, column: str | None = None) -> Iterator[None]:
    """Name the place of a `DataError` raised inside: before its message, and as data."""
    try:
        yield
    except DataError as error:
        where = where or uri or f"Column {column!r}"
        raise error.within(where, uri=uri, column=column) from error


def first_line(error: BaseException) -> str:
    """Return the first line of another library's message, without plans and advice on its own functions."""
    return str(error).strip().partition("\n")[0].rstrip(".")


def misread(error: Exception) -> str:
    """Say why a file cannot be read, by the error that reading it ended in: in words, without the error's class."""
    if isinstance(error, OSError):
        return f"It cannot be read: {error.strerror or first_line(error)}."
    why = f"{error} is missing" if isinstance(error, KeyError) else first_line(error)
    return f"It is not what this package writes{why and f': {why}'}."


def unexpected(error: Exception) -> str:
    """Say that this package failed, by the error that it did not expect, with its class, which a mend needs."""
    return f"It cannot be shown, by a defect of this package ({type(error).__name__}: {first_line(error)})."
