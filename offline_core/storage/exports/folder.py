"""A folder that is filled under a temporary name and then appears whole, or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Sequence

from pyarrow import fs

from offline_core.episodes import Episode
from offline_core.errors import EpisodeError, LocationError, StorageError
from offline_core.storage.location import TEMPORARY, Location, storage_errors


class NewFolder:
    """What a sink writes to, on a local disk; a context manager whose clean end makes it visible, once `finish` was called.

    Raises:
        LocationError: the place is not on a local disk.
        StorageError: something is there already, or the place cannot be written.
    """

    def __init__(self, location: Location, *, finish: Callable[[], None]) -> None:
        if not isinstance(location.filesystem, fs.LocalFileSystem):
            raise LocationError(f"{location.uri} is not on a local disk; write there first and copy the folder.")
        self.location = location
        self.finish = finish
        self.temporary = location.parent.child(f"{TEMPORARY}{uuid.uuid4().hex}")

    def __enter__(self) -> Location:
        if self.location.is_file() or self.location.is_folder():
            raise StorageError(f"{self.location.uri} exists already and is not overwritten; choose another place or remove it.")
        with storage_errors("write", self.location.uri):
            self.temporary.filesystem.create_dir(self.temporary.path, recursive=True)
        return self.temporary

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.finish()
                for name in self.temporary.files():
                    self.temporary.child(name).sync()
                with storage_errors("write", self.location.uri):
                    os.rename(self.temporary.path, self.location.path)
        finally:
            shutil.rmtree(self.temporary.path, ignore_errors=True)  # gone already if all went well


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
