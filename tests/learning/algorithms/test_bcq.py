"""Discrete BCQ: which actions may be chosen, here, in the targets and by the policy that is saved; the losses by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.bcq import BCQ
from offline_core.learning.algorithms.dqn import DQN
from offline_core.learning.algorithms.networks import Networks
from offline_core.policies.categorical import RULED_OUT
from offline_core.policies.config import NetworkConfig
from tests.learning.algorithms.making import LINEAR, TWO, VECTOR, log_softmax, made_steps, numpy_of, update, whole_batch

THREE = gym.spaces.Discrete(3)


def bcq(network: NetworkConfig = LINEAR, *, seed: int = 0, **config: Any) -> BCQ:
    """With linear networks far apart, so that all outputs differ by several units."""
    networks = Networks(BCQ(**config), VECTOR, THREE, network, seed=seed)
    with torch.no_grad():
        for number, head in enumerate((networks.policy._head, networks.target._head)):
            generator = torch.Generator().manual_seed(number)
            for linear in (head.logits, head.imitator):
                linear.weight.copy_(torch.randn(linear.weight.shape, generator=generator))
    return networks


def outputs_of(weights: dict[str, np.ndarray], obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q, and log-probabilities of the imitator."""
    q, logits = (obs @ weights[f"_head.{name}.weight"].T + weights[f"_head.{name}.bias"] for name in ("logits", "imitator"))
    return q, log_softmax(logits)


