"""The metrics of a training run: an append-only JSON-lines file, and TensorBoard."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offline_core.data.store.json_files import line_of, read_lines, whole_lines
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import CorruptFileError, StorageError
from offline_core.runtime.prefetch import several

if TYPE_CHECKING:  # metrics are read without Torch
    from offline_core.learning.state import TrainingState

log = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
"""File in the folder of a run, one record a line, with a checksum."""

Record = dict[str, Any]
"""A line of the metrics, or an evaluation. `updates` so far, and of a run that plays `env_steps`; metrics of the algorithm are
means over the updates since the line before. That at the end of an iteration reports on all of it besides."""

MetricsObserver = Callable[[Record], object]

_observers: ContextVar[tuple[MetricsObserver, ...]] = ContextVar("observers of metrics", default=())


@contextlib.contextmanager
def observe_metrics(observer: MetricsObserver) -> Iterator[None]:
    """Tell `observer` each record of the trainings inside, once it is written. What it raises ends the training.

    The driver's thread calls it, at the end of each iteration and of an evaluation; where other processes learn, about a second
    later. A run that resumes tells what is new, and a result that is reused nothing.
    """
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def tell(records: Iterable[Record]) -> None:
    """Tell records to those who observe."""
    observers = _observers.get()
    for record in records if observers else ():
        for observer in observers:
            observer(dict(record))


RETURN, LOSS = "episode_return_mean", "held_out_loss"

_PARTS = "metrics"
"""Folder of records that are not in `METRICS_FILE` yet, on a storage that cannot append; sorted by name."""

SECONDS_BETWEEN_PUTS = 30.0
"""Between parts, on a storage that cannot append."""


class MetricsLog:
    """One record an iteration at least, and one an evaluation, in `METRICS_FILE` below the folder and in TensorBoard files.

    All writing together is linear in the length of the run. On a disk each record is appended at once. Elsewhere the first one
    is written at once, later ones now and then as parts, and `METRICS_FILE` has them all when the run ends. Training states
    carry the `unwritten` ones, so a run that is killed loses none.

    Arguments:
        after: the state that the run resumes from, whose records hold; None: those in the folder are replaced.
    """

    def __init__(self, folder: Location, *, after: TrainingState | None = None) -> None:
        self.records: list[Record] = []
        self._file, self._parts = folder.child(METRICS_FILE), folder.child(_PARTS)
        self._unwritten: list[Record] = []
        self._resumes, self._replaced, self._put_at = after is not None, False, -math.inf
        if after is not None:
            records = _distinct((*_undamaged(folder), *map(json.loads, after.unwritten)))
            self.records = [record for record in records if _is_covered(record, after)]
            if (iterations := sum(map(is_report, self.records))) < after.iterations:
                log.warning("%s has %s of %s iterations; the others are lost.", self._file.uri, iterations, after.iterations)
        self._board = TensorBoard(folder.child("tensorboard"))
        for record in self.records:
            self._board.show(record)

    def add(self, *records: Record) -> None:
        """Write records, and tell them to those who observe.

        Raises:
            StorageError: They cannot be written.
        """
        self._write(records)
        tell(records)

    def _write(self, records: Sequence[Record]) -> None:
        self.records += records
        self._unwritten += records
        for record in records:
            self._board.show(record)
        if not self._replaced:
            self._replace()
        elif self._file.is_local:
            with storage_errors("write", self._file.uri), open(self._file.path, "ab") as file:
                file.write(_text(self._unwritten))
                file.flush()
                os.fsync(file.fileno())  # before the state that counts on it
        elif time.monotonic() - self._put_at > SECONDS_BETWEEN_PUTS:
            self._parts.child(f"{len(self.records):09d}.jsonl").write(_text(self._unwritten))
        else:
            return
        self._unwritten.clear()
        self._put_at = time.monotonic()
        self._board.put()

    @property
    def unwritten(self) -> list[str]:
        """Lines that are in no file yet."""
        return list(map(json.dumps, self._unwritten))

    def _replace(self) -> None:
        """Write all records to one file, in their order."""
        self._file.write(_text(_distinct(self.records)))
        self._replaced = True
        for part in self._parts.files():
            self._parts.child(part).delete()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Write what is still in memory, unless the storage is what ended the run."""
        is_there = not isinstance(error, StorageError)
        try:
            if is_there and (self._resumes or self.records):
                self._replace()
        except StorageError as unwritten:
            is_there = False
            if error is None:
                raise
            log.warning("The last metrics are not written: %s", unwritten)  # what ended the run is the error to raise
        finally:
            self._board.close(put=is_there)


def progress_of(record: Mapping[str, Any]) -> int:
    """Return how far the run was when a record was written: in updates, or in environment steps if it plays."""
    progress: int = record["env_steps"] if "env_steps" in record else record["updates"]
    return progress


def is_report(record: Record) -> bool:
    """Whether a record tells of an iteration, and not of an evaluation."""
    return "update_seconds" in record


def read_metrics(folder: Location) -> list[Record]:
    """Return the records of the run in `folder`, finished or not, in order of its progress.

    Raises:
        CorruptFileError: A line is not what was written.
    """
    return _distinct(record for file, data in _files(folder) for record in read_lines(data, file.uri))


