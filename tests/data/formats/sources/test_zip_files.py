"""Files in a zip archive: read as what they are, each by itself, and never unpacked to more than is allowed."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from offline_core.data.formats.sources import expansion
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.errors import ConfigError, CorruptFileError, EmptyDatasetError, OfflineError, UnsafeDataError
from tests.data.formats.sources.factories import (
    SCALARS,
    check_steps,
    format_of,
    imported_episodes,
    scalar_steps,
    tables_of,
    write_steps,
)


def zipped(path: Path, **members: bytes | str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def read(path: Path, **config: Any) -> pa.Table:
    return pa.concat_tables(
        [table for reader in open_source([str(path)], SourceConfig(**config)) for table in tables_of(reader)]
    )


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.npz", "x.parquet"])
def test_a_file_in_a_zip_is_read_as_it_is_alone(tmp_path: Path, name: str) -> None:
    write_steps(tmp_path / name, scalar_steps())
    path = zipped(
        tmp_path / "x.zip", **{f"logs/{name}": (tmp_path / name).read_bytes(), "__MACOSX/x.csv": b"", "readme.md": b""}
    )
    assert format_of(path) == "zip"
    check_steps(imported_episodes(tmp_path, path, mapping=SCALARS))


def test_each_file_has_a_reader_of_its_own(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", **{"b.csv": "x,y\n3,c\n", "a.tsv": "x\ty\n1\ta\n2\tb\n"})
    assert [reader.uri for reader in open_source([str(path)])] == [f"{path}/a.tsv", f"{path}/b.csv"]
    assert read(path).to_pydict() == {"_source_row": [0, 1, 0], "x": [1, 2, 3], "y": ["a", "b", "c"]}
    assert read(path, columns=["y"], where="x > 1")["y"].to_pylist() == ["b", "c"]
    assert FirstRows.of(open_source([str(path)])[0]).is_whole


def test_bad_lines_are_named_by_their_file_in_it(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", **{"a.csv": "x\n1\n", "b.csv": "x\n2\n3,3\n4\n"})
    found = [each for reader in open_source([str(path)]) for each in reader.batches()]
    [bad] = [each for each in found if isinstance(each, Unreadable)]
    assert (bad.uri, bad.row) == (f"{path}/b.csv", 1) and "line 3 has 2 values" in str(bad)
    assert [n for each in found if isinstance(each, pa.Table) for n in each["_source_row"].to_pylist()] == [0, 0, 2]


def npy() -> bytes:
    (file := io.BytesIO()).name = "x.npz"
    np.savez(file, x=np.arange(3))
    return file.getvalue()


@pytest.mark.parametrize(
    ("members", "error", "told"),
    [
        ({"a.csv": "x\n1\n", "b.npz": npy()}, ConfigError, "holds files of the formats csv, npz: unpack it first"),
        ({"a.txt": "x"}, EmptyDatasetError, r"holds no file of a known format: a\.txt"),
        ({"a.zip": b""}, EmptyDatasetError, "holds no file of a known format"),
        ({"../../a.parquet": b"PAR1"}, EmptyDatasetError, "holds no file of a known format"),
    ],
)
def test_what_a_zip_may_not_hold(tmp_path: Path, members: dict[str, bytes | str], error: type[OfflineError], told: str) -> None:
    with pytest.raises(error, match=told):
        read(zipped(tmp_path / "in.zip", **members), format="zip")
    assert [path.name for path in tmp_path.iterdir()] == ["in.zip"]


def test_a_zip_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "FLOOR_BYTES", 2**20)
    path = zipped(tmp_path / "x.zip", **{f"{n}.csv": "x\n" + "1\n" * 10**5 for n in range(20)})
    with pytest.raises(UnsafeDataError, match=r"x\.zip has .* unpacks to more"):
        read(path)
    assert read(path, max_expansion=10**5).num_rows == 20 * 10**5


def test_damage_is_told(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", **{"a.csv": "x\n1\n" * 1000})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorruptFileError, match=r"x\.zip is a broken or encrypted zip file"):
        read(path, format="zip")
