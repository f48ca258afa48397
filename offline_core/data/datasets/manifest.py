"""The manifest of a dataset version: its files, their statistics, and their lineage."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from offline_core.data.datasets.statistics import ColumnStatistics, merge_columns
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.runtime.config import EnvironmentSpec, without_defaults
from offline_core.runtime.provenance import provenance
from offline_core.runtime.user_code import code_digests
from offline_core.secrets import masked

Format = Literal["episodes", "table"]


class _Record(BaseModel):
    # Later versions may add fields. Returns and arguments of environments may be infinite, which JSON's null would lose.
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Summary(_Record):
    """Count, mean, standard deviation (population), minimum and maximum of one number per episode; mergeable."""

    count: int = 0
    mean: float = 0.0
    std: float = 0.0
    min: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: np.ndarray) -> Summary:
        if len(values) == 0:
            return cls()
        numbers = values.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # of infinite returns the deviation is NaN
            mean, std = float(numbers.mean()), float(numbers.std())
        return cls(count=len(numbers), mean=mean, std=std, min=float(numbers.min()), max=float(numbers.max()))

    def merge(self, other: Summary) -> Summary:
        """Merge two summaries."""
        if not (self.count and other.count):
            return self if self.count else other
        count, distance = self.count + other.count, other.mean - self.mean
        variance = (self.count * self.std * self.std + other.count * other.std * other.std) / count
        variance += distance * (distance * (self.count / count) * (other.count / count))
        return Summary(
            count=count,
            mean=self.mean + distance * (other.count / count),
            std=math.sqrt(variance),
            min=min((end for end in (self.min, other.min) if end is not None), default=None),
            max=max((end for end in (self.max, other.max) if end is not None), default=None),
        )

    def replaced(self, removed: Summary, added: Summary) -> Summary | None:
        """As `ColumnStatistics.replaced`."""
        if removed.count == 0 or removed.count == self.count:
            return self.merge(added) if removed.count == 0 else added
        ends = [self.min, self.max, removed.min, removed.max]
        if any(end is None for end in ends):
            return None
        low, high, removed_low, removed_high = (float(end) for end in ends if end is not None)
        if removed_low <= low and (added.min is None or added.min > low):
            return None
        if removed_high >= high and (added.max is None or added.max < high):
            return None
        count = self.count - removed.count
        mean = self.mean + (self.mean - removed.mean) * (removed.count / count)
        squares = self.count * self.std * self.std - removed.count * removed.std * removed.std
        squares -= (removed.mean - mean) ** 2 * removed.count * (count / self.count)
        return Summary(count=count, mean=mean, std=math.sqrt(max(0.0, squares) / count), min=low, max=high).merge(added)


class Statistics(_Record):
    """Counts and statistics of a dataset."""

    episodes: int = 0
    steps: int = 0
    terminated: int = 0
    truncated: int = 0
    returns: Summary = Summary()
    lengths: Summary = Summary()
    columns: dict[str, ColumnStatistics] | None = None
    """By the name of the leaf (`obs/position`); None: unknown."""

    def merge(self, other: Statistics) -> Statistics:
        """Merge the statistics of two datasets; columns stay known only if both have them."""
        if not (self.episodes and other.episodes):
            return self if self.episodes else other
        return Statistics(
            episodes=self.episodes + other.episodes,
            steps=self.steps + other.steps,
            terminated=self.terminated + other.terminated,
            truncated=self.truncated + other.truncated,
            returns=self.returns.merge(other.returns),
            lengths=self.lengths.merge(other.lengths),
            columns=None if self.columns is None or other.columns is None else merge_columns(self.columns, other.columns),
        )

    def replaced_columns(self, removed: Statistics, added: Statistics) -> dict[str, ColumnStatistics] | None:
        """Of the columns, without the episodes of `removed`, which are some of these, and with those of `added`.

        None where that is not known, see `ColumnStatistics.replaced`.
        """
        if self.columns is None or added.columns is None:
            return None
        found = dict(added.columns)
        for name, before in self.columns.items():
            less, more = (removed.columns or {}).get(name), added.columns.get(name)
            now = before if more is None else before.merge(more) if less is None else before.replaced(less, more)
            if now is None or (less is not None and more is None):
                return None
            found[name] = now
        return dict(sorted(found.items()))


class FileEntry(_Record):
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


class SourceFile(_Record):
    """A file that an import has read, so that an append leaves it out."""

    uri: str
    bytes: int
    changed_ns: int | None = None
    """Time of its last change, nanoseconds since 1970; None: its storage has none."""
    sha256: str | None = None
    """Of its content; None if it was read without `append`."""
    waits: bool = False
    """Rows of it had no partner in a join: it is read again when the join gets another file."""


class Imported(_Record):
    """What an append has to know of the imports before it.

    Files of `cuts` and `left_out` hold values of the source and belong to the version as `Manifest.files` do.
    """

    sources: list[SourceFile] = []
    """Of this version and of those it was appended to, by URI."""
    joined: list[SourceFile] = []
    """The files of its joins, likewise."""
    order: str = ""
    """How steps were ordered: t, time, linked, stored or single_step; empty: files of episodes."""
    has_ids: bool = False
    recorded_action_range: list[Any] | None = None
    """Declared or inferred: [low, high, dtype]."""
    settled: dict[str, Any] = {}
    """Parameters that were not given, and that the import found by itself."""
    arrow_schema: str = ""
    """base64 of the Arrow schema of the rows, under canonical names."""
    cuts: list[FileEntry] = []
    """Parquet; a row for each episode that is not all of its source's: `CUTS` in `importing/stored.py`."""
    left_out: list[FileEntry] = []
    """Parquet; rows in canonical columns that are in no episode because it is incomplete: they wait for late ones."""


