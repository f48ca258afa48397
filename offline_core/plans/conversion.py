"""Plans of conversion and compaction: the first row groups are copied to a temporary folder, the rest is in proportion."""

from __future__ import annotations

import time

import numpy as np
import polars as pl

from offline_core.data.curation.compact import CompactionResult, compact
from offline_core.data.curation.config import CompactionConfig
from offline_core.data.curation.converting import ConversionResult, convert
from offline_core.data.datasets.copying import NOWHERE, copy_episodes
from offline_core.data.datasets.dataset import Dataset, open_committed
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.importing.config import ConversionConfig
from offline_core.plans.plan import Amount, MeasuredSample, Plan, peak_bytes
from offline_core.runtime.ray_session import local_cpus

SAMPLE_SECONDS = 1.0


def plan_conversion(config: ConversionConfig, *, dataset: str, output: str, version: int | None = None) -> Plan:
    """Plan `convert`.

    Raises:
        DataError: the dataset cannot be read.
    """
    source = open_committed(dataset, version)
    _converted(source, config, seconds=0)  # what is slow the first time is not measured
    sample = _converted(source, config, seconds=SAMPLE_SECONDS)
    lanes = min(local_cpus(), len(source.manifest.files)) if config.engine == "ray" else 1
    known = convert.known(config, dataset=dataset, version=version, output=output)
    return _scaled(source, sample, known, output, config.files.max_bytes_per_file, lanes=lanes)


def plan_compaction(config: CompactionConfig, *, dataset: str, output: str, version: int | None = None) -> Plan:
    """Plan `compact`.

    Raises:
        DataError: the dataset cannot be read.
    """
    source = open_committed(dataset, version)
    index = source.index()
    _copied(source, index, config, episodes=1)
    sample = _copied(source, index, config, episodes=max(1, len(index) // max(1, len(source.manifest.files))))
    known = compact.known(config, dataset=dataset, version=version, output=output)
    return _scaled(source, sample, known, output, config.files.max_bytes_per_file)


def _converted(source: Dataset, config: ConversionConfig, *, seconds: float) -> MeasuredSample:
    """The first row group, and others for so long."""
    begin = time.perf_counter()

    def write(writer: EpisodeWriter) -> None:
        for group in source.row_groups():
            writer.write(group.episodes())
            if time.perf_counter() - begin >= seconds:
                return

    return MeasuredSample.of(write, config.format, config.files)


def _copied(source: Dataset, index: pl.DataFrame, config: CompactionConfig, *, episodes: int) -> MeasuredSample:
    to = np.where(np.arange(len(index)) < episodes, 0, NOWHERE)
    return MeasuredSample.of(
        lambda writer: copy_episodes(source, index, to, [writer], what="sample"), source.manifest.format, config.files
    )


def _scaled(
    source: Dataset,
    sample: MeasuredSample,
    known: ConversionResult | CompactionResult | None,
    output: str,
    file_bytes: int,
    *,
    lanes: int = 1,
) -> Plan:
    ref = source.ref
    times = ref.steps / max(1, sample.steps)
    written_bytes = round(sample.bytes * times)
    return Plan(
        reads=[Amount.of(ref, files=len(source.manifest.files))],
        writes=[
            Amount(
                uri=output,
                files=max(1, -(-written_bytes // file_bytes)),
                episodes=ref.episodes,
                steps=ref.steps,
                bytes=written_bytes,
            )
        ],
        seconds=sample.seconds * times / lanes,
        memory_bytes=peak_bytes(),
        measured=[
            f"{sample.steps:,} steps were copied to a temporary folder in {sample.seconds:.2f} s ({sample.bytes:,} bytes)"
        ],
        reused=None if known is None else str(known.dataset),
    )
