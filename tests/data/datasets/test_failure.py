"""Why a run failed, as it is kept: whatever the error is, and whatever else lies in the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray.exceptions import RayTaskError

import offline_core as offline
from offline_core.data.datasets.failure import FAILURE_FILE, MOST_LETTERS, error_text, keep_failure, read_failure
from offline_core.data.datasets.manifest import Operation
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError, StorageUnavailableError
from tests.data.datasets.factories import episode, flip_bit, write_dataset

LEARN = Operation(name="train", config={"algorithm": "bc"})


class Mute(Exception):  # noqa: N818 - of a user
    """An error whose text cannot be had."""

    may_pass = "perhaps"

    def __str__(self) -> str:
        raise ZeroDivisionError


def test_an_error_is_kept_with_its_class_and_without_secrets(tmp_path: Path) -> None:
    place = Location.of(str(tmp_path))
    keep_failure(place, StorageUnavailableError("No answer. token=hunter2"), LEARN, [])
    found = read_failure(place)
    assert found is not None and found.sentence == (
        "StorageUnavailableError: No answer. token=*** It may pass if it is run again."
    )
    flip_bit(tmp_path / FAILURE_FILE, 100)
    with pytest.raises(CorruptFileError):
        read_failure(place)


def test_an_error_of_another_process_is_told_and_not_its_traceback() -> None:
    cause = ConfigError("The batch has 3 columns, expected 4.")
    error = RayTaskError("learn", "Traceback of /home/ada\n" * 200, cause)
    assert error_text(error.as_instanceof_cause()) == error_text(error) == f"ConfigError: {cause}"
    assert len(error_text(ValueError("x" * 10_000))) == MOST_LETTERS


def test_an_error_without_a_text_is_no_second_error(tmp_path: Path) -> None:
    keep_failure(Location.of(str(tmp_path)), Mute(), LEARN, [])
    assert not list(tmp_path.iterdir())


def test_what_another_program_calls_a_failure_is_none_and_stays(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", [episode(i) for i in range(3)])
    file = tmp_path / "other" / FAILURE_FILE
    file.parent.mkdir()
    file.write_text('{"mine": 1}')
    assert read_failure(Location.of(str(file.parent))) is None
    assert [each.name for each in offline.list(tmp_path).entries] == ["data@1"]
    assert [each.what for each in offline.verify(tmp_path)] == ["version"]
    keep_failure(Location.of(str(tmp_path / "data" / "..")), ValueError("episode-1"), LEARN, [])
    offline.forget(tmp_path, "eps_id = 'nothing has this'", delete=True)
    assert (tmp_path / FAILURE_FILE).exists()
    [name, *_] = [each.eps_id for each in offline.open_dataset(tmp_path / "data")]
    offline.forget(tmp_path, f"eps_id = '{name}'", delete=True)
    assert file.exists() and not (tmp_path / FAILURE_FILE).exists(), "an error may quote what was read"
