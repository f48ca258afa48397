"""The protocol of a writer of an export format."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from offline_core.data.episodes import Episode


class EpisodeSink(Protocol):
    """Writes whole episodes, in order, to files; a context manager.

    After a clean exit the export is complete; after an error nothing remains that looks like one.
    """

    def __enter__(self) -> EpisodeSink: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def write(self, episodes: Sequence[Episode]) -> None:
        """Appends episodes.

        Raises:
            DataError: the format cannot hold them; the message says why.
            StorageError: the output cannot be written.
        """
