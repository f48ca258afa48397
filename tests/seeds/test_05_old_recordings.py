"""Point 5: old recordings, readers and writers of one's own, mixtures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offline_core.conversion.exporting import ExportConfig, export_dataset
from offline_core.recording.config import MixtureConfig
from offline_core.recording.mixing import mix_datasets
from tests.seeds.forms import by_id, run_import
from tests.storage.sources.test_sample_batch import packed


def batch(eps_id: list[int], t: list[int], dones: list[bool]) -> dict[str, Any]:
    """A line; the observation of step t of episode e is 10 e + t."""
    obs = np.float32([[10 * e + at] for e, at in zip(eps_id, t, strict=True)])
    return {
        "type": "SampleBatch",
        "eps_id": eps_id,
        "t": t,
        "obs": obs.tolist(),
        "new_obs": (obs + 1).tolist(),
        "actions": [0] * len(t),
        "rewards": [1.0] * len(t),
        "dones": dones,
    }


def written(folder: Path, *lines: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "output_worker-0_0.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def seen(folder: Path, out: Path) -> dict[str, list[float]]:
    return {eps_id: e.observations[:, 0].tolist() for eps_id, e in run_import(folder, out)[1].items()}


def test_05_several_episodes_in_one_line(tmp_path: Path) -> None:
    folder = written(tmp_path / "in", batch([1, 1, 2, 2, 2], [0, 1, 0, 1, 2], [False, True, False, False, True]))
    assert seen(folder, tmp_path / "out") == {"1": [10, 11, 12], "2": [20, 21, 22, 23]}


def test_05_one_episode_over_several_lines(tmp_path: Path) -> None:
    lines = [batch([1, 1], [0, 1], [False, False]), batch([1, 1], [2, 3], [False, True])]
    assert seen(written(tmp_path / "in", *lines), tmp_path / "out") == {"1": [10, 11, 12, 13, 14]}


def test_05_plain_and_packed_lines_are_the_same(tmp_path: Path) -> None:
    plain = batch([1, 1, 1], [0, 1, 2], [False, False, True])
    arrays = {name: packed(np.asarray(plain[name], np.float32)) for name in ("obs", "new_obs")}
    found = [seen(written(tmp_path / n, plain | more), tmp_path / f"{n}-out") for n, more in (("a", {}), ("b", arrays))]
    assert found[0] == found[1] == {"1": [10, 11, 12, 13]}


@pytest.mark.parametrize("name", ["cartpole_json_plain", "cartpole_json_packed"])
def test_05_rllibs_sample_batch_json_plain_and_packed(rllib_recordings: Path, tmp_path: Path, name: str) -> None:
    result, found = run_import(rllib_recordings / name, tmp_path)
    assert len(found) == 40 and result.counts.rows == result.counts.steps == sum(map(len, found.values()))
    assert all(e.return_ == len(e) for e in found.values()), "CartPole gives 1 for each step"


def test_05_a_reader_and_a_writer_of_ones_own(recording: str, tmp_path: Path) -> None:
    """Both of `examples/`: out to a database, and back."""
    database = str(tmp_path / "steps.sqlite")
    assert export_dataset(ExportConfig(format="examples.writer:Sqlite"), dataset=recording, output=database).episodes == 20
    source = {"format": "examples.reader:Sqlite"}
    _, found = run_import(database, tmp_path / "back", source=source, environment={"id": "CartPole-v1"})
    own = by_id(recording)
    assert found.keys() == own.keys()
    for eps_id, episode in found.items():
        np.testing.assert_array_equal(episode.observations, own[eps_id].observations)
        np.testing.assert_array_equal(episode.actions, own[eps_id].actions)


def test_05_sources_are_mixed_by_weight(rllib_recordings: Path, recording: str, tmp_path: Path) -> None:
    """One of RLlib's, which has to be told its spaces first, for JSON says none."""
    other, _ = run_import(rllib_recordings / "cartpole_json_plain", tmp_path / "json", environment={"id": "CartPole-v1"})
    shares = {recording: 0.25, other.dataset.uri: 0.75}
    result = mix_datasets(MixtureConfig(datasets=shares, steps=1_500), output=str(tmp_path / "mixed"))
    assert result.is_complete and sum(result.steps.values()) == result.dataset.steps >= 1_500
    assert abs(result.steps[recording] / result.dataset.steps - 0.25) < 500 / 1_500, "off by an episode at most"
    assert all(result.steps.values())


def test_05_a_live_sampler_is_mixed_in(recording: str, cartpole_policy: str, tmp_path: Path) -> None:
    config = MixtureConfig(datasets={recording: 0.5}, policies={cartpole_policy: 0.5}, steps=400, seed=9)
    result = mix_datasets(config, output=str(tmp_path))
    found = by_id(result.dataset.uri)
    live = [e for eps_id, e in found.items() if eps_id not in by_id(recording)]
    assert sum(map(len, live)) == result.steps[cartpole_policy] > 0
    assert abs(result.steps[recording] - result.steps[cartpole_policy]) <= max(map(len, found.values()))
