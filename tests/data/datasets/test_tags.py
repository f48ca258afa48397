"""Tags: each move is an entry in a log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

import offline_core as offline
from flows.cli import app
from offline_core.data.datasets.tags import read_tags, remove_tag, resolve, tag_moves, write_tag
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError, VersionNotFoundError
from tests.data.datasets.factories import episode, flip_bit, write_dataset


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two versions."""
    for count in (1, 2):
        write_dataset(tmp_path / "data", [episode(i) for i in range(count)])
    return tmp_path / "data"


def test_a_move_says_who_moved_what_from_where(data: Path) -> None:
    place = Location.of(str(data))
    write_tag(place, "good", 1)
    write_tag(place, "audited", 1)
    write_tag(place, "good", 2)
    write_tag(place, "good", 2)
    remove_tag(place, "audited")
    moves = tag_moves(place)
    assert [(each.tag, each.previous, each.version) for each in moves] == [
        ("good", None, 1),
        ("audited", None, 1),
        ("good", 1, 2),
        ("audited", 1, None),
    ]
    assert all("@" in each.moved_by for each in moves)
    assert read_tags(place) == {"good": 2} and resolve(place, "good") == 2
    with pytest.raises(VersionNotFoundError, match="has no tag 'audited'; it has good"):
        resolve(place, "audited")


def test_a_tag_that_another_version_of_this_package_wrote_is_named(data: Path) -> None:
    (data / "_versions" / "tags").mkdir()
    (data / "_versions" / "tags" / "good").write_text("1\n")
    for do in (lambda: offline.open_dataset(f"{data}@good"), lambda: offline.tag(data, "other", version=1)):
        with pytest.raises(CorruptFileError, match=r"tags/good is a tag as another version of this package wrote it\. Delete"):
            do()


def test_a_number_that_no_version_has_is_refused(data: Path) -> None:
    with pytest.raises(ConfigError, match="is no tag"):
        resolve(Location.of(str(data)), "9" * 5000)


def test_a_flipped_bit_of_a_move_is_found(data: Path) -> None:
    offline.tag(data, "good", version=1)
    file = data / "_versions" / "tags" / "000001.json"
    flip_bit(file, 8 * (file.read_bytes().index(b'"good": 1') + 8))
    with pytest.raises(CorruptFileError, match=r"000001\.json is not what was written"):
        offline.open_dataset(f"{data}@good")


def test_moves_at_the_same_time_are_all_kept(data: Path) -> None:
    place = Location.of(str(data))
    names = [f"tag-{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: write_tag(place, name, 1), names))
    assert read_tags(place) == dict.fromkeys(names, 1) and len(tag_moves(place)) == 8


def test_a_version_is_inspected_by_its_tag(data: Path) -> None:
    offline.tag(data, "first", version=1)
    shown = CliRunner().invoke(app, ["inspect", f"{data}@first"])
    assert shown.exit_code == 0, shown.output
    assert "1, 2" in shown.stdout and "version 1, fingerprint" in shown.stdout
