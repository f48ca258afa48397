"""Which files of a source an import has read before: by name and content, and by size and time of change first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from offline_core.data.datasets.dataset import size_and_hash
from offline_core.data.formats.sources.fingerprint import located_files
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.step_reader import StepReader
from offline_core.data.importing.imported import SourceFile
from offline_core.runtime.prefetch import several


class SeenFiles(NamedTuple):
    """The files of a source, held against those that were read before."""

    to_read: list[int]
    """Numbers of the readers with a file that is new or changed, or that are not files."""
    sources: list[SourceFile]
    """All files that will have been read then, by URI."""
    joined: list[SourceFile]
    """The files of joins."""
    seen: int
    again: int
    """The number of seen files that are read again because a file of a join is new or changed."""
    new: int
    """The number of new files, including changed ones."""
    changed: int

    def having_read(self, read: Collection[str], waiting: Collection[str]) -> list[SourceFile]:
        """`sources`, once these URIs were read and rows of `waiting` had no partner in a join."""
        return [file.model_copy(update={"waits": file.uri in waiting}) if file.uri in read else file for file in self.sources]

    def with_joins(self, readers: Sequence[StepReader], listing: Listing, joins: SeenFiles) -> SeenFiles:
        """Add the files that have to be read again because files of joins are new or changed.

        For new files of joins, these are the files with rows that had no partner. A changed file may change the partners of
        all rows, so all files are read again.
        """
        every, waiting = range(len(readers)), {file.uri for file in self.sources if file.waits}
        if joins.changed:
            again = {*every}
        else:
            again = {i for i in every if joins.to_read and not waiting.isdisjoint(uris_of(readers[i], listing))}
        more = sorted(again - {*self.to_read})
        count = sum(len(uris_of(readers[i], listing)) for i in more)
        return self._replace(to_read=sorted({*self.to_read, *more}), joined=joins.sources, seen=self.seen - count, again=count)


def uris_of(reader: StepReader, listing: Listing) -> list[str]:
    """The files of a reader."""
    return [file.uri for file, _ in located_files(reader, listing)]


def seen_files(readers: Sequence[StepReader], listing: Listing, before: Sequence[SourceFile], *, hashed: bool) -> SeenFiles:
    """Compare files with earlier ones by size and time of change, and by SHA-256 where these differ.

    A file of another name is another file, also with equal content: names may say what is in it. Files are hashed before
    they are read, so a file that is written meanwhile counts as changed the next time.

    Arguments:
        hashed: False leaves out the SHA-256 of files that are to be read.
    """
    known = {file.uri: file for file in before}
    located = [located_files(reader, listing) for reader in readers]
    stated = [
        [SourceFile(uri=location.uri, bytes=info.size, changed_ns=info.mtime_ns) for location, info in files]
        for files in located
    ]
    doubtful = {
        file.uri: location
        for files, locations in zip(stated, located, strict=True)
        for file, (location, _) in zip(files, locations, strict=True)
        if not _looks_equal(file, known.get(file.uri))
    }
    hashes = several(lambda location: size_and_hash(location)[1], doubtful.values() if hashed else ())
    sha256 = dict(zip(doubtful, hashes, strict=False))
    fresh = {uri for uri in doubtful if uri not in known or not hashed or known[uri].sha256 != sha256[uri]}
    to_read = [number for number, files in enumerate(stated) if not files or any(file.uri in fresh for file in files)]
    every = {file.uri: file for files in stated for file in files}
    waiting = {file.uri for file in before if file.waits}
    now = {
        uri: known[uri] if uri not in doubtful else file.model_copy(update={"sha256": sha256.get(uri), "waits": uri in waiting})
        for uri, file in every.items()
    }
    return SeenFiles(
        to_read=to_read,
        sources=[file for _, file in sorted((known | now).items())],
        joined=[],
        seen=len(every) - len(fresh),
        again=0,
        new=len(fresh),
        changed=len(fresh & known.keys()),
    )


def _looks_equal(file: SourceFile, before: SourceFile | None) -> bool:
    return (
        before is not None
        and file.changed_ns is not None
        and (file.bytes, file.changed_ns) == (before.bytes, before.changed_ns)
    )
