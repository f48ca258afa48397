"""Tags: each move is an entry in a log, and tags that earlier versions wrote are read."""

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


def stored_by_an_earlier_version(data: Path, **tags: object) -> None:
    (data / "_versions" / "tags").mkdir(exist_ok=True)
    for name, version in tags.items():
        (data / "_versions" / "tags" / name).write_text(f"{version}\n")


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


def test_tags_of_earlier_versions_are_read_and_become_entries_at_the_next_move(data: Path) -> None:
    stored_by_an_earlier_version(data, good=1, audited=2)
    place = Location.of(str(data))
    assert read_tags(place) == {"audited": 2, "good": 1} and tag_moves(place) == []
    assert offline.open_dataset(f"{data}@good").ref.version == 1
    offline.tag(data, "good", version=2)
    assert [(each.tag, each.previous, each.version) for each in tag_moves(place)] == [("good", 1, 2)]
    assert read_tags(place) == {"audited": 2, "good": 2}
    assert sorted(path.name for path in (data / "_versions" / "tags").iterdir()) == [".last-000001", "000001.json"]


def test_a_tag_of_an_earlier_version_may_look_like_a_mark_of_a_log(data: Path) -> None:
    """Logs mark numbers as used by files of such names."""
    stored_by_an_earlier_version(data, **{"last-2024": 1, "good": 2})
    place = Location.of(str(data))
    assert resolve(place, "last-2024") == 1
    write_tag(place, "good", 1)
    assert read_tags(place) == {"good": 1, "last-2024": 1}


def test_a_tag_of_an_earlier_version_is_removed(data: Path) -> None:
    stored_by_an_earlier_version(data, good=1)
    offline.tag(data, "good", remove=True)
    assert read_tags(Location.of(str(data))) == {}


@pytest.mark.parametrize("text", ["9" * 5000, "two", "", "-1", "1" * 2_000_000])
def test_a_file_that_holds_no_number_is_named(data: Path, text: str) -> None:
    stored_by_an_earlier_version(data, good=text)
    with pytest.raises(CorruptFileError, match=r"tags/good does not hold the number of a version"):
        read_tags(Location.of(str(data)))


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
