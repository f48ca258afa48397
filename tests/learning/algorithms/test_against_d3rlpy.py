"""Losses and gradients against d3rlpy 2.8: the same weights, batch and draws.

tests/data/d3rlpy is what benchmarks/reference/d3rlpy_losses.py wrote. Gradients are compared by their norm over a network,
which also shows what a loss reaches and should not. Where we mean to differ, the test says so, and docs/algorithms.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.awac import AWAC
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.bcq import BCQ
from offline_core.learning.algorithms.cal_ql import CalQL
from offline_core.learning.algorithms.cql import ContinuousCQL, DiscreteCQL
from offline_core.learning.algorithms.dqn import DQN
from offline_core.learning.algorithms.iql import IQL
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.algorithms.rebrac import ReBRAC
from offline_core.learning.algorithms.sac import SAC
from offline_core.learning.algorithms.td3 import TD3
from offline_core.learning.algorithms.td3_bc import TD3BC
from tests.learning.algorithms.d3rlpy_weights import (
    ACTIONS,
    BOUNDED,
    CHOICES,
    GAMMA,
    NETWORK,
    OBSERVATIONS,
    Tensors,
    batch_of,
    below,
    hidden_of,
    load_actor_critic,
    load_log_std,
    load_network,
    reference,
)


def draw(monkeypatch: pytest.MonkeyPatch, *normals: Tensor, uniform: Tensor | None = None) -> None:
    """Let Torch draw these, in this order."""
    following = iter(normals)

    def randn(*shape: Any, **_: Any) -> Tensor:
        drawn = next(following)
        assert drawn.shape == tuple(shape[0])
        return drawn

    monkeypatch.setattr(torch, "randn", randn)
    monkeypatch.setattr(torch, "randn_like", lambda like, **_: randn(like.shape))
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: uniform)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.squeeze(), expected.squeeze(), rtol=1e-5, atol=1e-5)


def learned(networks: Networks, found: Tensors) -> tuple[LossOutput, Callable[..., Tensor]]:
    """Its losses, and the norm of the gradients of the mean loss over parameters whose names begin like this."""
    output = networks(batch_of(found))
    output.loss.mean().backward()

    def norm(*prefixes: str) -> Tensor:
        gradients = [p.grad for name, p in networks.named_parameters() if name.startswith(prefixes) and p.grad is not None]
        return torch.stack([gradient.norm() for gradient in gradients]).norm()

    return output, norm


def test_iql() -> None:
    found = reference("iql")
    networks = Networks(IQL(gamma=GAMMA, max_weight=5.0), OBSERVATIONS, ACTIONS, BOUNDED)
    load_actor_critic(networks, found, "_mu")
    load_log_std(networks, found, -5.0, 2.0)
    policy = networks.policy
    load_network(policy.value_hidden, {"_fc": policy.value}, below(found, "weights.value_func."))
    output, norm = learned(networks, found)
    assert 0 < output.metrics["weights_clipped"].mean() < 1
    close(output.metrics["critic_loss"].mean(), found["losses.q_loss"])
    close(output.metrics["value_loss"].mean(), found["losses.v_loss"])
    close(output.metrics["policy_loss"].mean(), found["losses.actor_loss"])
    close(output.loss.mean(), found["losses.critic_loss"] + found["losses.actor_loss"])
    close(norm("critics"), found["gradients.q_funcs"])
    close(norm("policy.value"), found["gradients.value_func"])
    share = found["weights.policy._logstd"].squeeze(0).sigmoid()
    networks.policy.head.log_std.grad *= 7.0 * share * (1 - share)  # through d3rlpy's sigmoid
    close(norm("policy.hidden", "policy._head"), found["gradients.policy"])


@pytest.mark.parametrize(
    ("name", "kind", "config"),
    [
        ("td3", TD3, TD3(gamma=GAMMA)),
        ("td3_bc", TD3BC, TD3BC(gamma=GAMMA)),
        (
            "rebrac",
            ReBRAC,
            ReBRAC(gamma=GAMMA, policy_penalty=0.05, critic_penalty=0.5, critics={"layer_norm": True}),
        ),
    ],
)
def test_td3_and_what_is_made_of_it(name: str, kind: type[TD3], config: TD3, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an update of the policy; the noise of the next actions is d3rlpy's."""
    found = reference(name)
    networks = Networks(config, OBSERVATIONS, ACTIONS, NETWORK)
    load_actor_critic(networks, found, "_fc")
    target = networks.target_policy
    load_network(target.hidden, {"_fc": target.head.mean}, below(found, "weights.targ_policy."))
    draw(monkeypatch, found["draws.0"])
    output, norm = learned(networks, found)
    close(output.metrics["critic_loss"].mean(), found["losses.critic_loss"])
    close(output.metrics["policy_loss"].mean(), found["losses.actor_loss"])
    close(output.loss.mean(), found["losses.critic_loss"] + found["losses.actor_loss"])
    close(norm("critics"), found["gradients.q_funcs"])
    close(norm("policy"), found["gradients.policy"])


