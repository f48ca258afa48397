"""Writers of the user's own: their errors name them, and none is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.episodes import Episode
from offline_core.data.formats.exporting import ExportConfig, export
from offline_core.errors import ConfigError, OfflineError, SpaceError, StorageError
from tests.data.datasets.factories import episode, write_dataset


class Writer:
    """Fails where it is told to, and says that it does not mind."""

    def __init__(self, output: str, *, fails: str = "") -> None:
        self.fails = fails
        self._fail("made")

    def __enter__(self) -> Writer:
        self._fail("enter")
        return self

    def __exit__(self, *_: object) -> bool:
        self._fail("exit")
        return True

    def write(self, episodes: Sequence[Episode]) -> None:
        if self.fails == "ours":
            raise SpaceError("Not into this format.")
        self._fail("write")

    def _fail(self, where: str) -> None:
        if self.fails == where:
            raise OSError("full")


def no_writer(output: str) -> str:
    return output


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        (
            "Writer",
            {"fails": "made"},
            ConfigError,
            r"writer .*:Writer cannot be made with fails: OSError\('full'\)",
        ),
        (
            "Writer",
            {"fails": "enter"},
            StorageError,
            r"The writer .*:Writer failed at /.*/out: OSError\('full'\) \(.*line \d+\). Fix your function",
        ),
        (
            "Writer",
            {"fails": "write"},
            StorageError,
            r"The writer .*:Writer failed at /.*/out: OSError\('full'\) \(.*line \d+\). Fix your function",
        ),
        (
            "Writer",
            {"fails": "exit"},
            StorageError,
            r"The writer .*:Writer failed at /.*/out: OSError\('full'\) \(.*line \d+\). Fix your function",
        ),
        ("Writer", {"fails": "ours"}, SpaceError, r"^Not into this format\.$"),
        ("Writer", {"wrong": 1}, ConfigError, "writer .*:Writer cannot be made with wrong: TypeError"),
        ("no_writer", {}, ConfigError, "no_writer gives str, which is not a context manager"),
        ("Missing", {}, ConfigError, "The writer '.*:Missing' cannot be imported"),
    ],
)
def test_errors_name_the_writer(
    tmp_path: Path, name: str, arguments: dict[str, Any], error: type[OfflineError], message: str
) -> None:
    write_dataset(tmp_path / "in", [episode(0)])
    config = ExportConfig(format=f"{__name__}:{name}", arguments=arguments)
    with pytest.raises(error, match=message):
        export(config, dataset=f"{tmp_path}/in", output=f"{tmp_path}/out")
