"""Datasets: versions appear whole and once, and what is wrong with a folder is said."""

from __future__ import annotations

import json
import shlex
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

import offline_core as offline
from offline_core.data.datasets.commit import commit, discard, find_version
from offline_core.data.datasets.dataset import Dataset, open_committed, open_dataset, versions
from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes.codecs import Format
from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.errors import (
    CorruptFileError,
    DatasetNotFoundError,
    EmptyDatasetError,
    SchemaError,
    VersionExistsError,
    VersionNotFoundError,
)
from offline_core.runtime.config import EnvironmentSpec
from tests.data.datasets.factories import (
    FORMATS,
    copy_tree,
    cut_in_half,
    edit_json,
    episode,
    flip_bit,
    found,
    garble,
    write_dataset,
    write_files,
    write_items,
)

EPISODES = [episode(i) for i in range(5)]


def manifest_file(folder: Path, version: int = 1) -> Path:
    return folder / "_versions" / f"{version:06d}.json"


@pytest.mark.parametrize("format", FORMATS)
def test_a_dataset_lists_its_episodes_and_describes_itself(tmp_path: Path, format: Format) -> None:
    writer = write_files(tmp_path, EPISODES, format)
    commit(
        str(tmp_path),
        writer.files,
        format=format,
        operation=Operation(name="test"),
        statistics=writer.statistics,
        environment=EnvironmentSpec(id="<b>CartPole</b>"),
    )
    dataset = offline.open_dataset(tmp_path)
    assert list(dataset.episodes()) == EPISODES
    table = dataset.table()
    names = ["eps_id", "t_started", "length", "return", "terminated", "truncated", "success", "policy_id"]
    assert table.columns == names
    assert table["return"].to_list() == [each.return_ for each in EPISODES]
    assert dataset.statistics == writer.statistics and dataset.statistics.steps == 35
    described = f"uri={tmp_path}, version=1, format={format}, episodes=5, steps=35, environment=<b>CartPole</b>"
    assert repr(dataset) == f"Dataset({described})"
    shown = dataset._repr_html_()
    assert 'class="offline-card"' in shown and "&lt;b&gt;CartPole" in shown and "<b>" not in shown


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_committed_can_be_opened(tmp_path: Path, format: Format) -> None:
    committed = write_dataset(tmp_path, EPISODES, format, max_rows_per_file=2 if format == "episodes" else 14)
    opened = open_dataset(str(tmp_path))
    assert opened == committed
    assert versions(str(tmp_path)) == [1]
    assert not opened.is_foreign
    assert len(opened.paths) == 3
    assert all(Path(path).is_file() for path in opened.paths)
    assert opened.ref.model_dump() == {
        "uri": str(tmp_path),
        "version": 1,
        "fingerprint": opened.manifest.fingerprint,
        "episodes": 5,
        "steps": 35,
        "bytes": sum(Path(path).stat().st_size for path in opened.paths),
        "latest": None,
    }
    assert opened.parent_entry == Parent(kind="dataset", uri=str(tmp_path), version=1, fingerprint=opened.ref.fingerprint)
    assert str(opened.ref).startswith(f"{tmp_path} version 1 (5 episodes, 35 steps, ")


def test_spaces_and_environment_are_kept(tmp_path: Path) -> None:
    space = spaces.Dict({"z": spaces.Box(-1, 1, (2, 3), np.float32), "a": spaces.MultiDiscrete([2, 3])})
    environment = EnvironmentSpec(id="CartPole-v1", kwargs={"max_episode_steps": 5})
    writer = write_files(tmp_path, EPISODES, "episodes")
    commit(
        str(tmp_path),
        writer.files,
        format="episodes",
        operation=Operation(name="test"),
        statistics=Statistics.of(writer.summaries),
        environment=environment,
        observation_space=space,
        action_space=spaces.Discrete(3, start=-1),
    )
    opened = open_dataset(str(tmp_path))
    assert opened.observation_space == space
    assert opened.action_space == spaces.Discrete(3, start=-1)
    assert opened.manifest.environment == environment


def test_older_versions_stay_readable(tmp_path: Path) -> None:
    uri = str(tmp_path)
    for number in range(1, 4):
        assert write_dataset(tmp_path, EPISODES[:number]).manifest.version == number
    assert versions(uri) == [1, 2, 3]
    for number in range(1, 4):
        assert list(open_dataset(uri, number).episodes()) == EPISODES[:number]
    assert open_dataset(uri).manifest.version == 3


