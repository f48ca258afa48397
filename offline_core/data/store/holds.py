"""Hold a folder: shared, as one of its writers, or exclusively, to delete what is in it.

A writer first leaves its mark and then looks for an exclusive holder; an exclusive holder first locks and then looks for
writers. So at least one of two runs sees the other: the writer waits, the exclusive holder is refused.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import BusyError

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2


@contextlib.contextmanager
def writing(folder: Location) -> Iterator[None]:
    """Be one of the writers of a folder inside the block, after waiting for an exclusive holder to be done."""
    is_told = False
    while True:
        with contextlib.ExitStack() as held:
            with storage_errors("write", folder.uri):
                held.enter_context(folder.store.share(folder.path))
                is_locked = folder.store.is_locked(folder.path)
            if not is_locked:
                yield
                return
        if not is_told:
            log.info("Another run deletes old versions or forgets episodes at %s: waiting until it is done.", folder.uri)
        is_told = True
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def alone(folder: Location) -> Iterator[None]:
    """Hold a folder exclusively inside the block: no other run writes there.

    Raises:
        BusyError: another run writes there, or holds the folder exclusively.
    """
    with folder.locked():
        with storage_errors("look at", folder.uri):
            has_writers = folder.store.has_writers(folder.path)
        if has_writers:
            raise BusyError(f"Another run is writing to {folder.uri}. Wait until it is done.", uri=folder.uri)
        yield
