"""Tell storage errors from data errors in what readers of other libraries raise."""

from __future__ import annotations

from collections.abc import Iterator

from offline_core.data.store.cloud_errors import as_os_error
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import StorageError


def raise_if_out_of_reach(error: BaseException, uri: str) -> None:
    """Raise a storage error in the chain of `error`, so that data is not called damaged if the storage fails.

    Raises:
        StorageError: a server or a disk does not answer, or denies access.
    """
    for each in list(_chain(error)):  # raising one of them below changes its context
        known = as_os_error(each) if isinstance(each, Exception) else None
        if known is None or known.errno is None:  # decoders raise OSError, too, but without errno
            continue
        try:
            with storage_errors("read", uri):
                raise each
        except StorageError as found:
            if found.may_pass or each is error:  # an earlier missing file may be irrelevant
                raise


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes: HTTP clients wrap network errors."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:  # an error may be its own cause
        yield each
        seen.add(id(each))
        each = each.__cause__ or each.__context__
