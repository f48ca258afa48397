"""Wrap the user's writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from offline_core.data.episodes import Episode
from offline_core.data.formats.exports.episode_sink import EpisodeSink
from offline_core.errors import ConfigError, OfflineError, StorageError
from offline_core.runtime.python_object import PythonObject
from offline_core.runtime.user_code import import_object
from offline_core.runtime.user_errors import user_errors


class CustomSink:
    """A user's writer; its errors name it and the output, and it cannot suppress errors.

    Raises:
        ConfigError: it cannot be imported or made, or is not a context manager.
    """

    def __init__(self, path: str | PythonObject, output: str, arguments: Mapping[str, Any]) -> None:
        self._what, self._where = f"writer {path}", f"at {output}"
        make = import_object(path, "writer")
        try:
            self._made = make(output, **arguments)
        except OfflineError:
            raise
        except Exception as error:  # user code may raise any class
            names = ", ".join(arguments) or "no arguments"  # their values may be secret
            raise ConfigError(f"The {self._what} cannot be made with {names}: {error!r}") from error
        if not (hasattr(self._made, "__enter__") and hasattr(self._made, "__exit__")):
            raise ConfigError(f"The {self._what} gives {type(self._made).__name__}, which is not a context manager.")

    def __enter__(self) -> EpisodeSink:
        with user_errors(self._what, self._where, StorageError):
            self._sink: EpisodeSink = self._made.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with user_errors(self._what, self._where, StorageError):
            self._made.__exit__(kind, error, trace)

    def write(self, episodes: Sequence[Episode]) -> None:
        """See `EpisodeSink`."""
        with user_errors(self._what, self._where, StorageError):
            self._sink.write(episodes)
