"""Plan of an import: its smallest file is imported to a temporary folder, the rest is in proportion to the bytes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence

from offline_core.conversion.config import ImportConfig
from offline_core.conversion.importing import import_dataset, source_sizes
from offline_core.conversion.report import ImportResult
from offline_core.datasets.dataset import open_dataset
from offline_core.errors import ConfigError
from offline_core.plans.plan import Amount, Plan, peak_bytes
from offline_core.runtime.ray_session import local_cpus

LARGEST_SAMPLE_BYTES = 256 * 2**20


def plan_import(config: ImportConfig, *, source: str | Sequence[str], output: str) -> Plan:
    """Of `import_dataset`.

    Raises:
        ConfigError: the parameters do not fit the source, or the sizes of its files are not known.
        DataError: the smallest file cannot be read.
    """
    sizes = source_sizes(config.source, source)
    if not sizes:
        raise ConfigError(f"{source} is not made of files, so the cost of importing it is not known before it is read.")
    smallest = min(sizes, key=lambda uri: sizes[uri])
    if sizes[smallest] > LARGEST_SAMPLE_BYTES:
        raise ConfigError(
            f"The smallest file, {smallest}, has {sizes[smallest]:,} bytes: too many to import for a plan. Put a part of it "
            f"into a file of at most {LARGEST_SAMPLE_BYTES:,} bytes, and plan the import of that."
        )
    _imported(config, smallest)  # what is slow the first time is not measured
    begin = time.perf_counter()
    made, files = _imported(config, smallest)
    seconds = time.perf_counter() - begin
    times = sum(sizes.values()) / max(1, sizes[smallest])
    written_bytes = round(made.dataset.bytes * times)
    return Plan(
        reads=[Amount(uri=_named(source), files=len(sizes), bytes=sum(sizes.values()))],
        writes=[
            Amount(
                uri=output,
                files=max(files, written_bytes // config.files.max_bytes_per_file),
                episodes=round(made.dataset.episodes * times),
                steps=round(made.dataset.steps * times),
                bytes=written_bytes,
            )
        ],
        seconds=seconds * times / (local_cpus() if config.engine == "ray" else 1),
        memory_bytes=peak_bytes(),
        measured=[
            f"{smallest} ({sizes[smallest]:,} bytes) was imported to a temporary folder in {seconds:.2f} s: {made.counts}"
        ],
    )


def _imported(config: ImportConfig, source: str) -> tuple[ImportResult, int]:
    """(the result, the number of its files)."""
    with tempfile.TemporaryDirectory() as folder:
        made = import_dataset(config.model_copy(update={"engine": "local"}), source=source, output=folder)
        return made, len(open_dataset(made.dataset.uri).manifest.files)


def _named(source: str | Sequence[str]) -> str:
    places = [source] if isinstance(source, str) else source
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"
