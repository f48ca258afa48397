"""Write exports into a folder that appears as a whole, or not at all; an object store, which cannot rename folders, gets it
file by file."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from offline_core.data.datasets.result_cache import RESULT_FILE, SIDECAR_FILES, stored_values
from offline_core.data.episodes import Episode
from offline_core.data.store.location import Location
from offline_core.data.store.partial_files import remove_partial_files
from offline_core.data.store.storage_errors import storage_errors
from offline_core.data.store.temporary_names import TEMPORARY, temporary_name
from offline_core.errors import BusyError, CorruptFileError, EpisodeError, StorageError, StorageUnavailableError

_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT}
"""Errors of a rename when another run has renamed first."""

_HIDDEN = (TEMPORARY, ".lock", ".folder")
"""Prefixes of files to ignore: partial files, locks, and markers of folders in object stores."""


class FolderSink:
    """Base of an `EpisodeSink` that fills a folder; a context manager whose clean exit makes the folder visible.

    Subclasses write files below `root`: open them when there is something to write, complete them in `_finish`, and close them
    in `_close`, which is called after errors, too.
    """

    def __init__(self, location: Location, complete: Callable[[Location], None] | None) -> None:
        make = _renamed if location.is_local else _uploaded
        self.uri = location.uri
        self._complete = complete
        self._folder = make(location, self._fill)

    def __enter__(self) -> Self:
        self.root = self._folder.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._folder.__exit__(kind, error, trace)
        finally:
            with contextlib.suppress(OSError):  # after an error the files are gone
                self._close()

    def _fill(self, folder: Location) -> None:
        self._finish()
        if self._complete is not None:
            self._complete(folder)

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return storage_errors("write", self.uri)

    def _finish(self) -> None: ...

    def _close(self) -> None: ...


@contextlib.contextmanager
def _renamed(location: Location, fill: Callable[[Location], None]) -> Iterator[Location]:
    """A temporary folder, which after a clean block is given to `fill` and becomes the folder on a local disk.

    An older export there is replaced: a folder with the files that its `result.json` names (see `store_result`; `fill`
    wrote it) and no others.

    Raises:
        StorageError: something else exists there, or it cannot be written.
        BusyError: another run was first.
    """
    path = os.path.realpath(location.path)  # of a link, its target is replaced
    older = _replaceable(location, path)
    temporary = Location.on_disk(os.path.dirname(path)).child(temporary_name())
    with storage_errors("write", location.uri):
        temporary.filesystem.create_dir(temporary.path, recursive=True)
    remove_partial_files(temporary.parent, recursive=False)
    try:
        yield temporary
        fill(temporary)
        for name in temporary.files():
            _on_disk(temporary.child(name))
        if _replaceable(location, path) != older:
            raise _busy(location)
        _appear(location, temporary.path, path, is_new=older is None)
    finally:
        shutil.rmtree(temporary.path, ignore_errors=True)  # already renamed after a clean block


def _appear(location: Location, temporary: str, path: str, *, is_new: bool) -> None:
    """Rename a temporary folder to `path`, in place of the older export there.

    Raises:
        StorageError: the disk refuses.
        BusyError: another run was first.
    """
    aside = posixpath.join(os.path.dirname(path), f"{TEMPORARY}{uuid.uuid4().hex}")  # not gone with this process
    with storage_errors("write", location.uri):
        try:
            if not is_new:
                os.utime(path)  # otherwise an old folder might be removed as a leftover
                os.rename(path, aside)
            os.rename(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.rename(aside, path)
            if error.errno not in _TAKEN:
                raise  # an older export that was not moved back stays aside
            shutil.rmtree(aside, ignore_errors=True)
            raise _busy(location) from error
    shutil.rmtree(aside, ignore_errors=True)


def _replaceable(location: Location, path: str) -> int | None:
    """The inode of the older export, None if nothing exists.

    Raises:
        StorageError: it is not an export.
        BusyError: it was replaced meanwhile.
    """
    number = _inode(location, path)
    strange = [] if number is None else strange_files(location)
    if strange == []:
        return number
    if _inode(location, path) != number:
        raise _busy(location)
    raise refusal(location, strange)


def _inode(location: Location, path: str) -> int | None:
    with storage_errors("look at", location.uri), contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_ino
    return None


def _busy(location: Location) -> BusyError:
    return BusyError(f"Another run replaced {location.uri} in the meantime. Run again, or give two runs two outputs.")


@contextlib.contextmanager
def _uploaded(location: Location, fill: Callable[[Location], None]) -> Iterator[Location]:
    """A temporary folder on a local disk, which after a clean block is given to `fill` and uploaded to an object store.

    Files appear one by one. `result.json`, with the names and sizes of them all, goes first, so that an incomplete upload is
    recognised and replaced by the next one.

    Raises:
        StorageError: something else exists there, or it cannot be written.
        BusyError: another run writes there.
    """
    _older_files(location)
    location.make_folder()
    with tempfile.TemporaryDirectory(prefix="offline-") as path:
        folder = Location.on_disk(path)
        yield folder
        fill(folder)
        with location.locked():
            _upload(folder, location)


def _upload(folder: Location, location: Location) -> None:
    for name in _older_files(location):
        if name != RESULT_FILE:  # it identifies the others, so it goes last
            location.child(name).delete()
    for name in sorted(folder.files(), key=lambda name: name != RESULT_FILE):
        target = location.child(name)
        with storage_errors("write", target.uri), open(folder.child(name).path, "rb") as file:
            target.store.put_file(file, target.path)


def _older_files(location: Location) -> list[str]:
    """The files of an older export there.

    Raises:
        StorageError: these are not an export.
    """
    older = visible_files(location)
    if older and (strange := strange_files(location)) != []:
        raise refusal(location, strange)
    return older


def check_whole(episodes: Sequence[Episode], format: str) -> None:
    """Check that episodes are complete.

    Raises:
        EpisodeError: an episode has no steps, is a piece of an episode, or contradicts itself.
    """
    for episode in episodes:
        if len(episode) == 0:
            raise EpisodeError(f"Episode {episode.eps_id} has no steps, which {format} cannot hold; leave it out.")
        if episode.t_started or episode.lookback:
            raise EpisodeError(
                f"Episode {episode.eps_id} is a piece that starts at step {episode.t_started} with a lookback of "
                f"{episode.lookback}; {format} holds whole episodes only. Join the pieces with Episode.concat first."
            )
        if problems := episode.length_problems():
            raise EpisodeError(f"Episode {episode.eps_id} is not whole: {'; '.join(problems)}.")


def _on_disk(file: Location) -> None:
    with storage_errors("write", file.uri), open(file.path, "rb") as opened:
        os.fsync(opened.fileno())


def strange_files(folder: Location) -> list[str] | None:
    """Files in a folder that its export did not write; None if the folder is not an export.

    Raises:
        StorageUnavailableError: its `result.json` cannot be read now.
    """
    try:
        stored = stored_values(folder.child(RESULT_FILE))
        if stored is None:
            return None
        return [name for name in visible_files(folder) if name not in stored.made and name not in SIDECAR_FILES]
    except StorageUnavailableError:
        raise
    except (CorruptFileError, StorageError):
        return None


def visible_files(folder: Location) -> list[str]:
    """Files below the folder except partial files and locks."""
    return [name for name in folder.files() if not posixpath.basename(name).startswith(_HIDDEN)]


def refusal(folder: Location, strange: list[str] | None) -> StorageError:
    """The error for a folder that is not replaced."""
    why = "is not an export of a dataset" if strange is None else f"holds {strange[0]}, which the export did not write"
    return StorageError(
        f"{folder.uri} exists already and is not overwritten: it {why}. Choose another output, or move it away."
    )
