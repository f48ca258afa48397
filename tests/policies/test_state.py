"""A policy remembers what it saw in this episode, and in no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.episodes import nested
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Actions, Policy, as_tensors
from tests.policies.sampling import observed

SPACE = spaces.Dict(at=spaces.Box(-1, 1, (3,)), gear=spaces.Discrete(4, start=1))
FORGETFUL = NetworkConfig(hidden_sizes=[8])
STACKED = NetworkConfig(hidden_sizes=[8], frames=3)
LSTM = NetworkConfig(hidden_sizes=[8], recurrent="lstm", recurrent_units=6)
GRU = NetworkConfig(hidden_sizes=[8], recurrent="gru", recurrent_units=6)
FOUR_STEPS = np.arange(4)[:, None] * np.ones((1, 40)) == 0
"""(4, 40): all begin at the first step."""
every_kind = pytest.mark.parametrize("network", [FORGETFUL, STACKED, LSTM, GRU], ids=["plain", "frames", "lstm", "gru"])
every_memory = pytest.mark.parametrize("network", [STACKED, LSTM, GRU], ids=["frames", "lstm", "gru"])


def policy_of(network: NetworkConfig) -> Policy:
    policy = Policy(SPACE, spaces.Discrete(5), network)
    with torch.no_grad():
        policy.head.logits.weight.mul_(300.0)  # choices depend on what is seen
    return policy


def drawn(steps: int, copies: int, *, seed: int = 0) -> list[Any]:
    return [observed(SPACE, copies, seed=seed + step) for step in range(steps)]


def inputs_of(policy: Policy, seen: list[Any], starts: np.ndarray) -> np.ndarray:
    """(steps, copies, inputs)."""
    return np.stack([chosen.extras["action_dist_inputs"] for chosen in played(policy, seen, starts)])


def played(policy: Policy, seen: Iterable[Any], starts: np.ndarray, **how: Any) -> list[Actions]:
    state, chosen = policy.initial_state(starts.shape[1]), []
    for observations, start in zip(seen, starts, strict=True):
        chosen.append(policy.choose(observations, state.reset(start), **{"explore": False, **how}))
        assert chosen[-1].state is not None
        state = chosen[-1].state
    return chosen


def test_the_frames_are_the_last_ones_and_the_first_repeated() -> None:
    policy, seen = policy_of(STACKED), drawn(5, 2)
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
    policy, past, other, now = policy_of(network), drawn(4, 2), drawn(4, 2, seed=9), drawn(3, 2, seed=5)
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
@pytest.mark.parametrize("explore", [False, True])
def test_act_gives_the_actions_of_choose_and_the_next_state(network: NetworkConfig, explore: bool) -> None:
    policy, seen, starts = policy_of(network), drawn(6, 3), np.random.default_rng(0).random((6, 3)) < 0.4
    expected = played(policy, seen, starts, explore=explore, generator=torch.Generator().manual_seed(1))
    state, generator = policy.initial_state(3), torch.Generator().manual_seed(1)
    for observations, start, chosen in zip(seen, starts, expected, strict=True):
        actions, state = policy.act(observations, state.reset(start), explore=explore, generator=generator)
        np.testing.assert_array_equal(actions, chosen.actions)


@every_memory
def test_a_state_stays_as_it_is(network: NetworkConfig) -> None:
    """So that several continuations can be tried from one."""
    policy, seen = policy_of(network), drawn(3, 2)
    state = policy.initial_state(2)
    _, state = policy.act(seen[0], state)
    first, _ = policy.act(seen[1], state)
    policy.act(seen[2], state.reset(np.array([True, False])))
    np.testing.assert_array_equal(policy.act(seen[1], state)[0], first)


@every_memory
def test_an_environment_may_write_into_the_same_arrays(network: NetworkConfig) -> None:
    """As vector environments do where they are not asked to copy."""
    policy, seen = policy_of(network), drawn(4, 2)
    buffer = nested.map_leaves(np.copy, seen[0])

    def written() -> Iterator[Any]:
        for observations in seen:
            nested.map_leaves(lambda to, of: to.__setitem__(slice(None), of), buffer, observations)
            yield buffer

    found = [chosen.extras["action_dist_inputs"] for chosen in played(policy, written(), FOUR_STEPS[:, :2])]
    np.testing.assert_array_equal(np.stack(found), inputs_of(policy, seen, FOUR_STEPS[:, :2]))
