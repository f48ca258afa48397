"""What an import keeps in its manifest, for appends to it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from offline_core.data.datasets.manifest import FileEntry, Manifest
from offline_core.data.datasets.statistics import Record


class SourceFile(Record):
    """A file that an import has read, so that an append leaves it out."""

    uri: str
    bytes: int
    changed_ns: int | None = None
    """Time of its last change, nanoseconds since 1970; None: its storage has none."""
    sha256: str | None = None
    """Of its content; None if it was read without `append`."""
    waits: bool = False
    """Rows of it had no partner in a join: it is read again when the join gets another file."""


class Imported(Record):
    """What an append has to know of the imports before it.

    The manifest has it as `kept`. Files of `cuts` and `left_out` hold values of the source and belong to the version.
    """

    sources: list[SourceFile] = Field([])
    """Of this version and of those it was appended to, by URI."""
    joined: list[SourceFile] = Field([])
    """The files of its joins, likewise."""
    order: str = ""
    """How steps were ordered: t, time, linked, stored or single_step; empty: files of episodes."""
    has_ids: bool = False
    recorded_action_range: list[Any] | None = None
    """Declared or inferred: [low, high, dtype]."""
    settled: dict[str, Any] = Field({})
    """Parameters that were not given, and that the import found by itself."""
    arrow_schema: str = ""
    """base64 of the Arrow schema of the rows, under canonical names."""
    cuts: list[FileEntry] = Field([])
    """Parquet; a row for each episode that is not all of its source's: `CUTS` in `importing/stored.py`."""
    left_out: list[FileEntry] = Field([])
    """Parquet; rows in canonical columns that are in no episode because it is incomplete: they wait for late ones."""

    @classmethod
    def of(cls, manifest: Manifest) -> Imported | None:
        """What the import kept that wrote a version; None if another operation did, or a version of it that kept nothing."""
        return None if manifest.kept is None else cls.model_validate(manifest.kept)

    @property
    def kept(self) -> dict[str, Any]:
        """For the manifest."""
        return self.model_dump(exclude_none=True)
