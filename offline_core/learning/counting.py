"""What can be told of data that has no manifest: its files, and what comes of counting it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from offline_core.episodes import columns
from offline_core.errors import EmptyDatasetError
from offline_core.prelearner.layout import IS_STEP, STARTS
from offline_core.progress import progress
from offline_core.storage.dataset import DatasetRef
from offline_core.storage.manifest import Parent, digest
from offline_core.storage.sources.fingerprint import FileFacts, facts
from offline_core.storage.sources.listing import Listing

if TYPE_CHECKING:
    from offline_core.learning.source import Source


@dataclass(frozen=True, slots=True)
class Facts:
    """Of what lies somewhere."""

    ref: DatasetRef
    changes_show: bool
    """The fingerprint changes with what is there: it is files that say when they were changed."""

    @property
    def parent(self) -> Parent:
        return Parent(kind="files", uri=self.ref.uri, fingerprint=self.ref.fingerprint)


def facts_of(uri: str) -> Facts:
    """By the files there; how many episodes and steps they hold is not known: 0."""
    files: list[FileFacts] = facts(uri, Listing())
    show = bool(files) and all(changed is not None for _, _, changed in files)
    size = sum(size for _, size, _ in files)
    ref = DatasetRef(uri=uri, version=0, fingerprint=digest([uri, files]), episodes=0, steps=0, bytes=size)
    return Facts(ref, changes_show=show)


def counted(source: Source, known: Facts) -> Facts:
    """With the episodes and steps that come out of it, which is read once for that.

    Raises:
        EmptyDatasetError: there are none.
        DataError: it cannot be read.
    """
    wanted = (columns.OBS, columns.ACTIONS, *sorted(source.pipeline.reads - {columns.OBS, columns.ACTIONS}))
    episodes = steps = 0
    with source.reading(), progress(None, what="count", unit="step") as bar:
        for part in source.parts(wanted, looks_ahead=source.pipeline.looks_ahead, prelearners=0, order=None):
            episodes += int(part[STARTS].sum())
            steps += int(part[IS_STEP].sum())
            bar.to(steps)
    if not steps:
        raise EmptyDatasetError(f"{known.ref.uri} holds no steps to learn from.")
    return replace(known, ref=known.ref.model_copy(update={"episodes": episodes, "steps": steps}))
