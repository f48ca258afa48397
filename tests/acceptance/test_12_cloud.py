"""Point 12: the cloud; a real S3 server on the loopback."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from offline_core.data.curation.converting import convert
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.importing.config import ConversionConfig
from offline_core.data.store.location import Location
from offline_core.policies.checkpoint import load_policy
from tests.acceptance.forms import by_id, observations, run_import, run_train, weights
from tests.data.formats.sources.factories import SEEDS, steps, write_steps
from tests.object_storage.conftest import SETTINGS


@pytest.mark.slow  # tests/object_storage/test_imports.py imports from and to a bucket
def test_12_s3_is_imported_from_and_to(bucket: str, tmp_path: Path) -> None:
    """A pattern in a bucket; the folder that is written to does not exist before."""
    write_steps(tmp_path / "x.parquet", steps())
    Location.of(f"{bucket}/in/x.parquet").write((tmp_path / "x.parquet").read_bytes())
    result, found = run_import(f"{bucket}/in/*.parquet", f"{bucket}/deep/down/out", mapping=SEEDS)
    assert result.dataset.uri == f"{bucket}/deep/down/out" and found.keys() == {"a", "b"}
    [file] = open_dataset(result.dataset.uri).manifest.files
    data = Location.of(f"{bucket}/deep/down/out/{file.path}").read()
    assert pq.read_table(io.BytesIO(data)).num_rows == file.rows == 2


@pytest.mark.slow
def test_12_s3_is_trained_from_and_to_and_streamed(bucket: str, recording: str, tmp_path: Path) -> None:
    """The same policy as from disk, whether it is kept or streamed."""
    there = convert(ConversionConfig(format="table"), dataset=recording, output=f"{bucket}/table").dataset.uri
    assert by_id(there) == by_id(recording)
    for data in ({}, {"resident_bytes": 0, "window_steps": 100}):
        result = run_train(there, f"{bucket}/policy", data=data)
        here = convert(ConversionConfig(format="table"), dataset=recording, output=str(tmp_path / "table")).dataset.uri
        assert result.checkpoint.startswith(f"{bucket}/policy")
        assert weights(result) == weights(run_train(here, tmp_path / str(len(data)), data=data))
        assert load_policy(result.checkpoint).act(observations(recording)).shape == (result.dataset.steps,)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pyarrow.fs:S3FileSystem", "pyarrow.fs:LocalFileSystem"])
def test_12_any_filesystem_of_pyarrow_with_its_arguments(
    bucket: str, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Named once for the installation, with a relative path in it, for reading and for writing."""
    monkeypatch.setenv("LAKE_SECRET", SETTINGS["AWS_SECRET_ACCESS_KEY"])
    of_s3 = {"endpoint_override": s3_endpoint, "region": "us-east-1", "access_key": "key", "secret_key": "${LAKE_SECRET}"}
    arguments = of_s3 if "S3" in kind else {"use_mmap": True}
    path = bucket.removeprefix("s3://") if "S3" in kind else str(tmp_path / "lake")
    lake = {"filesystem": kind, "arguments": arguments, "path": path, "one_writer": True}
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", json.dumps({"lake": lake}))
    write_steps(tmp_path / "x.parquet", steps())
    Location.of("lake://in/x.parquet").write((tmp_path / "x.parquet").read_bytes())
    result, found = run_import("lake://in", "lake://out", mapping=SEEDS)
    assert result.dataset.uri == "lake://out" and found.keys() == {"a", "b"}
    place = f"{bucket}/out" if "S3" in kind else str(tmp_path / "lake" / "out")
    assert by_id(place) == found
