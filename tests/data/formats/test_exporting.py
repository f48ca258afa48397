"""Exports, done again, elsewhere, of something else, by two at once, and after a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.formats.exporting import ExportConfig, ExportResult, export
from offline_core.data.formats.exports import folder
from offline_core.data.store.location import Location
from offline_core.data.store.partial_files import MIN_AGE_DAYS
from offline_core.data.store.temporary_names import TEMPORARY
from offline_core.errors import BusyError, ConfigError, StorageError
from offline_core.runtime.config import parse
from tests.cases import slow_but
from tests.data.datasets.factories import episode, found, write_dataset

FOLDERS = {"minari": "out/offline/dataset-v0", "lerobot": "out", "sample_batch": "out", "d4rl": "out"}
"""What appears as a whole, in each format."""


@pytest.fixture(params=["minari", "lerobot"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def exported(root: Path, format: str, *, version: int | None = None, **more: Any) -> ExportResult:
    config = ExportConfig(format=format, **more)
    return export(config, dataset=str(root / "data"), version=version, output=str(root / "out"))


def two_versions(root: Path) -> None:
    write_dataset(root / "data", [episode(0), episode(1)])
    write_dataset(root / "data", [episode(2), episode(3), episode(4)])


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in found(folder)}


def temporary(root: Path) -> list[str]:
    return [path.name for path in root.rglob(f"{TEMPORARY}*")]


# ---- Again -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FOLDERS)
def test_an_export_says_how_it_was_made_and_is_found(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever name its place has; a card beside it, or notes, do no harm."""
    two_versions(tmp_path)
    monkeypatch.chdir(tmp_path)
    first = export(ExportConfig(format=format), dataset="data", output="out")
    assert (first.output, first.episodes, first.steps, first.reused) == (str(tmp_path / "out"), 3, 21, False)
    (tmp_path / FOLDERS[format] / "card.md").write_text("# Card")
    (tmp_path / FOLDERS[format] / "notes.txt").write_text("mine")
    before = content(tmp_path / "out")
    monkeypatch.chdir("/")
    assert exported(tmp_path, format) == first.model_copy(update={"reused": True})
    assert content(tmp_path / "out") == before and temporary(tmp_path) == []


def test_another_version_takes_the_place_and_gives_it_back(tmp_path: Path, format: str) -> None:
    two_versions(tmp_path)
    shown = []
    for version in (1, 2, 1):
        result = exported(tmp_path, format, version=version)
        (tmp_path / FOLDERS[format] / "card.md").write_text("# Card")
        shown.append((result.reused, result.source.version, result.episodes))
        kept = json.loads((tmp_path / FOLDERS[format] / "result.json").read_text())
        assert kept["result"]["episodes"] == result.episodes
        assert exported(tmp_path, format, version=version).reused
    assert shown == [(False, 1, 2), (False, 2, 3), (False, 1, 2)]
    assert temporary(tmp_path) == []


def test_other_parameters_take_the_place(tmp_path: Path) -> None:
    two_versions(tmp_path)
    exported(tmp_path, "lerobot", arguments={"fps": 5})
    assert not exported(tmp_path, "lerobot", arguments={"fps": 7}).reused
    assert json.loads((tmp_path / "out/meta/info.json").read_text())["fps"] == 7


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-1])])
def test_a_damaged_export_is_made_again(tmp_path: Path, format: str, damage: Callable[[Path], object]) -> None:
    two_versions(tmp_path)
    first = exported(tmp_path, format)
    files = [path for path in (tmp_path / FOLDERS[format]).rglob("*") if path.is_file() and path.name != "result.json"]
    assert files
    for file in files:
        size = file.stat().st_size
        damage(file)
        assert exported(tmp_path, format) == first
        assert file.stat().st_size == size
        assert exported(tmp_path, format).reused


def test_two_minari_datasets_lie_side_by_side(tmp_path: Path) -> None:
    two_versions(tmp_path)
    for name in ("push-v0", "robot/pick-v1"):
        assert not exported(tmp_path, "minari", arguments={"dataset_id": name}).reused
    assert all(exported(tmp_path, "minari", arguments={"dataset_id": name}).reused for name in ("push-v0", "robot/pick-v1"))


