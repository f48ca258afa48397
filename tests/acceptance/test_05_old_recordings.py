"""Point 5: old recordings, readers and writers of one's own, mixtures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offline_core.data.formats.exporting import ExportConfig, export
from offline_core.data.formats.exports.sample_batch import SampleBatchBuilder, SampleBatchWriter
from offline_core.policies.recording.mixing import MixtureConfig, mix
from tests.acceptance.forms import by_id, run_import
from tests.data.formats.sources.test_sample_batch import packed


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


@pytest.mark.parametrize("compress", [["obs", "new_obs"], []], ids=["packed", "plain"])
def test_05_rllibs_recording_is_written_as_sample_batches(rllib_recordings: Path, tmp_path: Path, compress: list[str]) -> None:
    """And read back step by step as it was; `tests/interop/test_sample_batch.py` has RLlib's JsonReader read it."""
    cartpole = {"environment": {"id": "CartPole-v1"}}
    result, own = run_import(rllib_recordings / "cartpole_json_packed", tmp_path / "in", **cartpole)
    config = ExportConfig(format="sample_batch", arguments={"compress_columns": compress, "max_file_size": 2**16})
    export(config, dataset=result.dataset.uri, output=str(tmp_path / "json"))
    files = list((tmp_path / "json" / "batches").glob("output_worker-0_*.json"))
    assert len(files) > 1
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert all(line["type"] == "SampleBatch" and isinstance(line["obs"], str) is bool(compress) for line in lines)
    assert run_import(tmp_path / "json", tmp_path / "back", **cartpole)[1] == own


def test_05_columns_of_rllibs_batches_are_chosen(rllib_recordings: Path, tmp_path: Path) -> None:
    place = rllib_recordings / "cartpole_json_packed"
    line = json.loads(next(place.glob("*.json")).read_text().splitlines()[0])
    chosen = ["eps_id", "t", "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds"]
    chosen = [name for name in chosen if name in line] + (["dones"] if "dones" in line else [])
    _, found = run_import(place, tmp_path / "some", source={"columns": chosen})
    _, whole = run_import(place, tmp_path / "all")
    assert found.keys() == whole.keys() and any(each.extras for each in whole.values())
    for eps_id, each in found.items():
        assert not each.extras and np.array_equal(each.observations, whole[eps_id].observations)


def test_05_a_log_of_ones_own_is_built_step_by_step(rllib_recordings: Path, tmp_path: Path) -> None:
    """`add_values`, `build_and_reset`, `write`, of the steps of RLlib's recording."""
    _, own = run_import(rllib_recordings / "cartpole_json_plain", tmp_path / "in")
    builder = SampleBatchBuilder()
    with SampleBatchWriter(str(tmp_path / "log")) as writer:
        for eps_id, each in own.items():
            for t in range(len(each)):
                builder.add_values(
                    t=t,
                    eps_id=eps_id,
                    obs=each.get_observations(t),
                    actions=each.get_actions(t),
                    rewards=each.get_rewards(t),
                    terminateds=each.terminated and t == len(each) - 1,
                    truncateds=each.truncated and t == len(each) - 1,
                    new_obs=each.get_observations(t + 1),
                )
            writer.write(builder.build_and_reset())
    _, found = run_import(tmp_path / "log", tmp_path / "back")
    assert found.keys() == own.keys()
    for eps_id, each in found.items():
        assert np.array_equal(each.observations, own[eps_id].observations)
        assert (each.terminated, each.truncated) == (own[eps_id].terminated, own[eps_id].truncated)


def test_05_recurrent_batches_are_read(tmp_path: Path) -> None:
    """Sequences with the state before each."""
    line = batch([1] * 5, list(range(5)), [False] * 4 + [True])
    line |= {"seq_lens": [3, 2], "state_in_0": [[0.0], [7.0]], "state_out_0": [[float(i)] for i in range(5)]}
    [found] = run_import(written(tmp_path / "in", line), tmp_path / "out")[1].values()
    assert found.extras.keys() == {"state_in_0", "state_out_0"}
    assert np.asarray(found.extras["state_in_0"]).tolist() == [[0.0], [0.0], [1.0], [7.0], [3.0]]


def test_05_packed_infos_are_read(tmp_path: Path) -> None:
    line = batch([1] * 3, [0, 1, 2], [False, False, True]) | {"infos": packed(np.array([{"n": i} for i in range(3)], object))}
    [found] = run_import(written(tmp_path / "in", line), tmp_path / "out")[1].values()
    assert found.get_infos() == [{}, {"n": 0}, {"n": 1}, {"n": 2}]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole_episodes", "pendulum_episodes"])
def test_05_rllibs_recordings_go_out_as_d4rl_and_come_back(rllib_recordings: Path, tmp_path: Path, name: str) -> None:
    environment = {"environment": {"id": "CartPole-v1" if "cartpole" in name else "Pendulum-v1"}}
    result, own = run_import(rllib_recordings / name, tmp_path / "in", **environment)
    export(ExportConfig(format="d4rl"), dataset=result.dataset.uri, output=str(tmp_path / "d4rl"))
    assert any(each.truncated for each in own.values())
    assert run_import(tmp_path / "d4rl", tmp_path / "back", **environment)[1] == own


def test_05_a_reader_and_a_writer_of_ones_own(recording: str, tmp_path: Path) -> None:
    """Both of `examples/`: out to a database, and back."""
    database = str(tmp_path / "steps.sqlite")
    assert export(ExportConfig(format="examples.writer:Sqlite"), dataset=recording, output=database).episodes == 20
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
    result = mix(MixtureConfig(datasets=shares, steps=1_500), output=str(tmp_path / "mixed"))
    assert result.is_complete and sum(result.steps.values()) == result.dataset.steps >= 1_500
    assert abs(result.steps[recording] / result.dataset.steps - 0.25) < 500 / 1_500, "off by an episode at most"
    assert all(result.steps.values())


def test_05_a_live_sampler_is_mixed_in(recording: str, cartpole_policy: str, tmp_path: Path) -> None:
    config = MixtureConfig(datasets={recording: 0.5}, policies={cartpole_policy: 0.5}, steps=2_000, seed=9)
    result = mix(config, output=str(tmp_path))
    found = by_id(result.dataset.uri)
    live = [e for eps_id, e in found.items() if eps_id not in by_id(recording)]
    assert sum(map(len, live)) == result.steps[cartpole_policy] > 0
    assert abs(result.steps[recording] - result.steps[cartpole_policy]) <= max(map(len, found.values()))
