"""Errors of reading a dataset, wherever it is read."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import pyarrow as pa

from offline_core.errors import OfflineError
from offline_core.storage.cloud_errors import as_os_error
from offline_core.storage.dataset import Dataset, read_footer
from offline_core.storage.location import storage_errors


@contextlib.contextmanager
def reading(dataset: Dataset) -> Iterator[None]:
    """Around whatever reads `dataset`, in this process or by Ray: errors of ours come out as they were raised, damaged and
    missing files as errors that name the file.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        _find_damage(dataset)
        if as_os_error(error) not in (None, error):  # it is a store's, whose footers can be read by now
            with storage_errors("read", dataset.location.uri):
                raise
        raise
    except Exception as error:
        if "ray" not in sys.modules or not isinstance(error, sys.modules["ray"].exceptions.RayTaskError):
            raise
        if isinstance(error.cause, OfflineError):
            message, _, _ = str(error.cause).partition("\nFailed to ")  # Ray Data appends advice on retries
            raise type(error.cause)(message) from None
        _find_damage(dataset)
        raise


def _find_damage(dataset: Dataset) -> None:
    for entry in dataset.manifest.files:
        read_footer(dataset.location.child(entry.path))
