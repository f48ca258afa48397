"""Export to RLlib's old SampleBatch JSON, a batch of steps a line: episodes, or batches of the user's program.

Format: `rllib/offline/json_writer.py` of Ray 2.60; its JsonReader reads it, and so does `sources/sample_batch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, Any

from offline_core.data.episodes import Episode
from offline_core.data.formats.exports.folder import FolderSink, check_whole
from offline_core.data.formats.exports.sample_batch_lines import PACKED_COLUMNS, batches_of, line_of
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, EmptyDatasetError

MAX_FILE_SIZE = 64 * 2**20
BATCHES = "batches"
"""A folder for the batches alone: RLlib's reader would take `result.json` for a file of batches."""


class SampleBatchWriter(FolderSink):
    """Writes batches to files `output_worker-0_<number>.json` of a new folder, which appears at the end; a context manager.

    Arguments:
        uri: a folder; an older export there is replaced, other files are refused.
        compress_columns: these are packed, and those with tuples; () packs no others.
        max_file_size: bytes of a file, after which the next begins.
        below: a subfolder for the files.

    Raises:
        ConfigError: an argument is out of bounds.
        StorageError: something else exists there, or it cannot be written.
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
            raise ConfigError("compress_columns must be a list of names, and max_file_size at least 1 byte.")
        self.compress_columns, self.max_file_size = tuple(compress_columns), max_file_size
        super().__init__(Location.of(uri), complete)
        self._below = below
        self._file: IO[str] | None = None
        self._files = self._bytes = 0

    def _begin(self) -> None:
        if self._below:
            self.root = self.root.child(self._below)
        self.root.filesystem.create_dir(self.root.path, recursive=True)

    def write(self, batch: Mapping[str, Any]) -> None:
        """Appends a batch; see `line_of` for its errors."""
        line = line_of(batch, self.compress_columns) + "\n"
        with self._writing():
            if self._file is None or self._bytes >= self.max_file_size:
                self._close()
                name = f"output_worker-0_{self._files}.json"
                self._file = open(self.root.child(name).path, "w", encoding="utf-8")  # noqa: SIM115
                self._files, self._bytes = self._files + 1, 0
            self._file.write(line)
        self._bytes += len(line)

    def _finish(self) -> None:
        if not self._files:
            raise EmptyDatasetError(f"No batch was written to {self.uri}.")
        with self._writing():
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
            StorageError: the output cannot be written.
        """
        check_whole(episodes, "SampleBatch")
        for episode in episodes:
            for batch in batches_of(episode, self._written):
                self._writer.write(batch)
            self._written += 1
