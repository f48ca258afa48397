"""The one protocol of a writer for a format that is not ours."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from offline_core.episodes import Episode


class EpisodeSink(Protocol):
    """Takes whole episodes, in order, and makes files of them; a context manager.

    After a clean end everything is on disk and complete; after an error nothing is left that could be taken for it.
    """

    def __enter__(self) -> EpisodeSink: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def write(self, episodes: Sequence[Episode]) -> None:
        """Appends episodes.

        Raises:
            DataError: the format cannot hold them; the message says why.
            StorageError: the place cannot be written.
        """
