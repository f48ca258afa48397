"""A folder that is filled under a temporary name and then appears whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Sequence

from offline_core.episodes import Episode
from offline_core.errors import BusyError, EpisodeError
from offline_core.storage.exports.older import refusal, strange_files
from offline_core.storage.exports.uploaded_folder import UploadedFolder
from offline_core.storage.leftovers import remove_leftovers
from offline_core.storage.location import Location
from offline_core.storage.storage_errors import storage_errors
from offline_core.storage.stores import TEMPORARY

_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT}
"""What a rename says when somebody else has renamed in the meantime."""


def new_folder(
    location: Location, *, finish: Callable[[], None], complete: Callable[[Location], None] | None = None
) -> NewFolder | UploadedFolder:
    """What a sink writes to."""
    make = NewFolder if location.is_local else UploadedFolder
    return make(location, finish=finish, complete=complete)


class NewFolder:
    """What a sink writes to, on a local disk; a context manager whose clean end makes it visible, once `finish` was called.

    A folder that is there already is replaced if it is an older export: `complete`, called when all else is written, left
    the names of the files in its `result.json`, see `keep`, and no others are there.

    Raises:
        StorageError: something else is there already, or the place cannot be written.
        BusyError: another run was first.
    """

    def __init__(
        self, location: Location, *, finish: Callable[[], None], complete: Callable[[Location], None] | None = None
    ) -> None:
        self.location = location
        self.finish = finish
        self.complete = complete
        self.path = os.path.realpath(location.path)  # of a link, what it leads to is replaced
        self.temporary = _beside(self.path)

    def __enter__(self) -> Location:
        self._older = self._replaceable()
        with storage_errors("write", self.location.uri):
            self.temporary.filesystem.create_dir(self.temporary.path, recursive=True)
        remove_leftovers(self.temporary.parent, recursive=False)
        return self.temporary

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.finish()
                if self.complete is not None:
                    self.complete(self.temporary)
                for name in self.temporary.files():
                    _on_disk(self.temporary.child(name))
                self._appear()
        finally:
            shutil.rmtree(self.temporary.path, ignore_errors=True)  # gone already if all went well

    def _appear(self) -> None:
        if self._replaceable() != self._older:
            raise self._busy()
        aside = _beside(self.path).path
        with storage_errors("write", self.location.uri):
            try:
                if self._older is not None:
                    os.utime(self.path)  # or it might be old enough to be taken for a leftover
                    os.rename(self.path, aside)
                os.rename(self.temporary.path, self.path)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.rename(aside, self.path)
                if error.errno not in _TAKEN:
                    raise  # if the older one is not back, it is still aside
                shutil.rmtree(aside, ignore_errors=True)
                raise self._busy() from error
        shutil.rmtree(aside, ignore_errors=True)

    def _replaceable(self) -> int | None:
        """What tells the export that lies there from another; None if nothing is there.

        Raises:
            StorageError: it is no export.
            BusyError: it was replaced while we looked.
        """
        number = self._number()
        strange = [] if number is None else strange_files(self.location)
        if strange == []:
            return number
        if self._number() != number:
            raise self._busy()
        raise refusal(self.location, strange)

    def _number(self) -> int | None:
        with storage_errors("look at", self.location.uri), contextlib.suppress(FileNotFoundError):
            return os.stat(self.path).st_ino
        return None

    def _busy(self) -> BusyError:
        return BusyError(f"Another run replaced {self.location.uri} in the meantime. Run again, or give two runs two outputs.")


def _beside(path: str) -> Location:
    return Location.of(os.path.dirname(path)).child(f"{TEMPORARY}{uuid.uuid4().hex}")


def check_whole(episodes: Sequence[Episode], format: str) -> None:
    """Raises:
    EpisodeError: one of them has no steps, is a piece of an episode, or contradicts itself.
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
