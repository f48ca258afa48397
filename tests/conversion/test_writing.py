"""How imported episodes lie on disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from offline_core.conversion.config import ImportConfig
from offline_core.conversion.importing import import_dataset
from offline_core.storage.dataset import open_dataset


def test_files_of_an_episode_each_become_one_row_group(rllib_recordings: Path, tmp_path: Path) -> None:
    """And not as many, which would be read one by one ever after."""
    result = import_dataset(ImportConfig(), source=str(rllib_recordings / "cartpole_episodes"), output=str(tmp_path))
    [path] = open_dataset(result.dataset.uri).paths
    footer = pq.ParquetFile(path).metadata
    assert (footer.num_rows, footer.num_row_groups) == (60, 1)
