"""Copying: every episode where it was sent, in order, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.datasets import copying
from offline_core.data.datasets.commit import prepare_dataset
from offline_core.data.datasets.copying import NOWHERE, copy_episodes
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.new_version import BegunVersion
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes.codecs import Format
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError
from tests.data.datasets.factories import FORMATS, cut_in_half, episode, found, write_dataset


def copy(source: Dataset, to: np.ndarray, *folders: Path) -> list[EpisodeWriter]:
    writers = [EpisodeWriter(prepare_dataset(str(folder)), "part", format=source.manifest.format) for folder in folders]
    copy_episodes(source, source.index(), to, writers)
    for writer in writers:
        writer.__exit__(None)
    return writers


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("gather_bytes", [1, 3000, 10**9])
def test_each_episode_goes_where_it_is_sent(
    tmp_path: Path, format: Format, gather_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "GATHER_BYTES", gather_bytes)
    some = [episode(i, 1 + i % 7, infos=[{"i": i}] * (2 + i % 7) if i % 5 == 0 else None) for i in range(40)]
    source = write_dataset(tmp_path / "in", some, format, batch=3, max_rows_per_file=9)
    to = np.random.default_rng(0).integers(NOWHERE, 3, 40)
    folders = [tmp_path / str(i) for i in range(3)]
    writers = copy(source, to, *folders)
    for number, (folder, writer) in enumerate(zip(folders, writers, strict=True)):
        sent = [e for e, target in zip(some, to, strict=True) if target == number]
        dataset = BegunVersion(Location.of(str(folder)), Operation(name="copy"), [source.parent_entry]).commit_copy(
            writer.written, [source]
        )
        assert list(dataset.episodes()) == sent
        assert dataset.manifest.statistics.episodes == len(sent) > 5
        assert dataset.manifest.statistics.steps == sum(map(len, sent))
        assert dataset.manifest.parents == [source.parent_entry]


@pytest.mark.parametrize("format", FORMATS)
def test_small_row_groups_become_large_ones(tmp_path: Path, format: Format) -> None:
    source = write_dataset(tmp_path / "in", [episode(i) for i in range(30)], format, batch=1, max_rows_per_file=70)
    assert sum(pq.read_metadata(path).num_row_groups for path in source.paths) == 30
    [writer] = copy(source, np.zeros(30, int), tmp_path / "out")
    [file] = writer.files
    assert pq.read_metadata(tmp_path / "out" / file.path).num_row_groups == 1


def test_small_row_groups_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding up all that wait for each new one took minutes for a few megabytes."""
    measured = []

    class Rows:
        schema = pa.schema([])

        @property
        def nbytes(self) -> int:
            measured.append(self)
            return 1

    monkeypatch.setattr(pa, "concat_tables", list)
    parts = [copying._Rows(Rows(), np.arange(1), 0) for _ in range(50)]
    assert len(list(copying._gathered(iter(parts)))) == 1 and len(measured) == 50


def test_a_source_that_breaks_off(tmp_path: Path) -> None:
    """The thread that reads passes its error on, and the writer leaves nothing half done."""
    source = write_dataset(tmp_path / "in", [episode(i) for i in range(9)], max_rows_per_file=3)
    index = source.index()
    cut_in_half(source.paths[2])
    with (
        pytest.raises(CorruptFileError, match=source.paths[2]),
        EpisodeWriter(prepare_dataset(str(tmp_path / "out")), "part", format="episodes") as writer,
    ):
        copy_episodes(source, index, np.zeros(9, int), [writer])
    assert found(tmp_path / "out") == []


def test_nothing_is_copied_of_a_dataset_of_which_nothing_is_wanted(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "in", [episode(i) for i in range(3)])
    index = source.index()
    Path(source.paths[0]).write_bytes(_footer_only(source.paths[0]))
    with EpisodeWriter(prepare_dataset(str(tmp_path / "out")), "part", format="episodes") as writer:
        copy_episodes(source, index, np.full(3, NOWHERE), [writer])
    assert (writer.files, found(tmp_path / "out")) == ([], [])


def _footer_only(path: str) -> bytes:
    """The file with noise for data, so that whoever reads a row group of it fails."""
    data = bytearray(Path(path).read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    data[4:-footer] = b"\xff" * (len(data) - footer - 4)
    return bytes(data)
