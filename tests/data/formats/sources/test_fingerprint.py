"""What identifies a source: it changes when files do, and is had without reading them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offline_core.data.formats.sources.fingerprint import files_of, fingerprint
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.ray_reads import RayRead
from offline_core.data.formats.sources.readers import FileReader
from offline_core.data.store.location import Location
from tests.data.formats.sources.factories import scalar_steps, write_steps


def of(folder: Path) -> str:
    return fingerprint(open_source([str(folder)]), Listing())


def test_it_changes_with_the_files(tmp_path: Path) -> None:
    write_steps(tmp_path / "a.csv", scalar_steps())
    os.utime(tmp_path / "a.csv", ns=(10**18, 10**18))
    first = of(tmp_path)
    assert of(tmp_path) == first
    assert len(first) == 16
    os.utime(tmp_path / "a.csv", ns=(10**18, 10**18 + 1))
    touched = of(tmp_path)
    os.utime(tmp_path / "a.csv", ns=(10**18, 10**18))
    assert of(tmp_path) == first, "and back"
    write_steps(tmp_path / "b.csv", scalar_steps())
    more = of(tmp_path)
    (tmp_path / "b.csv").rename(tmp_path / "c.csv")
    renamed = of(tmp_path)
    (tmp_path / "c.csv").unlink()
    with (tmp_path / "a.csv").open("a") as file:
        file.write("\n")
    os.utime(tmp_path / "a.csv", ns=(10**18, 10**18))
    longer = of(tmp_path)
    assert len({first, touched, more, renamed, longer}) == 5


def test_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_steps(tmp_path / "a.csv", scalar_steps())
    readers = open_source([str(tmp_path)], SourceConfig(format="csv"))
    monkeypatch.setattr(Location, "read", None)
    monkeypatch.setattr("builtins.open", None)
    [(path, size, changed)] = files_of(readers[0], Listing())
    status = os.stat(tmp_path / "a.csv")
    assert (path, size, changed) == (str(tmp_path / "a.csv"), status.st_size, status.st_mtime_ns)


def test_folders_stand_for_all_below_them(tmp_path: Path) -> None:
    """As Minari's, and those that Ray reads."""
    write_steps(tmp_path / "x" / "b.csv", scalar_steps())
    write_steps(tmp_path / "x" / "a" / "c.csv", scalar_steps())
    expected = [f"{tmp_path}/x/a/c.csv", f"{tmp_path}/x/b.csv"]
    assert [path for path, _, _ in files_of(FileReader(Location.of(str(tmp_path / "x"))), Listing())] == expected
    assert [path for path, _, _ in files_of(RayRead("read_csv", (str(tmp_path / "x"),)), Listing())] == expected


def test_places_that_only_their_reader_knows(tmp_path: Path) -> None:
    assert files_of(RayRead("read_sql", ("db://x", str(tmp_path / "nothing"))), Listing()) == []
    assert fingerprint([RayRead("read_sql", ("db://x",))], Listing()) != fingerprint(
        [RayRead("read_sql", ("db://y",))], Listing()
    )
