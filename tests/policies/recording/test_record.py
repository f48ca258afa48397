"""Recording with real actors: whole, once, the same each time, whatever dies on the way."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import DatasetRef, open_dataset, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import spaces_of
from offline_core.errors import CheckpointError, ConfigError, RecorderError, StorageError
from offline_core.keeping.inspection import card_at
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy
from offline_core.policies.recording import work
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.record import record as record_with_result
from offline_core.policies.recording.result import RecordingResult
from offline_core.runtime.code_permission import remember_code
from offline_core.runtime.config import EnvironmentSpec
from tests.waiting import wait_until


def record(config: RecordingConfig, *, policy: str, output: str) -> DatasetRef:
    return record_with_result(config, policy=policy, output=output).dataset


SMALL = RecordingConfig(episodes=20, rounds=2, cpus_per_recorder=0.5, envs_per_recorder=4)
"""Played in this process where Ray is not up."""


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_n_episodes_asked_are_n_episodes_on_disk(tmp_path: Path, cartpole_policy: str, format: str) -> None:
    config = SMALL.model_copy(update={"format": format})
    ref = record(config, policy=cartpole_policy, output=str(tmp_path))
    dataset = open_dataset(ref.uri, ref.version)
    found = list(dataset.episodes())
    assert len(found) == 40 == len({e.eps_id for e in found}) == dataset.manifest.statistics.episodes
    assert all(e.is_done for e in found)
    assert sum(map(len, found)) == ref.steps == sum(file.steps for file in dataset.manifest.files)
    folders = {os.path.dirname(file.path) for file in dataset.manifest.files}
    assert folders == {f"cartpole-v1/run-{k:06d}-{r:05d}" for k in (1, 2) for r in (1, 2)}
    assert dataset.manifest.parents[0].kind == "checkpoint"
    index = dataset.index(["policy_id", "content"])
    assert set(index["policy_id"]) == {dataset.manifest.parents[0].fingerprint}
    assert index["content"].n_unique() == 40
    summed_up = dataset.manifest.statistics.columns
    assert summed_up is not None
    steps = np.concatenate([np.asarray(e.observations)[:-1] for e in found])
    assert summed_up["obs"].count == [len(steps)] * 4
    np.testing.assert_allclose(summed_up["obs"].mean, steps.astype(np.float64).mean(axis=0), rtol=1e-9)


def test_same_seed_same_fingerprint_and_same_episodes_in_both_formats(tmp_path: Path, cartpole_policy: str) -> None:
    def run_record(name: str, **update: object):
        return record(SMALL.model_copy(update=update), policy=cartpole_policy, output=str(tmp_path / name))

    first, again = run_record("a"), run_record("b", cpus_per_recorder=0.25)
    assert first.fingerprint == again.fingerprint
    table = run_record("c", format="table")
    one, other = (list(open_dataset(ref.uri).episodes()) for ref in (first, table))
    assert sorted(one, key=lambda e: e.eps_id) == sorted(other, key=lambda e: e.eps_id)
    assert run_record("d", seed=1).fingerprint != first.fingerprint


def test_what_was_recorded_is_found_and_says_who_recorded_it(
    tmp_path: Path, cartpole_policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "offline_core")

    def run_record(**update: object) -> RecordingResult:
        return record_with_result(SMALL.model_copy(update=update), policy=cartpole_policy, output=str(tmp_path))

    first = run_record()
    assert not first.reused and first.environment == "CartPole-v1"
    assert sum(share.episodes for share in first.recorders) == first.statistics.episodes == 40
    assert sum(share.steps for share in first.recorders) == first.dataset.steps
    assert 0 < max(share.seconds for share in first.recorders) < first.seconds
    again = run_record(cpus_per_recorder=1.0)
    assert again == first.model_copy(update={"reused": True})
    assert not run_record(explore=False).reused
    one, other = run_record(seed=None), run_record(seed=None)
    assert one.dataset.fingerprint != other.dataset.fingerprint
    seed = open_dataset(str(tmp_path), one.dataset.version).manifest.operation.config["seed"]
    assert f"The seed is {seed}:" in caplog.text
    assert run_record(seed=seed).dataset == one.dataset.model_copy(update={"latest": 4})
    assert versions(str(tmp_path)) == [1, 2, 3, 4]


@pytest.mark.parametrize(("explore", "said"), [(True, "sampled"), (False, "greedy")])
def test_a_recording_says_how_actions_were_chosen(tmp_path: Path, cartpole_policy: str, explore: bool, said: str) -> None:
    config = RecordingConfig(episodes=2, explore=explore, envs_per_recorder=2)
    result = record_with_result(config, policy=cartpole_policy, output=str(tmp_path))
    dataset = open_dataset(str(tmp_path))
    assert result.actions == dataset.manifest.actions == said
    assert f"actions={said}" in repr(dataset)
    assert f"actions {said}" in card_at(str(tmp_path)).terminal(verbose=True)


@pytest.mark.parametrize(
    ("explore", "greedy_return", "is_below"), [(True, 500.0, True), (True, 20.0, False), (False, 500.0, False)]
)
def test_sampling_far_below_the_greedy_return_is_pointed_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, explore: bool, greedy_return: float, is_below: bool
) -> None:
    environment = EnvironmentSpec(id="CartPole-v1")
    uri = str(tmp_path / "policy")
    operation, metrics = Operation(name="untrained"), {"episode_return_mean": greedy_return}
    save_policy(Policy(*spaces_of(environment)), uri, operation=operation, environment=environment, metrics=metrics)
    config = RecordingConfig(episodes=8, explore=explore, envs_per_recorder=4)
    with caplog.at_level("WARNING", "offline_core"):
        result = record_with_result(config, policy=uri, output=str(tmp_path / "data"))
    assert result.greedy_return == greedy_return and result.is_below_greedy == is_below
    assert ("Greedy actions return 500.0; set explore to false" in caplog.text) == is_below


def test_the_greedy_return_in_another_environment_is_unknown(tmp_path: Path) -> None:
    environment = EnvironmentSpec(id="CartPole-v1")
    uri = str(tmp_path / "policy")
    operation, metrics = Operation(name="untrained"), {"episode_return_mean": 500.0}
    save_policy(Policy(*spaces_of(environment)), uri, operation=operation, environment=environment, metrics=metrics)
    config = RecordingConfig(
        episodes=2, envs_per_recorder=2, environment=EnvironmentSpec(id="CartPole-v1", kwargs={"sutton_barto_reward": True})
    )
    assert record_with_result(config, policy=uri, output=str(tmp_path / "data")).greedy_return is None


def test_files_are_limited_and_the_rest_is_flushed(tmp_path: Path, cartpole_policy: str) -> None:
    config = SMALL.model_copy(update={"episodes": 22, "rounds": 1, "files": FilesConfig(max_rows_per_file=4)})
    ref = record(config, policy=cartpole_policy, output=str(tmp_path))
    rows = [file.rows for file in open_dataset(ref.uri).manifest.files]
    assert sum(rows) == 22 and max(rows) <= 4


HELD = "held"
"""A file: while it is there, processes wait in their first reset to be killed."""


class Slow(gym.Env):
    """Takes a while for each step, and writes down who plays."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, notes: str) -> None:
        self.notes = Path(notes)
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        (self.notes / str(os.getpid())).touch()
        while is_held(self.notes):
            time.sleep(0.01)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(0.002)
        self.steps += 1
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), float(action), False, self.steps == 20, {}


