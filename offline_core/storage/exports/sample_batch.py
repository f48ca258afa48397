"""RLlib's old SampleBatch JSON, a batch of steps a line: of episodes, and of batches that a program of one's own builds.

Format: `rllib/offline/json_writer.py` of Ray 2.60; its JsonReader reads it, and so does `sources/sample_batch.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, Any

from offline_core.episodes import Episode
from offline_core.errors import ConfigError, EmptyDatasetError
from offline_core.storage.exports.folder import check_whole, new_folder
from offline_core.storage.exports.sample_batch_lines import PACKED_COLUMNS, batches_of, line_of
from offline_core.storage.location import Location
from offline_core.storage.storage_errors import storage_errors

MAX_FILE_SIZE = 64 * 2**20
BATCHES = "batches"
"""Apart from what tells of the export, which RLlib's reader would take for a file of batches."""


class SampleBatchWriter:
    """Writes batches to files `output_worker-0_<number>.json` of a new folder, which appears at the end; a context manager.

    Arguments:
        uri: a folder; an older export there is replaced, anything else is refused.
        compress_columns: these are packed; () packs none.
        max_file_size: bytes of a file, after which the next begins.
        below: a folder in it for the files, and nothing else.

    Raises:
        ConfigError: an argument is out of bounds.
        StorageError: something else is there already, or the place cannot be written.
    """

    def __init__(
        self,
        uri: str,
        *,
        compress_columns: Sequence[str] = PACKED_COLUMNS,
        max_file_size: int = MAX_FILE_SIZE,
        complete: Callable[[Location], None] | None = None,
        below: str = "",
    ) -> None:
        if isinstance(compress_columns, str) or max_file_size < 1:
            raise ConfigError("compress_columns has to be a list of names, and max_file_size at least 1 byte.")
        self.compress_columns, self.max_file_size = tuple(compress_columns), max_file_size
        self.folder = new_folder(Location.of(uri), finish=self._finish, complete=complete)
        self._below = below
        self._file: IO[str] | None = None
        self._files = self._bytes = 0

    def __enter__(self) -> SampleBatchWriter:
        root = self.folder.__enter__()
        self._root = root.child(self._below) if self._below else root
        with storage_errors("write", self.folder.location.uri):
            self._root.filesystem.create_dir(self._root.path, recursive=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.folder.__exit__(kind, error, trace)
        finally:
            with contextlib.suppress(OSError):
                self._close()

    def write(self, batch: Mapping[str, Any]) -> None:
        """Appends a batch, see `line_of`, which says what it raises."""
        line = line_of(batch, self.compress_columns) + "\n"
        with storage_errors("write", self.folder.location.uri):
            if self._file is None or self._bytes >= self.max_file_size:
                self._close()
                name = f"output_worker-0_{self._files}.json"
                self._file = open(self._root.child(name).path, "w", encoding="utf-8")  # noqa: SIM115
                self._files, self._bytes = self._files + 1, 0
            self._file.write(line)
        self._bytes += len(line)

    def _finish(self) -> None:
        if not self._files:
            raise EmptyDatasetError(f"No batch was written to {self.folder.location.uri}.")
        with storage_errors("write", self.folder.location.uri):
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()


class SampleBatchSink:
    """Writes episodes to the folder `batches` in `uri`, a line or a few each; see `EpisodeSink` and `SampleBatchWriter`."""

    def __init__(self, uri: str, **arguments: Any) -> None:
        self._writer = SampleBatchWriter(uri, below=BATCHES, **arguments)
        self._written = 0

    def __enter__(self) -> SampleBatchSink:
        self._writer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._writer.__exit__(kind, error, trace)

    def write(self, episodes: Sequence[Episode]) -> None:
        """Appends episodes.

        Raises:
            EpisodeError: one is a piece, or has infos that JSON cannot hold.
            StorageError: the place cannot be written.
        """
        check_whole(episodes, "SampleBatch")
        for episode in episodes:
            for batch in batches_of(episode, self._written):
                self._writer.write(batch)
            self._written += 1
