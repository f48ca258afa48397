"""What it costs to verify data: see `benchmarks.data`."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.figure import figure
from offline_core.data.datasets.commit import prepare_dataset
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import columns
from offline_core.data.episodes.codecs import Format


def verification(root: str, steps: int, *, pairs: int = 7) -> None:
    """Reading and writing with checksums of pages and footers, against the same without them, in alternation.

    By CPU time, which other work on the machine changes least. Read are decoded episodes, or step
    tables; written are rows that are ready.
    """
    from benchmarks.data import write_recording

    for format in ("episodes", "table"):
        uri = f"{root}/verify-{format}"
        write_recording(uri, steps, format=format)
        dataset = open_dataset(uri)
        plain = replace(
            dataset, manifest=dataset.manifest.model_copy(update={"files": list(map(_unsigned, dataset.manifest.files))})
        )
        whole = list(dataset.tables())
        read, write = ([], []), ([], [])
        for pair in range(pairs):
            read[0].append(_cpu_seconds(_read, dataset))
            write[0].append(_cpu_seconds(_write_rows, whole, f"{uri}-{pair}", format))
            with _changed("ParquetFile", page_checksum_verification=False):
                read[1].append(_cpu_seconds(_read, plain))
            with _changed("ParquetWriter", write_page_checksum=False):
                write[1].append(_cpu_seconds(_write_rows, whole, f"{uri}-{pair}-plain", format))
        for name, (verified, unverified) in (("read", read), ("write", write)):
            took = statistics.median(verified)
            ratio = statistics.median(unverified) / took
            figure(
                f"verify.{name}.ratio", ratio, "ratio", format=format, steps=steps, bytes=dataset.ref.bytes, cpu_seconds=took
            )


def _cpu_seconds(action: Callable[..., object], *arguments: object) -> float:
    start = time.process_time()
    action(*arguments)
    return time.process_time() - start


def _read(dataset: Dataset) -> None:
    for group in dataset.row_groups():
        _ = group.episodes() if dataset.manifest.format == "episodes" else group.read()


def _changed(name: str, **arguments: bool) -> contextlib.AbstractContextManager[object]:
    """PyArrow's class of that name with other arguments than ours."""
    whole = getattr(pq, name)
    return mock.patch.object(pq, name, lambda *values, **named: whole(*values, **{**named, **arguments}))


def _unsigned(file: FileEntry) -> FileEntry:
    """Return the entry of a file as manifests had it before footers had hashes."""
    return file.model_copy(update={"footer_sha256": None})


def _write_rows(rows: list[pa.Table], uri: str, format: Format) -> None:
    from benchmarks.data import EPISODE_STEPS

    with EpisodeWriter(prepare_dataset(uri), "part", format=format) as writer:
        for table in rows:
            count = len(writer.codec.starts(table))
            summary = {name: np.zeros(count) for name in columns.EPISODE_SUMMARY}
            writer.copy(table, summary | {columns.LENGTH: np.full(count, EPISODE_STEPS)})
    shutil.rmtree(uri)
