"""From the scheme of a URI to a store, as the variable OFFLINE_FILESYSTEMS has it; without a server."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow import fs

from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.store.filesystems import VARIABLE
from offline_core.data.store.location import Location
from offline_core.data.store.object_store import ObjectStore
from offline_core.data.store.partial_files import remove_partial_files
from offline_core.data.store.s3 import S3Store
from offline_core.data.store.temporary_names import TEMPORARY
from offline_core.errors import ConfigError, LocationError, OfflineError, StorageError, VersionExistsError
from tests.data.datasets.factories import episode, found, write_dataset

SECRET = "not-to-be-seen-anywhere"


def made_here(root: str, password: str = "") -> fs.FileSystem:
    """What a user's own module makes, given `${NAME}` as a password."""
    assert password in ("", SECRET)
    return fs.SubTreeFileSystem(root, fs.LocalFileSystem())


def not_a_filesystem() -> dict[str, int]:
    return {}


@pytest.fixture(autouse=True)
def memory() -> None:
    fsspec.filesystem("memory").store.clear()


def define(monkeypatch: pytest.MonkeyPatch, name: str, filesystem: str, /, path: str = "", **spec: Any) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps({name: {"filesystem": filesystem, "path": path, **spec}}))


@pytest.fixture(params=["pyarrow", "pyarrow, relative", "own", "fsspec", "fsspec class", "dir"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of `tmp_path` by several ways of naming its filesystem."""
    folder = tmp_path / "data"
    folder.mkdir()
    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "pyarrow": ("pyarrow.fs:LocalFileSystem", str(folder), {}),
        "pyarrow, relative": ("pyarrow.fs:LocalFileSystem", "data", {"use_mmap": True}),
        "own": (f"{__name__}:made_here", "", {"root": str(folder), "password": "${OWN_PASSWORD}"}),
        "fsspec": ("file", str(folder), {}),
        "fsspec class": ("fsspec.implementations.local:LocalFileSystem", str(folder), {"auto_mkdir": True}),
        "dir": ("dir", "", {"path": str(folder), "target_protocol": "file"}),
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OWN_PASSWORD", SECRET)
    filesystem, path, arguments = kinds[request.param]
    define(monkeypatch, "named", filesystem, path, arguments=arguments, one_writer=True)
    return "named://"


def test_files_lie_where_the_name_leads(place: str, tmp_path: Path) -> None:
    root = Location.of(f"{place}runs/a")
    assert not root.is_folder()
    assert root.make_folder().is_folder()
    file = root.child("b/c.txt")
    file.write(b"one")
    file.write(b"another")
    assert (tmp_path / "data/runs/a/b/c.txt").read_bytes() == file.read() == b"another"
    assert root.sizes() == {".folder": 0, "b/c.txt": 7}
    assert root.files(recursive=False) == [".folder"]
    assert Location.of(file.uri) == file == pickle.loads(pickle.dumps(file))
    assert file.parent.parent == root
    file.delete()
    assert not file.is_file()
    with pytest.raises(StorageError, match=r"Cannot read named://runs/a/b/c\.txt: it does not exist"):
        file.read()
    assert not [name for name in found(tmp_path) if TEMPORARY in name]


@pytest.mark.parametrize("place", ["own", "fsspec"], indirect=True)
def test_a_dataset_lives_there(place: str, tmp_path: Path) -> None:
    for count in (2, 3):
        write_dataset(f"{place}made", [episode(number) for number in range(count)])
    assert versions(f"{place}made") == [1, 2]
    assert list(open_dataset(f"{place}made").episodes()) == [episode(number) for number in range(3)]
    manifest = (tmp_path / "data/made/_versions/000001.json").read_text()
    assert SECRET not in manifest and "OWN_PASSWORD" not in manifest


def test_one_after_the_other_creates(place: str) -> None:
    file = Location.of(f"{place}v.json")
    file.create(b"1")
    with pytest.raises(VersionExistsError, match="another writer was first"):
        file.create(b"2")
    assert file.read() == b"1"


def test_two_writers_are_refused_where_none_could_be_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    define(monkeypatch, "named", "file", str(tmp_path))
    file = Location.of("named://v.json")
    file.write(b"1")
    with pytest.raises(StorageError, match=r"only one of two writers gets; .* set one_writer in OFFLINE_FILESYSTEMS"):
        file.create(b"1")
    with pytest.raises(StorageError, match="one_writer"), Location.of("named://runs").locked():
        pass


def test_what_breaks_off_leaves_what_was_there(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Location.of(f"{place}a.bin")
    file.write(b"before")
    spooled = file.store.new_file(file.path)
    spooled.write(b"x" * 100)

    def broken(source: Any, target: Any, length: int) -> None:
        target.write(source.read(10))
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("offline_core.data.store.filesystem_store.shutil.copyfileobj", broken)
    with pytest.raises(OSError, match="Input/output"):
        file.store.put_file(spooled, file.path)
    file.store.discard(spooled)
    assert file.read() == b"before"
    assert found(tmp_path / "data") == ["a.bin"]


def test_secrets_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_PASSWORD", SECRET)
    arguments = {"root": str(tmp_path), "password": "${OWN_PASSWORD}"}
    define(monkeypatch, "named", f"{__name__}:made_here", arguments=arguments)
    place = Location.of("named://runs")
    assert place.files() == []
    assert SECRET not in repr(place) + str(place) + str(pickle.dumps(place))
    monkeypatch.setenv("OWN_PASSWORD", "")
    define(monkeypatch, "named", f"{__name__}:made_here", arguments=arguments | {"password": SECRET})  # as one should not
    assert SECRET not in repr(Location.of("named://runs"))


def test_a_built_in_name_may_be_given_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIO", "minio:9000")
    define(monkeypatch, "s3", "s3", "lake/rl", arguments={"endpoint": "http://${MINIO}", "region": "here"})
    place = Location.of("s3://runs")
    assert isinstance(place.store, S3Store)
    assert (place.store.settings.endpoint, place.store.settings.region) == ("http://minio:9000", "here")
    assert (place.uri, place.path) == ("s3://runs", "lake/rl/runs")
    with pytest.raises(LocationError, match="s3://runs is a whole bucket"):
        _ = place.parent
    assert isinstance(Location.of("gs://b/x").store, ObjectStore)


def test_a_uri_asks_for_anonymous_access_as_pyarrows_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """`s3://anonymous@ray-example-data/…` of Ray's and RLlib's documents; it says so wherever it is written."""
    define(monkeypatch, "lake", "s3", "rl", arguments={"endpoint": "http://minio:9000"})
    for uri, path in (("s3://anonymous@bucket/a/b", "bucket/a/b"), ("lake://anonymous@runs", "rl/runs")):
        place = Location.of(uri)
        assert isinstance(place.store, S3Store) and place.store.settings.anonymous
        assert (place.uri, place.path, place.child("c").uri) == (uri, path, f"{uri}/c")
        assert pickle.loads(pickle.dumps(place)) == place
    assert Location.of("gs://anonymous@bucket/a").path == "bucket/a"
    assert Location.of("abfs://anonymous@account.dfs.core.windows.net/a").path == "anonymous/a", "a container"
    plain = Location.of("s3://bucket/a").store
    assert isinstance(plain, S3Store) and not plain.settings.anonymous
    with pytest.raises(LocationError, match="has credentials in it"):
        Location.of("s3://anonymous:secret@bucket/a")


WRONG: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "OFFLINE_FILESYSTEMS is wrong: it: is no JSON: EOF"),
    "no object": ("[]", "OFFLINE_FILESYSTEMS is wrong"),
    "a field": ('{"named": {"filesystem": "file", "password": "SECRET"}}', "named.password: there is no such parameter"),
    "no filesystem": ('{"named": {}}', "named.filesystem: is needed"),
    "file": ('{"file": {"filesystem": "memory"}}', "defines file: a name has"),
    "a name that no URI can have": ('{"my_store": {"filesystem": "memory"}}', "defines my_store: a name has"),
    "upper case": ('{"Named": {"filesystem": "memory"}}', "defines Named: a name has"),
    "an unknown protocol": ('{"named": {"filesystem": "nosuch"}}', "nosuch:// is no protocol of fsspec"),
    "a missing package": ('{"named": {"filesystem": "sftp"}}', "sftp://: .*paramiko"),
    "an argument of gs": (
        '{"named": {"filesystem": "gs", "arguments": {"token": "SECRET"}}}',
        "has no argument token; gs takes anonymous, endpoint",
    ),
    "an argument of s3": (
        '{"named": {"filesystem": "s3", "arguments": {"secret": "SECRET"}}}',
        "has no argument secret; s3",
    ),
    "a missing module": ('{"named": {"filesystem": "no.such:Thing"}}', "cannot be made of its arguments: No module"),
    "a missing class": ('{"named": {"filesystem": "pyarrow.fs:Nope"}}', "cannot be made of its arguments: .*Nope"),
    "no filesystem at all": (
        '{"named": {"filesystem": "THIS:not_a_filesystem"}}',
        "makes a dict, which is neither PyArrow's nor fsspec's",
    ),
    "a wrong argument": (
        '{"named": {"filesystem": "pyarrow.fs:LocalFileSystem", "arguments": {"nope": "SECRET"}}}',
        "LocalFileSystem cannot be made of its arguments: .*nope",
    ),
    "a variable that is not set": (
        '{"named": {"filesystem": "zip", "arguments": {"a": "${NO_SUCH_VARIABLE}"}}}',
        "needs the variable NO_SUCH_VARIABLE, which is not set",
    ),
    "a dollar": ('{"named": {"filesystem": "zip", "arguments": {"a": "5$"}}}', r"is written \$\$"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_named_and_no_secret(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, message = WRONG[kind]
    monkeypatch.setenv(VARIABLE, text.replace("SECRET", SECRET).replace("THIS", __name__))
    with pytest.raises((ConfigError, LocationError), match=message) as caught:
        Location.of("named://a/b").files()
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__context__ if not error.__suppress_context__ else error.__cause__


SEVERAL = [
    "s3://a/x,s3://b/x",
    "s3://a/x, gs://b/x",
    "s3://a/x;s3://b/x",
    "s3://a/x s3://b/x",
    "s3://a/x\ns3://b/x",
    "runs/a,s3://b/x",
    "/data/a,/data/b",
    "file:///data/a,file:///data/b",
    "['s3://a/x', 's3://b/x']",
    '["s3://a/x"]',
]


def test_several_locations_are_refused() -> None:
    for uris in SEVERAL:
        with pytest.raises(LocationError, match="Give one location, as a path or a URI"):
            Location.of(uris)
    for uri in ("s3://a/x, y/z", "runs/a, b and c", "/data/a;b/c=1,d=2", "file:///data/a,b", "s3://a/x=1, 2"):
        assert Location.of(uri).path.endswith(uri.rpartition("/")[2]), "commas and spaces are allowed"


def test_operations_refuse_several_outputs_before_anything_is_done(tmp_path: Path) -> None:
    from offline_core.data.curation.config import PruningConfig
    from offline_core.data.curation.prune import prune
    from offline_core.data.formats.exporting import ExportConfig, export
    from offline_core.data.importing.config import ImportConfig
    from offline_core.data.importing.importing import import_data
    from offline_core.learning.config import TrainingConfig
    from offline_core.learning.train import train

    source = write_dataset(tmp_path / "made", [episode(0)]).location.uri
    before = found(tmp_path)
    (tmp_path / "steps.csv").write_text("eps_id,obs,actions,rewards,dones\na,1,0,1,true\n")
    two = f"{tmp_path}/a,{tmp_path}/b"
    for operation in (
        lambda: import_data(ImportConfig(), source=str(tmp_path / "steps.csv"), output=two),
        lambda: export(ExportConfig(), dataset=source, output=two),
        lambda: prune(PruningConfig(), dataset=source, output=two),
        lambda: train(TrainingConfig(), dataset=source, output=two),
    ):
        with pytest.raises(OfflineError, match="Give one location, as a path or a URI"):
            operation()
    (tmp_path / "steps.csv").unlink()
    assert found(tmp_path) == before


def test_what_killed_writers_left_is_removed_when_it_is_old(place: str, tmp_path: Path) -> None:
    root = Location.of(f"{place}runs")
    old, young, alive = (f"{TEMPORARY}{letter * 32}" for letter in "abc")
    names = [old, f"deep/{old}/00001/x.arrow", young, f"{alive}/1", f"{alive}/2", "kept", ".tmp-mine"]
    for name in names:
        root.child(name).write(b"x")
    for name in (old, f"deep/{old}/00001/x.arrow", f"{alive}/1", "kept", ".tmp-mine"):
        os.utime(tmp_path / "data/runs" / name, (1, 1))
    remove_partial_files(root)
    assert root.files() == sorted([young, f"{alive}/1", f"{alive}/2", "kept", ".tmp-mine"])
    remove_partial_files(Location.of(f"{place}nowhere"))
