"""Every kind of source, read out of a bucket: what is committed is byte for byte what a local disk would have given."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import lz4.frame
import numpy as np
import pyarrow as pa
import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import encode
from offline_core.data.formats.exporting import ExportConfig, export
from offline_core.data.formats.sources.ray_reads import RayRead
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.report import ImportResult
from offline_core.data.store.location import Location
from offline_core.errors import (
    ConfigError,
    CorruptFileError,
    DatasetNotFoundError,
    LocationError,
    StorageError,
)
from offline_core.runtime.ray_session import ray_session
from tests.cases import slow_but
from tests.data.datasets.factories import episode, write_dataset, write_items
from tests.data.formats.sources.factories import OBSERVATIONS, SCALARS, SEEDS, imported, scalar_steps, steps, write_steps
from tests.object_storage.conftest import SETTINGS, client

SCALAR = {"mapping": SCALARS}
PLAIN: dict[str, Any] = {"mapping": {}}


WITHOUT_IDS = {"d4rl"}
"""Their episodes are named after the file, with its place."""


def upload(folder: Path, place: Location) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            place.child(path.relative_to(folder).as_posix()).write(path.read_bytes())


def hashes(uri: str) -> list[str]:
    return [file.sha256 for file in open_dataset(uri).manifest.files]


def imported_there(bucket: str, path: str | list[str], /, **config: Any) -> ImportResult:
    whole = ImportConfig.model_validate({"mapping": SEEDS} | config)
    return import_data(whole, source=path, output=f"{bucket}/imported")


def sample_batch() -> bytes:
    table = {"obs": OBSERVATIONS[:5].tolist(), "new_obs": OBSERVATIONS[1:6].tolist(), "actions": [0, 1, 0, 1, 1]}
    packed = base64.b64encode(lz4.frame.compress(pickle.dumps(np.arange(5.0, dtype=np.float32)))).decode()
    return json.dumps(
        {"type": "SampleBatch", "eps_id": [1, 1, 1, 2, 2], "t": [0, 1, 2, 0, 1]} | table | {"rewards": packed}
    ).encode()


def contents(uri: str) -> list[tuple[bytes, bytes, bytes]]:
    found = open_dataset(uri).episodes()
    return [(e.observations.tobytes(), e.actions.tobytes(), e.rewards.tobytes()) for e in found]


def write_bytes(data: bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(data)


def write_d4rl(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["observations"] = OBSERVATIONS[:5]
        file["next_observations"] = OBSERVATIONS[1:6]
        file["actions"] = np.arange(5)
        file["rewards"] = np.arange(5.0)
        file["terminals"] = np.array([0, 0, 1, 0, 1], bool)
        file["timeouts"] = np.zeros(5, bool)


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("out.json", sample_batch())


def write_minari(path: Path) -> None:
    dataset = write_dataset(path.parent.parent / "made", [episode(number) for number in range(3)])
    arguments = {"dataset_id": "some/thing-v0"}
    export(ExportConfig(format="minari", arguments=arguments), dataset=dataset.location.uri, output=str(path))


SOURCES: dict[str, tuple[str, Callable[[Path], Any], dict[str, Any]]] = {
    "parquet": ("a.parquet", lambda path: write_steps(path, steps()), {}),
    "parquet, a part": (
        "a.parquet",
        lambda path: write_steps(path, steps()),
        {"source": {"where": "eps_id = 'b'", "columns": ["eps_id", "t", "o_t", "a_t", "r_t", "d_t", "o_tp1"]}},
    ),
    "csv": ("a.csv", lambda path: write_steps(path, scalar_steps()), SCALAR),
    "csv, a bad line": (
        "a.csv",
        lambda path: (write_steps(path, scalar_steps()), path.write_bytes(path.read_bytes() + b"1,2,3,4,5,6,7,8,9,10,11,12\n")),
        SCALAR | {"unreadable": "quarantine"},
    ),
    "ndjson": ("a.ndjson", lambda path: write_steps(path, steps()), {}),
    "ipc": ("a.arrow", lambda path: write_steps(path, steps()), {}),
    "npz": ("a.npz", lambda path: write_steps(path, steps()), {}),
    "d4rl": ("a.hdf5", write_d4rl, PLAIN),
    "sample_batch": ("a.json", write_bytes(sample_batch()), PLAIN),
    "sample_batch, packed": ("a.json.gz", write_bytes(gzip.compress(sample_batch(), mtime=0)), PLAIN),
    "sample_batch, zipped": ("a.zip", write_zip, PLAIN),
    "episodes": ("a.parquet", lambda path: write_items(path, [encode(episode(number)) for number in range(3)]), PLAIN),
    "minari": ("minari", write_minari, PLAIN | {"source": {"format": "minari"}}),
}


@pytest.mark.parametrize(
    "kind", slow_but(SOURCES, "parquet, a part", "csv, a bad line", "npz", "sample_batch, zipped", "minari")
)
def test_a_source_in_a_bucket(kind: str, bucket: str, tmp_path: Path) -> None:
    name, make, config = SOURCES[kind]
    (tmp_path / "in").mkdir()
    make(tmp_path / "in" / name)
    upload(tmp_path / "in", Location.of(f"{bucket}/in"))
    path = f"in/{name}/some/thing-v0" if kind == "minari" else "in"
    here = imported(tmp_path, tmp_path / path, **config)
    there = imported_there(bucket, f"{bucket}/{path}", **config)
    assert here.counts == there.counts
    if kind in WITHOUT_IDS:
        assert contents(f"{bucket}/imported") == contents(here.dataset.uri)
    else:
        assert hashes(f"{bucket}/imported") == hashes(here.dataset.uri)


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_scattered_episodes_are_brought_together_in_the_bucket(engine: str, bucket: str, tmp_path: Path) -> None:
    """Through files below the dataset, which are gone afterwards."""
    (tmp_path / "in").mkdir()
    for file, rows in enumerate(([4, 0], [2, 3], [1])):
        write_steps(tmp_path / "in" / f"{file}.parquet", pa.table(steps()).take(rows))
    upload(tmp_path / "in", Location.of(f"{bucket}/in"))
    here = imported(tmp_path, tmp_path / "in", partitions=3)
    there = imported_there(bucket, f"{bucket}/in", partitions=3, engine=engine)
    assert there.counts == here.counts
    assert hashes(f"{bucket}/imported") == hashes(here.dataset.uri)
    assert not [name for name in Location.of(f"{bucket}/imported").files() if ".tmp-" in name or name.endswith(".arrow")]


def test_patterns_and_lists_keep_their_bucket(bucket: str, tmp_path: Path) -> None:
    write_steps(tmp_path / "in" / "2026-01" / "a.csv", scalar_steps())
    write_steps(tmp_path / "in" / "2026-02" / "b.csv", scalar_steps(eps_id=["c", "c", "c", "d", "d"]))
    write_steps(tmp_path / "in" / "2025-12" / "c.csv", scalar_steps(eps_id=["e", "e", "e", "f", "f"]))
    upload(tmp_path / "in", Location.of(f"{bucket}/in"))
    assert imported_there(bucket, f"{bucket}/in/2026-*/*.csv", **SCALAR).counts.episodes == 4
    assert imported_there(bucket, f"{bucket}/in/**/*.csv", **SCALAR).counts.episodes == 6
    listed = [f"{bucket}/in/2026-01", f"{bucket}/in/2025-12/c.csv"]
    assert imported_there(bucket, listed, **SCALAR).counts.episodes == 4
    with pytest.raises(DatasetNotFoundError, match=f"nothing at {bucket}/in/2024-"):
        imported_there(bucket, f"{bucket}/in/2024-*", **SCALAR)
    with pytest.raises(StorageError, match="whole bucket"):
        imported_there(bucket, f"{bucket}*/in.csv", **SCALAR)


def test_the_same_source_is_imported_once(bucket: str, tmp_path: Path) -> None:
    write_steps(tmp_path / "in" / "a.parquet", steps())
    upload(tmp_path / "in", Location.of(f"{bucket}/in"))
    assert not imported_there(bucket, f"{bucket}/in").reused
    assert imported_there(bucket, f"{bucket}/in").reused
    write_steps(tmp_path / "in" / "a.parquet", steps(r_t=[9.0, 1.0, 1.5, 2.0, 2.5], more=[1] * 5))
    upload(tmp_path / "in", Location.of(f"{bucket}/in"))
    assert not imported_there(bucket, f"{bucket}/in").reused


def test_a_damaged_file_is_named_as_it_is_in_the_bucket(bucket: str) -> None:
    for name in ("a.parquet", "b.npz", "c.hdf5", "d.zip"):
        Location.of(f"{bucket}/{name}").write(b"damaged")
        with pytest.raises(CorruptFileError, match=f"^{bucket}/{name}"):
            imported_there(bucket, f"{bucket}/{name}", mapping={})


@pytest.fixture
def ray_there(bucket: str) -> Iterator[None]:
    """A Ray that was started by who may use the bucket."""
    with ray_session():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("ray_there")
def test_ray_data_reads_with_the_same_settings(bucket: str, tmp_path: Path) -> None:
    """With our settings, and not with those that Ray would find for itself."""
    for number in range(2):
        write_steps(tmp_path / "in" / f"{number}.csv", scalar_steps(eps_id=[f"{number}{name}" for name in "aaabb"]))
    upload(tmp_path / "in", Location.of(f"{bucket}/in"))
    packed = Location.of(f"{bucket}/in/0.csv.gz")
    packed.write(gzip.compress((tmp_path / "in" / "0.csv").read_bytes()))
    Location.of(f"{bucket}/in/0.csv").delete()
    found = imported_there(bucket, f"{bucket}/in", source={"format": "read_csv"}, **SCALAR)
    assert found.counts.episodes == 4
    write_steps(tmp_path / "parquet" / "a.parquet", steps())
    upload(tmp_path / "parquet", Location.of(f"{bucket}/parquet"))
    assert imported_there(bucket, f"{bucket}/parquet", source={"format": "read_parquet"}).counts.episodes == 2
    with pytest.raises(ConfigError, match="in different filesystems"):
        imported_there(bucket, [f"{bucket}/in", str(tmp_path / "in")], source={"format": "read_csv"}, **SCALAR)


def test_ray_gets_the_settings_of_a_filesystem_and_no_credentials(
    bucket: str, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers open the filesystem themselves, and read with it what we would."""
    host = s3_endpoint.removeprefix("http://")
    arguments = {"access_key": "key", "secret_key": "${VAULT_SECRET}", "endpoint_override": host, "scheme": "http"}
    vault = {"filesystem": "pyarrow.fs:S3FileSystem", "arguments": arguments, "path": bucket.removeprefix("s3://")}
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", json.dumps({"vault": vault}))
    monkeypatch.setenv("VAULT_SECRET", SETTINGS["AWS_SECRET_ACCESS_KEY"])
    Location.of(f"{bucket}/in/a.csv.gz").write(gzip.compress(b"x"))

    def read_csv(paths: list[str], *, filesystem: pa.fs.FileSystem) -> None:
        sent.append((paths, pickle.dumps(filesystem)))

    sent: list[tuple[list[str], bytes]] = []
    monkeypatch.setattr("ray.data.read_csv", read_csv)
    for uri in (f"{bucket}/in", "vault://in"):
        RayRead("read_csv", (uri,)).dataset()
    for [path], data in sent:
        assert SETTINGS["AWS_SECRET_ACCESS_KEY"].encode() not in data
        opened = pickle.loads(data)
        [found] = opened.get_file_info(pa.fs.FileSelector(path))
        assert opened.open_input_stream(found.path).read() == b"x", "unpacked once"
        assert gzip.decompress(opened.open_input_file(found.path).read()) == b"x"
        assert opened == pickle.loads(data)


