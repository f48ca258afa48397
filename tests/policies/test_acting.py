"""Acting with what was seen before: of this episode, and of no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from offline_core.episodes import nested
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy, as_tensors

torch.set_num_threads(1)

SPACE = spaces.Dict(at=spaces.Box(-1, 1, (3,)), gear=spaces.Discrete(4, start=1))
FORGETFUL = NetworkConfig(hidden_sizes=[8])
STACKED = NetworkConfig(hidden_sizes=[8], frames=3)
LSTM = NetworkConfig(hidden_sizes=[8], recurrent="lstm", recurrent_units=6)
GRU = NetworkConfig(hidden_sizes=[8], recurrent="gru", recurrent_units=6)
every_kind = pytest.mark.parametrize("network", [FORGETFUL, STACKED, LSTM, GRU], ids=["plain", "frames", "lstm", "gru"])
every_memory = pytest.mark.parametrize("network", [STACKED, LSTM, GRU], ids=["frames", "lstm", "gru"])


def policy_of(network: NetworkConfig) -> Policy:
    policy = Policy(SPACE, spaces.Discrete(5), network)
    with torch.no_grad():
        policy.head.logits.weight.mul_(300.0)  # choices depend on what is seen
    return policy


def played(steps: int, copies: int, *, seed: int = 0) -> list[Any]:
    batched = batch_space(SPACE, copies)
    batched.seed(seed)
    return [batched.sample() for _ in range(steps)]


def all_start(copies: int) -> np.ndarray:
    return np.ones(copies, bool)


def inputs_of(policy: Policy, seen: list[Any], starts: np.ndarray) -> np.ndarray:
    """(steps, copies, inputs)."""
    acting = policy.acting(starts.shape[1])
    return np.stack([acting.act(o, s, explore=False).extras["action_dist_inputs"] for o, s in zip(seen, starts, strict=True)])


def test_the_frames_are_the_last_ones_and_the_first_repeated() -> None:
    policy, seen = policy_of(STACKED), played(5, 2)
    starts = np.array([[1, 1], [0, 0], [0, 1], [0, 0], [0, 0]], bool)
    found = inputs_of(policy, seen, starts)
    rows = {
        0: [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]],
        1: [[0, 0, 0], [0, 0, 1], [2, 2, 2], [2, 2, 3], [2, 3, 4]],
    }
    for copy, gathered in rows.items():
        for t, frames in enumerate(gathered):
            stacked = nested.map_leaves(
                lambda *leaves, copy=copy: np.stack([x[copy] for x in leaves])[None], *[seen[f] for f in frames]
            )
            with torch.no_grad():
                np.testing.assert_allclose(found[t, copy], policy(as_tensors(stacked))[0].numpy(), atol=1e-6)


@every_memory
def test_what_was_seen_in_an_episode_before_does_not_matter(network: NetworkConfig) -> None:
    """The same three observations after different pasts; without forgetting, they would be taken differently."""
    policy, past, other, now = policy_of(network), played(4, 2), played(4, 2, seed=9), played(3, 2, seed=5)
    starts = np.zeros((7, 2), bool)
    starts[0] = True
    remembered = [inputs_of(policy, [*before, *now], starts)[4:] for before in (past, other)]
    assert not np.allclose(*remembered, atol=1e-4), "the past does not matter at all"
    starts[4, 0] = True  # copy 0 begins anew, copy 1 goes on
    forgotten = [inputs_of(policy, [*before, *now], starts)[4:] for before in (past, other)]
    np.testing.assert_array_equal(forgotten[0][:, 0], forgotten[1][:, 0])
    np.testing.assert_array_equal(forgotten[0][:, 1], remembered[0][:, 1])
    fresh = inputs_of(policy, now, starts[4:] | np.array([True, True]) * (np.arange(3) == 0)[:, None])
    np.testing.assert_allclose(forgotten[0][:, 0], fresh[:, 0], atol=1e-6)


@every_kind
def test_greedy_is_acting_without_exploring(network: NetworkConfig) -> None:
    policy, seen = policy_of(network), played(6, 3)
    one, other = policy.acting(3), policy.acting(3)
    starts = all_start(3)
    for observations in seen:
        np.testing.assert_array_equal(one.greedy(observations, starts), other.act(observations, starts, explore=False).actions)
        starts = np.zeros(3, bool)


@every_kind
def test_exploring_follows_its_generator(network: NetworkConfig) -> None:
    policy = Policy(SPACE, spaces.Discrete(5), network)

    def actions(seed: int) -> np.ndarray:
        acting, generator = policy.acting(40), torch.Generator().manual_seed(seed)
        starts = [all_start(40), *np.zeros((3, 40), bool)]
        return np.stack(
            [acting.act(o, s, explore=True, generator=generator).actions for o, s in zip(played(4, 40), starts, strict=True)]
        )

    np.testing.assert_array_equal(actions(1), actions(1))
    assert not np.array_equal(actions(1), actions(2))


@every_kind
def test_what_is_looked_at_stays_as_it_is(network: NetworkConfig) -> None:
    policy, seen = policy_of(network), played(3, 2)
    before = [nested.map_leaves(np.copy, observations) for observations in seen]
    inputs_of(policy, seen, np.array([[1, 1], [0, 0], [1, 0]], bool))
    assert all(nested.equal(a, b) for a, b in zip(seen, before, strict=True))


@every_memory
def test_an_environment_may_write_into_the_same_arrays(network: NetworkConfig) -> None:
    """As vector environments do where they are not asked to copy."""
    policy, seen = policy_of(network), played(4, 2)
    starts = np.zeros((4, 2), bool)
    starts[0] = True
    buffer = nested.map_leaves(np.copy, seen[0])
    acting, found = policy.acting(2), []
    for observations, start in zip(seen, starts, strict=True):
        nested.map_leaves(lambda to, of: to.__setitem__(slice(None), of), buffer, observations)
        found.append(acting.act(buffer, start, explore=False).extras["action_dist_inputs"])
    np.testing.assert_array_equal(np.stack(found), inputs_of(policy, seen, starts))
