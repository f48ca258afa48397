"""How imported episodes lie on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.report import Counts
from offline_core.data.importing.writing import _batches


def test_files_of_an_episode_each_become_one_row_group(rllib_recordings: Path, tmp_path: Path) -> None:
    """And not as many, which would be read one by one ever after."""
    result = import_data(ImportConfig(), source=str(rllib_recordings / "cartpole_episodes"), output=str(tmp_path))
    [path] = open_dataset(result.dataset.uri).paths
    footer = pq.ParquetFile(path).metadata
    assert (footer.num_rows, footer.num_row_groups) == (60, 1)


def test_episodes_of_another_kind_begin_a_new_part() -> None:
    """Nothing is promoted to what lies beside it; counts are of all of them."""

    def one(number: int, dtype: str) -> Episode:
        steps = {"actions": np.zeros(2, int), "rewards": np.zeros(2)}
        return Episode(eps_id=str(number), observations=np.zeros((3, 1), dtype), **steps)

    files = [([one(number, dtype)], Counts(rows=2, steps=2)) for number, dtype in enumerate(["f4", "f4", "f8", "f8", "f4"])]
    found = list(_batches(files))
    assert [[episode.eps_id for episode in batch] for batch, _ in found] == [["0", "1"], ["2", "3"], ["4"]]
    assert sum((counts for _, counts in found), Counts()) == Counts(rows=10, steps=10)