class Parent(_Record):
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


class Operation(_Record):
    """The operation that wrote the dataset: name, version of its behaviour, and parameters."""

    name: str
    version: int = 1
    config: dict[str, Any] = {}
    code: dict[str, str] = {}
    """Digests of user code by import path; see `code_digests`."""

    @property
    def stage(self) -> str:
        """Name of the stage, also if an earlier version of this package called it otherwise."""
        return STAGES_BEFORE.get(self.name, self.name)

    @field_validator("config")
    @classmethod
    def _without_secrets(cls, config: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Of a new operation; what is stored keeps its identity."""
        return config if info.mode == "json" else masked(config)

    @classmethod
    def of(
        cls, name: str, config: BaseModel, *, version: int = 1, exclude: AbstractSet[str] = frozenset(), **more: Any
    ) -> Operation:
        """The operation with what `config` asks for, see `without_defaults`, except what is excluded, and `more`."""
        parameters = without_defaults(config, exclude=set(exclude)) | more
        return cls(name=name, version=version, config=parameters, code=code_digests(config))


class Forgotten(_Record):
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


class Manifest(_Record):
    """One committed version of a dataset.

    Versions of one dataset may share files: an append lists those of the version before as they are. A file may be deleted
    when no manifest of the dataset has it in `all_files`.
    """

    manifest_version: Literal[1, 2] = READS
    version: int
    format: Format
    operation: Operation
    parents: list[Parent] = []
    environment: EnvironmentSpec | None = None
    observation_space: dict[str, Any] | None = None
    action_space: dict[str, Any] | None = None
    input_columns: InputColumns | None = None
    """What observations and actions are made of; None: not known."""
    statistics: Statistics
    files: list[FileEntry]
    report: dict[str, Any] = {}
    """Report of the operation; not part of the fingerprint."""
    imported: Imported | None = None
    """Of an import; not part of the fingerprint."""
    forgotten: list[Forgotten] = []
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    provenance: dict[str, str] = Field(default_factory=provenance)

    @property
    def all_files(self) -> list[FileEntry]:
        """The data files, and those that only appends read."""
        return self.files if self.imported is None else [*self.files, *self.imported.cuts, *self.imported.left_out]

    @property
    def actions(self) -> Literal["sampled", "greedy"] | None:
        """How the policy chose the actions of a recording; None: this is none."""
        if self.operation.stage == "record":
            return "sampled" if self.operation.config.get("explore", True) else "greedy"
        return "sampled" if self.operation.stage == "train_expert" else None

    @property
    def fingerprint(self) -> str:
        """Identifies the content and its operation, not its location or time: 16 hex digits of a SHA-256."""
        files = [(file.path, file.sha256) for file in self.files]
        return digest([self.format, *_done(self.operation, self.parents), files])

    @property
    def fingerprints(self) -> set[str]:
        """Its own, and those that it had before episodes were forgotten."""
        return {self.fingerprint, *(each.fingerprint for each in self.forgotten)}

    def to_json(self) -> str:
        """JSON without what is None, with a line for each file."""
        head = self.model_dump_json(indent=2, exclude={"files"}, exclude_none=True).removesuffix("\n}")
        files = ",\n".join(f"    {file.model_dump_json(exclude_none=True)}" for file in self.files)
        return f'{head},\n  "files": [\n{files}\n  ]\n}}'

    @property
    def identity(self) -> str:
        """See `identity_of`."""
        return identity_of(self.operation, self.parents)


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