gym.register("OfflineTests/Slow-v0", Slow)


@pytest.fixture
def slow_policy(tmp_path: Path) -> tuple[str, EnvironmentSpec, Path]:
    notes = tmp_path / "notes"
    notes.mkdir()
    environment = EnvironmentSpec(id=f"{__name__}:OfflineTests/Slow-v0", kwargs={"notes": str(notes)})
    uri = str(tmp_path / "policy")
    remember_code(environment)
    save_policy(Policy(*spaces_of(environment)), uri, operation=Operation(name="untrained"), environment=environment)
    return uri, environment, notes


def is_held(notes: Path) -> bool:
    """Whether this process is to wait for the one that kills: its id is not that of the test's own process."""
    try:
        return (notes.parent / HELD).read_text() != str(os.getpid())
    except FileNotFoundError:
        return False


def kill_players(notes: Path, *, times: int) -> threading.Thread:
    """Kills (SIGKILL) the first processes that start to play, each once; none goes on before the last of them is dead."""
    held = notes.parent / HELD
    held.write_text(str(os.getpid()))

    def run() -> None:
        killed: set[str] = set()

        def next_one() -> str | None:
            return next((path.name for path in notes.iterdir() if path.name not in {*killed, str(os.getpid())}), None)

        try:
            while len(killed) < times:
                pid = wait_until(next_one, what="a process that plays")
                os.kill(int(pid), signal.SIGKILL)
                killed.add(pid)
        finally:
            held.unlink()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_a_recorder_that_dies_is_replaced_and_nothing_is_there_twice(tmp_path: Path, slow_policy) -> None:
    policy, _, notes = slow_policy
    config = RecordingConfig(episodes=12, num_recorders=2, cpus_per_recorder=0.5, envs_per_recorder=2)
    undisturbed = record(config, policy=policy, output=str(tmp_path / "undisturbed"))
    for path in notes.iterdir():
        path.unlink()
    killer = kill_players(notes, times=2)
    disturbed = record(config, policy=policy, output=str(tmp_path / "disturbed"))
    killer.join()
    assert len(list(notes.iterdir())) > 2, "nobody was killed and replaced"
    assert disturbed.fingerprint == undisturbed.fingerprint
    assert len(list(open_dataset(disturbed.uri).episodes())) == 12


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_a_recorder_that_dies_too_often_ends_the_recording(tmp_path: Path, slow_policy) -> None:
    policy, _, notes = slow_policy
    config = RecordingConfig(episodes=12, num_recorders=1, cpus_per_recorder=0.5, max_recorder_restarts=0)
    killer = kill_players(notes, times=1)
    with pytest.raises(RecorderError, match=r"died 1 times .* nothing was committed"):
        record(config, policy=policy, output=str(tmp_path / "out"))
    killer.join()
    assert versions(str(tmp_path / "out")) == []


