"""Point 2: recording."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import spaces_of
from offline_core.errors import LocationError, StorageError
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy
from offline_core.policies.recording.record import record
from offline_core.runtime.code_permission import remember_code
from offline_core.runtime.config import EnvironmentSpec
from tests.acceptance.forms import SMALL


def run_record(policy: str, output: Path | str, **changes: Any) -> Dataset:
    config = SMALL.model_copy(update={"rounds": 1} | changes)
    return open_dataset(record(config, policy=policy, output=str(output)).dataset.uri)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_02_n_recorders_play_at_the_same_time(tmp_path: Path) -> None:
    """Or the first would wait for ever for the second; none of them plays the other's episodes."""
    (tmp_path / "met").mkdir()
    environment = EnvironmentSpec(id="tests.acceptance.meeting:Meeting-v0", kwargs={"place": str(tmp_path / "met")})
    policy = Policy(*spaces_of(environment))
    remember_code(environment)
    save_policy(policy, str(tmp_path / "policy"), operation=Operation(name="untrained"), environment=environment)
    config = SMALL.model_copy(update={"rounds": 1, "num_recorders": 2, "cpus_per_recorder": 0.5, "envs_per_recorder": 1})
    result = record(config, policy=str(tmp_path / "policy"), output=str(tmp_path / "out"))
    assert [share.episodes for share in result.recorders] == [5, 5]
    assert result.dataset.episodes == 10 and result.dataset.steps == 10 * 3


def test_02_n_complete_episodes_a_round_in_r_rounds(own_recording: str) -> None:
    found = list(open_dataset(own_recording).episodes())
    assert len({episode.eps_id for episode in found}) == len(found) == 10 * 2
    assert all(episode.is_done for episode in found)


def test_02_run_folders_are_named_after_environment_worker_and_round(own_recording: str) -> None:
    folders = {os.path.dirname(file.path) for file in open_dataset(own_recording).manifest.files}
    assert folders == {f"cartpole-v1/run-{worker:06d}-{round:05d}" for worker in (1, 2) for round in (1, 2)}


def test_02_episode_format_is_an_episode_a_row(own_recording: str) -> None:
    dataset = open_dataset(own_recording)
    assert "item" in dataset.schema.names
    assert sum(file.rows for file in dataset.manifest.files) == dataset.ref.episodes == 20


@pytest.fixture(scope="module")
def table(cartpole_policy: str, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Two episodes in table format, not compressed, in a folder that was not there."""
    folder = tmp_path_factory.mktemp("table") / "not" / "there" / "yet"
    return run_record(cartpole_policy, folder, episodes=2, format="table", files=FilesConfig(compression="none"))


def test_02_a_local_folder_is_created(table: Dataset) -> None:
    assert table.location.uri.endswith("/not/there/yet") and table.ref.episodes == 2


def test_02_table_format_is_a_step_a_row(table: Dataset) -> None:
    wanted = {"eps_id", "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds"}
    assert wanted <= {*table.schema.names}
    assert sum(file.rows for file in table.manifest.files) == table.ref.steps


def test_02_chosen_columns_are_compressed(cartpole_policy: str, tmp_path: Path) -> None:
    """By Parquet, so that tensors need not become text to be small."""
    files = FilesConfig(compression="none", column_compression={"obs": "lz4", "new_obs": "zstd"})
    dataset = run_record(cartpole_policy, tmp_path, episodes=2, format="table", files=files)
    found = codecs(dataset)
    assert {found.pop("obs"), found.pop("new_obs")} == {"LZ4", "ZSTD"} and set(found.values()) == {"UNCOMPRESSED"}


def codecs(dataset: Dataset) -> dict[str, str]:
    group = pq.read_metadata(dataset.paths[0]).row_group(0)
    leaves = [group.column(number) for number in range(group.num_columns)]
    return {leaf.path_in_schema.partition(".")[0]: leaf.compression for leaf in leaves}


def test_02_compression_is_chosen_for_all_columns(table: Dataset, own_recording: str) -> None:
    assert set(codecs(table).values()) == {"UNCOMPRESSED"}
    assert set(codecs(open_dataset(own_recording)).values()) == {"ZSTD"}
    assert np.asarray(next(table.episodes()).observations).dtype == np.float32


def test_02_at_most_so_many_rows_a_file_and_the_remainder_is_flushed(cartpole_policy: str, tmp_path: Path) -> None:
    dataset = run_record(cartpole_policy, tmp_path, episodes=11, files=FilesConfig(max_rows_per_file=4))
    rows = [file.rows for file in dataset.manifest.files]
    assert sum(rows) == 11 and max(rows) <= 4 and any(count < 4 for count in rows)
    assert sum(1 for _ in dataset.episodes()) == 11


def test_02_at_most_so_many_bytes_a_file(pendulum_policy: str, tmp_path: Path) -> None:
    limit = 2**16
    files = FilesConfig(max_bytes_per_file=limit, compression="none")
    dataset = run_record(pendulum_policy, tmp_path, episodes=16, files=files)
    assert len(dataset.manifest.files) > 1 and max(file.bytes for file in dataset.manifest.files) <= limit
    assert dataset.ref.episodes == 16 and dataset.ref.steps == 16 * 200


@pytest.mark.parametrize("outputs", ["{0}/a,{0}/b", "{0}/a, s3://bucket/b", "s3://bucket/a,s3://bucket/b"])
def test_02_several_output_paths_are_refused_at_once(cartpole_policy: str, tmp_path: Path, outputs: str) -> None:
    with pytest.raises(LocationError, match="Give one location, as a path or a URI"):
        run_record(cartpole_policy, outputs.format(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("as_text", [False, True])
def test_02_a_list_of_output_paths_is_refused_at_once(cartpole_policy: str, tmp_path: Path, as_text: bool) -> None:
    output = [f"{tmp_path}/a", f"{tmp_path}/b"]
    with pytest.raises(LocationError, match="Give one location, as a path or a URI"):
        record(SMALL, policy=cartpole_policy, output=str(output) if as_text else output)  # type: ignore[arg-type]


def test_02_no_permission_is_refused_at_once(cartpole_policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even root may write; before anything is played."""
    monkeypatch.setattr("offline_core.policies.recording.work._play_all", lambda *_: pytest.fail("it plays"))
    with pytest.raises(StorageError, match=r"/sys/kernel/offline.*Choose another location"):
        run_record(cartpole_policy, "/sys/kernel/offline")
