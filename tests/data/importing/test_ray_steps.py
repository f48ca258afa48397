"""Any source as a lazy Ray Data dataset."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.episodes.arrow import read_column
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.ray_steps import ray_steps
from offline_core.errors import ConfigError, EmptyDatasetError, NonFiniteError

pytestmark = pytest.mark.usefixtures("ray_up")


def test_rllibs_old_recordings_as_steps(rllib_recordings: Path) -> None:
    """Counts and returns as a plain loop over the JSON finds them."""
    steps = ray_steps(ImportConfig(), source=str(rllib_recordings / "cartpole_json_plain"))
    found = pa.concat_tables(steps.iter_batches(batch_size=None, batch_format="pyarrow"))
    files = (rllib_recordings / "cartpole_json_plain").iterdir()
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert found.num_rows == sum(len(line["rewards"]) for line in lines)
    assert sum(found["rewards"].to_pylist()) == sum(sum(line["rewards"]) for line in lines)
    obs = read_column(found, "obs")
    assert obs.shape == (found.num_rows, 4)
    np.testing.assert_allclose(obs.sum(), np.sum([row for line in lines for row in line["obs"]]), rtol=1e-9)


def test_files_are_not_read_before_their_turn(tmp_path: Path) -> None:
    for number in range(3):
        rows = {"o": [0.0, 1.0], "a": [0, 1], "r": [1.0, 1.0], "d": [False, True]}
        pq.write_table(pa.table(rows), tmp_path / f"{number}.parquet")
    steps = ray_steps(ImportConfig(mapping={"obs": "o", "actions": "a", "rewards": "r", "dones": "d"}), source=str(tmp_path))
    rows = {"o": [0.0, float("nan")], "a": [0, 1], "r": [1.0, 1.0], "d": [False, True]}
    pq.write_table(pa.table(rows), tmp_path / "2.parquet")
    with pytest.raises(NonFiniteError, match=r"2\.parquet, row 1") as raised:
        list(steps.iter_batches(batch_size=None, batch_format="pyarrow"))
    assert "quarantine" not in str(raised.value), "here no row is listed"


def test_episodes_are_no_steps(rllib_recordings: Path) -> None:
    with pytest.raises(ConfigError, match="holds episodes and not steps"):
        ray_steps(ImportConfig(), source=str(rllib_recordings / "cartpole_episodes"))


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("obs,actions,rewards,dones\n")
    with pytest.raises(EmptyDatasetError, match="no rows"):
        ray_steps(ImportConfig(), source=str(tmp_path))