@pytest.mark.parametrize(
    ("uri", "format"),
    [
        *((uri, "auto") for uri in ("s3://key:hidden@bucket/f.csv", "s3:/key:hidden@bucket/f.csv", "db://me:hidden@host/x")),
        *(("s3://key:hidden@bucket/f.csv", format) for format in ("csv", "read_csv")),
        ("db://me:hidden@host/x", "tests.data.formats.sources.test_custom:Numbers"),
    ],
)
def test_credentials_in_a_source_are_refused_by_every_reader(uri: str, format: str, tmp_path: Path) -> None:
    config = ImportConfig.model_validate({"source": {"format": format}, "mapping": SEEDS})
    with pytest.raises(LocationError, match="has credentials in it: write it without them") as raised:
        import_data(config, source=["somewhere/else.csv", uri], output=str(tmp_path / "out"))
    assert "hidden" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_names_that_lead_out_of_the_copy_are_refused(
    bucket: str, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write to a bucket could else write to the disks of those who read it."""
    (tmp_path / "temporary" / "files").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary" / "files"))
    for key in ("m/data/metadata.json", "m/data/x/../../../evil.txt"):
        client(s3_endpoint).put_object(Bucket=bucket.removeprefix("s3://"), Key=key, Body=b"{}")
    with pytest.raises(
        StorageError, match=rf"{bucket}/m: .*a name that is no path: rename or delete it .*m/data/x/../../../evil"
    ):
        imported_there(bucket, f"{bucket}/m", mapping={})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
