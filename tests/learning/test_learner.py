"""Updates: what they converge to, clipping, schedules, masks, shares of a batch, states."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.errors import ConfigError, OfflineError
from offline_core.learning.algorithms.algorithm import LossOutput, evaluating
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.marwil import MARWIL
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.learning.optimizer import learning_rate
from offline_core.learning.steps import NUMBER, Batch
from offline_core.learning.trainer_config import OptimizerConfig
from offline_core.runtime.config import parse
from tests.learning.algorithms.making import BOX as BOX_ACTIONS
from tests.learning.algorithms.making import VECTOR, made_steps, make_networks, with_box_actions
from tests.learning.making import steps_of

BOX = gym.spaces.Box(-np.inf, np.inf, (3,))


def learner(
    observation_space: gym.Space = BOX, action_space: gym.Space = gym.spaces.Discrete(4), *, total: int = 6400, **values: Any
) -> Learner:
    config = parse(TrainingConfig, {"network": {"hidden_sizes": []}} | values)
    networks = make_networks("bc", observation_space, action_space, config.network, seed=1)
    return Learner(networks, config, total_steps=total)


def some_steps(count: int = 64, *, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    obs, actions = rng.normal(size=(count, 3)).astype(np.float32), rng.integers(0, 4, count)
    return steps_of({"obs": obs, "actions": actions}, [count // 4] * 4)


def test_bc_on_gaussian_actions_finds_mean_and_spread() -> None:
    """Actions a = 0.5 o + noise of 0.1, well inside the bounds: the linear policy has to find both."""
    rng = np.random.default_rng(0)
    one = learner(gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-2, 2, (1,)), optimizer={"learning_rate": 0.05})
    obs = rng.uniform(-1, 1, (4096, 1)).astype(np.float32)
    one.load(steps_of({"obs": obs, "actions": (0.5 * obs + 0.1 * rng.normal(size=obs.shape)).astype(np.float32)}))
    for _ in range(300):
        one.update(one.indices())
    one.take_metrics()
    one.update(one.indices())
    mean, log_std = one.networks.policy(torch.tensor([[0.8]])).chunk(2, dim=1)
    assert abs(mean.item() - 0.4) < 0.02
    assert abs(log_std.exp().item() - 0.1) < 0.01
    assert abs(one.take_metrics()["loss"] - (np.log(0.1) + 0.5 * np.log(2 * np.pi * np.e))) < 0.02


def test_composite_observations_reach_the_policy_nested() -> None:
    space = gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (2,)), "b": gym.spaces.Tuple([gym.spaces.Discrete(3)])})
    one = learner(space, gym.spaces.Discrete(2), network={"hidden_sizes": [8]})
    before = one.networks.policy.head.logits.weight.detach().clone()
    columns = {"obs/a": np.zeros((5, 2), np.float32), "obs/b/0": np.array([0, 1, 2, 0, 1]), "actions": np.ones(5, np.int64)}
    one.load(steps_of(columns))
    one.update(one.indices())
    assert not torch.equal(before, one.networks.policy.head.logits.weight)


def test_long_gradients_are_scaled_down() -> None:
    one = learner(optimizer={"max_gradient_norm": 1e-3})
    one.load(some_steps())
    one.update(one.indices())
    norm = torch.stack([p.grad.norm() for p in one.networks.parameters()]).norm()
    assert abs(norm.item() - 1e-3) < 1e-5
    assert one.take_metrics()["gradient_norm"] > 1e-2


def test_what_is_watched_of_prioritized_draws_is_of_all_steps_alike() -> None:
    """MARWIL's normaliser, too: steps with large errors are drawn more often, and count less."""
    buffer = {"sampling": "prioritized", "priority_exponent": 1.0, "importance_exponent": 1.0}
    marwil = {"normalizer_start": 1.0, "normalizer_rate": 0.5, "normalize_values": False}
    values: dict[str, Any] = {"marwil": marwil, "data": {"buffer": buffer}}
    config = parse(TrainingConfig, {"algorithm": "marwil", "network": {"hidden_sizes": []}} | values)
    networks = make_networks("marwil", BOX, gym.spaces.Discrete(4), config.network, config.marwil, seed=1)
    one, steps = Learner(networks, config, total_steps=640), some_steps()
    rewards = np.random.default_rng(1).normal(size=64).astype(np.float32) * 3
    steps.columns |= {"rewards": torch.from_numpy(rewards), "terminateds": torch.ones(64, dtype=torch.bool)}
    steps.columns[NUMBER] = torch.arange(64)
    one.load(steps)
    assert one.sampler is not None
    one.sampler.learned(steps.rows, torch.linspace(0.1, 9, 64))
    indices = steps.rows[:40]
    importance = one.sampler.importance(indices)
    assert importance is not None
    one.update(indices)
    squared = one.sampler.state()["replay.errors"][indices].square()
    expected = float((importance * squared).sum() / importance.sum())
    assert expected != pytest.approx(float(squared.mean()), rel=0.05), "or else this test would show nothing"
    assert float(one.networks.normalizer) == pytest.approx(0.5 + 0.5 * expected, rel=1e-4)
    assert one.take_metrics()["value_loss"] == pytest.approx(expected / 2, rel=1e-4)


