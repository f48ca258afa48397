"""Tell storage errors from data errors in what readers of other libraries raise."""

from __future__ import annotations

from collections.abc import Iterator

from offline_core.data.store.storage_errors import as_os_error, storage_errors
from offline_core.errors import StorageError


def raise_if_out_of_reach(error: BaseException, uri: str) -> None:
    """Raise a storage error in the chain of `error`, so that data is not called damaged if the storage fails.

    Raises:
        StorageError: a server or a disk does not answer, or denies access.
    """
    for cause in list(_chain(error)):  # raising one of them below changes its context
        known = as_os_error(cause) if isinstance(cause, Exception) else None
        if known is None or known.errno is None:  # decoders raise OSError, too, but without errno
            continue
        try:
            with storage_errors("read", uri):
                raise cause
        except StorageError as storage_error:
            if storage_error.may_pass or cause is error:  # an earlier missing file may be irrelevant
                raise


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes: HTTP clients wrap network errors."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:  # an error may be its own cause
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
