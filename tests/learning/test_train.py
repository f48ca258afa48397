"""Training from datasets with real Ray: learns, repeats itself, refuses what it cannot learn from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import VectorEnv

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.environments.vector_env import make_vector_env, spaces_of
from offline_core.data.episodes import Episode
from offline_core.errors import (
    ConfigError,
    CorruptFileError,
    DataError,
    DatasetNotFoundError,
    EmptyDatasetError,
    EnvironmentNotFoundError,
    LearningError,
    NonFiniteError,
    SchemaError,
    StorageError,
)
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.learning.train import train
from offline_core.learning.trainer_config import OptimizerConfig
from offline_core.learning.work import make_run
from offline_core.policies import rollouts
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import EnvironmentSpec, parse
from tests.cases import slow_but
from tests.data.importing.factories import run_import, scattered, steps, without
from tests.learning.datasets import CARTPOLE, SPACES, dataset_of

pytestmark = pytest.mark.usefixtures("ray_up")


def config(**values: object) -> TrainingConfig:
    base: dict[str, Any] = {
        "network": {"hidden_sizes": [16]},
        "optimizer": {"batch_size": 256, "max_epochs": 2, "learning_rate": 0.01},
        "evaluation": {"episodes": 5},
        "data": {"cpus_per_prelearner": 0.5},
    } | values
    return parse(TrainingConfig, base | {"optimizer": {"updates_per_iteration": 10} | base["optimizer"]})


def balancing_episodes(count: int = 20, steps: int = 100, *, seed: int = 0) -> list[Episode]:
    """Made-up states of CartPole and what a simple good controller would do in them."""
    rng = np.random.default_rng(seed)
    episodes = []
    for i in range(count):
        observations = rng.uniform(-1, 1, (steps + 1, 4)).astype(np.float32) * np.array([2, 1, 0.2, 1], np.float32)
        actions = (observations[:-1] @ np.array([0.1, 0.3, 5.0, 1.0], np.float32) > 0).astype(np.int64)
        episodes.append(
            Episode(
                eps_id=f"{seed}-{i}",
                observations=observations,
                actions=actions,
                rewards=np.ones(steps),
                truncated=True,
                observation_space=SPACES[0],
                action_space=SPACES[1],
            )
        )
    return episodes


@pytest.mark.parametrize("format", slow_but(["episodes", "table"], "episodes"))
def test_a_controller_is_cloned(tmp_path: Path, format: str) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(60, 200), format=format)
    wanted = config(
        optimizer={"batch_size": 256, "max_epochs": 40, "learning_rate": 0.01, "updates_per_iteration": 100},
        evaluation={"episodes": 20},
    )
    result = train(wanted, dataset=data, output=str(tmp_path / "policy"))
    assert result.reached_target and result.target_return == 475.0
    assert result.metrics["episode_return_mean"] >= 475.0
    policy, manifest = load_policy(result.checkpoint), read_policy_manifest(result.checkpoint)
    assert policy.act(np.array([[0, 0, 0.1, 0.5], [0, 0, -0.1, -0.5]], np.float32)).tolist() == [1, 0]
    assert manifest.environment == CARTPOLE
    assert manifest.parents == [open_dataset(data).parent_entry]
    lines = [json.loads(line) for line in (tmp_path / "policy" / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines if "loss" in line][: len(result.losses)] == [loss for _, loss in result.losses]
    assert list((tmp_path / "policy" / "tensorboard").iterdir())


def test_successes_are_followed_where_the_environment_tells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the right is the door, and that is all that was ever done."""
    monkeypatch.setenv("OFFLINE_ALLOW_CODE", "examples")
    corridor = EnvironmentSpec(id="examples.environment:Corridor-v0")
    steps = np.linspace(0, 1, 21, dtype=np.float32)[:, None]
    episode = Episode(eps_id="right", observations=steps, actions=np.ones(20, int), rewards=-np.ones(20), terminated=True)
    data = dataset_of(tmp_path / "data", [episode], spaces=spaces_of(corridor), environment=corridor)
    result = train(config(optimizer={"max_epochs": 40}), dataset=data, output=str(tmp_path / "policy"))
    lines = [json.loads(line) for line in (tmp_path / "policy" / "metrics.jsonl").read_text().splitlines()]
    rates = [line["success_rate"] for line in lines if "episode_return_mean" in line]
    assert len(rates) == 4 and rates[-1] == result.metrics["success_rate"] == 1.0