def test_awac(monkeypatch: pytest.MonkeyPatch) -> None:
    """The critics, for the same next actions, and the advantages, which d3rlpy weighs by a softmax over the batch and sums.

    d3rlpy draws next actions by tanh of a Gaussian that is not the policy, and adds their entropy, which was left out for this.
    """
    found = reference("awac")
    networks = Networks(AWAC(gamma=GAMMA, temperature=2.0, max_weight=1e6), OBSERVATIONS, ACTIONS, BOUNDED)
    load_actor_critic(networks, found, "_mu")
    load_log_std(networks, found, -6.0, 0.0)
    batch = batch_of(found)
    with torch.no_grad():
        mean, log_std = networks.policy(batch["new_obs"]).chunk(2, dim=1)
        next_actions = torch.tanh(torch.atanh(mean) + log_std.exp() * found["draws.0"])
    draw(monkeypatch, (next_actions - mean) * torch.exp(-log_std), found["draws.1"].squeeze(0))
    output, norm = learned(networks, found)
    close(output.metrics["critic_loss"].mean(), found["losses.critic_loss"])
    close(norm("critics"), found["gradients.q_funcs"])
    log_probs = networks.policy.head.log_prob(networks.policy(batch["obs"]), batch["actions"])
    weights = len(log_probs) * torch.softmax(output.metrics["advantage"] / 2.0, dim=0)
    close(-(log_probs * weights).sum(), found["losses.actor_loss"])
    factors = weights / output.metrics["weight"]
    close(factors, factors.mean().expand(64))  # one for the whole batch


