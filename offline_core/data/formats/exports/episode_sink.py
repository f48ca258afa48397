"""The protocol of a writer, and the formats that are written: all there is to know of one is said by `@writer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


EXPORTS: dict[str, writer] = {}
S = TypeVar("S", bound=Callable[..., EpisodeSink])


@dataclass
class writer:  # noqa: N801
    """Registers a class as the writer of a format; what there is to know of it.

    It is called with the output, the arguments, and `complete`, which is called with the folder before it becomes visible.
    """

    name: str
    about: str = ""
    arguments: str = "none"
    """Example arguments as JSON, for the form."""
    opens: str = ""
    """The line of Python that opens what was written, with {} for its folder; empty: none."""
    folder: Callable[[Mapping[str, Any]], str] = lambda arguments: ""
    """What is replaced as a whole below the output, of the arguments."""
    names_environment: bool = False
    """It also takes the environment of the dataset."""
    says_about: bool = False
    """It also takes what is said of the dataset."""
    sink: Callable[..., EpisodeSink] = field(init=False)

    def __call__(self, sink: S) -> S:
        self.sink = sink
        EXPORTS[self.name] = self
        return sink
