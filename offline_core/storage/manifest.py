"""The manifest of one dataset version: which files, what is in them, and what they came from."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from offline_core.config import EnvironmentSpec
from offline_core.own_code import code_digests
from offline_core.provenance import provenance
from offline_core.storage.statistics import ColumnStatistics, merge_columns

Format = Literal["episodes", "table"]


class _Record(BaseModel):
    # A later version of this program may say more. Returns, and arguments of an environment, may be infinite: JSON's null
    # could not be read back.
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
        with np.errstate(invalid="ignore", over="ignore"):  # a return may be infinite: there is no deviation from that
            mean, std = float(numbers.mean()), float(numbers.std())
        return cls(count=len(numbers), mean=mean, std=std, min=float(numbers.min()), max=float(numbers.max()))

    def merge(self, other: Summary) -> Summary:
        """Of the numbers of both."""
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


class Statistics(_Record):
    """What a dataset holds."""

    episodes: int = 0
    steps: int = 0
    terminated: int = 0
    truncated: int = 0
    returns: Summary = Summary()
    lengths: Summary = Summary()
    columns: dict[str, ColumnStatistics] | None = None
    """By the name of the leaf (`obs/position`); None: not known."""

    def merge(self, other: Statistics) -> Statistics:
        """Of two datasets together; columns are not known unless they are for both."""
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


class FileEntry(_Record):
    """One data file; `path` is relative to the dataset's folder. Episodes and steps of a foreign file are not known: 0."""

    path: str
    rows: int
    episodes: int
    steps: int
    bytes: int
    sha256: str
    footer_sha256: str | None = None
    """Of the Parquet footer, which the checksums of pages leave out; None in older manifests, and of foreign files."""


class Parent(_Record):
    """A dataset version, a checkpoint, or other people's files that this one was made from."""

    kind: Literal["dataset", "checkpoint", "files"]
    uri: str
    version: int | None = None
    fingerprint: str


class Operation(_Record):
    """What made it: the name, the version of its behaviour, and the parameters."""

    name: str
    version: int = 1
    config: dict[str, Any] = {}
    code: dict[str, str] = Field({}, exclude_if=lambda code: not code)
    """Of the user's own, by import path; see `code_digests`."""

    @classmethod
    def of(
        cls, name: str, config: BaseModel, *, version: int = 1, exclude: AbstractSet[str] = frozenset(), **more: Any
    ) -> Operation:
        """With the parameters of `config` but those excluded, and `more`."""
        parameters = config.model_dump(mode="json", exclude=set(exclude)) | more
        return cls(name=name, version=version, config=parameters, code=code_digests(config))


READS: Literal[1] = 1
"""The format of manifests that is written here, and can be read."""


class Manifest(_Record):
    """One committed version of a dataset."""

    manifest_version: Literal[1] = READS
    version: int
    format: Format
    operation: Operation
    parents: list[Parent] = []
    environment: EnvironmentSpec | None = None
    observation_space: dict[str, Any] | None = None
    action_space: dict[str, Any] | None = None
    statistics: Statistics
    files: list[FileEntry]
    report: dict[str, Any] = {}
    """What the operation has to say about what it did; no part of what identifies the version."""
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    provenance: dict[str, str] = Field(default_factory=provenance)

    @property
    def fingerprint(self) -> str:
        """Identifies the content and how it was made, not where it lies or when: 16 hex digits of a SHA-256."""
        files = [(file.path, file.sha256) for file in self.files]
        return digest([self.format, *_done(self.operation, self.parents), files])

    @property
    def identity(self) -> str:
        """Identifies what was done to what: see `identity_of`."""
        return identity_of(self.operation, self.parents)


def identity_of(operation: Operation, parents: Sequence[Parent]) -> str:
    """16 hex digits that stand for an operation, its version and parameters, and the content of all that it was done to.

    What was done once need not be done again: whoever finds a result of the same identity may use it instead.
    """
    return digest(_done(operation, parents))


def _done(operation: Operation, parents: Sequence[Parent]) -> list[Any]:
    return [operation.model_dump(mode="json"), [(parent.kind, parent.fingerprint) for parent in parents]]


def digest(value: Any) -> str:
    """16 hex digits that identify a JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
