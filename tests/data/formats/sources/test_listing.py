"""What lies where, asked once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyarrow import fs

from offline_core.data.formats.sources.listing import Listing
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError


def touch(folder: Path, *names: str) -> Location:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    return Location.of(str(folder))


def matches(folder: Location, pattern: str) -> list[str]:
    return sorted(os.path.relpath(place.path, folder.path) for place in Listing().matches(folder, pattern.split("/")))


def test_what_was_listed_is_not_asked_for(tmp_path: Path) -> None:
    """And so stays as it was."""
    folder, listing = touch(tmp_path, "b/c.csv", "a.csv"), Listing()
    assert list(listing.below(folder)) == ["a.csv", "b", "b/c.csv"]
    (tmp_path / "a.csv").unlink()
    touch(tmp_path, "d.csv")
    assert list(listing.below(folder)) == ["a.csv", "b", "b/c.csv"]
    assert listing.is_file(folder.child("a.csv")) and listing.is_folder(folder.child("b"))
    assert list(Listing().below(folder)) == ["b", "b/c.csv", "d.csv"]


def test_what_is_not_there(tmp_path: Path) -> None:
    nowhere, listing = Location.of(str(tmp_path / "nowhere")), Listing()
    assert listing.below(nowhere) == {}
    assert listing.info(nowhere).type == fs.FileType.NotFound
    assert not listing.is_file(nowhere) and not listing.is_folder(nowhere)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a", "b.csv", "x1"]),
        ("*.csv", ["b.csv"]),
        ("*/c.csv", ["a/c.csv", "x1/c.csv"]),
        ("[!x]*/*.csv", ["a/c.csv"]),
        ("x?/d/*", ["x1/d/e.csv"]),
        ("*/d/e.csv", ["x1/d/e.csv"]),
        ("**/c.csv", ["a/c.csv", "x1/c.csv"]),
        ("**/*.csv", ["a/c.csv", "b.csv", "x1/c.csv", "x1/d/e.csv"]),
        ("x1/**", ["x1/c.csv", "x1/d", "x1/d/e.csv"]),
        ("*/**/e.csv", ["x1/d/e.csv"]),
        ("*/*/*/*", []),
        ("b*/*", []),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    folder = touch(tmp_path, "a/c.csv", "b.csv", "x1/c.csv", "x1/d/e.csv")
    assert matches(folder, pattern) == expected


def test_folders_that_no_part_names_are_not_looked_into(tmp_path: Path) -> None:
    folder, listing = touch(tmp_path, "run-1/a.csv", "other/deep/b.csv"), Listing()
    list(listing.matches(folder, ["run-*", "*.csv"]))
    assert {uri for uri, _ in listing._below} == {folder.uri, folder.child("run-1").uri}


def test_any_depth_is_a_part_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'a\*\*': \*\* must be a whole part of a pattern"):
        matches(touch(tmp_path, "a.csv"), "a**/b.csv")
