"""Hostile archives: each small, each refused at once, and none leads to another file."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import resource
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.episodes import columns
from offline_core.data.formats.sources import arrow_messages, expansion
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.errors import CorruptFileError, DataError, OfflineError, UnsafeDataError
from offline_core.runtime.config import parse
from tests.data.formats.sources.factories import tables_of

MANY = r"has [\d,]+ bytes and unpacks to more than [\d,]+, .* raise source.max_expansion"
ELSEWHERE = "refers to other files for observations; they are not read"
D4RL = ("observations", "actions", "rewards", "terminals")


@pytest.fixture(autouse=True)
def low_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the archives can be small, and the tests quick."""
    monkeypatch.setattr(expansion, "FLOOR_BYTES", 2**20)


def npy(descr: object, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    file = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]
    return file.getvalue() + data


def zipped(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("UP", "../../"), data)


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    return file.getvalue()


def hdf5(path: Path, observations: Callable[[h5py.File, Path], object]) -> None:
    other = path.parent / "other.hdf5"
    for place in (other, path):
        with h5py.File(place, "w") as file:
            for name in D4RL[place == path :]:
                file[name] = np.zeros(4)
            if place == path:
                observations(file, other)


def virtual(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
    layout[:] = h5py.VirtualSource(str(other), "observations", shape=(4,))
    file.create_virtual_dataset("observations", layout)


def rows(count: int) -> bytes:
    return b"obs,actions,rewards\n" + b"1,0,1\n" * count


def one_batch(path: Path, batch: pa.RecordBatch, *, stream: bool = False) -> None:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def listed_again(path: Path) -> None:
    """A file of Arrow whose footer lists its only batch 20,000 times."""
    one_batch(path, pa.record_batch({"obs": np.random.default_rng(0).random(10**5)}))
    data = path.read_bytes()
    footer_bytes = int.from_bytes(data[-10:-6], "little")
    footer = bytearray(data[-10 - footer_bytes : -10])
    table = int.from_bytes(footer[:4], "little")
    vtable = table - int.from_bytes(footer[table : table + 4], "little", signed=True)
    field = table + int.from_bytes(footer[vtable + 10 : vtable + 12], "little")
    vector = field + int.from_bytes(footer[field : field + 4], "little")
    again = footer[vector + 4 : vector + 28] * 20_000
    footer[field : field + 4] = (len(footer) - field).to_bytes(4, "little")
    footer += (20_000).to_bytes(4, "little") + again
    path.write_bytes(data[: -10 - footer_bytes] + footer + len(footer).to_bytes(4, "little") + b"ARROW1")


def avro(path: Path, kind: object, rows: int, data: bytes, *, codec: bytes = b"null") -> None:
    """One block of `rows` rows with a field obs."""
    schema = json.dumps({"type": "record", "name": "row", "fields": [{"name": "obs", "type": kind}]}).encode()
    if codec == b"deflate":
        data = zlib.compress(data, wbits=-zlib.MAX_WBITS)
    pairs = b"".join(avro_long(len(part)) + part for part in (b"avro.schema", schema, b"avro.codec", codec))
    head = b"Obj\x01" + avro_long(2) + pairs + avro_long(0) + bytes(16)
    path.write_bytes(head + avro_long(rows) + avro_long(len(data)) + data + bytes(16))


def avro_long(number: int) -> bytes:
    number, written = number << 1, b""
    while number > 0x7F:
        written, number = written + bytes([number & 0x7F | 0x80]), number >> 7
    return written + bytes([number])


HOSTILE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "npz of zeros": ("x.npz", lambda path: zipped(path, obs=npy("<f8", (10**6,), bytes(8 * 10**6))), MANY),
    "npz with a pickle": ("x.npz", lambda path: zipped(path, obs=pickled()), "Python objects"),
    "npz that goes up": ("x.npz", lambda path: zipped(path, UPout=npy("|O", (1,))), "Python objects"),
    "npz of a huge shape": ("x.npz", lambda path: zipped(path, obs=npy("<f8", (10**12,))), "claims float64 of shape"),
    "npz of a negative shape": ("x.npz", lambda path: zipped(path, obs=npy("<f8", (-1,))), "cannot be read as npz"),
    "npz of a shape times zero": ("x.npz", lambda path: zipped(path, obs=npy("<U0", (10**12,))), "claims <U0 of shape"),
    "npz of long text": ("x.npz", lambda path: zipped(path, obs=npy("<U536870911", (4,))), "claims <U536870911"),
    "npz of rows too few": ("x.npz", lambda path: zipped(path, obs=npy("<f8", (4,), bytes(8))), "expected 32 bytes got 8"),
    "csv.gz of rows": ("x.csv.gz", lambda path: path.write_bytes(gzip.compress(rows(10**6))), MANY),
    "gzip by its bytes": ("x.csv", lambda path: path.write_bytes(gzip.compress(rows(10**6))), MANY),
    "zstd by its bytes": ("x.csv", lambda path: path.write_bytes(pa.compress(rows(10**6), "zstd", asbytes=True)), MANY),
    "many gzips in one": ("x.csv.gz", lambda path: path.write_bytes(gzip.compress(rows(10**5)) * 20), MANY),
    "truncated gzip": ("x.csv.gz", lambda path: path.write_bytes(gzip.compress(rows(100))[:-9]), "cannot be read"),
    "csv.gz of one line": ("x.csv.gz", lambda path: path.write_bytes(gzip.compress(b"a" * 10**7)), "first line of .* longer"),
    "csv of columns": ("x.csv", lambda path: path.write_bytes(b"a," * 10**6), "first line of .* longer"),
    "json.gz of one line": (
        "x.json.gz",
        lambda path: path.write_bytes(gzip.compress(b'{"type": "SampleBatch", "obs": [' + b"1," * 10**7)),
        MANY,
    ),
    "json.zip of one line": (
        "x.zip",
        lambda path: zipped(path, **{"a.json": b'{"type": "SampleBatch", "obs": [' + b"1," * 10**7}),
        MANY,
    ),
    "json of other names in each line": (
        "x.ndjson",
        lambda path: path.write_text("".join(f'{{"a{row}": 1, "b{row}": 1}}\n' for row in range(5000))),
        MANY,
    ),
    "json list of other names in each row": (
        "x.json",
        lambda path: path.write_text("[" + ",".join(f'{{"a{row}": 1, "b{row}": 1}}' for row in range(5000)) + "]"),
        MANY,
    ),
    "npz of a header that does not end": (
        "x.npz",
        lambda path: zipped(path, obs=b"\x93NUMPY\1\0\xff\0" + b"[" * 255),
        "header of",
    ),
    "npz of a header of wrong types": (
        "x.npz",
        lambda path: zipped(path, obs=npy("<f8", (1, 3), bytes(24)).replace(b"(1, 3)", b"(True,)")),
        "cannot be read as npz",
    ),
    "zip of many files": (
        "x.zip",
        lambda path: zipped(path, **{f"{number}.csv": b"a" for number in range(3000)}),
        "lists 3,000 files",
    ),
    "json 100,000 deep": ("x.ndjson", lambda path: path.write_text(f'{{"obs": {"[" * 10**5}{"]" * 10**5}}}\n'), "recursion"),
    "batch 100,000 deep": (
        "x.json",
        lambda path: path.write_text(f'{{"type": "SampleBatch", "obs": {"[" * 10**5}\n'),
        "recursion",
    ),
    "parquet of one value": (
        "x.parquet",
        lambda path: pq.write_table(pa.table({"obs": np.zeros(2 * 10**7)}), path, row_group_size=10**7),
        MANY,
    ),
    "parquet of one long text": (
        "x.parquet",
        lambda path: pq.write_table(
            pa.table({"note": pa.DictionaryArray.from_arrays(np.zeros(10**5, np.int32), ["x" * 10**5])}),
            path,
            store_schema=False,
        ),
        MANY,
    ),
    "parquet of one long category": (
        "x.parquet",
        lambda path: pq.write_table(
            pa.table({"note": pa.DictionaryArray.from_arrays(np.zeros(10**5, np.int32), ["x" * 10**5])}), path
        ),
        MANY,
    ),
    "arrow file of one value": ("x.feather", lambda path: one_batch(path, pa.record_batch({"obs": np.zeros(3 * 10**7)})), MANY),
    "arrow stream of one value": (
        "x.arrow",
        lambda path: one_batch(path, pa.record_batch({"obs": np.zeros(3 * 10**7)}), stream=True),
        MANY,
    ),
    "arrow file of nothing": ("x.arrow", lambda path: one_batch(path, pa.record_batch({"obs": pa.nulls(10**9)})), MANY),
    "arrow file of one category": (
        "x.arrow",
        lambda path: one_batch(path, pa.record_batch({"a": pa.DictionaryArray.from_arrays([0], ["x" * 2 * 10**8])})),
        MANY,
    ),
    "arrow file of one batch many times": ("x.arrow", listed_again, MANY),
    "avro of nothing": ("x.avro", lambda path: avro(path, "null", 10**9, b""), MANY),
    "avro of more rows than bytes": ("x.avro", lambda path: avro(path, "int", 2**50, b"\2"), MANY),
    "avro of zeros": ("x.avro", lambda path: avro(path, "bytes", 1, avro_long(10**7) + bytes(10**7), codec=b"deflate"), MANY),
    "avro of a list of nothing": (
        "x.avro",
        lambda path: avro(path, {"type": "array", "items": ["int", {"type": "map", "values": "null"}]}, 1, b"\2\0"),
        "has lists in 'obs' whose values take no bytes",
    ),
    "avro of a lie": ("x.avro", lambda path: avro(path, "string", 1, avro_long(2**40) + b"a"), "cannot be read as avro"),
    "hdf5 of a huge shape": (
        "x.hdf5",
        lambda path: hdf5(path, lambda file, _: file.create_dataset("observations", (10**12,), "f8", chunks=(10**6,))),
        MANY,
    ),
    "hdf5 of a huge chunk": (
        "x.hdf5",
        lambda path: hdf5(
            path, lambda file, _: file.create_dataset("observations", (4,), "f8", chunks=(10**8,), maxshape=(None,))
        ),
        MANY,
    ),
    "hdf5 with an external link": (
        "x.hdf5",
        lambda path: hdf5(path, lambda file, other: file.__setitem__("observations", h5py.ExternalLink(other, "rewards"))),
        ELSEWHERE,
    ),
    "hdf5 with raw data elsewhere": (
        "x.hdf5",
        lambda path: hdf5(
            path, lambda file, other: file.create_dataset("observations", (4,), "f8", external=[(str(other), 0, 32)])
        ),
        ELSEWHERE,
    ),
    "hdf5 with a virtual dataset": ("x.hdf5", lambda path: hdf5(path, virtual), ELSEWHERE),
    "hdf5 with a link to nothing": (
        "x.hdf5",
        lambda path: hdf5(path, lambda file, _: file.__setitem__("observations", h5py.SoftLink("/nowhere"))),
        "observations is a link to nothing",
    ),
    "hdf5 that holds itself": (
        "x.hdf5",
        lambda path: hdf5(path, lambda file, _: file.__setitem__("observations", file["/"])),
        "recursion",
    ),
}