def test_a_version_that_is_not_there(tmp_path: Path) -> None:
    write_dataset(tmp_path, EPISODES)
    write_dataset(tmp_path, EPISODES[:1])
    for version in (0, 3):
        with pytest.raises(VersionNotFoundError, match=rf"{tmp_path} has no version {version}; it has \[1, 2\]"):
            open_dataset(str(tmp_path), version)
    with pytest.raises(VersionNotFoundError, match="has no version 1; it has none"):
        open_dataset(str(tmp_path / "missing"), 1)


def test_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for uri in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(DatasetNotFoundError, match=f"There is no dataset at {uri}.*offline record.*offline import"):
            open_dataset(str(uri))


@pytest.mark.parametrize("names", [[], ["notes.txt"], ["a/.tmp-0123.parquet"]])
def test_a_folder_without_data(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        write_items(tmp_path / name, [b"x"])
    with pytest.raises(EmptyDatasetError, match=f"{tmp_path} holds neither committed versions nor Parquet files"):
        open_dataset(str(tmp_path))


def test_nothing_to_commit(tmp_path: Path) -> None:
    writer = write_files(tmp_path, [], "episodes")
    with pytest.raises(EmptyDatasetError, match=f"Nothing was written to {tmp_path}"):
        commit(str(tmp_path), writer.files, format="episodes", operation=Operation(name="test"), statistics=Statistics.of([]))
    assert versions(str(tmp_path)) == []


def test_of_many_writers_of_one_version_one_wins(tmp_path: Path) -> None:
    """And afterwards the version is the winner's, whole."""
    count = 8
    barrier = threading.Barrier(count)
    writers = [write_files(tmp_path, [episode(i)], "episodes") for i in range(count)]

    def attempt(number: int) -> Dataset | VersionExistsError:
        barrier.wait()
        try:
            return commit(
                str(tmp_path),
                writers[number].files,
                format="episodes",
                operation=Operation(name="test", config={"writer": number}),
                statistics=Statistics.of(writers[number].summaries),
                version=1,
            )
        except VersionExistsError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        outcomes = list(pool.map(attempt, range(count)))
    [winner] = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, Dataset)]
    for outcome in outcomes[:winner] + outcomes[winner + 1 :]:
        assert f"Version 1 of {tmp_path} was committed by another writer" in str(outcome)
        assert "commit them as the next version" in str(outcome)
    assert versions(str(tmp_path)) == [1]
    assert open_dataset(str(tmp_path)).manifest.operation.config == {"writer": winner}
    assert list(open_dataset(str(tmp_path)).episodes()) == [episode(winner)]
    assert found(tmp_path / "_versions") == ["000001.json", "last-000001"]
    loser = (winner + 1) % count
    again = commit(
        str(tmp_path),
        writers[loser].files,
        format="episodes",
        operation=Operation(name="test"),
        statistics=Statistics.of(writers[loser].summaries),
    )
    assert again.manifest.version == 2
    assert list(again.episodes()) == [episode(loser)]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"version": 1}', b'{"manifest_version": 2}', b"\0" * 100],
)
def test_a_corrupt_manifest(tmp_path: Path, content: bytes) -> None:
    write_dataset(tmp_path, EPISODES[:1])
    write_dataset(tmp_path, EPISODES)
    manifest_file(tmp_path, 2).write_bytes(content)
    with pytest.raises(CorruptFileError, match=rf"000002\.json of {tmp_path}(.|\n)*Open an older version"):
        open_dataset(str(tmp_path))
    assert list(open_dataset(str(tmp_path), 1).episodes()) == EPISODES[:1]


def test_a_manifest_of_a_newer_version_of_this_package(tmp_path: Path) -> None:
    write_dataset(tmp_path, EPISODES)
    edit_json(manifest_file(tmp_path), manifest_version=3)
    with pytest.raises(CorruptFileError, match=r"newer version of this package \(format 3; this one reads 2\): upgrade"):
        open_dataset(str(tmp_path))