def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    two_versions(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere/out")
    for version in (1, 2):
        exported(tmp_path, "lerobot", version=version)
        assert exported(tmp_path, "lerobot", version=version).reused
    assert (tmp_path / "out").is_symlink() and os.listdir(tmp_path / "elsewhere") == ["out"]
    assert json.loads((tmp_path / "elsewhere/out/meta/info.json").read_text())["total_episodes"] == 3


def test_a_copy_is_no_export_of_its_own_but_may_be_replaced(tmp_path: Path) -> None:
    two_versions(tmp_path)
    exported(tmp_path, "lerobot", version=1)
    shutil.move(tmp_path / "out", tmp_path / "moved")
    config = ExportConfig(format="lerobot")
    result = export(config, dataset=str(tmp_path / "data"), version=1, output=str(tmp_path / "moved"))
    assert (result.reused, result.output) == (False, str(tmp_path / "moved"))


# ---- What is not ours ------------------------------------------------------------------------------------------------


def test_what_no_export_wrote_stays(tmp_path: Path, format: str) -> None:
    two_versions(tmp_path)
    exported(tmp_path, format, version=1)
    place = tmp_path / FOLDERS[format]
    (place / "notes.txt").write_text("mine")
    before = content(tmp_path / "out")
    message = rf"{place} exists already and is not overwritten: it holds notes\.txt, which the export did not write\."
    with pytest.raises(StorageError, match=message):
        exported(tmp_path, format, version=2)
    assert content(tmp_path / "out") == before
    (place / "notes.txt").unlink()
    assert exported(tmp_path, format, version=2).episodes == 3


@pytest.mark.parametrize("record", [None, "", "[]", '{"made": 3}', '{"identity": "x", "result": {}}'])
def test_a_folder_that_does_not_say_that_it_is_an_export_stays(tmp_path: Path, record: str | None) -> None:
    two_versions(tmp_path)
    place = tmp_path / FOLDERS["minari"]
    place.mkdir(parents=True)
    if record is not None:
        (place / "result.json").write_text(record)
    with pytest.raises(StorageError, match=rf"{place} exists already .* it is not an export of a dataset\."):
        exported(tmp_path, "minari")
    assert place.is_dir() and temporary(tmp_path) == []


def test_a_dataset_or_a_file_is_not_taken_for_an_export(tmp_path: Path) -> None:
    two_versions(tmp_path)
    config = ExportConfig(format="lerobot")
    (tmp_path / "file").write_text("mine")
    for name in ("data", "file"):
        with pytest.raises(StorageError, match=f"{name} exists already"):
            export(config, dataset=str(tmp_path / "data"), output=str(tmp_path / name))
    assert open_dataset(str(tmp_path / "data")).ref.version == 2 and (tmp_path / "file").read_text() == "mine"


# ---- Two at once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("format", "older"), [("minari", True), ("lerobot", False), ("sample_batch", True), ("d4rl", False)])
def test_who_comes_second_is_busy_and_finds_it_when_run_again(
    tmp_path: Path, format: str, older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_versions(tmp_path)
    if older:
        exported(tmp_path, format, version=1)
    real = Dataset.row_groups
    first: list[ExportResult] = []

    def meanwhile(source: Dataset) -> Iterator[Any]:
        monkeypatch.setattr(Dataset, "row_groups", real)
        first.append(exported(tmp_path, format, version=2))
        yield from real(source)

    monkeypatch.setattr(Dataset, "row_groups", meanwhile)
    with pytest.raises(BusyError, match=rf"Another run replaced {tmp_path / FOLDERS[format]} .* Run again") as caught:
        exported(tmp_path, format, version=2)
    assert caught.value.may_pass and temporary(tmp_path) == []
    assert exported(tmp_path, format, version=2) == first[0].model_copy(update={"reused": True})


@pytest.mark.parametrize("older", [False, True])
def test_two_that_end_in_the_same_moment(tmp_path: Path, older: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other folder is there between the last look and the renaming."""
    two_versions(tmp_path)
    if older:
        exported(tmp_path, "lerobot", version=1)
    real = os.rename
    first: list[ExportResult] = []

    def meanwhile(source: str, target: str) -> None:
        if target == str(tmp_path / "out"):
            monkeypatch.setattr(folder.os, "rename", real)
            first.append(exported(tmp_path, "lerobot", version=2))
        real(source, target)

    monkeypatch.setattr(folder.os, "rename", meanwhile)
    with pytest.raises(BusyError, match="Another run replaced"):
        exported(tmp_path, "lerobot", version=2)
    assert exported(tmp_path, "lerobot", version=2) == first[0].model_copy(update={"reused": True})
    assert temporary(tmp_path) == []


def test_one_that_is_replaced_while_another_looks_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is away for a moment, which does not make it somebody else's."""
    two_versions(tmp_path)
    exported(tmp_path, "lerobot", version=1)
    real = folder.strange_files

    def meanwhile(place: Location) -> list[str] | None:
        os.rename(tmp_path / "out", tmp_path / "aside")
        return real(place)

    monkeypatch.setattr(folder, "strange_files", meanwhile)
    with pytest.raises(BusyError, match="Another run replaced"):
        exported(tmp_path, "lerobot", version=2)


def test_the_older_one_is_back_if_the_new_one_cannot_take_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_versions(tmp_path)
    exported(tmp_path, "lerobot", version=1)
    before = content(tmp_path / "out")
    real = os.rename

    def broken(source: str, target: str) -> None:
        if target == str(tmp_path / "out"):
            monkeypatch.setattr(folder.os, "rename", real)
            raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(folder.os, "rename", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        exported(tmp_path, "lerobot", version=2)
    assert content(tmp_path / "out") == before and temporary(tmp_path) == []


# ---- Killed ----------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from offline_core.data.formats.exporting import ExportConfig, export
real, left = os.rename, int(sys.argv[3])
def killed(*arguments):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*arguments)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
os.rename = killed
export(ExportConfig(format="lerobot"), dataset=sys.argv[1], output=sys.argv[2])
"""


@pytest.mark.parametrize(("older", "renamed"), slow_but([(False, 0), (True, 1), (True, 2)], (True, 1)))
def test_killed_around_a_renaming(tmp_path: Path, older: bool, renamed: int) -> None:
    """Whole or not there, and the next run ends with what an undisturbed one makes: found if it was there already."""
    two_versions(tmp_path)
    if older:
        exported(tmp_path, "lerobot", version=1)
        for path in (tmp_path / "out", *(tmp_path / "out").rglob("*")):
            os.utime(path, (0, 0))
    arguments = [tmp_path / "data", tmp_path / "out", str(renamed)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], capture_output=True, cwd=Path(__file__).parents[3], check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    left = temporary(tmp_path)
    assert left, "killed while it was at work"
    assert exported(tmp_path, "lerobot").reused == (renamed == 1 + older)
    assert len(temporary(tmp_path)) == older and {*temporary(tmp_path)} <= {*left}, "the older one stays a week from now"
    data = str(tmp_path / "data")
    export(ExportConfig(format="lerobot"), dataset=data, output=str(tmp_path / "undisturbed"))
    made, expected = content(tmp_path / "out"), content(tmp_path / "undisturbed")
    del made["result.json"], expected["result.json"]
    assert made == expected


def test_what_killed_exports_left_goes_after_a_week(tmp_path: Path, format: str) -> None:
    two_versions(tmp_path)
    place = (tmp_path / FOLDERS[format]).parent
    for letter in "ab":
        (place / f"{TEMPORARY}{letter * 32}").mkdir(parents=True)
    os.utime(place / f"{TEMPORARY}{'a' * 32}", (0, 0))
    exported(tmp_path, format)
    assert temporary(tmp_path) == [f"{TEMPORARY}{'b' * 32}"] and MIN_AGE_DAYS == 7


# ---- Writers of the user's own ---------------------------------------------------------------------------------------


class Lines:
    """A line an episode, appended to what is there."""

    def __init__(self, output: str, *, suffix: object = "") -> None:
        self.path = Path(f"{output}{suffix}")

    def __enter__(self) -> Lines:
        self._file = self.path.open("a")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, episodes: Sequence[Episode]) -> None:
        self._file.writelines(f"{one.eps_id}\n" for one in episodes)


def test_a_writer_of_the_users_own_is_called_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_versions(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = ExportConfig(format=f"{__name__}:Lines", arguments={"suffix": ".txt"})
    for times in (1, 2):
        result = export(config, dataset="data", output="out")
        assert (result.reused, result.output, result.episodes) == (False, str(tmp_path / "out"), 3)
        assert (tmp_path / "out.txt").read_text().split() == [f"episode-{i:04}" for i in (2, 3, 4)] * times
    with pytest.raises(ConfigError, match="cannot be made"):
        exported(tmp_path, f"{__name__}:Lines", arguments={"wrong": 1})


def test_a_writer_and_its_arguments_are_given_as_python_objects(tmp_path: Path) -> None:
    """A class that no other process could import, and a path; forms refuse the text that stands for the class."""

    class Local(Lines):
        pass

    two_versions(tmp_path)
    config = ExportConfig(format=Local, arguments={"suffix": PurePosixPath(".txt")})
    result = export(config, dataset=str(tmp_path / "data"), output=str(tmp_path / "out"))
    assert (tmp_path / "out.txt").read_text().split() == [f"episode-{i:04}" for i in (2, 3, 4)]
    assert result.format.startswith(f"python:{__name__}:") and "Local" in result.format
    with pytest.raises(ConfigError, match="stands for an object of another Python process"):
        parse(ExportConfig, {"format": result.format})
