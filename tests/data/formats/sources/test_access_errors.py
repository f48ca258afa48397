"""Errors of other people's readers: damage can be listed and left out, a place that is out of reach cannot."""

from __future__ import annotations

import errno
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from offline_core.data.formats.sources.opening import CustomReader
from offline_core.data.formats.sources.ray_reads import RayRead
from offline_core.errors import CorruptFileError, OfflineError, StorageError, StorageUnavailableError
from tests.data.formats.sources.factories import imported, steps


class ClientError(Exception):
    """As a client of HTTP has its own."""


def wrapped(error: Exception, *, as_cause: bool = False) -> Exception:
    """Raised while another one was handled, as clients of HTTP do with what the network says."""
    try:
        try:
            raise error
        except OSError as inner:
            if as_cause:
                raise ClientError("no answer") from inner
            raise ClientError("no answer")  # noqa: B904
    except ClientError as outer:
        return outer


ERRORS: dict[str, tuple[Exception, type[OfflineError]]] = {
    "refused": (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), StorageUnavailableError),
    "no answer": (TimeoutError("timed out"), StorageUnavailableError),
    "disk": (OSError(errno.EIO, "Input/output error"), StorageUnavailableError),
    "wrapped": (wrapped(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")), StorageUnavailableError),
    "S3": (
        OSError(
            "When reading information for key 'x' in bucket 'b': AWS Error SLOW_DOWN (HTTP status 503) during HeadObject "
            "operation: No response body."
        ),
        StorageUnavailableError,
    ),
    "no permission": (PermissionError(errno.EACCES, "Permission denied"), StorageError),
    "missed on the way": (wrapped(FileNotFoundError(errno.ENOENT, "No such file or directory")), CorruptFileError),
    "missed by its cause": (wrapped(FileNotFoundError(errno.ENOENT, "No such file"), as_cause=True), CorruptFileError),
    "damaged": (gzip.BadGzipFile("Not a gzipped file (b'xx')"), CorruptFileError),
    "decoder": (OSError("Corrupt snappy compressed data."), CorruptFileError),
}


@dataclass
class Failing:
    """A reader of the user's own, after a batch."""

    uri: str

    def batches(self) -> Iterator[pa.Table]:
        yield pa.table(steps())
        raise ERRORS[self.uri.removeprefix("db://")][0]


@pytest.mark.parametrize("name", ERRORS)
def test_a_reader_of_ones_own(name: str) -> None:
    reader = CustomReader("some:Reader", Failing(f"db://{name}"))
    with pytest.raises(ERRORS[name][1], match=f"db://{name}") as raised:
        list(reader.batches())
    assert type(raised.value) is ERRORS[name][1]


@pytest.mark.parametrize("name", ["refused", "S3", "no permission", "decoder"])
def test_ray_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(paths: object) -> None:
        raise ERRORS[name][0]

    monkeypatch.setattr("ray.data.read_csv", fails)
    with pytest.raises(ERRORS[name][1]) as raised:
        list(RayRead("read_csv", ("x",)).batches())
    assert type(raised.value) is ERRORS[name][1]


def test_what_is_out_of_reach_is_not_quarantined(tmp_path: Path) -> None:
    source = {"format": f"{__name__}:Failing"}
    with pytest.raises(StorageUnavailableError):
        imported(tmp_path, "db://no answer", source=source, unreadable="quarantine")
    assert imported(tmp_path, "db://damaged", source=source, unreadable="quarantine").counts.quarantined_files == 1
