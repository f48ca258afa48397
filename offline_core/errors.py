"""Every error this package raises on purpose.

    OfflineError
    ├── ConfigError                a parameter, or a combination of them, cannot work
    │   └── EnvironmentNotFoundError   gymnasium knows no environment of that id
    ├── DataError                  experience is not what it has to be
    │   ├── EpisodeError           an episode is not whole (lengths, shapes, order)
    │   ├── SpaceError             a space cannot be stored, or does not fit the data
    │   ├── SchemaError            a column is missing or has the wrong type
    │   ├── NonFiniteError         NaN or infinity where a number has to be
    │   ├── EmptyDatasetError      no episode (left)
    │   ├── CorruptFileError       a file cannot be read
    │   ├── QualityError           a dataset breaks the rules of the quality gate
    │   └── UnsafeDataError        reading it would run code (pickles), or fill the memory
    ├── StorageError               a place cannot be read or written
    │   ├── StorageUnavailableError    not now: a network or a disk does not answer
    │   ├── BusyError              another run is writing there
    │   ├── LocationError          the URI names nothing we can open
    │   ├── DatasetNotFoundError   no dataset there
    │   ├── VersionNotFoundError   the dataset has no such version
    │   └── VersionExistsError     another writer committed that version first
    ├── CheckpointError            a policy cannot be loaded from there
    ├── ClusterError               Ray cannot be reached, or has not what is asked of it
    │   └── RayLostError               Ray's process on this machine died
    ├── RecorderError              recorders died more often than they may
    ├── PromotionError             a policy is not shown to be worth what it has to be
    └── LearningError              training cannot go on
        └── LearnersLostError      learners died more often than they may

Each message says what is wrong, where (URI, episode, column) and what to do about it. Those that may pass by themselves
say so (`may_pass`), and are worth another try later; the others would come again.
"""

import contextlib
from collections.abc import Iterator
from typing import ClassVar

__all__ = [
    "BusyError",
    "CheckpointError",
    "ClusterError",
    "ConfigError",
    "CorruptFileError",
    "DataError",
    "DatasetNotFoundError",
    "EmptyDatasetError",
    "EnvironmentNotFoundError",
    "EpisodeError",
    "LearnersLostError",
    "LearningError",
    "LocationError",
    "NonFiniteError",
    "OfflineError",
    "PromotionError",
    "QualityError",
    "RayLostError",
    "RecorderError",
    "SchemaError",
    "SpaceError",
    "StorageError",
    "StorageUnavailableError",
    "UnsafeDataError",
    "VersionExistsError",
    "VersionNotFoundError",
]


class OfflineError(Exception):
    """Base of all errors of this package: catch it to catch them all."""

    may_pass: ClassVar[bool] = False
    """The same call may succeed later, with nothing changed."""


class ConfigError(OfflineError, ValueError):
    """A parameter, or a combination of parameters, cannot work."""


class EnvironmentNotFoundError(ConfigError):
    """Gymnasium knows no environment of that id."""


class DataError(OfflineError):
    """Experience is not what it has to be."""


class EpisodeError(DataError):
    """An episode is not whole: lengths, shapes or order contradict each other."""


class SpaceError(DataError):
    """A space cannot be stored, or does not fit the data."""


class SchemaError(DataError):
    """A column is missing or has the wrong type."""


class NonFiniteError(DataError):
    """NaN or infinity where a number has to be."""


class EmptyDatasetError(DataError):
    """There is no episode (left)."""


class CorruptFileError(DataError):
    """A file cannot be read."""


class QualityError(DataError):
    """A dataset breaks the rules of the quality gate."""


class UnsafeDataError(DataError):
    """Reading this data would run code, open other files, or take far more memory than its size warrants."""


class StorageError(OfflineError):
    """A place cannot be read or written."""


class StorageUnavailableError(StorageError):
    """A network or a disk does not answer now."""

    may_pass = True


class BusyError(StorageError):
    """Another run is writing to the same place."""

    may_pass = True


class LocationError(StorageError):
    """The URI names nothing we can open."""


class DatasetNotFoundError(StorageError):
    """There is no dataset at that location."""


class VersionNotFoundError(StorageError):
    """The dataset has no such version."""


class VersionExistsError(StorageError):
    """Another writer committed that version first."""

    may_pass = True


class CheckpointError(OfflineError):
    """A policy cannot be loaded from there."""


class ClusterError(OfflineError):
    """Ray cannot be reached, or has not what is asked of it."""


class RayLostError(ClusterError):
    """Ray's process on this machine died."""


class RecorderError(OfflineError):
    """Recorders died more often than they may."""

    may_pass = True


class PromotionError(OfflineError):
    """A policy is not shown to be worth what it has to be."""


class LearningError(OfflineError):
    """Training cannot go on."""


class LearnersLostError(LearningError):
    """Learners died more often than they may."""

    may_pass = True


@contextlib.contextmanager
def within(where: str) -> Iterator[None]:
    """What is wrong with data that is looked at within this is said with the place."""
    try:
        yield
    except DataError as error:
        ours = next(
            kind for kind in type(error).__mro__ if kind.__module__ == __name__
        )  # a user's own may take other arguments
        raise ours(f"{where}: {error}") from error


def first_line(error: BaseException) -> str:
    """What another library says, without the plans and the advice on its own functions that may follow."""
    return str(error).strip().partition("\n")[0].rstrip(".")
