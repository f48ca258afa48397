"""Losses where observations say which actions are allowed: by hand in float64, and what forbidden actions teach: nothing."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.data.episodes import nested
from offline_core.data.episodes.action_masks import with_mask
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.awac import AWAC
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.bcq import BCQ
from offline_core.learning.algorithms.cql import DiscreteCQL
from offline_core.learning.algorithms.dqn import DQN
from offline_core.learning.algorithms.iql import IQL
from offline_core.learning.algorithms.marwil import MARWIL
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.algorithms.sac import SAC
from offline_core.learning.steps import Batch, BatchSpec, Steps
from offline_core.policies.config import NetworkConfig
from tests.learning.algorithms.making import BOX, LINEAR, VECTOR, loaded, log_softmax, made_steps, numpy_of

ACTIONS = 4
FOUR = gym.spaces.Discrete(ACTIONS)
MASKED = with_mask(VECTOR, FOUR)
GAMMA = 0.8


def masked_steps() -> tuple[Steps, np.ndarray, np.ndarray]:
    """(steps, their observations, their masks): each action is allowed, and nothing is after a terminal step."""
    steps = made_steps([6, 1, 5], [True, True, False], actions=ACTIONS)
    rng, rows = np.random.default_rng(5), len(steps.episode)
    masks = (rng.random((rows, ACTIONS)) < 0.4).astype(np.int8)
    masks[np.arange(rows), rng.integers(0, ACTIONS, rows)] = 1
    taken = steps.rows.numpy()
    masks[taken, steps.columns["actions"].numpy()[taken]] = 1
    masks[[6, 8]] = 0
    obs = steps.columns.pop("obs")
    steps.columns |= {"obs/action_mask": torch.from_numpy(masks), "obs/observations": obs}
    return steps, obs.double().numpy(), masks == 1


def batch_of(networks: Networks, steps: Steps) -> Batch:
    reading = BatchSpec(networks.algorithm.batch_columns)
    loaded(networks, steps, reading)
    batch = steps.batch(steps.indices(reading), reading)
    return {
        name: nested.unflatten(batch, name, MASKED) if name in ("obs", "new_obs") else batch[name]
        for name in networks.algorithm.batch_columns
    }


def made(kind: type[Algorithm], config: Algorithm | None = None, network: NetworkConfig = LINEAR) -> Networks:
    """With outputs far apart, so that a forbidden action is often the best."""
    networks = Networks(config or kind(), MASKED, FOUR, network, seed=1)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in networks.named_parameters():
            if "logits" in name or "imitator" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return networks


def logits_of(weights: dict[str, np.ndarray], obs: np.ndarray, name: str = "logits") -> np.ndarray:
    return obs @ weights[f"_head.{name}.weight"].T + weights[f"_head.{name}.bias"]


def close(found: torch.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found.detach().double().numpy(), expected, rtol=2e-5, atol=2e-5)


def test_bc_and_marwil_clone_among_allowed_actions() -> None:
    for kind in (BC, MARWIL):
        steps, obs, masks = masked_steps()
        networks = made(kind)
        terms = networks(batch_of(networks, steps))
        rows = steps.rows.numpy()
        logs = log_softmax(np.where(masks, logits_of(numpy_of(networks.policy), obs), -np.inf)[rows])
        probabilities = np.exp(logs)
        close(terms.metrics["entropy"], -(probabilities * np.where(masks[rows], logs, 0)).sum(axis=1))
        taken = logs[np.arange(len(rows)), steps.columns["actions"].numpy()[rows]]
        if kind is BC:
            close(terms.loss, -taken)
        else:
            close(terms.metrics["policy_loss"], -taken * terms.metrics["weight"].double().numpy())


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("penalised", [True, False])
def test_dqn_and_cql_value_allowed_actions_alone(double: bool, dueling: bool, penalised: bool) -> None:
    steps, obs, masks = masked_steps()
    given = {"double": double, "dueling": dueling, "n_step": 1, "gamma": GAMMA}
    networks = made(DiscreteCQL, DiscreteCQL(alpha=0.7, **given)) if penalised else made(DQN, DQN(**given))
    batch = batch_of(networks, steps)
    with torch.no_grad():
        networks.target._head.logits.weight.copy_(-networks.target._head.logits.weight)
    terms = networks(batch)

    def q_of(weights: dict[str, np.ndarray]) -> np.ndarray:
        q = logits_of(weights, obs)
        if dueling:
            mean = np.where(masks, q, 0).sum(axis=1) / np.maximum(masks.sum(axis=1), 1)
            q = q - mean[:, None] + obs @ weights["value.weight"].T + weights["value.bias"]
        return np.where(masks, q, -np.inf)

    rows, actions = steps.rows.numpy(), steps.columns["actions"].numpy()[steps.rows.numpy()]
    online, target = q_of(numpy_of(networks.policy)), q_of(numpy_of(networks.target))
    best = (online if double else target)[rows + 1].argmax(axis=1)
    terminated = steps.columns["terminateds"].numpy()[rows]
    following = np.where(terminated, 0, target[rows + 1, best])
    q = online[rows, actions]
    errors = np.abs(q - steps.columns["rewards"].numpy()[rows] - GAMMA * following)
    loss = np.where(errors < 1, errors**2 / 2, errors - 0.5)
    if penalised:
        loss += 0.7 * (np.log(np.exp(online[rows]).sum(axis=1)) - q)
    close(terms.loss, loss)


def test_bcq_compares_with_the_likeliest_allowed_action() -> None:
    steps, obs, masks = masked_steps()
    config = BCQ(threshold=0.5, n_step=1, gamma=GAMMA, dueling=False, log_prob_penalty=0.1)
    networks = made(BCQ, config)
    batch = batch_of(networks, steps)
    terms = networks(batch)
    weights, rows = numpy_of(networks.policy), steps.rows.numpy()
    actions = steps.columns["actions"].numpy()[rows]
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = log_softmax(np.where(masks, logits_of(weights, obs, "imitator"), -np.inf))
    likely = masks & (logs - np.where(masks, logs, -np.inf).max(axis=1, keepdims=True) >= np.log(0.5))
    q = logits_of(weights, obs)
    best = np.where(likely, q, -np.inf)[rows + 1].argmax(axis=1)
    terminated = steps.columns["terminateds"].numpy()[rows]
    following = np.where(terminated, 0, q[rows + 1, best])
    errors = np.abs(q[rows, actions] - steps.columns["rewards"].numpy()[rows] - GAMMA * following)
    loss = np.where(errors < 1, errors**2 / 2, errors - 0.5) - logs[rows, actions]
    squares = np.where(masks, logs, 0)[rows] ** 2
    close(terms.loss, loss + 0.1 * squares.sum(axis=1) / masks[rows].sum(axis=1))
    chosen = networks.policy.head.mode(networks.policy(batch["obs"])).numpy()
    assert likely[rows, chosen].all()


@pytest.mark.parametrize("kind", [IQL, AWAC])
def test_iql_and_awac_clone_among_allowed_actions_and_ask_for_the_value_of_no_other(kind: type[Algorithm]) -> None:
    steps, obs, masks = masked_steps()
    networks = made(kind)
    batch, asked = batch_of(networks, steps), []
    networks.critics.register_forward_pre_hook(lambda _, given: asked.append(given[1]))
    networks.targets.register_forward_pre_hook(lambda _, given: asked.append(given[1]))
    terms = networks(batch)
    rows = steps.rows.numpy()
    logs = log_softmax(np.where(masks, logits_of(numpy_of(networks.policy), obs), -np.inf)[rows])
    taken = logs[np.arange(len(rows)), steps.columns["actions"].numpy()[rows]]
    close(terms.metrics["policy_loss"], -taken * terms.metrics["weight"].double().numpy())
    terminated = steps.columns["terminateds"].numpy()[rows]
    for actions in asked:
        now = masks[rows, actions.numpy()]
        following = masks[rows + 1, actions.numpy()] | terminated
        assert now.all() or following.all()


@pytest.mark.parametrize("kind", [BC, MARWIL, DQN, DiscreteCQL, BCQ, IQL, AWAC])
def test_forbidden_actions_teach_nothing_and_no_gradient_is_nan(kind: type[Algorithm]) -> None:
    steps, _, _ = masked_steps()
    never = 2
    steps.columns["obs/action_mask"][:, never] = 0
    rows = steps.rows
    others = steps.columns["actions"][rows] == never
    steps.columns["actions"][rows[others]] = 0
    steps.columns["obs/action_mask"][rows[others], 0] = 1
    networks = made(kind)
    networks(batch_of(networks, steps)).loss.mean().backward()
    for name, parameter in networks.named_parameters():
        if parameter.grad is not None:
            assert parameter.grad.isfinite().all(), name
            if name in ("policy._head.logits.bias", "policy._head.imitator.bias"):
                assert parameter.grad[never] == 0, name
                assert (parameter.grad != 0).any()


@pytest.mark.parametrize(
    ("actions", "message"),
    [(BOX, "for Discrete and MultiDiscrete actions"), (gym.spaces.Discrete(3), "one number for each of their 3 choices")],
)
def test_masks_of_other_actions_are_refused(actions: gym.Space[Any], message: str) -> None:
    for kind in (BC, SAC) if actions is BOX else (BC, DQN):
        with pytest.raises(ConfigError, match=message):
            Networks(kind(), MASKED, actions)