def test_sac(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reference("sac")
    networks = Networks(SAC(gamma=GAMMA), OBSERVATIONS, ACTIONS, NETWORK)
    load_actor_critic(networks, found, "_mu", "_logstd")
    networks.log_temperature.data.fill_(math.log(0.6))
    draw(monkeypatch, found["draws.0"], found["draws.1"])
    output, norm = learned(networks, found)
    close(output.metrics["critic_loss"].mean(), found["losses.critic_loss"])
    close(output.metrics["policy_loss"].mean(), found["losses.actor_loss"])
    close(norm("critics"), found["gradients.q_funcs"])
    close(norm("policy"), found["gradients.policy"])
    check_temperature(networks, output, found)


def check_temperature(networks: Networks, output: LossOutput, found: Tensors) -> None:
    """d3rlpy's loss is of the temperature, ours of its logarithm: one and its gradient differ by that factor."""
    assert networks.log_temperature.grad is not None
    close(networks.log_temperature.grad, found["losses.temp_loss"] / 0.6)


@pytest.mark.parametrize(
    ("name", "kind", "config"),
    [
        ("cql", ContinuousCQL, ContinuousCQL(gamma=GAMMA, action_samples=3, alpha=5.0)),
        ("cal_ql", CalQL, CalQL(gamma=GAMMA, action_samples=3, alpha=5.0)),
    ],
)
def test_cql(name: str, kind: type[ContinuousCQL], config: ContinuousCQL, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours estimates an integral by a mean, d3rlpy's by a sum: a constant of α · log(3 · 3) for each critic.

    d3rlpy's next action is the mode, ours is drawn, as in the paper's code; here the mode is drawn.
    """
    found = reference(name)
    networks = Networks(config, OBSERVATIONS, ACTIONS, NETWORK)
    output, norm = penalised(networks, found, monkeypatch, next_draw=torch.zeros(64, 3), draws=range(4))
    constant = 5.0 * 2 * math.log(9)
    close(output.metrics["penalty"].mean() + constant, found["losses.conservative_loss"])
    total = (output.metrics["critic_loss"] + output.metrics["penalty"]).mean() + constant
    close(total, found["losses.critic_loss"])
    close(output.metrics["policy_loss"].mean(), found["losses.actor_loss"])
    close(norm("critics"), found["gradients.q_funcs"])
    close(norm("policy"), found["gradients.policy"])
    check_temperature(networks, output, found)


def test_cql_with_a_multiplier_and_soft_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """d3rlpy's threshold is within the weight and without the constant: ours is the weight times (threshold - log(3 · 3))."""
    found = reference("cql_lagrange")
    threshold = 2.0 * (3.0 - math.log(9))
    config = ContinuousCQL(gamma=GAMMA, action_samples=3, alpha=2.0, lagrange_threshold=threshold, entropy_backup=True)
    networks = Networks(config, OBSERVATIONS, ACTIONS, NETWORK)
    networks.log_multiplier.data.fill_(math.log(1.5))
    output, norm = penalised(networks, found, monkeypatch, next_draw=found["draws.0"], draws=range(1, 5))
    excess = output.metrics["penalty"].mean() - 2 * threshold
    close(1.5 * excess, found["losses.conservative_loss"])
    close(output.metrics["critic_loss"].mean() + 1.5 * excess, found["losses.critic_loss"])
    close(norm("critics"), found["gradients.q_funcs"])
    assert networks.log_multiplier.grad is not None
    close(networks.log_multiplier.grad, -1.5 * excess)


def penalised(
    networks: Networks, found: Tensors, monkeypatch: pytest.MonkeyPatch, *, next_draw: Tensor, draws: range
) -> tuple[LossOutput, Callable[..., Tensor]]:
    """d3rlpy draws for the penalty, first by the policy here and at the next observation, then uniformly, and for the actor."""
    load_actor_critic(networks, found, "_mu", "_logstd")
    networks.log_temperature.data.fill_(math.log(0.6))
    here, following, uniform, actor = (found[f"draws.{number}"] for number in draws)
    shares = (uniform.unflatten(0, (64, 3)).transpose(0, 1).flatten(0, 1) + 1) / 2  # ours go through the batch sample by sample
    drawn = torch.cat([here, following]).flatten(0, 1)
    draw(monkeypatch, next_draw, actor, drawn, uniform=shares)
    return learned(networks, found)


@pytest.mark.parametrize(
    ("name", "kind", "config"),
    [
        ("double_dqn", DQN, DQN(gamma=GAMMA, n_step=1, dueling=False)),
        ("discrete_cql", DiscreteCQL, DiscreteCQL(gamma=GAMMA, dueling=False, alpha=0.7)),
    ],
)
def test_values_of_discrete_actions(name: str, kind: type[DQN], config: DQN) -> None:
    """Without dueling networks, which d3rlpy does not have."""
    found = reference(name)
    networks = Networks(config, OBSERVATIONS, CHOICES, NETWORK)
    for policy, theirs in ((networks.policy, "q_funcs"), (networks.target, "targ_q_funcs")):
        load_network(policy.hidden, {"_fc": policy.head.logits}, below(found, f"weights.{theirs}.0."))
    output, norm = learned(networks, found)
    close(output.loss.mean(), found["losses.loss"])
    if name == "discrete_cql":
        close(output.metrics["penalty"].mean(), 0.7 * found["losses.conservative_loss"])
    close(norm("policy"), found["gradients.q_funcs"])
    assert networks.policy.act(found["batch.observations"].numpy()).tolist() == found["greedy"].tolist()


@pytest.mark.parametrize("name", ["bcq", "bcq_shared"])
def test_bcq(name: str) -> None:
    """The greedy actions, too: they are what the imitator is for. d3rlpy shares its layers, we with `share_layers`."""
    found = reference(name)
    network = NETWORK.model_copy(update={"share_layers": name == "bcq_shared"})
    networks = Networks(BCQ(log_prob_penalty=0.5, gamma=GAMMA), OBSERVATIONS, CHOICES, network)
    for policy, theirs in ((networks.policy, "q_funcs.0."), (networks.target, "targ_q_funcs.0.")):
        load_network(hidden_of(policy), {"_fc": policy.head.logits}, below(found, f"weights.{theirs}"))
    imitator = {"_fc": networks.policy.head.imitator}
    load_network(hidden_of(networks.policy, imitator=True), imitator, below(found, "weights.imitator."))
    output, norm = learned(networks, found)
    close(output.metrics["td_loss"].mean(), found["losses.td_loss"])
    imitation_loss = output.metrics["imitation_loss"] + output.metrics["log_prob_penalty"]
    close(imitation_loss.mean(), found["losses.imitator_loss"])
    close(output.loss.mean(), found["losses.loss"])
    shared = "policy.hidden.1", "policy.hidden.3"
    of_q, of_imitator = (shared, shared) if network.share_layers else (("policy.hidden.1.first",), ("policy.hidden.1.second",))
    close(norm(*of_q, "policy._head.logits"), found["gradients.q_funcs"])
    close(norm(*of_imitator, "policy._head.imitator"), found["gradients.imitator"])
    greedy = networks.policy.act(found["batch.observations"].numpy())
    assert greedy.tolist() == found["greedy"].tolist()
    all_q = networks.algorithm.q(networks.policy, found["batch.observations"])
    assert (all_q.argmax(dim=1) != found["greedy"]).any(), "some of the best actions were ruled out"


def test_cloning_with_a_deterministic_policy() -> None:
    found = reference("bc")
    networks = Networks(BC(squared_error=True), OBSERVATIONS, ACTIONS, BOUNDED)
    load_network(networks.policy.hidden, {"_fc": networks.policy.head.mean}, below(found, "weights.imitator."))
    output, norm = learned(networks, found)
    close(output.loss.mean(), found["losses.loss"])
    close(norm("policy"), found["gradients.imitator"])


def test_cloning_of_discrete_actions() -> None:
    """Without d3rlpy's penalty of large log-probabilities: ours is the likelihood alone."""
    found = reference("discrete_bc")
    networks = Networks(BC(), OBSERVATIONS, CHOICES, NETWORK)
    load_network(networks.policy.hidden, {"_fc": networks.policy.head.logits}, below(found, "weights.imitator."))
    output, _ = learned(networks, found)
    close(output.loss.mean(), found["losses.imitation_loss"])