def test_the_share_of_each_learner_adds_up_to_the_gradient_of_one() -> None:
    """Three shares of 64 steps are not equal: 22, 21 and 21."""
    whole, steps = learner(), some_steps()
    whole.load(steps)
    whole.update(whole.indices())
    total = [torch.zeros_like(p) for p in whole.networks.parameters()]
    for rank in range(3):
        share = learner()
        share.load(steps)
        loss = share.networks(share.nested(steps.batch(steps.rows[rank::3], share.spec))).loss.sum() / len(steps)
        for sum_, gradient in zip(total, torch.autograd.grad(loss, list(share.networks.parameters())), strict=True):
            sum_ += gradient
    for sum_, parameter in zip(total, whole.networks.parameters(), strict=True):
        torch.testing.assert_close(sum_, parameter.grad)


def test_bfloat16_rounds_products_of_updates_alone() -> None:
    one, seen = learner(compute={"bfloat16": True}), []
    one.networks.register_forward_hook(lambda *_: seen.append(torch.get_float32_matmul_precision()))
    one.networks.policy.head.logits.weight.register_hook(lambda _: seen.append(torch.get_float32_matmul_precision()))
    one.load(some_steps())
    assert one.update(one.indices())
    assert (seen, torch.get_float32_matmul_precision()) == (["medium"] * 2, "highest")


def test_learning_rates() -> None:
    config = OptimizerConfig(learning_rate=1.0, schedule="linear", warmup_updates=4)
    assert [round(learning_rate(config, "", update, update / 10), 3) for update in (0, 3, 4, 5, 9)] == [
        0.2,
        0.56,
        0.6,
        0.5,
        0.1,
    ]
    cosine = OptimizerConfig(learning_rate=1.0, schedule="cosine")
    assert [learning_rate(cosine, "", 7, done) for done in (0.0, 0.5, 1.0, 1.2)] == pytest.approx([1.0, 0.5, 0.0, 0.0])
    own = OptimizerConfig(learning_rate=0.3, networks={"policy": {"schedule": "cosine"}, "critics": {"learning_rate": 0.1}})
    assert [learning_rate(own, network, 99, 1.0) for network in ("", "policy", "critics")] == [0.3, 0.0, 0.1]


def test_each_network_learns_at_its_own_rate() -> None:
    networks = {"policy": {"learning_rate": 0.0625, "schedule": "cosine"}, "critics": {"learning_rate": 0.5}}
    one = of_values("iql", optimizer={"learning_rate": 0.25, "networks": networks, "max_updates": 2})
    rates = []
    for _ in range(2):
        before = {name: parameter.clone() for name, parameter in one.networks.named_parameters()}
        one.update(one.indices())
        moved = {name: (p - before[name]).abs().max().item() for name, p in one.networks.named_parameters()}
        rates.append([moved["policy.hidden.0.weight"], moved["policy.value.weight"], moved["critics.weights.0"]])
    assert rates[0] == pytest.approx([0.0625, 0.25, 0.5], rel=1e-3), "Adam's first step is its rate"
    assert rates[1][0] <= 0.5 * 0.0625 * 1.1 < rates[1][1], "half of a cosine is left, and of a constant rate all"


def test_all_that_learns_has_a_rate_once() -> None:
    one = of_values(
        "sac", optimizer={"networks": {"policy": {"learning_rate": 0.1}, "log_temperature": {"learning_rate": 0.2}}}
    )
    groups = {group["network"]: group["params"] for group in one.optimizer.param_groups}
    assert groups.keys() == {"policy", "log_temperature", ""}
    assert groups["log_temperature"] == [one.networks.log_temperature]
    grouped = [id(parameter) for group in groups.values() for parameter in group]
    assert sorted(grouped) == sorted(id(parameter) for parameter in one.networks.parameters() if parameter.requires_grad)


@pytest.mark.parametrize(
    ("algorithm", "named", "has"),
    [
        ("iql", "critic", "policy, value, critics"),
        ("sac", "value", "log_temperature, policy, critics"),
        ("bc", "critics", "policy"),
    ],
)
def test_a_rate_of_a_network_that_is_not_there_is_refused(algorithm: str, named: str, has: str) -> None:
    with pytest.raises(ConfigError, match=rf"networks names {named}; the networks of \w+ are {has}\."):
        of_values(algorithm, optimizer={"networks": {named: {"learning_rate": 0.1}}})


