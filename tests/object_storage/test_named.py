"""Filesystems that the installation names, over the wire: for reading and for writing, here and in Ray's actors."""

from __future__ import annotations

import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.store.location import Location
from offline_core.errors import StorageError
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.record import record
from tests.object_storage.conftest import SETTINGS
from tests.object_storage.contract import write_dataset
from tests.object_storage.emulators import defined

SECRET = SETTINGS["AWS_SECRET_ACCESS_KEY"]
SMALL = RecordingConfig(episodes=4, num_recorders=1, cpus_per_recorder=0.5, envs_per_recorder=2)


@pytest.fixture
def lake(bucket: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """`lake://` is a folder of the bucket by PyArrow's own filesystem, and `minio://` the same one by ours."""
    arguments = {
        "endpoint_override": s3_endpoint,
        "region": SETTINGS["AWS_REGION"],
        "access_key": "${LAKE_KEY}",
        "secret_key": "${LAKE_SECRET}",
    }
    monkeypatch.setenv("LAKE_KEY", SETTINGS["AWS_ACCESS_KEY_ID"])
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    path = f"{bucket.removeprefix('s3://')}/rl"
    defined(
        monkeypatch,
        lake={"filesystem": "pyarrow.fs:S3FileSystem", "arguments": arguments, "path": path, "one_writer": True},
        shared={"filesystem": "pyarrow.fs:S3FileSystem", "arguments": arguments, "path": path},
        minio={"filesystem": "s3", "arguments": {"endpoint": s3_endpoint, "path_style": True}, "path": path},
    )
    return bucket


def test_what_one_name_writes_the_others_read(lake: str) -> None:
    made = write_dataset("lake://made")
    assert made.location.uri == "lake://made"
    for uri in ("lake://made", "minio://made", f"{lake}/rl/made"):
        assert open_dataset(uri).ref.fingerprint == made.ref.fingerprint
        assert len(list(open_dataset(uri).episodes())) == 6
    assert SECRET.encode() not in Location.of("minio://made/_versions/000001.json").read()
    written = set(Location.of(f"{lake}/rl").files())
    assert written == {f"made/{name}" for name in (file.path for file in made.manifest.files)} | {
        "made/_versions/.folder",
        "made/_versions/000001.json",
        "made/_versions/last-000001",
    }


def test_reading_needs_no_promise(lake: str) -> None:
    """That there is one writer; writing a version does."""
    write_dataset("minio://made")
    assert len(list(open_dataset("shared://made").episodes())) == 6
    with pytest.raises(StorageError, match="set one_writer"):
        write_dataset("shared://made", 7)


@pytest.mark.slow
def test_actors_record_through_it(lake: str, cartpole_policy: str, capfd: pytest.CaptureFixture[str]) -> None:
    """With the variables that are set when Ray starts."""
    result = record(SMALL, policy=cartpole_policy, output="lake://recorded")
    assert len(list(open_dataset("minio://recorded").episodes())) == result.dataset.episodes == 4
    assert SECRET not in "".join(capfd.readouterr()) + result.model_dump_json()