@pytest.mark.parametrize("double", [True, False])
def test_each_step_by_the_papers_equations(double: bool) -> None:
    networks = bcq(gamma=0.8, threshold=0.3, log_prob_penalty=0.01, double=double)
    steps = made_steps([6, 1, 5], [True, True, False], actions=3)
    networks.updates = 1  # or the first call of `prepare` would copy the policy to the target
    batch = whole_batch(networks, steps)
    terms = networks(batch)

    obs, rows = steps.columns["obs"].double().numpy(), steps.rows.numpy()
    online, target = (outputs_of(numpy_of(policy), obs) for policy in (networks.policy, networks.target))
    chooser_q, chooser_log_probs = online if double else target
    allowed = np.exp(chooser_log_probs) / np.exp(chooser_log_probs).max(axis=1, keepdims=True) >= 0.3
    chosen = np.where(allowed, chooser_q, -np.inf)[rows + 1].argmax(axis=1)
    assert (chosen != chooser_q[rows + 1].argmax(axis=1)).any(), "the imitator ruled one out"
    following = target[0][rows + 1, chosen] * ~steps.columns["terminateds"].numpy()[rows]
    taken = steps.columns["actions"].numpy()[rows]
    errors = np.abs(online[0][rows, taken] - steps.columns["rewards"].numpy()[rows] - 0.8 * following)
    td_loss = np.where(errors < 1, 0.5 * errors**2, errors - 0.5)
    imitation_loss, penalty = -online[1][rows, taken], 0.01 * (online[1][rows] ** 2).mean(axis=1)
    for name, expected in {"td_loss": td_loss, "imitation_loss": imitation_loss, "log_prob_penalty": penalty}.items():
        np.testing.assert_allclose(terms.metrics[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(terms.loss.detach(), td_loss + imitation_loss + penalty, rtol=1e-4, atol=1e-5)


def test_the_policy_takes_the_best_action_of_those_that_are_likely_enough() -> None:
    obs = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    for threshold in (1e-6, 0.3, 1.0):
        networks = bcq(threshold=threshold)
        q, log_probs = outputs_of(numpy_of(networks.policy), obs.astype(np.float64))
        shares = np.exp(log_probs - log_probs.max(axis=1, keepdims=True))
        wanted = np.where(shares >= threshold, q, -np.inf).argmax(axis=1)
        assert networks.policy.act(obs).tolist() == wanted.tolist()
        best, likeliest = q.argmax(axis=1), log_probs.argmax(axis=1)
        assert (wanted == best).all() == (threshold == 1e-6)
        assert (wanted == likeliest).all() == (threshold == 1.0)


def test_actions_that_are_ruled_out_are_never_drawn_and_all_numbers_are_finite() -> None:
    """A recording has the probabilities of what was drawn."""
    policy = bcq(threshold=0.5).policy
    obs = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    chosen = policy.choose(obs, explore=True, generator=torch.Generator().manual_seed(0))
    inputs = chosen.extras["action_dist_inputs"]
    out = inputs == np.float32(RULED_OUT)
    assert out.any(axis=1).sum() > 100 and not out[np.arange(500), chosen.actions].any()
    assert np.isfinite(chosen.extras["action_logp"]).all() and (chosen.extras["action_logp"] <= 0).all()
    assert policy.head.entropy(torch.from_numpy(inputs)).isfinite().all()


@pytest.mark.parametrize("share_layers", [False, True])
def test_values_and_imitator_share_layers_only_if_they_should(share_layers: bool) -> None:
    """The imitator alone teaches no layer of the values that it does not share."""
    network = NetworkConfig(hidden_sizes=[8], share_layers=share_layers)
    networks = Networks(BCQ(), VECTOR, THREE, network, seed=0)
    batch = whole_batch(networks, made_steps([9], [True], actions=3))
    _, log_probs = networks.algorithm.values_and_log_probs(networks.policy, batch["obs"])
    learned = dict(networks.policy.named_parameters())
    gradients = torch.autograd.grad(log_probs.square().sum(), list(learned.values()), allow_unused=True)
    reached = {name for name, gradient in zip(learned, gradients, strict=True) if gradient is not None and gradient.any()}
    assert reached == {name for name in learned if ".first." not in name and "logits" not in name}
    assert any(".first." in name for name in learned) != share_layers


def test_an_action_that_was_never_taken_is_not_chosen_whatever_it_is_worth() -> None:
    """Action 2 was never taken. Its value is what the network makes of it, and here that is far above the others."""
    steps = made_steps([1] * 200, [True] * 200, actions=2)
    steps.columns["rewards"] = steps.columns["actions"].double()
    networks = Networks(BCQ(log_prob_penalty=0.01), VECTOR, THREE, LINEAR)
    with torch.no_grad():
        networks.policy._head.logits.bias[2] = 100.0
    batch = whole_batch(networks, steps)
    optimizer = torch.optim.Adam([p for p in networks.parameters() if p.requires_grad], lr=0.05)
    for _ in range(150):
        update(networks, optimizer, batch)
    assert (networks.algorithm.q(networks.policy, batch["obs"])[:, 2] > 50).all()
    assert (networks.policy.act(batch["obs"].numpy()) == 1).all(), "the better one of those that were taken"


def test_the_value_of_dueling_has_no_imitator() -> None:
    """Of as many parameters as DQN's, and none that the other half of the features would need."""
    network = NetworkConfig(hidden_sizes=[8, 4])
    one, other = Networks(BCQ(dueling=True), VECTOR, THREE, network), Networks(DQN(dueling=True), VECTOR, THREE, network)
    shapes = [
        {name: tuple(p.shape) for name, p in each.policy.named_parameters() if name.startswith("value")}
        for each in (one, other)
    ]
    assert shapes[0] == shapes[1] and shapes[0]["value.weight"] == (1, 4)


def test_dueling_values_choose_as_the_policy_does() -> None:
    networks = Networks(BCQ(dueling=True, threshold=1e-6), VECTOR, THREE, NetworkConfig(hidden_sizes=[8]), seed=3)
    obs = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    best = networks.algorithm.q(networks.policy, torch.from_numpy(obs)).argmax(dim=1)
    assert networks.policy.act(obs).tolist() == best.tolist()
    assert len(best.unique()) > 1


def test_only_bcq_sets_the_threshold_of_a_network() -> None:
    """The imitator of another algorithm would learn nothing."""
    with pytest.raises(ConfigError, match=r"leave it out, and set bcq\.threshold"):
        Networks(BC(), VECTOR, TWO, NetworkConfig(imitation_threshold=0.3))