def test_bad_input_is_refused_before_anything_is_played(tmp_path: Path, cartpole_policy: str) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StorageError, match="file/below"):
        record(SMALL, policy=cartpole_policy, output=str(file / "below"))
    with pytest.raises(CheckpointError, match="no policy at"):
        record(SMALL, policy=str(tmp_path / "none"), output=str(tmp_path / "out"))
    other = SMALL.model_copy(update={"environment": EnvironmentSpec(id="Pendulum-v1")})
    with pytest.raises(ConfigError, match="observation space"):
        record(other, policy=cartpole_policy, output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_more_recorders_than_fit_share_the_cpus_and_play_the_same(tmp_path: Path, cartpole_policy: str) -> None:
    many = RecordingConfig(episodes=12, num_recorders=6, envs_per_recorder=2)
    few_cpus, plenty = (
        record(many.model_copy(update={"cpus_per_recorder": c}), policy=cartpole_policy, output=str(tmp_path / str(c)))
        for c in (2.0, 0.5)
    )
    assert few_cpus.fingerprint == plenty.fingerprint
    with pytest.raises(ConfigError, match="no node of Ray has more than"):
        record(many.model_copy(update={"cpus_per_recorder": 100.0}), policy=cartpole_policy, output=str(tmp_path / "x"))


def test_equal_ids_mean_equal_episodes(tmp_path: Path, cartpole_policy: str) -> None:
    """Whatever shapes an episode shapes its id."""
    base = {e.eps_id for e in open_dataset(record(SMALL, policy=cartpole_policy, output=str(tmp_path / "a")).uri).episodes()}
    changes = ({"explore": False}, {"envs_per_recorder": 2}, {"environment": EnvironmentSpec(kwargs={"max_episode_steps": 5})})
    for i, change in enumerate(changes):
        ref = record(SMALL.model_copy(update=change), policy=cartpole_policy, output=str(tmp_path / str(i)))
        assert not base & {e.eps_id for e in open_dataset(ref.uri).episodes()}


@pytest.mark.slow
def test_auto_plays_here_what_takes_no_longer_than_rays_start(
    tmp_path: Path, cartpole_policy: str, ray_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RecordingConfig(episodes=6, envs_per_recorder=2, cpus_per_recorder=0.5)
    monkeypatch.setattr(work, "ray_is_up", lambda: False)
    here = record_with_result(config, policy=cartpole_policy, output=str(tmp_path / "here"))
    monkeypatch.setattr(work, "RAY_START_SECONDS", 0.0)
    too_long = record_with_result(config, policy=cartpole_policy, output=str(tmp_path / "too_long"))
    assert here.dataset.fingerprint == too_long.dataset.fingerprint
    assert [share.node for share in here.recorders] == ["here"] and "here" not in {share.node for share in too_long.recorders}
