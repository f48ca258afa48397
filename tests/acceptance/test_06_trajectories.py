"""Point 6: tables and SampleBatch become episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.curation.converting import convert
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.importing.config import ConversionConfig
from tests.acceptance.forms import by_id, run_import
from tests.acceptance.test_05_old_recordings import batch, written


@pytest.fixture
def rows(recording: str, tmp_path: Path) -> pa.Table:
    """The recording as a table of plain columns, in order."""
    converted = convert(ConversionConfig(format="table"), dataset=recording, output=str(tmp_path / "table"))
    table = pa.concat_tables(pq.read_table(path) for path in open_dataset(converted.dataset.uri).paths)
    return table.select(["eps_id", "t", "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds"])


def lying(table: pa.Table, folder: Path, *, files: int, scrambled: bool) -> Path:
    folder.mkdir()
    order = np.random.default_rng(0).permutation(len(table)) if scrambled else np.arange(len(table))
    for number, part in enumerate(np.array_split(order, files)):
        pq.write_table(table.take(part), folder / f"{number}.parquet")
    return folder


def check(found: dict[str, Episode], recording: str) -> None:
    own = by_id(recording)
    assert found.keys() == own.keys()
    for eps_id, episode in found.items():
        for name in ("observations", "actions", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(episode, name), getattr(own[eps_id], name))


@pytest.mark.parametrize("files", [1, 7])
@pytest.mark.parametrize("scrambled", [False, True], ids=["in_order", "scrambled"])
def test_06_whole_trajectories_from_rows(rows: pa.Table, recording: str, tmp_path: Path, files: int, scrambled: bool) -> None:
    """With the last step of each, which the loop of the document loses."""
    folder = lying(rows, tmp_path / "in", files=files, scrambled=scrambled)
    result, found = run_import(folder, tmp_path / "out")
    check(found, recording)
    assert result.counts.rows == result.counts.steps == len(rows)


@pytest.mark.parametrize("drop", [["t"], ["t", "eps_id"]], ids=["without_t", "without_ids"])
def test_06_scrambled_rows_are_linked_by_what_they_observe(
    rows: pa.Table, recording: str, tmp_path: Path, drop: list[str]
) -> None:
    folder = lying(rows.drop_columns(drop), tmp_path / "in", files=3, scrambled=True)
    _, found = run_import(folder, tmp_path / "out")
    assert lengths(found) == lengths(by_id(recording))


def lengths(found: dict[str, Any]) -> list[int]:
    return sorted(map(len, found.values()))


def test_06_sample_batch_becomes_episodes(tmp_path: Path) -> None:
    """Split by their ids and ends, where RLlib takes a line for a finished episode."""
    lines = [batch([1, 1, 2], [0, 1, 0], [False, True, False]), batch([2, 2], [1, 2], [False, True])]
    _, found = run_import(written(tmp_path / "in", *lines), tmp_path / "out")
    assert {eps_id: (len(e), e.terminated) for eps_id, e in found.items()} == {"1": (2, True), "2": (3, True)}
    assert found["2"].observations[:, 0].tolist() == [20, 21, 22, 23]
