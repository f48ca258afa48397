"""What the readers of other libraries raise: is the place to blame, or what lies there?"""

from __future__ import annotations

from collections.abc import Iterator

from offline_core.errors import StorageError
from offline_core.storage.cloud_errors import as_os_error
from offline_core.storage.storage_errors import storage_errors


def raise_if_out_of_reach(error: BaseException, uri: str) -> None:
    """Lest what lies at `uri` be taken for damaged when a server or a disk does not answer, or refuses.

    Raises:
        StorageError: the place is to blame.
    """
    for each in _chain(error):
        known = as_os_error(each) if isinstance(each, Exception) else None
        if known is None or known.errno is None:  # what unpacks and decodes raises OSErrors, too, but without a number
            continue
        try:
            with storage_errors("read", uri):
                raise each
        except StorageError as found:
            if found.may_pass or each is error:  # a file that was missed on the way may have been none of importance
                raise


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it: clients of HTTP wrap what the network said."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
