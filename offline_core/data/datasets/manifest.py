"""The manifest of a dataset version: its files, their statistics, and their lineage."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes.codecs import CODECS, Codec, Format
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.runtime.config import EnvironmentSpec, without_defaults
from offline_core.runtime.provenance import provenance
from offline_core.runtime.result import StoredModel
from offline_core.runtime.user_code import code_digests
from offline_core.secrets import masked


class FileEntry(StoredModel):
    """A data file; `path` is relative to the dataset's folder. Episodes and steps of foreign files are unknown: 0."""

    path: str
    rows: int
    episodes: int
    steps: int
    bytes: int
    sha256: str
    footer_sha256: str | None = None
    """Of the Parquet footer, which page checksums do not cover; None in older manifests and for foreign files."""
    group_rows: list[int] | None = None
    """Rows of each row group; None in older manifests and for foreign files: the footer has them."""
    group_bytes: list[int] | None = None
    """Bytes of each row group before compression; None with `group_rows`."""

    @property
    def problem(self) -> str | None:
        """What in its row groups contradicts the rest; None: nothing."""
        if self.group_rows is None or self.group_bytes is None:
            return None
        if len(self.group_rows) != len(self.group_bytes):
            return f"it has {len(self.group_rows)} row groups by their rows and {len(self.group_bytes)} by their bytes"
        if sum(self.group_rows) != self.rows or min([*self.group_rows, *self.group_bytes], default=0) < 0:
            return f"its row groups have {sum(self.group_rows):,} rows together, and it has {self.rows:,}"
        return None


class Parent(StoredModel):
    """An input of the operation: a dataset version, a checkpoint, or foreign files."""

    kind: Literal["dataset", "checkpoint", "files"]
    uri: str
    version: int | None = None
    fingerprint: str


STAGES_BEFORE = {
    "record_episodes": "record",
    "import_dataset": "import",
    "convert_table": "convert",
    "prune_dataset": "prune",
    "compact_dataset": "compact",
    "split_dataset": "split",
    "merge_datasets": "merge",
    "mix_datasets": "mix",
    "train_policy": "train",
    "fine_tune_policy": "fine_tune",
}
"""Today's name of a stage by the one that earlier manifests have for it."""