def of_values(name: str, **values: Any) -> Learner:
    """A learner of Box actions with some steps loaded."""
    config = parse(TrainingConfig, {"algorithm": name, "network": {"hidden_sizes": [8]}} | values)
    networks = make_networks(name, VECTOR, BOX_ACTIONS, config.network)
    learner = Learner(networks, config, total_steps=1000)
    learner.load(with_box_actions(made_steps([40], [True])))
    return learner


def test_a_schedule_ends_with_the_updates_however_short_the_last_batches_are() -> None:
    """Of 65 steps in batches of 64, each second batch has one step."""
    one = learner(optimizer={"schedule": "linear", "learning_rate": 1.0, "max_updates": 4}, total=4 * 64)
    one.load(some_steps())
    rates = []
    for size in (64, 1, 64, 1):
        one.update(one.indices()[:size])
        rates.append(one.optimizer.param_groups[0]["lr"])
    assert rates == [1.0, 0.75, 0.5, 0.25]


def test_dropout_is_of_updates_alone() -> None:
    """A held-out loss, and a policy that plays, have all units; so has the value function at any time."""
    one = of_values("iql", network={"hidden_sizes": [64], "dropout": 0.5})
    policy, obs = one.networks.policy, torch.randn(7, 3)
    assert not torch.equal(policy(obs), policy(obs))
    assert torch.equal(policy.values(obs), policy.values(obs))
    steps = with_box_actions(made_steps([40], [True], seed=1))
    first = one.loss_on(steps)
    assert one.loss_on(steps) == first and policy.training
    plain = of_values("iql", network={"hidden_sizes": [64]})
    plain.networks.load_state_dict(one.networks.state_dict())
    assert plain.loss_on(steps) == first
    with evaluating(policy):
        assert torch.equal(policy(obs), plain.networks.policy(obs))


@pytest.mark.parametrize("optimizer", [{}, {"schedule": "cosine", "warmup_updates": 2}])
def test_from_its_state_a_learner_goes_on_as_if_nothing_had_happened(optimizer: dict[str, Any]) -> None:
    steps = some_steps()
    one, other = learner(optimizer=optimizer, total=6 * 64), learner(optimizer=optimizer, total=6 * 64)
    one.load(steps)
    for _ in range(3):
        one.update(one.indices())
    state = one.state()
    other.restore(state, updates=one.updates, steps=one.steps, within_window=True)
    other.load(steps)
    for going in (one, other):
        for _ in range(3):
            going.update(going.indices())
    assert all(torch.equal(a, other.state()[name]) for name, a in one.state().items())
    assert not all(torch.equal(a, state[name]) for name, a in one.state().items())
    assert one.steps == other.steps == 6 * 64


def test_a_loss_that_is_no_number_is_told_at_once() -> None:
    one = learner()
    one.load(steps_of({"obs": np.full((4, 3), np.inf, np.float32), "actions": np.zeros(4, np.int64)}))
    assert not one.update(one.indices())
    assert one.last_batch["obs"].isinf().all()


def test_the_loss_on_held_out_steps_is_that_of_all_of_them() -> None:
    one, steps = learner(), some_steps()
    batch = one.nested(steps.batch(steps.rows, one.spec))
    assert one.loss_on(steps) == pytest.approx(one.networks(batch).loss.mean().item(), rel=1e-6)
    assert one.updates == 0


def test_a_held_out_loss_that_draws_actions_does_not_depend_on_what_was_drawn_before() -> None:
    config = parse(TrainingConfig, {"algorithm": "cql", "network": {"hidden_sizes": [], "squash": True}})
    networks = make_networks("cql", BOX, gym.spaces.Box(-1, 1, (1,)), config.network, seed=1)
    one, rng = Learner(networks, config, total_steps=1), np.random.default_rng(0)
    columns = {name: rng.normal(size=9).astype(np.float32) for name in ("actions", "rewards")}
    columns |= {"obs": rng.normal(size=(9, 3)).astype(np.float32), "terminateds": np.zeros(9, bool)}
    steps = steps_of(columns | {"actions": columns["actions"][:, None].clip(-1, 1)}, needs_next_obs=True)
    with torch.random.fork_rng():
        first = one.loss_on(steps)
        torch.rand(5)
        assert one.loss_on(steps) == first


