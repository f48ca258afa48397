"""What an operation would read and write, and what it would take on this machine."""

from __future__ import annotations

import resource
import sys
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from offline_core.errors import ConfigError
from offline_core.storage.dataset import Dataset, DatasetRef, is_dataset, open_dataset
from offline_core.storage.writer import EpisodeWriter

KIBIBYTE_UNITS = sys.platform != "darwin"


class Amount(BaseModel):
    """So much at one place; None for what there is none of, or what cannot be told before."""

    model_config = ConfigDict(frozen=True)

    uri: str
    files: int | None = None
    episodes: int | None = None
    steps: int | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, ref: DatasetRef, files: int | None = None) -> Amount:
        """A version of a dataset."""
        uri = f"{ref.uri} version {ref.version}" if ref.version else ref.uri
        return cls(uri=uri, files=files, episodes=ref.episodes, steps=ref.steps, bytes=ref.bytes)


class Sample(NamedTuple):
    """What was written in so many seconds."""

    steps: int
    bytes: int
    seconds: float

    @classmethod
    def of(cls, writer: EpisodeWriter, seconds: float) -> Sample:
        return cls(writer.statistics.steps, sum(file.bytes for file in writer.files), seconds)


class Plan(BaseModel):
    """Nothing is written by making one, but for a sample in the machine's folder for temporary files."""

    model_config = ConfigDict(frozen=True)

    reads: list[Amount]
    writes: list[Amount]
    seconds: float = Field(description="Wall time on this machine, by what was measured.")
    memory_bytes: int = Field(description="Of the process that needs most.")
    measured: list[str] = Field(description="What the numbers are made from.")
    reused: str | None = Field(None, description="It is there already, and would be reused: nothing would be written.")


def dataset_of(uri: str, version: int | None = None) -> Dataset:
    """A version of a dataset.

    Raises:
        ConfigError: it is not a dataset yet, and would be imported first.
        DatasetNotFoundError: there is nothing.
    """
    found = open_dataset(uri, version)
    if not is_dataset(uri):
        raise ConfigError(
            f"{uri} is not a dataset yet, and would be imported first: plan that by 'offline import {uri} --plan'."
        )
    return found


def peak_bytes() -> int:
    """Most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if KIBIBYTE_UNITS else 1)
