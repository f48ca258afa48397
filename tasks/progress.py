"""Shows in Prefect's UI how far a stage is: a progress artifact, and a line in the log now and then."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact

from offline_core.runtime.progress import Progress, observe

LONG_SECONDS = 10.0
"""What takes longer is shown."""
LATER = 1.25
"""How much older the work is at each report than at the last. Each is some writes to the server's database; there are 5 in
30 s, 27 in an hour and 41 in a day."""

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run


@contextmanager
def progress_shown() -> Iterator[None]:
    """Shows all work inside that takes long. The server is told by a thread, so that no work waits for it."""
    with ThreadPoolExecutor(1, thread_name_prefix="progress") as teller:
        artifacts = _Artifacts(teller)
        try:
            with observe(artifacts.show):
                yield
        finally:
            artifacts.is_over = True


class _Artifacts:
    """One progress artifact for each piece of work that takes long."""

    def __init__(self, teller: ThreadPoolExecutor) -> None:
        self._teller = teller
        self._context = contextvars.copy_context()  # says which run it is
        self.is_over = False
        """A bar that the garbage collector ends later reports nothing."""
        self._told: Future[None] | None = None
        self._ids: dict[str, UUID] = {}
        self._due_seconds: dict[str, float] = {}

    def show(self, progress: Progress) -> None:
        """Takes note of a report; quick."""
        if self.is_over:
            return
        is_shown = progress.what in self._due_seconds
        if not (progress.ended and is_shown) and progress.seconds < self._due_seconds.get(progress.what, LONG_SECONDS):
            return
        if progress.ended or self._told is None or self._told.done():
            log.info("%s", progress)
            self._due_seconds[progress.what] = LATER * progress.seconds
            self._told = self._teller.submit(self._context.run, self._tell, progress)
        if progress.ended:
            del self._due_seconds[progress.what]

    def _tell(self, progress: Progress) -> None:
        percent = 100.0 * min(1.0, progress.n / progress.total) if progress.total else 100.0 * progress.ended
        try:
            if (known := self._ids.get(progress.what)) is not None:
                update_progress_artifact(known, progress=percent, description=str(progress))
            else:
                self._ids[progress.what] = create_progress_artifact(progress=percent, description=str(progress))  # type: ignore[assignment]
        except Exception as error:  # the work goes on without being watched
            log.warning("Prefect's server could not be told of the progress: %s", error)
        if progress.ended:
            self._ids.pop(progress.what, None)  # more work of that name is another
