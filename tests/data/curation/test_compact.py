"""Compaction: the same episodes, byte for byte and in order, in fewer files."""

from __future__ import annotations

from pathlib import Path

import pytest

from offline_core.data.curation.compact import compact
from offline_core.data.curation.config import CompactionConfig
from offline_core.data.datasets import writer as writer_module
from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.episodes import columns
from offline_core.data.episodes.codecs import Format
from tests.cases import slow_but
from tests.data.datasets.factories import FORMATS, episode, write_dataset, write_files


@pytest.mark.parametrize("format", slow_but(FORMATS, "episodes"))
def test_nothing_changes_but_the_files(tmp_path: Path, format: Format) -> None:
    some = [episode(i, 1 + i % 9, infos=[{"i": i}] * (2 + i % 9) if i % 4 == 0 else None) for i in range(50)]
    writer = write_files(tmp_path / "in", some, format, batch=3, max_rows_per_file=10)
    operation = Operation(name="test")
    source = commit(str(tmp_path / "in"), writer.files, format=format, operation=operation, statistics=writer.statistics)
    result = compact(CompactionConfig(), dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    compacted = open_dataset(str(tmp_path / "out"))
    assert list(compacted.episodes()) == some
    for name in columns.EPISODE_METADATA:
        assert compacted.index([name]).equals(source.index([name]))
    assert result.dataset == compacted.ref
    assert result.source == source.ref
    assert result.files_before == len(source.paths) >= 6
    assert result.files_after == len(compacted.paths) <= (1 if format == "episodes" else 26)
    assert compacted.manifest.statistics == source.manifest.statistics == result.statistics
    assert compacted.manifest.statistics.columns is not None


@pytest.mark.parametrize("format", FORMATS)
def test_files_have_the_size_wanted(tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "ROW_GROUP_BYTES", 2**14)  # as small beside these files as it is beside real ones
    write_dataset(tmp_path / "in", [episode(i, 300) for i in range(60)], format, batch=1, max_rows_per_file=300)
    config = CompactionConfig(files=FilesConfig(max_bytes_per_file=2**17))
    result = compact(config, dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    sizes = [file.bytes for file in open_dataset(str(tmp_path / "out")).manifest.files]
    assert max(sizes) <= 2**17
    assert len(sizes) > 3, "or else this test would show nothing"
    assert min(sizes[:-1]) > 0.65 * 2**17, "files are filled"
    assert sum(sizes) == result.dataset.bytes
    large = compact(
        CompactionConfig(files=FilesConfig(max_bytes_per_file=2**28)),
        dataset=str(tmp_path / "out"),
        output=str(tmp_path / "out"),
    )
    assert (large.files_before, large.files_after, large.dataset.version) == (len(sizes), 1, 2)


def test_pieces_of_one_episode_stay_apart(tmp_path: Path) -> None:
    """Two of them in one row group of a table are read as one episode, or not at all: others lie between them."""
    whole, other = episode(0, 12), episode(1)
    some = [whole.slice(0, 4), whole.slice(4, 6), whole.slice(8, 10), other, whole.slice(10, 12)]
    source = write_dataset(tmp_path / "in", some, "table", batch=1)
    compact(CompactionConfig(), dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    compacted = open_dataset(str(tmp_path / "out"))
    assert list(compacted.episodes()) == some
    assert compacted.index().equals(source.index())
    assert compacted.manifest.statistics == source.manifest.statistics
    assert compacted.manifest.statistics.episodes == len(compacted.index()) == 5
