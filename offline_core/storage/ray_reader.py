"""Reads datasets through Ray Data: lazily, in parallel, for everything larger than one process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import ray.data
import ray.exceptions

from offline_core.errors import OfflineError, SchemaError
from offline_core.storage.dataset import Dataset, read_footer
from offline_core.storage.reader import schema_of


def ray_dataset(dataset: Dataset, names: Sequence[str]) -> ray.data.Dataset:
    """The rows of a dataset with the columns `names`, read lazily; no other column is read.

    Raises:
        SchemaError: the dataset lacks one of the columns.
    """
    present = schema_of(dataset).names
    if missing := [name for name in names if name not in present]:
        raise SchemaError(f"{dataset.location.uri} has no column {', '.join(missing)}; it has {', '.join(present)}.")
    read = ray.data.read_parquet(dataset.paths, filesystem=dataset.location.filesystem, file_extensions=None)
    return read.select_columns(list(names))


@contextlib.contextmanager
def reading(dataset: Dataset) -> Iterator[None]:
    """Around whatever makes Ray read `dataset`: errors of ours come out as they were raised, damaged and missing files as
    errors that name the file.
    """
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, OfflineError):
            message, _, _ = str(error.cause).partition("\nFailed to ")  # Ray Data appends advice on retries
            raise type(error.cause)(message) from None
        _find_damage(dataset)
        raise
    except (pa.ArrowException, OSError):
        _find_damage(dataset)
        raise


def _find_damage(dataset: Dataset) -> None:
    for entry in dataset.manifest.files:
        read_footer(dataset.location.child(entry.path))