class Operation(StoredModel):
    """The operation that wrote the dataset: name, version of its behaviour, and parameters."""

    name: str
    version: int = 1
    config: dict[str, Any] = Field({})
    code: dict[str, str] = Field({})
    """Digests of user code by import path; see `code_digests`."""

    @property
    def stage(self) -> str:
        """Name of the stage, also if an earlier version of this package called it otherwise."""
        return STAGES_BEFORE.get(self.name, self.name)

    @field_validator("config")
    @classmethod
    def _without_secrets(cls, config: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Mask the secrets of a new operation; a stored one stays as it is, so that it keeps its identity."""
        return config if info.mode == "json" else masked(config)

    @classmethod
    def of(
        cls, name: str, config: BaseModel, *, version: int = 1, exclude: AbstractSet[str] = frozenset(), **more: Any
    ) -> Operation:
        """The operation with what `config` asks for, see `without_defaults`, except what is excluded, and `more`."""
        parameters = without_defaults(config, exclude=set(exclude)) | more
        return cls(name=name, version=version, config=parameters, code=code_digests(config))


class Forgotten(StoredModel):
    """A tombstone: episodes were taken out of this version for good. What they were is not kept."""

    at: datetime
    episodes: int
    steps: int
    fingerprint: str
    """Of the version before, by which what was made from it names it."""
    files: list[str]
    """Replaced and deleted; one that still exists is left of a killed run."""


READS: Literal[2] = 2
"""The newest manifest format that this version reads, and the one it writes. Format 1 had no checksum at first."""


class Manifest(StoredModel):
    """One committed version of a dataset.

    Versions of one dataset may share files: an append lists those of the version before as they are. A file may be deleted
    when no manifest of the dataset has it in `all_files`.
    """

    model_config = ConfigDict(populate_by_name=True)

    manifest_version: Literal[1, 2] = READS
    version: int
    format: Format
    operation: Operation
    parents: list[Parent] = Field([])
    environment: EnvironmentSpec | None = None
    observation_space: dict[str, Any] | None = None
    action_space: dict[str, Any] | None = None
    input_columns: InputColumns | None = None
    """What observations and actions are made of; None: not known."""
    statistics: Statistics
    files: list[FileEntry]
    report: dict[str, Any] = Field({})
    """Report of the operation; not part of the fingerprint."""
    kept: dict[str, Any] | None = Field(None, alias="imported")
    """What the operation keeps for the next of its kind, which alone understands it. Files of which a list in it has the
    `FileEntry`s belong to the version as `files` do. Not part of the fingerprint; stored by the name it had before."""
    forgotten: list[Forgotten] = Field([])
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    provenance: dict[str, str] = Field(default_factory=provenance)

    @field_validator("kept")
    @classmethod
    def _names_files(cls, kept: dict[str, Any] | None) -> dict[str, Any] | None:
        _files_in(kept)
        return kept

    @property
    def codec(self) -> Codec:
        """How its files hold episodes."""
        return CODECS[self.format]

    @functools.cached_property
    def all_files(self) -> list[FileEntry]:
        """The data files, and those that only the operation reads."""
        return [*self.files, *_files_in(self.kept)]

    @property
    def actions(self) -> Literal["sampled", "greedy"] | None:
        """How the policy chose the actions of a recording; None: this is none."""
        if self.operation.stage == "record":
            return "sampled" if self.operation.config.get("explore", True) else "greedy"
        return "sampled" if self.operation.stage == "train_expert" else None

    @functools.cached_property
    def fingerprint(self) -> str:
        """Identifies the content and its operation, not its location or time: 16 hex digits of a SHA-256."""
        files = [(file.path, file.sha256) for file in self.files]
        return digest([self.format, *_done(self.operation, self.parents), files])

    @property
    def fingerprints(self) -> set[str]:
        """The fingerprint of this version, and those that it had before episodes were forgotten."""
        return {self.fingerprint, *(version.fingerprint for version in self.forgotten)}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Manifest:
        """The same with other values, of which what is computed once is computed anew."""
        copy = super().model_copy(update=update, deep=deep)
        for name in ("all_files", "fingerprint"):
            copy.__dict__.pop(name, None)
        return copy

    def to_json(self) -> str:
        """JSON without what is None, with a line for each file."""
        head = self.model_dump_json(indent=2, exclude={"files"}, exclude_none=True, by_alias=True).removesuffix("\n}")
        files = ",\n".join(f"    {file.model_dump_json(exclude_none=True)}" for file in self.files)
        return f'{head},\n  "files": [\n{files}\n  ]\n}}'

    @property
    def identity(self) -> str:
        """See `identity_of`."""
        return identity_of(self.operation, self.parents)


def _files_in(kept: Mapping[str, Any] | None) -> list[FileEntry]:
    lists = [value for value in (kept or {}).values() if isinstance(value, list)]
    return [
        FileEntry.model_validate(entry) for value in lists for entry in value if isinstance(entry, dict) and "path" in entry
    ]


def identity_of(operation: Operation, parents: Sequence[Parent]) -> str:
    """16 hex digits that identify an operation, its version and parameters, and the content of its parents.

    A result of the same identity is reused.
    """
    return digest(_done(operation, parents))


def _done(operation: Operation, parents: Sequence[Parent]) -> list[Any]:
    described = operation.model_dump(mode="json", exclude=None if operation.code else {"code"})  # as in earlier versions
    return [described, [(parent.kind, parent.fingerprint) for parent in parents]]


def digest(value: Any) -> str:
    """16 hex digits that identify a JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint_of_weights(sha256: str, target_return: float | None) -> str:
    """The first 16 hex digits of the weights' SHA-256; of dt with the return that it plays for, which is no weight."""
    return sha256[:16] if target_return is None else digest([sha256, target_return])
