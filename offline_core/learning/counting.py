"""What can be told of data that has no manifest: its files, and what comes of counting it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from offline_core.errors import EmptyDatasetError, LocationError
from offline_core.learning.source import Source, parts_of
from offline_core.prelearner.layout import IS_STEP, STARTS
from offline_core.progress import progress
from offline_core.storage.dataset import DatasetRef
from offline_core.storage.location import Location, refuse_credentials
from offline_core.storage.manifest import Parent, digest
from offline_core.storage.sources.fingerprint import FileFacts, facts
from offline_core.storage.sources.listing import Listing

if TYPE_CHECKING:
    from offline_core.learning.algorithms.algorithm import Algorithm


@dataclass(frozen=True, slots=True)
class Facts:
    """Of what lies somewhere."""

    ref: DatasetRef
    """How many episodes and steps there are is not known: 0."""
    changes_show: bool
    """The fingerprint changes with what is there: it is files that say when they were changed."""

    @property
    def parent(self) -> Parent:
        return Parent(kind="files", uri=self.ref.uri, fingerprint=self.ref.fingerprint)


def facts_of(uri: str) -> Facts:
    """By the files there.

    Raises:
        LocationError: there are credentials in it.
    """
    refuse_credentials(uri)
    with contextlib.suppress(LocationError):  # a place that only code of the user's own understands
        uri = Location.of(uri).uri
    files: list[FileFacts] = facts(uri, Listing())
    show = bool(files) and all(changed is not None for _, _, changed in files)
    size = sum(size for _, size, _ in files)
    ref = DatasetRef(uri=uri, version=0, fingerprint=digest([uri, files]), episodes=0, steps=0, bytes=size)
    return Facts(ref, changes_show=show)


class Counts(NamedTuple):
    """What comes out of a source."""

    episodes: int
    steps: int


def count(source: Source, algorithm: Algorithm) -> Counts:
    """Reads all of it once.

    Raises:
        EmptyDatasetError: there is nothing in it.
        DataError: it cannot be read.
    """
    episodes = steps = 0
    with source.reading(), progress(source.ref.steps or None, what="count", unit="step") as bar:
        for part in parts_of(source, algorithm):
            episodes += int(part[STARTS].sum())
            steps += int(part[IS_STEP].sum())
            bar.to(steps)
    if not steps:
        raise EmptyDatasetError(f"{source.ref.uri} holds no steps to learn from.")
    return Counts(episodes, steps)
