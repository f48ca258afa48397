"""Importing: RLlib's folders become datasets of ours, each episode once and nothing lost."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.conversion.importing import import_episodes, open_or_import
from offline_core.episodes import encode
from offline_core.errors import CorruptFileError, DatasetNotFoundError, EmptyDatasetError, NonFiniteError, SchemaError
from offline_core.storage.dataset import open_dataset, versions
from offline_core.storage.manifest import Operation
from offline_core.storage.reader import episodes, spaces_of
from offline_core.storage.writer import FilesConfig
from tests.storage.factories import ACTIONS, OBSERVATIONS, copy_tree, episode, found, rllib_states, write_dataset, write_items


@pytest.mark.parametrize(("name", "count", "steps"), [("cartpole_episodes", 60, 23_486), ("pendulum_episodes", 20, 4_000)])
def test_rllibs_recordings(rllib_recordings: Path, tmp_path: Path, name: str, count: int, steps: int) -> None:
    source = open_dataset(str(rllib_recordings / name))
    imported = import_episodes(source, output=str(tmp_path))
    assert (imported.ref.episodes, imported.ref.steps, imported.ref.version) == (count, steps, 1)
    assert list(episodes(open_dataset(str(tmp_path)))) == list(episodes(source))
    states = list(rllib_states(rllib_recordings / name))
    statistics = imported.manifest.statistics
    returns = [np.sum(state["rewards"]["data"]) for state in states]
    assert statistics.returns.mean == pytest.approx(np.mean(returns))
    assert statistics.returns.max == pytest.approx(np.max(returns))
    assert statistics.terminated == sum(bool(state["is_terminated"]) for state in states)
    assert statistics.truncated == sum(bool(state["is_truncated"]) for state in states)
    assert (imported.observation_space, imported.action_space) == spaces_of(source)
    assert imported.observation_space is not None
    [parent] = imported.manifest.parents
    assert (parent.kind, parent.uri, parent.version) == ("dataset", str(rllib_recordings / name), 0)
    assert parent.fingerprint == source.ref.fingerprint


def test_duplicates_are_left_out_and_counted(rllib_recordings: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy_tree(rllib_recordings / "pendulum_episodes", tmp_path / "theirs")
    first = sorted((tmp_path / "theirs").rglob("*.parquet"))[0]
    (tmp_path / "theirs" / "again.parquet").write_bytes(first.read_bytes())
    repeated = pq.read_metadata(first).num_rows
    files = FilesConfig(max_rows_per_file=6)
    with caplog.at_level(logging.WARNING):
        imported = import_episodes(open_dataset(str(tmp_path / "theirs")), output=str(tmp_path / "ours"), files=files)
    assert f"left out {repeated} episodes" in caplog.text
    assert imported.manifest.operation == Operation(
        name="import_episodes",
        config={"rows": 20 + repeated, "duplicates": repeated, "files": files.model_dump()},
    )
    assert [file.rows for file in imported.manifest.files] == [6, 6, 6, 2]
    ids = [e.eps_id for e in episodes(imported)]
    assert len(set(ids)) == len(ids) == imported.ref.episodes == 20


def test_more_episodes_than_are_held_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offline_core.conversion.importing.EPISODES_AT_A_TIME", 3)
    some = [episode(i) for i in range(10)]
    write_items(tmp_path / "theirs" / "x.parquet", [encode(e) for e in some])
    assert list(episodes(import_episodes(open_dataset(str(tmp_path / "theirs")), output=str(tmp_path / "ours")))) == some


def test_importing_again_makes_the_next_version_with_the_same_files(tmp_path: Path) -> None:
    write_items(tmp_path / "theirs" / "x.parquet", [encode(episode(i)) for i in range(3)])
    source = open_dataset(str(tmp_path / "theirs"))
    first, second = (import_episodes(source, output=str(tmp_path / "ours")) for _ in range(2))
    assert (first.manifest.version, second.manifest.version) == (1, 2)
    assert first.manifest.files == second.manifest.files
    assert first.ref.fingerprint == second.ref.fingerprint
    assert (first.observation_space, first.action_space) == (OBSERVATIONS, ACTIONS)


def test_a_bad_episode_commits_nothing(tmp_path: Path) -> None:
    items = [encode(episode(i)) for i in range(300)] + [encode(episode(300, rewards=np.full(7, np.inf)))]
    write_items(tmp_path / "theirs" / "a.parquet", items[:200])
    write_items(tmp_path / "theirs" / "b.parquet", items[200:])
    with pytest.raises(NonFiniteError, match=r"theirs/b\.parquet: Episode episode-0300"):
        import_episodes(open_dataset(str(tmp_path / "theirs")), output=str(tmp_path / "ours"))
    assert versions(str(tmp_path / "ours")) == []
    assert found(tmp_path / "ours") == []
    with pytest.raises(DatasetNotFoundError, match="No version"):
        open_dataset(str(tmp_path / "ours"))


def test_bytes_that_are_no_episode(tmp_path: Path) -> None:
    write_items(tmp_path / "theirs" / "x.parquet", [b"rubbish"])
    with pytest.raises(CorruptFileError, match=r"theirs/x\.parquet"):
        import_episodes(open_dataset(str(tmp_path / "theirs")), output=str(tmp_path / "ours"))


def test_files_without_episodes(tmp_path: Path) -> None:
    write_items(tmp_path / "theirs" / "x.parquet", [])
    with pytest.raises(EmptyDatasetError, match=f"Nothing was written to {tmp_path}/ours"):
        import_episodes(open_dataset(str(tmp_path / "theirs")), output=str(tmp_path / "ours"))


def test_tables_are_not_imported(tmp_path: Path) -> None:
    pq.write_table(pa.table({"obs": [1.0]}), tmp_path / "x.parquet")
    for attempt in (
        lambda: import_episodes(open_dataset(str(tmp_path)), output=str(tmp_path / "ours")),
        lambda: open_or_import(str(tmp_path), None, output=str(tmp_path / "ours")),
    ):
        with pytest.raises(SchemaError, match=f"{tmp_path} is a table without a manifest.*step_table"):
            attempt()
    assert found(tmp_path) == ["x.parquet"]


def test_ours_are_opened_as_they_are(tmp_path: Path) -> None:
    first = write_dataset(tmp_path / "ours", [episode(0)])
    second = write_dataset(tmp_path / "ours", [episode(1)])
    assert open_or_import(str(tmp_path / "ours"), None, output=str(tmp_path / "out")) == second
    assert open_or_import(str(tmp_path / "ours"), 1, output=str(tmp_path / "out")) == first
    assert not (tmp_path / "out").exists()


def test_foreign_folders_are_imported_below_the_output(tmp_path: Path) -> None:
    write_items(tmp_path / "theirs" / "x.parquet", [encode(episode(0))])
    opened = open_or_import(str(tmp_path / "theirs"), None, output=str(tmp_path / "out"))
    assert opened.location.uri == f"{tmp_path}/out/imported"
    assert list(episodes(opened)) == [episode(0)]
