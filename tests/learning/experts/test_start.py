"""Going on from a policy that is there: it stays what it was until there is something to learn from, and learns faster."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import make_vector_env
from offline_core.errors import CheckpointError, ConfigError
from offline_core.learning.algorithms.ppo import PPO
from offline_core.learning.experts import train
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.experts.work import new_expert
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.config import NetworkConfig, TransformerConfig
from offline_core.policies.decision_transformer import DecisionTransformer
from offline_core.policies.initial import begin_as
from offline_core.policies.manifest import PolicyManifest, read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.runtime.config import EnvironmentSpec, parse
from tests.learning.play.rollouts import rolled_out

CARTPOLE = (spaces.Box(-np.inf, np.inf, (4,)), spaces.Discrete(2))


def saved(policy: Policy, folder: Path) -> str:
    save_policy(policy, str(folder), operation=Operation(name="made by a test"))
    return str(folder)


def config_from(uri: str, **values: object) -> ExpertConfig:
    return parse(ExpertConfig, {"initial_policy": uri, **values})


@pytest.mark.parametrize("share_layers", [False, True])
@pytest.mark.parametrize("has_values", [False, True])
def test_it_begins_as_the_policy_it_goes_on_from(tmp_path: Path, share_layers: bool, has_values: bool) -> None:
    network = NetworkConfig(hidden_sizes=[8], share_layers=share_layers, normalize_observations=True)
    before = Policy(*CARTPOLE, network, value_function=has_values, seed=3)
    before.encoder.mean += 0.5
    uri = saved(before, tmp_path)
    networks, initial = new_expert(config_from(uri), CARTPOLE, read_policy_manifest(uri))
    assert initial is not None and isinstance(networks.algorithm, PPO)
    begin_as(networks.policy, initial)
    policy = networks.policy
    assert getattr(networks, "has_new_values") is not has_values and policy.value_function  # noqa: B009
    observations = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(policy(observations), before(observations))
    if has_values:
        assert torch.equal(policy.values(observations), before.values(observations))


@pytest.mark.slow
def test_a_clone_is_ahead_of_nothing_after_the_first_rollouts(tmp_path: Path) -> None:
    """A few hundred steps of a half-trained policy, cloned; then both learn to 400."""
    medium = load_policy(
        train_expert(
            parse(ExpertConfig, {"seed": 100, "evaluation": {"target_return": 300}}), output=str(tmp_path / "m")
        ).checkpoint
    )
    with contextlib.closing(make_vector_env(EnvironmentSpec(), 20)) as env:
        [rollout] = rolled_out(medium, env, 300)
    observations, actions = (rollout.columns[name][rollout.rows] for name in ("obs", "actions"))
    clone = Policy(medium.observation_space, medium.action_space, medium.network)
    optimizer = torch.optim.Adam(clone.parameters(), lr=1e-3)
    for _ in range(60):
        for index in torch.randperm(len(actions), generator=torch.Generator().manual_seed(0)).split(256):
            loss = -clone.head.log_prob(clone(observations[index]), actions[index]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    parent = saved(clone, tmp_path / "clone")
    every = {"rollouts_per_iteration": 1, "evaluation": {"target_return": 400}}
    warm = train_expert(config_from(parent, **every), output=str(tmp_path / "warm"))
    scratch = train_expert(parse(ExpertConfig, every), output=str(tmp_path / "scratch"))
    assert warm.reached_target and scratch.reached_target
    assert min(mean for _, mean in warm.curve[:3]) > 1.2 * scratch.curve[0][1]
    (steps, start), (_, fitted), (_, updated), *_ = [*warm.curve, warm.curve[-1], warm.curve[-1]]
    assert steps == 0 and 100 < start < 475
    assert fitted == start, "the first rollout only fits the value function"
    assert updated > 0.8 * start, "and so the first update does not wreck the policy"
    manifest = read_policy_manifest(warm.checkpoint)
    assert manifest.parents == [read_policy_manifest(parent).parent_entry(parent)]


def test_what_is_good_already_is_kept(tmp_path: Path) -> None:
    first = train_expert(parse(ExpertConfig, {"evaluation": {"target_return": 100}}), output=str(tmp_path / "a"))
    config = config_from(first.checkpoint, evaluation={"target_return": 50})
    again = train_expert(config, output=str(tmp_path / "b"))
    assert again.env_steps == 0 and again.reached_target
    weights = [read_policy_manifest(result.checkpoint).weights_sha256 for result in (first, again)]
    assert weights[0] == weights[1]
    line = json.loads((tmp_path / "b" / "metrics.jsonl").read_text())
    assert line["env_steps"] == 0 and line["episode_return_mean"] >= 50


def test_what_cannot_go_on_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    fine = saved(Policy(*CARTPOLE, NetworkConfig(hidden_sizes=[8])), tmp_path / "fine")
    pendulum = saved(Policy(spaces.Box(-8, 8, (3,)), spaces.Box(-2, 2, (1,))), tmp_path / "pendulum")
    recurrent = saved(Policy(*CARTPOLE, NetworkConfig(recurrent="gru")), tmp_path / "recurrent")
    layers = TransformerConfig(target_return=1.0, return_scale=1.0)
    transformer = saved(DecisionTransformer(*CARTPOLE, NetworkConfig(transformer=layers)), tmp_path / "transformer")
    out = str(tmp_path / "out")
    for uri, values, error, message in [
        (str(tmp_path / "none"), {}, CheckpointError, "no policy at"),
        (transformer, {}, ConfigError, "another policy than one of dt"),
        (pendulum, {}, ConfigError, "environment CartPole-v1 has"),
        (fine, {"network": {"hidden_sizes": [16]}}, ConfigError, "leave 'network' as it is"),
        (recurrent, {}, ConfigError, "network.recurrent to None"),
    ]:
        with pytest.raises(error, match=message):
            train_expert(config_from(uri, **values), output=out)
    assert not (tmp_path / "out").exists()
    new_expert(config_from(fine, network={"hidden_sizes": [8]}), CARTPOLE, read_policy_manifest(fine))  # the same may be said


def test_a_policy_that_is_replaced_meanwhile_is_no_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = saved(Policy(*CARTPOLE), tmp_path / "parent")
    find = train.find_policy

    def replaced(policy: str) -> tuple[str, PolicyManifest]:
        found = find(policy)
        saved(Policy(*CARTPOLE, seed=1), tmp_path / "parent")
        return found

    monkeypatch.setattr(train, "find_policy", replaced)
    with pytest.raises(CheckpointError, match="other policies replaced it"):
        train_expert(config_from(parent), output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