def test_a_flipped_bit_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    write_dataset(tmp_path, EPISODES)
    place = manifest_file(tmp_path).read_bytes().index(b'"steps": ') + 9
    flip_bit(manifest_file(tmp_path), 8 * place)
    with pytest.raises(CorruptFileError, match=r"000001\.json is not what was written"):
        open_dataset(str(tmp_path))


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, "it is listed twice"),
        ({"path": "other.parquet", "group_bytes": [1, 2]}, "it has 1 row groups by their rows and 2 by their bytes"),
        ({"path": "other.parquet", "group_rows": [6]}, "its row groups have 6 rows together, and it has 5"),
        ({"path": "other.parquet", "group_bytes": [-1]}, "its row groups have"),
    ],
    ids=["twice", "lengths", "rows", "negative"],
)
@pytest.mark.parametrize("times", [1, 5_000])
def test_a_manifest_that_contradicts_itself_is_refused(tmp_path: Path, entry: dict[str, Any], problem: str, times: int) -> None:
    """As someone could edit it who knows how checksums are made; of many such files none is opened."""
    write_dataset(tmp_path, EPISODES)
    [file] = json.loads(without_checksum(manifest_file(tmp_path).read_bytes(), ""))["files"]
    edit_json(manifest_file(tmp_path), files=[file, *[file | entry] * times])
    with pytest.raises(CorruptFileError, match=rf"000001\.json is wrong about {entry.get('path', file['path'])}: {problem}"):
        open_dataset(str(tmp_path))


@pytest.mark.parametrize("deleted", [[3], [2], [2, 3], [1, 2, 3]])
def test_the_number_of_a_deleted_version_is_not_given_again(tmp_path: Path, deleted: list[int]) -> None:
    for count in (1, 2, 3):
        write_dataset(tmp_path, EPISODES[:count])
    for version in deleted:
        manifest_file(tmp_path, version).unlink()
    assert write_dataset(tmp_path, EPISODES[:4]).manifest.version == 4
    assert write_dataset(tmp_path, EPISODES).manifest.version == 5
    assert found(tmp_path / "_versions")[-1] == "last-000005"


def test_nor_where_the_version_is_named(tmp_path: Path) -> None:
    write_dataset(tmp_path, EPISODES)
    manifest_file(tmp_path).unlink()
    writer = write_files(tmp_path, EPISODES[:1], "episodes")
    whole = {"format": "episodes", "operation": Operation(name="test"), "statistics": writer.statistics}
    with pytest.raises(VersionExistsError, match="has had versions up to 1"):
        commit(str(tmp_path), writer.files, version=1, **whole)  # type: ignore[arg-type]


def test_a_dataset_from_before_numbers_were_marked(tmp_path: Path) -> None:
    """It is marked when something is committed, be it what is there already."""
    for count in (1, 2):
        write_dataset(tmp_path, EPISODES[:count])
    (tmp_path / "_versions" / "last-000002").unlink()
    assert write_dataset(tmp_path, EPISODES[:1]).manifest.version == 1
    manifest_file(tmp_path, 2).unlink()
    assert write_dataset(tmp_path, EPISODES[:3]).manifest.version == 3


def test_a_manifest_that_says_more_than_we_know(tmp_path: Path) -> None:
    """As a newer version of this program would write: more keys, at every level."""
    committed = write_dataset(tmp_path, EPISODES)
    data = json.loads(without_checksum(manifest_file(tmp_path).read_bytes(), ""))
    data["environment"] = {"id": "CartPole-v1", "kwargs": {"a": 1}}
    parent = {"kind": "dataset", "uri": "/x", "version": 1, "fingerprint": "0"}
    data["parents"] = [parent]

    def more(value: Any) -> Any:
        if isinstance(value, list):
            return [more(item) for item in value]
        if not isinstance(value, dict):
            return value
        return value and {key: more(item) for key, item in value.items()} | {"from_the_future": {"a": [1]}}

    known = {key: data[key] for key in ("observation_space", "action_space", "provenance")}
    manifest_file(tmp_path).write_bytes(with_checksum(json.dumps(more(data) | known)))
    opened = open_dataset(str(tmp_path))
    assert list(opened.episodes()) == EPISODES
    assert opened.manifest.environment == EnvironmentSpec(id="CartPole-v1", kwargs={"a": 1, "from_the_future": {"a": [1]}})
    assert opened.manifest.statistics == committed.manifest.statistics
    assert opened.manifest.parents == [Parent.model_validate(parent)]


