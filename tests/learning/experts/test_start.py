"""Going on from a policy that is there: it stays what it was until there is something to learn from, and learns faster."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import make_vector_env
from offline_core.errors import CheckpointError, ConfigError
from offline_core.learning.experts import train
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.on_policy import first_policy, fit_values
from offline_core.learning.experts.rollout import Rollout
from offline_core.learning.experts.train import train_expert
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.config import NetworkConfig, TransformerConfig
from offline_core.policies.decision_transformer import DecisionTransformer
from offline_core.policies.manifest import PolicyManifest, read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.runtime.config import EnvironmentSpec, parse
from tests.learning.experts.loops import loop_of

CARTPOLE = (spaces.Box(-np.inf, np.inf, (4,)), spaces.Discrete(2))


def saved(policy: Policy, folder: Path) -> str:
    save_policy(policy, str(folder), operation=Operation(name="made by a test"))
    return str(folder)


def config_from(uri: str, **values: object) -> ExpertConfig:
    return parse(ExpertConfig, {"initial_policy": uri, **values})


def played(policy: Policy, steps: int = 64, num_envs: int = 20, seed: int = 0) -> Rollout:
    env = make_vector_env(EnvironmentSpec(), num_envs)
    try:
        return Rollout.of(loop_of(env, policy, seed=seed).take(steps))
    finally:
        env.close()


@pytest.mark.parametrize("share_layers", [False, True])
@pytest.mark.parametrize("has_values", [False, True])
def test_it_begins_as_the_policy_it_goes_on_from(tmp_path: Path, share_layers: bool, has_values: bool) -> None:
    network = NetworkConfig(hidden_sizes=[8], share_layers=share_layers, normalize_observations=True)
    before = Policy(*CARTPOLE, network, value_function=has_values, seed=3)
    before.encoder.mean += 0.5
    policy, fresh = first_policy(config_from(saved(before, tmp_path)), CARTPOLE)
    assert fresh is not has_values and policy.value_function
    observations = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(policy(observations), before(observations))
    if has_values:
        assert torch.equal(policy.values(observations), before.values(observations))


@pytest.mark.parametrize("share_layers", [False, True])
def test_the_value_function_learns_and_the_policy_does_not(share_layers: bool) -> None:
    policy = Policy(*CARTPOLE, NetworkConfig(share_layers=share_layers), value_function=True)
    rollout = played(policy)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    ppo = {"learning_rate": 0.02, "minibatch_size": 1_280, "gae_lambda": 1.0, "gamma": 0.9}
    first, last = (
        fit_values(policy, rollout, parse(ExpertConfig, {"ppo": {**ppo, "num_epochs": epochs}})) for epochs in (1, 40)
    )
    assert last["value_loss"] < first["value_loss"] * (0.9 if share_layers else 0.4)  # the policy's layers are not for it
    for name, tensor in policy.state_dict().items():
        assert torch.equal(tensor, before[name]) is not name.startswith("value"), name


@pytest.mark.slow
def test_a_clone_is_ahead_of_nothing_after_the_first_rollouts(tmp_path: Path) -> None:
    """A few hundred steps of a half-trained policy, cloned; then both learn to 400."""
    medium = load_policy(
        train_expert(parse(ExpertConfig, {"seed": 100, "target_return": 300}), output=str(tmp_path / "m")).checkpoint
    )
    rollout = played(medium, steps=300)
    observations, actions = rollout.observations[:-1][rollout.is_step], rollout.actions[rollout.is_step]
    clone = Policy(medium.observation_space, medium.action_space, medium.network)
    optimizer = torch.optim.Adam(clone.parameters(), lr=1e-3)
    for _ in range(60):
        for index in torch.randperm(len(actions), generator=torch.Generator().manual_seed(0)).split(256):
            loss = -clone.head.log_prob(clone(observations[index]), actions[index]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    parent = saved(clone, tmp_path / "clone")
    every = {"evaluation_interval": 1, "target_return": 400}
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
    first = train_expert(parse(ExpertConfig, {"target_return": 100}), output=str(tmp_path / "a"))
    config = config_from(first.checkpoint, target_return=50)
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
    first_policy(config_from(fine, network={"hidden_sizes": [8]}), CARTPOLE)  # the same one may be said


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
