"""Compaction: the same episodes, byte for byte and in order, in fewer files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.config import EnvironmentSpec
from offline_core.episodes import columns
from offline_core.pruning.compact import compact_dataset
from offline_core.pruning.config import CompactionConfig
from offline_core.storage import writer as writer_module
from offline_core.storage.committing import commit
from offline_core.storage.dataset import open_dataset
from offline_core.storage.episode_index import episode_index
from offline_core.storage.manifest import Format, Operation
from offline_core.storage.reader import episodes
from offline_core.storage.writer import FilesConfig
from tests.storage.factories import FORMATS, copy_tree, episode, write_dataset, write_files


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_changes_but_the_files(tmp_path: Path, format: Format) -> None:
    some = [episode(i, 1 + i % 9, infos=[{"i": i}] * (2 + i % 9) if i % 4 == 0 else None) for i in range(50)]
    writer = write_files(tmp_path / "in", some, format, batch=3, max_rows_per_file=10)
    operation = Operation(name="test")
    source = commit(str(tmp_path / "in"), writer.files, format=format, operation=operation, statistics=writer.statistics)
    result = compact_dataset(CompactionConfig(), dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    compacted = open_dataset(str(tmp_path / "out"))
    assert list(episodes(compacted)) == some
    for name in columns.EPISODE_METADATA:
        assert episode_index(compacted, [name]).equals(episode_index(source, [name]))
    assert result.dataset == compacted.ref
    assert result.source == source.ref
    assert result.files_before == len(source.paths) >= 6
    assert result.files_after == len(compacted.paths) <= (1 if format == "episodes" else 26)
    assert compacted.manifest.statistics == source.manifest.statistics == result.statistics
    assert compacted.manifest.statistics.columns is not None


def test_items_are_copied_byte_for_byte(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "in", [episode(i) for i in range(20)], batch=3, max_rows_per_file=4)
    compact_dataset(CompactionConfig(), dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    [path] = open_dataset(str(tmp_path / "out")).paths
    assert pq.read_table(path).equals(pa.concat_tables([pq.read_table(path) for path in source.paths]))


@pytest.mark.parametrize("format", FORMATS)
def test_files_have_the_size_wanted(tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "ROW_GROUP_BYTES", 2**14)  # as small beside these files as it is beside real ones
    write_dataset(tmp_path / "in", [episode(i, 300) for i in range(60)], format, batch=1, max_rows_per_file=300)
    config = CompactionConfig(files=FilesConfig(max_bytes_per_file=2**17))
    result = compact_dataset(config, dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    sizes = [file.bytes for file in open_dataset(str(tmp_path / "out")).manifest.files]
    assert max(sizes) <= 2**17
    assert len(sizes) > 3, "or else this test would show nothing"
    assert min(sizes[:-1]) > 0.65 * 2**17, "files are filled"
    assert sum(sizes) == result.dataset.bytes
    large = compact_dataset(
        CompactionConfig(files=FilesConfig(max_bytes_per_file=2**28)),
        dataset=str(tmp_path / "out"),
        output=str(tmp_path / "out"),
    )
    assert (large.files_before, large.files_after, large.dataset.version) == (len(sizes), 1, 2)


def test_lineage_environment_and_spaces(tmp_path: Path) -> None:
    writer = write_files(tmp_path / "in", [episode(i) for i in range(3)], "table")
    source = commit(
        str(tmp_path / "in"),
        writer.files,
        format="table",
        operation=Operation(name="record"),
        statistics=writer.statistics,
        environment=EnvironmentSpec(id="CartPole-v1", kwargs={"a": 1}),
        observation_space=episode(0).observation_space,
        action_space=episode(0).action_space,
    )
    config = CompactionConfig(files=FilesConfig(compression="lz4"))
    compact_dataset(config, dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    manifest = open_dataset(str(tmp_path / "out")).manifest
    assert manifest.parents == [source.parent_entry]
    assert manifest.operation.name == "compact_dataset"
    assert CompactionConfig.model_validate(manifest.operation.config) == config
    for name in ("environment", "observation_space", "action_space", "format"):
        assert getattr(manifest, name) == getattr(source.manifest, name) is not None


def test_what_rllib_recorded(rllib_recordings: Path, tmp_path: Path) -> None:
    copy_tree(rllib_recordings / "cartpole_episodes", tmp_path / "in")
    result = compact_dataset(CompactionConfig(), dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    imported = open_dataset(result.source.uri)
    assert result.dataset.episodes == 60
    assert list(episodes(open_dataset(str(tmp_path / "out")))) == list(episodes(imported))
