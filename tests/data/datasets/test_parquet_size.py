"""Bounds on file sizes hold, and are not so wide that files end early for nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.datasets.data_file import chunk_bytes, footer_bytes, stored_bytes
from offline_core.data.episodes.arrow import to_arrow

RNG = np.random.default_rng(0)
COLUMNS = {
    "uint8": RNG.integers(0, 256, (3000, 7, 3), np.uint8),
    "int16": RNG.integers(-999, 999, 3000).astype(np.int16),
    "int64": RNG.integers(-(2**62), 2**62, (3000, 2)),
    "float16": RNG.standard_normal((3000, 9)).astype(np.float16),
    "float32": RNG.standard_normal((3000, 1)).astype(np.float32),
    "bool": RNG.random((3000, 5)) < 0.5,
    "text": np.array([f"{number:016x}" for number in RNG.integers(0, 2**62, 3000)]),
    "nested": {"a": RNG.integers(0, 9, (3000, 4), np.int8), "b": (RNG.random(3000), RNG.random((3000, 2)))},
}


def size(path: Path, rows: pa.Table, groups: int, compression: str) -> int:
    with pq.ParquetWriter(path, rows.schema, compression=compression, use_dictionary=False) as writer:
        for _ in range(groups):
            writer.write_table(rows)
    return path.stat().st_size


@pytest.mark.parametrize("name", COLUMNS)
def test_rows(tmp_path: Path, name: str) -> None:
    rows = pa.table({name: to_arrow(COLUMNS[name], name)})
    for compression in ("none", "snappy", "lz4", "zstd"):
        one, two = (size(tmp_path / "x", rows, groups, compression) for groups in (1, 2))
        assert two - one <= stored_bytes(rows) + chunk_bytes(rows.schema), compression
        assert compression != "none" or stored_bytes(rows) < 1.6 * (two - one)


@pytest.mark.parametrize("kilobytes", [0, 1, 100])
@pytest.mark.parametrize("columns", [1, 100])
def test_footer(tmp_path: Path, kilobytes: int, columns: int) -> None:
    fields = [pa.field(f"a column with a name, {i}", pa.fixed_shape_tensor(pa.float32(), (2, 3))) for i in range(columns)]
    schema = pa.schema(fields, metadata={"spaces": "x" * kilobytes * 1024})
    actual = size(tmp_path / "x", schema.empty_table(), 0, "none")
    assert actual <= footer_bytes(schema) < 4 * actual + 1024
