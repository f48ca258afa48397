"""Writers that others wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from offline_core.episodes import Episode
from offline_core.errors import ConfigError, OfflineError, StorageError
from offline_core.own_code import imported
from offline_core.own_errors import own_errors
from offline_core.python_object import PythonObject
from offline_core.storage.exports.episode_sink import EpisodeSink


class CustomSink:
    """One of the user's own, whose errors get its name and a place, and which cannot hide one.

    Raises:
        ConfigError: it cannot be imported or made, or is no context manager.
    """

    def __init__(self, path: str | PythonObject, output: str, arguments: Mapping[str, Any]) -> None:
        self._what, self._where = f"writer {path}", f"at {output}"
        make = imported(path, "writer")
        try:
            self._made = make(output, **arguments)
        except OfflineError:
            raise
        except Exception as error:  # somebody else's code raises what it likes
            names = ", ".join(arguments) or "no arguments"  # whose values may be secret
            raise ConfigError(f"The {self._what} cannot be made with {names}: {error!r}") from error
        if not (hasattr(self._made, "__enter__") and hasattr(self._made, "__exit__")):
            raise ConfigError(f"The {self._what} gives {type(self._made).__name__}, which is no context manager.")

    def __enter__(self) -> EpisodeSink:
        with own_errors(self._what, self._where, StorageError):
            self._sink: EpisodeSink = self._made.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with own_errors(self._what, self._where, StorageError):
            self._made.__exit__(kind, error, trace)

    def write(self, episodes: Sequence[Episode]) -> None:
        """See `EpisodeSink`."""
        with own_errors(self._what, self._where, StorageError):
            self._sink.write(episodes)
