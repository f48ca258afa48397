"""Filesystem objects that a caller gives: the paths of a source lie there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from pyarrow import fs

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.formats.sources.locations import inside
from offline_core.data.store.filesystem_store import UserFilesystemStore
from offline_core.errors import ConfigError, DatasetNotFoundError, StorageError
from tests.data.formats.sources.factories import (
    SCALARS,
    check_steps,
    imported,
    imported_episodes,
    scalar_steps,
    steps,
    write_steps,
)


@pytest.fixture
def lake(tmp_path: Path) -> fs.FileSystem:
    """A folder below which paths are relative, as in a bucket; the working directory has other files by these names."""
    write_steps(tmp_path / "lake" / "in" / "x.parquet", steps())
    write_steps(tmp_path / "lake" / "in" / "y.csv", scalar_steps())
    return fs.SubTreeFileSystem(str(tmp_path / "lake"), fs.LocalFileSystem())


def source(filesystem: Any, **arguments: Any) -> dict[str, Any]:
    return {"arguments": {"filesystem": filesystem, **arguments}}


def test_one_of_pyarrow(tmp_path: Path, lake: fs.FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read again where its files changed, and not for those of the same name elsewhere."""
    monkeypatch.chdir(tmp_path)
    check_steps(imported_episodes(tmp_path, "in/x.parquet", source=source(lake)))
    write_steps(tmp_path / "in" / "x.parquet", steps(d_t=[True] * 5))
    assert imported(tmp_path, "in/x.parquet", source=source(lake)).reused
    write_steps(tmp_path / "lake" / "in" / "x.parquet", steps(r_t=[1.0] * 5))
    assert not imported(tmp_path, "in/x.parquet", source=source(lake)).reused


def test_one_of_fsspec_with_a_pattern_and_arguments_of_the_format(tmp_path: Path, lake: fs.FileSystem) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/test_located/y.csv", (tmp_path / "lake/in/y.csv").read_bytes().replace(b",", b";"))
    given = source(memory, separator=";")
    check_steps(imported_episodes(tmp_path, "test_located/*.csv", source=given, mapping=SCALARS))
    [parent] = open_dataset(str(tmp_path / "imported")).manifest.parents
    assert parent.uri == "test_located/*.csv"


@pytest.mark.parametrize("kind", ["pyarrow", "fsspec"])
def test_a_pattern_at_the_root(tmp_path: Path, lake: fs.FileSystem, kind: str) -> None:
    write_steps(tmp_path / "lake" / "y.csv", scalar_steps())
    given = lake if kind == "pyarrow" else DirFileSystem(str(tmp_path / "lake"), fsspec.filesystem("file"))
    check_steps(imported_episodes(tmp_path, "*.csv", source=source(given), mapping=SCALARS))


def test_urls_are_the_paths_of_http() -> None:
    place = inside(fsspec.filesystem("http"), "https://host/folder/")
    assert (place.uri, place.path) == ("https://host/folder", "https://host/folder")
    assert place.child("x.csv").path == "https://host/folder/x.csv"


@pytest.mark.parametrize("path", ["hdfs://nn:8020/in/x.parquet", "hdfs:///in/x.parquet", "hdfs:/in/x.parquet", "/in/x.parquet"])
def test_a_server_of_hadoop_is_no_folder(lake: fs.FileSystem, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UserFilesystemStore, "scheme", "hdfs")
    assert inside(lake, path).path == "/in/x.parquet" and inside(lake, path).is_file()


def test_rllibs_episodes(tmp_path: Path, rllib_recordings: Path) -> None:
    recordings = fs.SubTreeFileSystem(str(rllib_recordings), fs.LocalFileSystem())
    for reused in (False, True):
        result = imported(tmp_path, "cartpole_episodes", source=source(recordings), mapping={})
        assert (result.counts.episodes, result.reused) == (60, reused)


def test_what_is_none_is_refused_and_nothing_is_written(tmp_path: Path, lake: fs.FileSystem) -> None:
    for filesystem, kind in (("gcs", "str"), (tmp_path, "Path"), ({"type": "s3"}, "dict")):
        with pytest.raises(ConfigError, match=rf"filesystem is \w*{kind}; it must be a filesystem object of PyArrow or fsspec"):
            imported(tmp_path, "in", source=source(filesystem))
    with pytest.raises(DatasetNotFoundError, match=r"There is nothing at subtree://nowhere"):
        imported(tmp_path, "nowhere", source=source(lake))
    assert not (tmp_path / "imported").exists()


def test_it_is_only_read_from(lake: fs.FileSystem) -> None:
    assert inside(lake, "file://in/x.parquet").is_file()
    with pytest.raises(StorageError, match="only read from; define it in OFFLINE_FILESYSTEMS"):
        inside(lake, "out").make_folder()


class Locked(fs.FileSystemHandler):  # type: ignore[misc]
    """Answers nothing but that it may not be seen."""

    def get_type_name(self) -> str:
        return "locked"

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    get_file_info = get_file_info_selector = open_input_stream = open_input_file = normalize_path = _refuse
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


def test_one_that_may_not_be_read(tmp_path: Path) -> None:
    filesystem = fs.PyFileSystem(Locked())
    with pytest.raises(StorageError, match=r"py-locked://in.*ermission"):
        imported(tmp_path, "in", source=source(filesystem))
    assert not (tmp_path / "imported").exists()
