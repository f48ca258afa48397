"""Shows in Prefect's UI how far a stage is: a progress artifact, beside a line in the log now and then."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact

from offline_core.runtime.progress import Progress, milestones, observe, progress_logged

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run


@contextmanager
def progress_shown() -> Iterator[None]:
    """Shows all work inside that takes long. The server is told by a thread, so that no work waits for it."""
    with ThreadPoolExecutor(1, thread_name_prefix="progress") as teller:
        artifacts = _Artifacts(teller)
        try:
            with progress_logged(), observe(artifacts.show):
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
        self._is_milestone = milestones()
        """Each is some writes to the server's database."""
        self._ids: dict[str, UUID] = {}

    def show(self, progress: Progress) -> None:
        """Takes note of a report; quick."""
        if self.is_over or not self._is_milestone(progress):
            return
        if progress.ended or self._told is None or self._told.done():
            self._told = self._teller.submit(self._context.run, self._tell, progress)

    def _tell(self, progress: Progress) -> None:
        percent = progress.percent
        try:
            if (known := self._ids.get(progress.what)) is not None:
                update_progress_artifact(known, progress=percent, description=str(progress))
            else:
                self._ids[progress.what] = create_progress_artifact(progress=percent, description=str(progress))  # type: ignore[assignment]
        except Exception as error:  # the work goes on without being watched
            log.warning("Prefect's server could not be told of the progress: %s", error)
        if progress.ended:
            self._ids.pop(progress.what, None)  # more work of that name is another
