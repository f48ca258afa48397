"""Readers of the user's own: what they have to give, and that their errors name the place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offline_core.errors import ConfigError, CorruptFileError, OfflineError
from tests.data.formats.sources.factories import SEEDS, check_steps, imported, imported_episodes, steps


@dataclass
class Numbers:
    """What somebody else might write: knows places that we do not."""

    uri: str
    factor: int = 1

    def batches(self) -> Iterator[pa.Table]:
        columns = steps()
        yield pa.table(columns | {"r_t": [self.factor * reward for reward in columns["r_t"]]})


def no_reader(path: str) -> str:
    return path


@dataclass
class Lists:
    """Gives lists where tables have to be."""

    uri: str

    def batches(self) -> Iterator[Any]:
        yield [1, 2]


@dataclass
class Failing:
    """Raises what it likes, after a batch."""

    uri: str
    gives_none: bool = False

    def __post_init__(self) -> None:
        if self.uri == "db://nowhere":
            raise ConnectionError("no such database")

    def batches(self) -> Any:
        return None if self.gives_none else self._batches()

    def _batches(self) -> Iterator[pa.Table]:
        yield pa.table(steps())
        raise ValueError("the server is gone")


@pytest.mark.parametrize(
    ("path", "arguments", "error", "message"),
    [
        ("db://x", {}, CorruptFileError, r"Failing cannot read db://x: ValueError\('the server is gone'\)"),
        ("db://x", {"gives_none": True}, CorruptFileError, r"Failing cannot read db://x: TypeError"),
        (
            "db://nowhere",
            {},
            ConfigError,
            r"of db://nowhere cannot be made with no arguments: ConnectionError\('no",
        ),
    ],
)
def test_errors_of_a_reader_of_ones_own(
    tmp_path: Path, path: str, arguments: dict[str, Any], error: type[OfflineError], message: str
) -> None:
    source = {"format": "tests.data.formats.sources.test_custom:Failing", "arguments": arguments}
    with pytest.raises(error, match=message):
        imported(tmp_path, path, source=source)
    if path == "db://x" and not arguments:
        assert imported(tmp_path, path, source=source, unreadable="quarantine").counts.steps == 5


def test_a_reader_of_ones_own(tmp_path: Path) -> None:
    here = "tests.data.formats.sources.test_custom"
    check_steps(imported_episodes(tmp_path, "db://somewhere/7", source={"format": f"{here}:Numbers"}))
    source = {"format": f"{here}:Numbers", "arguments": {"factor": 2}}
    doubled = imported_episodes(tmp_path, ["db://somewhere/7"], source=source, mapping=SEEDS)
    assert doubled[0].rewards.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("no_reader", {}, "gives str, which has no uri and batches"),
        ("Missing", {}, "The reader .*:Missing' cannot be imported: AttributeError"),
        ("Numbers", {"size": 3}, ":Numbers of db://x cannot be made with size: .*size"),
        ("Lists", {}, "The reader of db://x gives list and not pyarrow tables"),
    ],
)
def test_a_reader_that_is_none(tmp_path: Path, name: str, arguments: dict[str, Any], message: str) -> None:
    source = {"format": f"tests.data.formats.sources.test_custom:{name}", "arguments": arguments}
    with pytest.raises(ConfigError, match=message):
        imported(tmp_path, "db://x", source=source)