def _undamaged(folder: Location) -> list[Record]:
    """Return the records that can be read: a run that goes on needs none of them to go on as it was."""
    lines = [line for _, data in _files(folder) for line in whole_lines(data)]
    if damaged := lines.count(None):
        log.warning("%d lines of the metrics in %s are damaged, and left out.", damaged, folder.uri)
    return [line for line in lines if line is not None]


def _files(folder: Location) -> list[tuple[Location, bytes]]:
    parts = folder.child(_PARTS)
    files = [*filter(Location.is_file, [folder.child(METRICS_FILE)]), *map(parts.child, parts.files())]
    return [*zip(files, several(Location.read, files), strict=True)]


def series(folder: Location, name: str) -> list[tuple[int, float]]:
    """Return (progress, value) of a metric of the run in `folder`, empty if it has none of that name."""
    return [(progress_of(record), record[name]) for record in read_metrics(folder) if name in record]


class MetricsTail:
    """Follows what another process writes to the folder of a run, for observers in this one; reads only what was appended."""

    def __init__(self, folder: Location) -> None:
        self.is_local = folder.is_local
        self.updates = 0
        """How far the run is, by what was read."""
        self._file, self._parts = folder.child(METRICS_FILE), folder.child(_PARTS)
        self._position, self._last_line = 0, b""
        """Bytes of the file that were read, and the line that they end with."""
        self._read_parts: set[str] = set()
        self._known: set[str] = set()
        """What a file says again that replaces parts, or the file before; timings tell the same run twice apart."""
        self._new()  # what an earlier run has left

    def tell(self) -> None:
        """Tell the records that are new since the last call."""
        tell(self._new())

    def _new(self) -> list[Record]:
        try:
            names = [name for name in self._parts.files() if name not in self._read_parts]
            parts = [(part, part.read()) for part in map(self._parts.child, names)]  # first, as one may be gone by now
            data = [(self._file, self._appended()), *parts]
            self._read_parts.update(names)
            records = _distinct(record for file, lines in data for record in read_lines(lines, file.uri))
        except (StorageError, CorruptFileError):  # none yet, or an error that the process that writes raises as well
            return []
        self.updates = max([self.updates, *(record["updates"] for record in records)])
        new = {line: record for record in records if (line := json.dumps(record)) not in self._known}
        self._known.update(new)
        return [*new.values()]

    def _appended(self) -> bytes:
        """The lines that are new in the file; all of them if another one is in its place."""
        with storage_errors("read", self._file.uri), self._file.filesystem.open_input_file(self._file.path) as opened:
            opened.seek(min(self._position - len(self._last_line), opened.size()))
            if opened.read(len(self._last_line)) != self._last_line:
                opened.seek(0)
                self._position, self._last_line, self.updates = 0, b"", 0
            lines = opened.read()
        lines = lines[: lines.rfind(b"\n") + 1]  # the writer may be within the last one
        if lines:
            self._position += len(lines)
            self._last_line = lines[lines.rfind(b"\n", 0, -1) + 1 :]
        return lines  # type: ignore[no-any-return]


class TensorBoard:
    """A folder of TensorBoard files, empty at first.

    TensorBoard appends, which only disks can. Elsewhere its files are written on this machine, and `put` moves them there; an
    error of that is a warning, for the metrics have the same numbers.
    """

    def __init__(self, folder: Location) -> None:
        for name in folder.files():
            folder.child(name).delete()
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._here = folder.path
        if not folder.is_local:
            self._here = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="offline-tensorboard-"))
        self._open()

    def _open(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(self._here)

    def show(self, record: Record) -> None:
        """Add a record, with its progress as the step."""
        with storage_errors("write", self._here):
            for name, value in record.items():
                self._writer.add_scalar(name, value, progress_of(record))

    def put(self) -> None:
        """Move the files to a storage that cannot append, and begin a new one; never raises."""
        if not self._folder.is_local:
            self._move()
            self._open()

    def _move(self) -> None:
        try:
            with storage_errors("write", self._here):
                self._writer.close()
            for file in sorted(Path(self._here).iterdir()):
                self._folder.child(file.name).write(file.read_bytes())
                file.unlink()
        except StorageError as error:
            log.warning("TensorBoard's numbers are not written yet: %s", error)

    def close(self, *, put: bool = True) -> None:
        """Write what is still in memory; never raises.

        Arguments:
            put: move the files to a storage that cannot append.
        """
        with self._stack:
            if put and not self._folder.is_local:
                return self._move()
            try:
                self._writer.close()
            except OSError as error:  # metrics, which cannot be written there either, raise it
                log.warning("TensorBoard's last numbers are not written: %s", error)


def _is_covered(record: Record, state: TrainingState) -> bool:
    """Whether a record is older than a state, and will not be written again by a run that resumes from it."""
    if RETURN in record:
        return progress_of(record) <= state.evaluated
    return progress_of(record) <= (state.progress if LOSS not in record or is_report(record) else state.held_out)


def _text(records: Iterable[Record]) -> bytes:
    return b"".join(map(line_of, records))


def _distinct(records: Iterable[Record]) -> list[Record]:
    """Return the first record of each kind at each progress, in order: evaluations are added late."""
    distinct: dict[tuple[Any, ...], Record] = {}
    for record in records:
        distinct.setdefault((progress_of(record), record.get("iteration"), RETURN in record), record)
    return sorted(distinct.values(), key=progress_of)