def test_same_seed_same_weights_and_losses(tmp_path: Path) -> None:
    """Many rows at a time or few: the same policy to the bit; another seed, another."""
    data = dataset_of(tmp_path / "data", balancing_episodes(), rows=5)

    def run_train(name: str, **values: object) -> TrainingResult:
        never = {"episodes": 5, "target_return": 501.0}
        return train(config(evaluation=never, **values), dataset=data, output=str(tmp_path / name))

    first = run_train("a")
    again = run_train("b", data={"row_groups_per_read": 3})
    other = run_train("c", seed=1)
    weights = [read_policy_manifest(r.last_checkpoint).weights_sha256 for r in (first, again, other)]
    assert weights[0] == weights[1] != weights[2]
    assert first.losses == again.losses
    assert first.curve == again.curve
    assert first.updates == 16 and first.steps == 2 * 2000 and first.epochs == 2.0


@pytest.mark.slow
def test_a_stream_is_the_same_whoever_reads_it(tmp_path: Path) -> None:
    """So a run that was killed here goes on elsewhere, where more actors read."""
    data = dataset_of(tmp_path / "data", balancing_episodes(), rows=5, format="table", environment=None)
    streaming = {"resident_bytes": 0, "window_steps": 512}
    pool = {"prelearners": 2, "cpus_per_prelearner": 0.25, "row_groups_per_read": 3}
    alone, together = (
        train(config(data=streaming | how), dataset=data, output=str(tmp_path / name))
        for name, how in {"alone": {}, "together": pool}.items()
    )
    assert alone.steps == together.steps == 4000
    assert together.losses == alone.losses
    operations = [read_policy_manifest(result.checkpoint).operation for result in (alone, together)]
    assert operations[0] == operations[1]