def test_leftovers_of_a_crash_are_not_read(tmp_path: Path) -> None:
    write_dataset(tmp_path, EPISODES)
    write_files(tmp_path, [episode(99)], "episodes")  # complete, but never committed
    (tmp_path / ".tmp-0123").write_bytes(b"half a file")
    (tmp_path / "_versions" / ".tmp-4567").write_bytes(b'{"half": ')
    assert versions(str(tmp_path)) == [1]
    assert list(open_dataset(str(tmp_path)).episodes()) == EPISODES
    assert write_dataset(tmp_path, EPISODES[:1]).manifest.version == 2


def test_the_same_files_made_of_the_same_by_the_same_are_one_version(tmp_path: Path) -> None:
    first = write_dataset(tmp_path, EPISODES)
    write_dataset(tmp_path, EPISODES[:1])
    assert write_dataset(tmp_path, EPISODES).ref == first.ref.model_copy(update={"latest": 2})
    assert versions(str(tmp_path)) == [1, 2]


def test_what_a_version_has_is_not_discarded_with_what_was_written_again(tmp_path: Path) -> None:
    """The same episodes make a file of the same name."""
    dataset = write_dataset(tmp_path, [episode(0)])
    again, other = (write_files(tmp_path, [episode(number)], "episodes").files for number in (0, 1))
    assert again == dataset.manifest.files
    discard(dataset.location, [*again, *other])
    assert [name for name in found(tmp_path) if name.endswith(".parquet")] == [file.path for file in again]
    other = write_files(tmp_path, [episode(1)], "episodes").files
    (tmp_path / "_versions/000001.json").write_text("{")
    discard(dataset.location, other)
    assert (tmp_path / other[0].path).exists(), "nobody knows whether a version has it"


def test_a_version_is_found_by_what_was_done_to_what(tmp_path: Path) -> None:
    first = write_dataset(tmp_path, EPISODES)
    operation, parents = first.manifest.operation, first.manifest.parents
    same = find_version(str(tmp_path), operation, parents)
    assert same is not None and same.ref == first.ref
    parent = Parent(kind="dataset", uri="elsewhere", fingerprint="0123")
    assert find_version(str(tmp_path), operation, [parent]) is None
    assert find_version(str(tmp_path), operation.model_copy(update={"version": 2}), parents) is None
    assert find_version(str(tmp_path), operation.model_copy(update={"config": {"seed": 1}}), parents) is None
    assert find_version(str(tmp_path / "missing"), operation, parents) is None


def test_a_first_version_that_was_never_committed_is_no_dataset(tmp_path: Path) -> None:
    """Its files are whole, and would be taken for a foreign folder's but for the mark that the writer left."""
    write_files(tmp_path, EPISODES, "episodes")
    with pytest.raises(DatasetNotFoundError, match=rf"No version of {tmp_path} was committed.*Run it \(again\)"):
        open_dataset(str(tmp_path))
    assert versions(str(tmp_path)) == []


def test_fingerprints_are_equal_wherever_and_whenever(tmp_path: Path) -> None:
    here = write_dataset(tmp_path / "here", EPISODES)
    there = write_dataset(tmp_path / "there", [episode(i) for i in range(5)])
    assert here.manifest.created_at != there.manifest.created_at
    assert here.ref.fingerprint == there.ref.fingerprint
    shutil.move(tmp_path / "here", tmp_path / "moved")
    assert open_dataset(str(tmp_path / "moved")).ref.fingerprint == here.ref.fingerprint


# Folders of others.


def test_a_foreign_folder_is_version_zero(tmp_path: Path) -> None:
    write_items(tmp_path / "b" / "2.parquet", [b"x", b"y"])
    write_items(tmp_path / "a" / "1.parquet", [b"z"])
    opened = open_dataset(str(tmp_path))
    assert opened.ref == open_dataset(str(tmp_path), 0).ref
    assert opened.is_foreign
    assert (opened.manifest.version, opened.manifest.format) == (0, "episodes")
    assert opened.paths == [f"{tmp_path}/a/1.parquet", f"{tmp_path}/b/2.parquet"]
    assert [file.rows for file in opened.manifest.files] == [1, 2]
    assert opened.ref.bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("source", ["logs", "logs/1.parquet", "logs/*.parquet", "my logs"])
