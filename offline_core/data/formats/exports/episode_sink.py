"""The protocol of a writer, and the formats that are written: what `@writer` says of a class is all there is to know of one.

@writer("d4rl", about="HDF5")
class D4rlSink(FolderSink): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeVar

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


@dataclass(frozen=True)
class ExportFormat:
    """What there is to know of a format that is written."""

    sink: Callable[..., EpisodeSink]
    """Called with the output, the arguments, and `complete`, which is called with the folder before it becomes visible."""
    about: str
    arguments: str
    """Of the sink, as JSON, for the form."""
    opens: str
    """The line of Python that opens what was written, with {} for its folder; empty: none."""
    folder: Callable[[Mapping[str, Any]], str]
    """What is replaced as a whole below the output, of the arguments."""
    names_environment: bool
    """The sink also takes the environment of the dataset."""


EXPORTS: dict[str, ExportFormat] = {}

S = TypeVar("S", bound=Callable[..., EpisodeSink])


def writer(
    name: str,
    *,
    about: str = "",
    arguments: str = "none",
    opens: str = "",
    folder: Callable[[Mapping[str, Any]], str] = lambda arguments: "",
    names_environment: bool = False,
) -> Callable[[S], S]:
    """Registers a class as the writer of a format, see `ExportFormat`."""

    def register(sink: S) -> S:
        EXPORTS[name] = ExportFormat(sink, about, arguments, opens, folder, names_environment)
        return sink

    return register