def test_sequences_learn_from_each_step_once() -> None:
    """What pads and what warms up has no part in the loss."""
    network = {"hidden_sizes": [8], "recurrent": "gru", "recurrent_units": 8}
    one = learner(network=network, sequences={"steps": 5, "burn_in_steps": 16})
    networks = make_networks("bc", BOX, gym.spaces.Discrete(4), parse(TrainingConfig, {"network": network}).network, seed=1)
    one.networks.load_state_dict(networks.state_dict())
    steps = some_steps()
    one.load(steps)
    one.update(one.indices())
    whole = Learner(networks, parse(TrainingConfig, {"network": network, "sequences": {"steps": 16}}), total_steps=1)
    assert one.take_metrics()["loss"] == pytest.approx(whole.loss_on(steps), rel=1e-5)
    assert one.steps == len(steps)


def test_metrics_are_of_the_updates_since_they_were_taken() -> None:
    """Means, and the smallest and largest values, of one report after another."""
    values = {"optimizer": {"batch_size": 64, "learning_rate": 1e-8}, "network": {"hidden_sizes": [8]}}
    networks = make_networks("dqn", VECTOR, gym.spaces.Discrete(2), seed=1)
    one = Learner(networks, parse(TrainingConfig, {"algorithm": "dqn"} | values), total_steps=6400)
    one.load(made_steps([40, 24], [True, False]))
    found = []
    for rows in (slice(0, 8), slice(8, 16)):
        one.update(one.indices()[rows])
        found.append(one.take_metrics())
    assert one.take_metrics() == {}
    for rows in (slice(0, 8), slice(8, 16)):
        one.update(one.indices()[rows])
    both = one.take_metrics()
    assert both["q_min"] == pytest.approx(min(each["q_min"] for each in found), abs=1e-4)
    assert both["q_max"] == pytest.approx(max(each["q_max"] for each in found), abs=1e-4)
    assert both["q"] == pytest.approx(sum(each["q"] for each in found) / 2, abs=1e-4)


def test_value_targets_are_renewed_where_they_are() -> None:
    """Kernels that were recorded for a GPU go on reading them there."""
    networks = make_networks("marwil", VECTOR, gym.spaces.Discrete(2), algorithm=MARWIL(gae_lambda=0.5), seed=1)
    one = Learner(networks, parse(TrainingConfig, {"optimizer": {"learning_rate": 0.1}}), total_steps=6400)
    steps = made_steps([40, 24], [True, False])
    one.load(steps)
    one.update(one.indices())
    targets = steps.columns["value_targets"]
    before = targets.clone()
    for _ in range(3):
        one.update(one.indices())
    assert steps.columns["value_targets"] is targets
    assert not torch.equal(targets, before)


@pytest.mark.parametrize(
    ("name", "continuous"), [("bc", True), ("marwil", False), ("dqn", False), ("iql", True), ("td3_bc", True), ("cql", True)]
)
def test_what_a_gpu_records_is_the_whole_update(name: str, continuous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it is only called each time; that replaying is the same is a test that needs a GPU."""
    monkeypatch.setattr("offline_core.learning.learner.Replayed", lambda function, what: lambda *given, kept: function(*given))
    settings = {"batch_size": 16, "max_gradient_norm": 1.0, "schedule": "cosine", "max_updates": 20}
    actions = BOX_ACTIONS if continuous else gym.spaces.Discrete(2)
    found = []
    for records in (False, True):
        networks = make_networks(name, VECTOR, actions, seed=1)
        one = Learner(networks, parse(TrainingConfig, {"algorithm": name, "optimizer": settings}), total_steps=6400)
        one._records = records
        steps = made_steps([40, 24], [True, False])
        one.load(with_box_actions(steps) if continuous else steps)
        for number in range(6):
            one.update(one.indices()[8 * number :][:16])
        one.update(one.indices()[:5])
        found.append((one.state(), one.take_metrics()))
    (state, metrics), (recorded, others) = found
    torch.testing.assert_close(recorded, state, rtol=0, atol=0)
    assert others == metrics


class Mean(BC):
    """The commonest mistake: the mean is the learner's to take."""

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        return LossOutput(super().loss(networks, batch).loss.mean(), {})


class Failing(BC):
    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        raise KeyError("nothing")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Mean, r"loss of Mean has to be one number a step, \(64,\), and is \(\)"),
        (Failing, r"The algorithm Failing failed in update 1: KeyError\('nothing'\) \(.*test_learner\.py, line \d+\)"),
    ],
)
def test_a_loss_of_a_users_own_that_fails_is_named(kind: type[BC], told: str) -> None:
    one = Learner(Networks(kind(), BOX, gym.spaces.Discrete(4), seed=1), TrainingConfig(), total_steps=64)
    one.load(some_steps())
    with pytest.raises(OfflineError, match=told):
        one.update(one.indices())