def test_files_without_a_manifest_have_to_be_imported(tmp_path: Path, source: str) -> None:
    for folder in ("logs", "my logs"):
        write_items(tmp_path / folder / "1.parquet", [b"x"])
    uri = f"{tmp_path}/{source}"
    target = {"logs/*.parquet": f"{tmp_path}/logs-imported"}.get(source, f"{uri}-imported")
    with pytest.raises(SchemaError, match="has no manifest, so it is not a dataset yet") as refused:
        open_committed(uri, 3)
    assert f"'offline import {shlex.join([uri, '-o', target])}'" in str(refused.value)
    assert f"offline.import_data({uri!r}, output={target!r})" in str(refused.value)


def test_what_is_committed_is_opened_without_an_import(tmp_path: Path) -> None:
    first, second = (write_dataset(tmp_path / "a", [each]) for each in EPISODES[:2])
    assert (open_committed(f"{tmp_path}/a"), open_committed(f"{tmp_path}/a", 1)) == (second, first)
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmptyDatasetError, match="empty"):
        open_committed(f"{tmp_path}/empty")
    with pytest.raises(DatasetNotFoundError, match=r"no dataset at .*/nothing"):
        open_committed(f"{tmp_path}/nothing")


def test_a_foreign_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"obs": [1.0], "item_id": [1]}), tmp_path / "x.parquet")
    assert open_dataset(str(tmp_path)).manifest.format == "table"


def test_the_files_of_our_dataset_without_its_versions(tmp_path: Path) -> None:
    """Copying them elsewhere makes a foreign folder, whose spaces stand in the files."""
    write_dataset(tmp_path / "ours", EPISODES)
    shutil.copytree(tmp_path / "ours", tmp_path / "copy", ignore=lambda *_: ["_versions"])
    copied = open_dataset(str(tmp_path / "copy"))
    assert copied.is_foreign
    assert (copied.observation_space, copied.action_space) == (EPISODES[0].observation_space, EPISODES[0].action_space)
    assert list(copied.episodes()) == EPISODES


def test_a_dataset_inside_a_foreign_folder_is_not_part_of_it(tmp_path: Path) -> None:
    write_items(tmp_path / "theirs.parquet", [b"x"])
    write_dataset(tmp_path / "a" / "imported", EPISODES)
    write_files(tmp_path / "a" / "crashed", EPISODES, "episodes")
    assert [file.path for file in open_dataset(str(tmp_path)).manifest.files] == ["theirs.parquet"]


def test_a_folder_that_mixes_formats(tmp_path: Path) -> None:
    write_items(tmp_path / "a.parquet", [b"x"])
    pq.write_table(pa.table({"obs": [1.0]}), tmp_path / "b.parquet")
    with pytest.raises(SchemaError, match=r"mixes episode files \(a\.parquet, …\) with table files \(b\.parquet, …\)"):
        open_dataset(str(tmp_path))


@pytest.mark.parametrize("damage", ["cut", "footer", "empty", "text"])
def test_a_foreign_file_that_is_damaged(tmp_path: Path, damage: str) -> None:
    write_items(tmp_path / "a.parquet", [b"x"] * 10)
    write_items(tmp_path / "b.parquet", [b"y"] * 10)
    match damage:
        case "cut":
            cut_in_half(tmp_path / "b.parquet")
        case "footer":
            garble(tmp_path / "b.parquet", -40, -8)
        case "empty":
            (tmp_path / "b.parquet").write_bytes(b"")
        case "text":
            (tmp_path / "b.parquet").write_text("this is no Parquet file at all")
    with pytest.raises(CorruptFileError, match=r"b\.parquet is no readable Parquet file(.|\n)*Restore it from a copy"):
        open_dataset(str(tmp_path))


def test_fingerprints_of_foreign_folders_go_by_content(tmp_path: Path) -> None:
    """The changed file has the same name, rows, size and column ranges."""

    def fingerprint(name: str, items: list[bytes]) -> str:
        (tmp_path / name).mkdir()
        table = pa.table({"item": pa.array(items, pa.binary())})
        pq.write_table(table, tmp_path / name / "x.parquet", compression="none", use_dictionary=False)
        return open_dataset(str(tmp_path / name)).ref.fingerprint

    first = fingerprint("first", [b"a", b"b", b"d"])
    assert fingerprint("second", [b"a", b"c", b"d"]) != first
    copy_tree(tmp_path / "first", tmp_path / "copy")
    assert open_dataset(str(tmp_path / "copy")).ref.fingerprint == first
