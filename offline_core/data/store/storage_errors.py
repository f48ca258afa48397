"""Errors of filesystems as `StorageError`s that say what to do."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Iterator

from offline_core.data.store.cloud_errors import NoBucketError, RefusedError, as_os_error
from offline_core.errors import StorageError, StorageUnavailableError

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space or choose another location.",
    errno.EDQUOT: "Your disk quota is used up: free some space or choose another location.",
    errno.EFBIG: "A file may not become so large here: choose another location, or raise the limit of the process (ulimit -f).",
    errno.EROFS: "Choose another location, or mount it for writing.",
    errno.ENOTDIR: "A file is where a folder has to be: choose another location or move it away.",
    errno.EEXIST: "A file is where a folder has to be: choose another location or move it away.",
}

_MAY_PASS = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.EINTR,
    errno.EIO,
    errno.ENETUNREACH,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


@contextlib.contextmanager
def storage_errors(action: str, uri: str) -> Iterator[None]:
    """Turn what filesystems raise into a `StorageError` that says what failed, where, and what to do."""
    try:
        yield
    except Exception as error:
        if (known := as_os_error(error)) is None:
            if not isinstance(error, OSError):
                raise
            known = error
        raise _storage_error(action, uri, known) from error


def _storage_error(action: str, uri: str, error: OSError) -> StorageError:
    tried, said = f"Cannot {action} {uri}", str(error).rstrip(".")
    remedy = _REMEDIES.get(error.errno or 0, "")
    if error.errno == errno.ENOSPC and "://" in uri:
        remedy = f"Files are written to {tempfile.gettempdir()} first, and that is full: free some space there, or set TMPDIR."
    match error:
        case NoBucketError() | RefusedError():
            message = f"{tried}: {error.strerror}."
        case FileNotFoundError():
            message = f"{tried}: it does not exist."
        case PermissionError():
            message = f"{tried}: permission denied. Choose another location or change its owner or mode."
        case OSError(errno=number) if number in _MAY_PASS:
            return StorageUnavailableError(f"{tried} now: {said}. Try again when the storage answers.", uri=uri)
        case _:
            message = f"{tried}: {said}. {remedy}".rstrip()
    return StorageError(message, uri=uri)