@pytest.mark.parametrize("more", [{}, {"frames": 2}, {"recurrent": "gru"}])
def test_the_observation_filter_is_that_of_the_data_and_travels_with_the_policy(tmp_path: Path, more: dict) -> None:
    episodes = balancing_episodes()
    data = dataset_of(tmp_path / "data", episodes)
    network = {"hidden_sizes": [8], "normalize_observations": True} | more
    result = train(config(network=network), dataset=data, output=str(tmp_path / "policy"))
    encoder = load_policy(result.checkpoint).encoder
    observations = np.concatenate([e.observations[:-1] for e in episodes]).astype(np.float64)
    np.testing.assert_allclose(encoder.mean, observations.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(encoder.variance, observations.var(axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "network"),
    slow_but(
        [("iql", {}), ("marwil", {"recurrent": "lstm", "recurrent_units": 8}), ("dqn", {"frames": 2})],
        ("iql", {}),
    ),
)
def test_every_algorithm_learns_the_same_from_either_format(tmp_path: Path, algorithm: str, network: dict) -> None:
    results = []
    for format in ("episodes", "table"):
        data = dataset_of(tmp_path / format, balancing_episodes(6, 50), format=format, environment=None, rows=100)
        wanted = config(algorithm=algorithm, network={"hidden_sizes": [16]} | network)
        results.append(train(wanted, dataset=data, output=str(tmp_path / f"{format}-out")))
    assert results[0].losses == results[1].losses
    assert np.isfinite(results[0].losses).all()
    weights = [read_policy_manifest(result.checkpoint).weights_sha256 for result in results]
    assert weights[0] == weights[1]
    load_policy(results[0].checkpoint)


def test_held_out_loss_chooses_the_best_policy_and_ends_the_run(tmp_path: Path) -> None:
    """Few steps and a large network: the loss on other data falls, and then rises."""
    data = dataset_of(tmp_path / "data", balancing_episodes(2, 20), environment=None)
    other = dataset_of(tmp_path / "other", balancing_episodes(20, seed=7), environment=None)
    wanted = config(
        network={"hidden_sizes": [256, 256]},
        optimizer={"batch_size": 40, "max_epochs": 400, "learning_rate": 0.01},
        evaluation={"held_out": other, "patience": 3},
    )
    result = train(wanted, dataset=data, output=str(tmp_path / "policy"))
    losses = dict(result.held_out_losses)
    best = min(losses, key=losses.__getitem__)
    assert result.metrics == {"held_out_loss": losses[best]}
    assert result.updates == best + 3 * 10 < 400
    assert [updates for updates, _ in result.held_out_losses] == list(range(10, result.updates + 1, 10))


def test_a_loss_that_moves_with_its_own_targets_chooses_nothing(tmp_path: Path) -> None:
    """It is measured all the same, and patience cannot wait for it to fall."""
    data = dataset_of(tmp_path / "data", balancing_episodes(4, 50), environment=None)
    other = dataset_of(tmp_path / "other", balancing_episodes(2, 50, seed=7), environment=None)
    optimizer = {"batch_size": 20, "max_epochs": 3, "learning_rate": 0.01}

    def run_train(**evaluation: object) -> TrainingResult:
        wanted = config(algorithm="dqn", optimizer=optimizer, evaluation=evaluation)
        return train(wanted, dataset=data, output=str(tmp_path / "out"))

    result = run_train(held_out=other)
    assert [updates for updates, _ in result.held_out_losses] == [10, 20, 30]
    best, last = (read_policy_manifest(uri).weights_sha256 for uri in (result.checkpoint, result.last_checkpoint))
    assert result.metrics == {} and best == last
    with pytest.raises(ConfigError, match=r"evaluation\.patience has nothing to go by.* the loss of \w+ cannot be compared"):
        run_train(held_out=other, patience=2)
    with pytest.raises(ConfigError, match=r"evaluation\.patience has nothing to go by.* no data is held out"):
        run_train(patience=2)


def test_no_environment_is_made_where_the_policy_is_not_played(tmp_path: Path) -> None:
    """Neither for its spaces nor for its threshold: this one could not be."""
    robot = EnvironmentSpec(id="Robot-v0")
    data = dataset_of(tmp_path / "data", balancing_episodes(3), environment=robot)
    with pytest.raises(EnvironmentNotFoundError, match="Robot-v0"):
        train(config(), dataset=data, output=str(tmp_path / "out"))
    result = train(config(evaluation={"play": False}), dataset=data, output=str(tmp_path / "out"))
    assert (result.metrics, result.curve, result.target_return) == ({}, [], None)
    assert read_policy_manifest(result.checkpoint).environment == robot, "what it is for"


def test_no_more_copies_are_played_than_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []

    def make(environment: EnvironmentSpec, num_envs: int) -> VectorEnv:
        copies.append(num_envs)
        return make_vector_env(environment, num_envs)

    monkeypatch.setattr(rollouts, "make_vector_env", make)
    data = dataset_of(tmp_path / "data", balancing_episodes(3))
    for number, wanted in enumerate(({}, {"num_envs": 2})):
        train(config(evaluation={"episodes": 5} | wanted), dataset=data, output=str(tmp_path / f"{number}"))
    assert copies == [5, 2]


def test_options_of_playing_decide_what_is_learned_unless_they_are_the_defaults() -> None:
    assert config(evaluation={"play": True, "num_envs": 128}).decisive() == config(evaluation={}).decisive()
    told = config(evaluation={"play": False, "num_envs": 1, "location": "process"}).decisive()
    assert told["evaluation"] == {"play": False, "num_envs": 1}


def test_a_small_dataset_is_learned_from_as_often_as_a_policy_needs(tmp_path: Path) -> None:
    """Here by 2,000 updates, of which an epoch has two."""
    data = dataset_of(tmp_path / "data", balancing_episodes(3, 30))
    unlimited = {"batch_size": 50, "max_epochs": None, "updates_per_iteration": 1_000}
    run = make_run(config(optimizer=unlimited), data, str(tmp_path / "policy"), None)
    assert (run.max_epochs, run.total_updates) == (1_000, 2_000)
    assert parse(OptimizerConfig, {}).epochs(1_000_000) == 20
    assert parse(OptimizerConfig, {"max_epochs": 3}).epochs(90) == 3


def broken(**changes: object) -> list[Episode]:
    from dataclasses import replace

    episodes = balancing_episodes(3)
    return [*episodes, replace(episodes[0], eps_id="bad", **changes)]


def test_bad_data_is_refused_by_name(tmp_path: Path) -> None:
    def run_train(name: str, **kwargs: object) -> None:
        train(config(data={"prelearners": 0}), dataset=str(tmp_path / name), output=str(tmp_path / f"{name}-out"), **kwargs)

    nan = balancing_episodes(1)[0].observations.copy()
    nan[7] = np.nan
    dataset_of(tmp_path / "nan", broken(observations=nan))
    with pytest.raises(NonFiniteError, match=r"nan: Column obs is NaN or infinite in 1 of 400 steps .*source\.$"):
        run_train("nan")
    dataset_of(tmp_path / "mixed", broken(observations=np.zeros((101, 6), np.float32)))
    with pytest.raises(DataError, match=r"mixed: .*(shape|mixed)"):
        run_train("mixed")
    dataset_of(tmp_path / "actions", broken(actions=np.full(100, 2)))
    with pytest.raises(DataError, match=r"actions: Column actions has values from 0 to 2"):
        run_train("actions")
    with pytest.raises(DatasetNotFoundError, match=r"no dataset at .*missing"):
        run_train("missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmptyDatasetError, match="empty"):
        run_train("empty")
    data = dataset_of(tmp_path / "cut", balancing_episodes(3))
    path = Path(open_dataset(data).paths[0])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CorruptFileError, match=path.name):
        run_train("cut")


def test_columns_and_output_are_checked_before_anything_is_trained(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "foreign").mkdir()
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "foreign" / "part.parquet")
    with pytest.raises(SchemaError, match="foreign"):
        train(config(), dataset=str(tmp_path / "foreign"), output=str(tmp_path / "out"))
    data = dataset_of(tmp_path / "data", balancing_episodes(3))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file/below"):
        train(config(), dataset=data, output=str(tmp_path / "file" / "below"))


