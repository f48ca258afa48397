"""What filesystems raise, as errors of ours that say what to do."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Iterator

from offline_core.errors import StorageError, StorageUnavailableError
from offline_core.storage.cloud_errors import NoBucketError, RefusedError, as_os_error

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space or choose another place.",
    errno.EDQUOT: "Your disk quota is used up: free some space or choose another place.",
    errno.EROFS: "Choose another place, or mount it for writing.",
    errno.ENOTDIR: "A file is where a folder has to be: choose another place or move it away.",
    errno.EEXIST: "A file is where a folder has to be: choose another place or move it away.",
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
    """Turns what filesystems raise into a `StorageError` that says what was tried, where, and what to do."""
    try:
        yield
    except Exception as error:
        if (known := as_os_error(error)) is None:
            if not isinstance(error, OSError):
                raise
            known = error
        raise _storage_error(f"Cannot {action} {uri}", known) from error


def _storage_error(tried: str, error: OSError) -> StorageError:
    match error:
        case NoBucketError() | RefusedError():
            return StorageError(f"{tried}: {error.strerror}.")
        case FileNotFoundError():
            return StorageError(f"{tried}: it is not there.")
        case PermissionError():
            return StorageError(f"{tried}: no permission. Choose another place or change its owner or mode.")
        case OSError(errno=number) if number in _MAY_PASS:
            return StorageUnavailableError(f"{tried} now: {str(error).rstrip('.')}. Try again when the place answers.")
    remedy = _REMEDIES.get(error.errno or 0, "")
    if error.errno == errno.ENOSPC and "://" in tried:
        remedy = f"Files are written to {tempfile.gettempdir()} first, and that is full: free some space there, or set TMPDIR."
    return StorageError(f"{tried}: {str(error).rstrip('.')}. {remedy}".rstrip())
