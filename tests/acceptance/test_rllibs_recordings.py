"""The documented forms on what RLlib itself recorded, from the import to a policy and what it is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.converting import convert
from offline_core.data.curation.prune import prune
from offline_core.data.episodes import Episode
from offline_core.data.importing.config import ConversionConfig
from offline_core.judging.estimation.config import EstimateConfig
from offline_core.judging.estimation.estimate import estimate
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.evaluation import EvaluationConfig, evaluate
from offline_core.runtime.config import parse
from tests.acceptance.forms import by_id, metrics, run_import, run_train
from tests.cases import slow_but

PENDULUM = {"environment": {"id": "Pendulum-v1"}}
CARTPOLE = {"environment": {"id": "CartPole-v1"}}
NO_PLAY: dict[str, Any] = {"play": False}
QUICK = {"batch_size": 512, "max_epochs": 2, "updates_per_iteration": 30}


@pytest.fixture(scope="module")
def cartpole(rllib_recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """40 episodes of RLlib's JsonWriter, packed."""
    place = tmp_path_factory.mktemp("cartpole")
    return run_import(rllib_recordings / "cartpole_json_packed", place, **CARTPOLE)[0].dataset.uri


@pytest.fixture(scope="module")
def pendulum(rllib_recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """20 episodes of RLlib's table."""
    return run_import(rllib_recordings / "pendulum_table", tmp_path_factory.mktemp("pendulum"), **PENDULUM)[0].dataset.uri


def test_04_columns_under_other_names(rllib_recordings: Path, pendulum: str, tmp_path: Path) -> None:
    """The mapping of the document, with `done`."""
    names = {"obs": "o_t", "actions": "a_t", "rewards": "r_t", "new_obs": "o_tp1"}
    table = pa.concat_tables([pq.read_table(file) for file in sorted((rllib_recordings / "pendulum_table").rglob("*.parquet"))])
    done = pa.array(np.asarray(table["terminateds"]) | np.asarray(table["truncateds"]))
    table = table.drop_columns(["terminateds", "truncateds"]).append_column("d_t", done)
    (tmp_path / "in").mkdir()
    pq.write_table(table.rename_columns([names.get(name, name) for name in table.column_names]), tmp_path / "in/x.parquet")
    rules = PENDULUM | {"mapping": names | {"dones": "d_t"}, "episodes": {"time_limit_steps": 200}}
    assert run_import(tmp_path / "in", tmp_path / "out", **rules)[1] == by_id(pendulum)


def test_06_scrambled_rows_become_the_same_trajectories(rllib_recordings: Path, pendulum: str, tmp_path: Path) -> None:
    """RLlib writes no step numbers: rows are linked by what they observe."""
    table = pa.concat_tables([pq.read_table(file) for file in sorted((rllib_recordings / "pendulum_table").rglob("*.parquet"))])
    (tmp_path / "in").mkdir()
    rows = np.random.default_rng(0).permutation(table.num_rows)
    for number, part in enumerate(np.array_split(rows, 3)):
        pq.write_table(table.take(pa.array(part)), tmp_path / f"in/{number}.parquet")
    assert run_import(tmp_path / "in", tmp_path / "out", **PENDULUM)[1] == by_id(pendulum)


def test_06_from_a_table_to_episodes_and_back(pendulum: str, tmp_path: Path) -> None:
    for format, name in (("table", "a"), ("episodes", "b")):
        source = pendulum if format == "table" else str(tmp_path / "a")
        convert(parse(ConversionConfig, {"format": format}), dataset=source, output=str(tmp_path / name))
        assert by_id(str(tmp_path / name)) == by_id(pendulum)


def test_07_the_best_episodes_are_kept(cartpole: str, tmp_path: Path) -> None:
    prune(PruningConfig(keep_top_fraction=0.25), dataset=cartpole, output=str(tmp_path))
    returns = sorted((each.return_ for each in by_id(cartpole).values()), reverse=True)
    assert sorted((each.return_ for each in by_id(str(tmp_path)).values()), reverse=True) == returns[:10]


@pytest.mark.parametrize("algorithm", slow_but(["bc", "marwil", "dqn"], "bc"))
def test_08_learning_from_discrete_actions(cartpole: str, tmp_path: Path, algorithm: str) -> None:
    """A clone pushes the way that RLlib's policy did."""
    trained = run_train(cartpole, tmp_path, algorithm=algorithm, optimizer=QUICK, evaluation=NO_PLAY)
    records = [record for record in metrics(tmp_path) if "loss" in record]
    assert records and all(np.isfinite(record["loss"]) for record in records)
    if algorithm != "dqn":
        assert agreement(trained.checkpoint, by_id(cartpole)) > 0.7


def agreement(checkpoint: str, recorded: dict[str, Episode]) -> float:
    """The share of steps in which the policy does what was recorded."""
    policy = load_policy(checkpoint)
    same = [policy.act(np.asarray(each.observations[:-1], np.float32)) == each.actions for each in recorded.values()]
    return float(np.concatenate(same).mean())


@pytest.mark.parametrize("algorithm", slow_but(["bc", "marwil", "cql", "iql"], "iql"))
def test_08_learning_from_continuous_actions(pendulum: str, tmp_path: Path, algorithm: str) -> None:
    network = {"squash": algorithm == "cql"}
    trained = run_train(pendulum, tmp_path, algorithm=algorithm, network=network, optimizer=QUICK, evaluation=NO_PLAY)
    space = load_policy(trained.checkpoint).action_space
    assert space == gym.make("Pendulum-v1").action_space and np.isfinite(trained.losses).all()


def test_11_a_clone_is_played_and_measured_on_held_out_episodes(cartpole: str, tmp_path: Path) -> None:

    trained = run_train(cartpole, tmp_path, optimizer=QUICK, evaluation={"play": False, "held_out": cartpole})
    assert any("held_out_loss" in record for record in metrics(tmp_path))
    played = evaluate(EvaluationConfig(episodes=3), policy=trained.checkpoint)
    assert played.metrics["episodes"] == 3


def test_11_estimates_of_continuous_recordings_are_honest(rllib_recordings: Path, tmp_path: Path) -> None:
    """A clone is worth what RLlib's policy was; the recorded log-probabilities are those of what was played."""
    data = run_import(rllib_recordings / "pendulum_episodes", tmp_path / "data", **PENDULUM)[0].dataset.uri
    optimizer = {"max_epochs": 10, "updates_per_iteration": 600, "batch_size": 256}
    clone = run_train(data, tmp_path / "clone", optimizer=optimizer, evaluation=NO_PLAY).checkpoint
    config = EstimateConfig(methods=["wpdis"], gamma=0.9, min_effective_episodes=1)
    found = estimate(config, policy=clone, dataset=data)
    discounts = 0.9 ** np.arange(200)
    worth = np.mean([(each.rewards * discounts).sum() for each in by_id(data).values()])
    assert found.estimates["wpdis"].low <= worth <= found.estimates["wpdis"].high
    assert not any("action_logp" in warning for warning in found.warnings)