def read(path: Path, **config: object) -> list[pa.Table]:
    return [batch for reader in open_source([str(path)], parse(SourceConfig, config)) for batch in tables_of(reader)]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What reading imports is imported, and not counted."""
    (file := tmp_path_factory.mktemp("file") / "x.csv").write_bytes(rows(3))
    assert read(file)


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_is_refused_at_once(tmp_path: Path, what: str) -> None:
    name, write, told = HOSTILE[what]
    write(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 3 * 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # after what writing took
    with pytest.raises(OfflineError, match=told):
        read(tmp_path / name)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024, "KiB"


def test_what_is_trusted_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(rows(10**6)))
    with pytest.raises(UnsafeDataError):
        read(tmp_path / "x.csv.gz")
    assert sum(batch.num_rows for batch in read(tmp_path / "x.csv.gz", max_expansion=1000)) == 10**6


def test_what_unpacks_to_little_is_read_however_well_it_was_packed(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(rows(10**5)))
    assert (tmp_path / "x.csv.gz").stat().st_size * 100 < len(rows(10**5)) < expansion.FLOOR_BYTES
    assert {"obs", columns.REWARDS} <= set(read(tmp_path / "x.csv.gz")[0].column_names)


def test_gzip_in_gzip_is_unpacked_once(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(gzip.compress(rows(10**6))))
    with pytest.raises(CorruptFileError, match=r"is not text: it has zero bytes\. Unpack it"):
        read(tmp_path / "x.csv.gz")


def test_bz2_is_counted_while_it_unpacks(tmp_path: Path) -> None:
    (tmp_path / "x.json.bz2").write_bytes(bz2.compress(b'{"type": "SampleBatch", "obs": [' + b"1," * 10**6))
    with pytest.raises(DataError, match=MANY):
        read(tmp_path / "x.json.bz2", format="sample_batch")


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("write", [pa.ipc.new_file, pa.ipc.new_stream])
def test_what_arrow_declares_is_what_it_unpacks_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., Any], compression: str | None
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(expansion.Expansion, "add", lambda _, size: counted.append(size))
    text = pa.array(["x", "yy"] * 500)
    table = pa.table({"obs": np.arange(1000.0), "note": text, "kind": text.dictionary_encode(), "on": [True, None] * 500})
    with write(tmp_path / "x.arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as file:
        file.write_table(table, max_chunksize=400)
    arrow_messages.check_arrow(str(tmp_path / "x.arrow"), expansion.Expansion("x.arrow", 1))
    assert len([*filter(None, counted)]) == 4, "a dictionary and three batches"
    assert table.nbytes <= sum(counted) < 1.2 * table.nbytes


def test_avro_that_packs_well_is_read(tmp_path: Path) -> None:
    for codec in ("uncompressed", "deflate", "snappy"):
        rows = pl.DataFrame({"obs": np.zeros(10**5), "note": ["a"] * 10**5, "list": [[1, 2]] * 10**5})
        rows.write_avro(tmp_path / f"{codec}.avro", compression=codec)
        assert sum(batch.num_rows for batch in read(tmp_path / f"{codec}.avro")) == 10**5


@pytest.mark.parametrize("kind", ["file", "stream", "avro"])
def test_damage_is_an_error_of_data_or_nothing(tmp_path: Path, kind: str) -> None:
    """Wherever it is, and though sizes are looked at before the file is read."""
    path = tmp_path / f"x.{'avro' if kind == 'avro' else 'arrow'}"
    if kind == "avro":
        pl.DataFrame({"obs": np.zeros(100), "note": ["a"] * 100}).write_avro(path)
    else:
        one_batch(path, pa.record_batch({"obs": np.zeros(100), "note": ["a"] * 100}), stream=kind == "stream")
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(50):
        data = bytearray(whole)
        data[rng.integers(len(data))] = rng.choice([0, 127, 255])
        path.write_bytes(data[: rng.integers(len(data) // 2, len(data) * 2)])
        with contextlib.suppress(DataError):
            read(path)


def test_a_stream_of_arrow_that_unpacks_to_too_much_is_not_read_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"obs": np.zeros(10**7)})
    with pa.ipc.new_stream(tmp_path / "x.arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table, max_chunksize=10**5)
    with monkeypatch.context() as patch:
        patch.delattr(pl, "read_ipc_stream")
        with pytest.raises(UnsafeDataError, match=MANY):
            read(tmp_path / "x.arrow")
    assert sum(batch.num_rows for batch in read(tmp_path / "x.arrow", max_expansion=10**5)) == 10**7


@pytest.mark.parametrize(
    "header", [{}, {"avro.schema": "1"}, {"avro.schema": '{"fields": 1}'}, {"avro.schema": '{"fields": ["x"]}'}]
)
def test_avro_with_a_header_that_is_none_is_damaged(tmp_path: Path, header: dict[str, str]) -> None:
    texts = [bytes([2 * len(text)]) + text.encode() for pair in header.items() for text in pair]
    count = bytes([2 * len(header)]) if header else b""
    (tmp_path / "x.avro").write_bytes(b"Obj\x01" + count + b"".join(texts) + b"\x00" + bytes(16))
    with pytest.raises(DataError):
        read(tmp_path / "x.avro")


def test_arrow_whose_offsets_lead_nowhere_is_left_to_its_reader(tmp_path: Path) -> None:
    one_batch(tmp_path / "x.arrow", pa.record_batch({"obs": np.zeros(10)}), stream=False)
    whole = (tmp_path / "x.arrow").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(3000):
        data = bytearray(whole)
        at = int(rng.integers(len(data) - 8))
        data[at : at + 8] = bytes(rng.choice([0, 127, 128, 255], 8).astype(np.uint8))
        (tmp_path / "x.arrow").write_bytes(data)
        with contextlib.suppress(UnsafeDataError):
            arrow_messages.check_arrow(str(tmp_path / "x.arrow"), expansion.Expansion("x.arrow", 1))
