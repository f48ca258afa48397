"""Errors of reading, wherever it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from offline_core.errors import CorruptFileError, SchemaError, StorageUnavailableError
from offline_core.runtime.engine import ray_errors
from tests.data.datasets.factories import episode, write_dataset


def test_the_damaged_file_is_named(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", [episode(0)])
    [file] = (tmp_path / "data").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(CorruptFileError, match=file.name), dataset.reading():
        raise OSError("Couldn't deserialize thrift")


def test_a_store_that_answers_again_was_to_blame_all_the_same(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", [episode(0)])
    said = "When reading 'x': AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate."
    with (
        pytest.raises(StorageUnavailableError, match=rf"Cannot read {dataset.location.uri} now: .*SlowDown"),
        dataset.reading(),
    ):
        raise OSError(said)


def test_what_has_another_cause_is_left_as_it_is(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", [episode(0)])
    with pytest.raises(OSError, match="unheard of"), dataset.reading():
        raise OSError("unheard of")


def test_an_error_that_ray_wraps_keeps_what_it_carries() -> None:
    import ray.exceptions

    advice = "the message\nFailed to do more: retry"
    cause = SchemaError(advice, uri="s3://b/file", episode="e", column="obs", step=3)
    with pytest.raises(SchemaError, match=r"^the message$") as raised, ray_errors():
        raise ray.exceptions.RayTaskError("f", "traceback", cause)
    assert vars(raised.value) == vars(cause)