def test_torch_is_left_with_the_threads_that_were_asked_for(tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(3))
    train(config(), dataset=data, output=str(tmp_path / "out"))
    assert torch.get_num_threads() == 1


def test_a_machine_that_is_too_small_is_told_before_it_waits_for_ever(tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(3))
    with pytest.raises(ConfigError, match=r"1000 prelearners want 1000 CPUs .* nothing would ever be read"):
        train(config(data={"prelearners": 1000}), dataset=data, output=str(tmp_path / "out"))


def test_the_wrong_environment_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(3))
    with pytest.raises(ConfigError, match=r"observation space .*Pendulum-v1 has"):
        train(config(evaluation={"environment": {"id": "Pendulum-v1"}}), dataset=data, output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_policy_that_was_good_enough_before_it_went_wrong_is_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss becomes NaN while the evaluation that reaches the target is still under way: the run has ended there."""
    from offline_core.learning import trainer
    from offline_core.learning.evaluations import Evaluation
    from offline_core.learning.learner import Learner
    from offline_core.policies.rollouts import Rollouts

    class SlowEvaluations:
        def __init__(self, *_: object, **__: object) -> None:
            self.pending: list = []

        def submit(self, stamp: dict[str, int]) -> None:
            self.pending.append((stamp, {}))

        def finished(self, *, wait: bool):
            if wait:
                weights = {name: tensor.numpy() for name, tensor in learners[0].networks.policy.state_dict().items()}
                for stamp, _ in self.pending:
                    yield Evaluation(stamp, weights, Rollouts(np.array([500.0]), np.array([500])))

        def close(self) -> None: ...

    learners: list[Learner] = []

    def update(learner: Learner, *batch: Any) -> bool:
        learners[:] = [learner]
        finite = real(learner, *batch)
        return finite and learner.updates < 15

    real = Learner.update
    monkeypatch.setattr(trainer, "Evaluations", SlowEvaluations)
    monkeypatch.setattr(Learner, "update", update)
    data = dataset_of(tmp_path / "data", balancing_episodes())
    result = train(config(), dataset=data, output=str(tmp_path / "out"))
    assert result.reached_target and result.updates == 10


def test_a_nan_loss_ends_the_training_and_leaves_its_batch(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    spaces = (gym.spaces.Box(-np.inf, np.inf, (1,)), gym.spaces.Discrete(2))
    episode = Episode(
        eps_id="far",
        observations=np.full((11, 1), 1e38, np.float32),
        actions=np.arange(10) % 2,
        rewards=np.zeros(10),
        truncated=True,
    )
    data = dataset_of(tmp_path / "data", [episode], spaces=spaces, environment=None)
    wanted = config(network={"hidden_sizes": []}, optimizer={"batch_size": 4, "learning_rate": 10.0, "max_epochs": 50})
    with pytest.raises(
        LearningError,
        match=r"At update \d+ .* became NaN or infinite. .* at .*bad-batch.safetensors. Lower optimizer.learning_rate",
    ):
        train(wanted, dataset=data, output=str(tmp_path / "out"))
    assert (load_file(tmp_path / "out" / "bad-batch.safetensors")["obs"] == np.float32(1e38)).all()


def test_values_are_not_learned_where_an_import_lost_all_terminations(tmp_path: Path) -> None:
    rows = [row | {"obs": [0.1 * row["t"], 0.0, 0.0, 0.0]} for name in "ab" for row in without(steps(name, 4), "new_obs")]
    rows = [row for row in rows if row["t"] or row["eps_id"] == "b"]  # what terminates lacks its first step
    rows[-1] |= {"terminateds": False, "truncateds": True}
    rules = {"incomplete": "drop", "last_new_obs": "repeat"}
    spaces = {"action_space": {"space": "discrete", "n": 3}}
    data = run_import(scattered(tmp_path / "in", rows, 1), tmp_path / "out", episodes=rules, **spaces)[0].dataset.uri
    wanted = {"algorithm": "dqn", "evaluation": {"play": False}, "optimizer": {"max_epochs": 1}}
    with pytest.raises(
        ConfigError, match=r"DQN learns values, and .*/out version 1 kept none of the 1 terminations of its source"
    ):
        train(config(**wanted), dataset=data, output=str(tmp_path / "policy"))
    for name, allowed in (("allowed", {"data": {"allow_lost_terminations": True}}), ("cloned", {"algorithm": "bc"})):
        train(config(**wanted | allowed), dataset=data, output=str(tmp_path / name))


def test_parameters_of_an_algorithm_that_is_not_chosen_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(2), environment=None)
    settings = {"optimizer": {"max_updates": 2, "batch_size": 8}, "evaluation": {"play": False}, "awac": {"temperature": 0.3}}
    train(parse(TrainingConfig, settings), dataset=data, output=str(tmp_path / "run"))
    assert "The parameters of awac have no effect: the algorithm is bc." in caplog.messages
