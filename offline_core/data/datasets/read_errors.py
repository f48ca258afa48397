"""Raise the same errors for a dataset that is read in this process or by Ray."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import pyarrow as pa

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.store.cloud_errors import as_os_error
from offline_core.data.store.parquet_files import read_footer
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import OfflineError


@contextlib.contextmanager
def reading(dataset: Dataset) -> Iterator[None]:
    """Raise the errors of reading `dataset`, in this process or by Ray, as this package's errors.

    Damaged and missing files raise errors that name the file.
    """
    try:
        with ray_errors():
            yield
    except (pa.ArrowException, OSError) as error:
        _find_damage(dataset)
        if as_os_error(error) not in (None, error):  # it is a store's, whose footers can be read by now
            with storage_errors("read", dataset.location.uri):
                raise
        raise
    except Exception as error:
        if _is_rays(error):
            _find_damage(dataset)
        raise


@contextlib.contextmanager
def ray_errors() -> Iterator[None]:
    """Unwrap errors of this package from Ray's."""
    try:
        yield
    except Exception as error:
        cause = getattr(error, "cause", None) if _is_rays(error) else None
        if not isinstance(cause, OfflineError):
            raise
        message, _, _ = str(cause).partition("\nFailed to ")  # Ray Data appends advice on retries
        cause.args = (message,)  # the error itself: it keeps its uri, episode, column and step
        raise cause from None


def _is_rays(error: Exception) -> bool:
    return "ray" in sys.modules and isinstance(error, sys.modules["ray"].exceptions.RayTaskError)


def _find_damage(dataset: Dataset) -> None:
    for entry in dataset.manifest.files:
        read_footer(dataset.location.child(entry.path), entry.footer_sha256)
