"""The plan of an operation: what it reads and writes, and its time and memory on this machine."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil
from pydantic import Field

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes.codecs import Format
from offline_core.data.store.location import Location
from offline_core.runtime.reporting.card import Card, Section
from offline_core.runtime.result import Part
from offline_core.runtime.units import duration_text, size_text

KIBIBYTE_UNITS = sys.platform != "darwin"


class Amount(Part):
    """An amount of data at one location; None for what does not apply or is not known before."""

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

    @property
    def cells(self) -> list[str]:
        """The amount as a row of a table."""
        numbers = (self.files, self.episodes, self.steps, self.bytes)
        return [self.uri, *("–" if number is None else f"{number:,}" for number in numbers)]


class MeasuredSample(NamedTuple):
    """What was written, and how long that took."""

    steps: int
    bytes: int
    seconds: float

    @classmethod
    def of(cls, write: Callable[[EpisodeWriter], object], format: Format, files: FilesConfig) -> MeasuredSample:
        """What `write` writes to a temporary folder."""
        with tempfile.TemporaryDirectory() as folder:
            writer = EpisodeWriter(Location.on_disk(folder), "part", format=format, config=files)
            begin = time.perf_counter()
            with writer:
                write(writer)
            seconds = time.perf_counter() - begin
            return cls(writer.statistics.steps, sum(file.bytes for file in writer.files), seconds)


class Plan(Part):
    """Nothing is written by making one, but for a sample in the machine's folder for temporary files."""

    reads: list[Amount]
    writes: list[Amount]
    seconds: float = Field(description="Wall time on this machine, by what was measured.")
    memory_bytes: int = Field(description="Of the process that needs most.")
    measured: list[str] = Field(description="What the numbers are made from.")
    reused: str | None = Field(None, description="The existing version that would be reused; nothing would be written.")

    def card(self) -> Card:
        rows = [
            (what, *amount.cells) for what, amounts in (("reads", self.reads), ("writes", self.writes)) for amount in amounts
        ]
        again = {} if self.reused is None else {"Exists": f"{self.reused}: it would be reused, and nothing would be done"}
        return Card(
            "Plan",
            again,
            sentence=f"Takes {duration_text(self.seconds)} and {size_text(self.memory_bytes)} of memory; nothing was written.",
            sections=[
                Section("What it reads and writes", columns=("", "where", "files", "episodes", "steps", "bytes"), rows=rows),
                Section("Measured", self.measured),
            ],
        )


def peak_bytes() -> int:
    """Most memory that this process has had so far."""
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if KIBIBYTE_UNITS else 1)
