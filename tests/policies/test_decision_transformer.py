"""A decision transformer sees the last steps of its episode, none that come later, and the return that is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import make_vector_env
from offline_core.data.episodes import nested
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.config import NetworkConfig, TransformerConfig
from offline_core.policies.decision_transformer import DecisionTransformer
from offline_core.policies.export_work import Graph
from offline_core.policies.policy import PolicyState, as_tensors
from offline_core.policies.rollouts import EnvironmentLoop
from offline_core.runtime.config import EnvironmentSpec
from tests.policies.sampling import observed

NESTED = spaces.Dict(at=spaces.Box(-1, 1, (3,)), gear=spaces.Discrete(4, start=1))
THREE = spaces.Discrete(3, start=5)
BOX = spaces.Box(-1.0, 3.0, (2,))
ACTION_SPACES = pytest.mark.parametrize("space", [THREE, spaces.MultiDiscrete([2, 3]), BOX], ids=str)
CONTEXT = 4


def network(context: int = CONTEXT, **values: Any) -> NetworkConfig:
    layers = {"layers": 2, "heads": 2, "units": 8, "context_steps": context, "max_episode_steps": 50, "dropout": 0.3}
    returns = {"target_return": 12.0, "return_scale": 4.0}
    return NetworkConfig(hidden_sizes=[6], transformer=TransformerConfig(**layers | returns | values))


def made(space: gym.Space[Any] = THREE, *, seed: int = 0, **values: Any) -> DecisionTransformer:
    """With weights so large that all that is seen matters."""
    policy = DecisionTransformer(NESTED, space, network(**values), seed=seed).eval()
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if parameter.ndim == 2:
                parameter.mul_(100.0 if name.startswith("_head") else 8.0)
    return policy


def episodes(space: gym.Space[Any], copies: int, steps: int, *, seed: int = 0) -> dict[str, Any]:
    """Nested observations (copies, steps, …), actions (copies, steps, …), rewards (copies, steps)."""
    rewards = np.random.default_rng(seed).normal(size=(copies, steps))
    return {
        "observations": observed(NESTED, copies, steps, seed=seed),
        "actions": observed(space, copies, steps, seed=seed),
        "rewards": rewards,
    }


def at(tree: Any, *where: Any) -> Any:
    return nested.map_leaves(lambda leaf: np.ascontiguousarray(leaf[where]), tree)


def at_once(policy: DecisionTransformer, seen: dict[str, Any], returns: np.ndarray, *, since: int = 0) -> torch.Tensor:
    """(copies, steps, inputs) of sequences whose first step is number `since` of their episodes."""
    copies, steps = returns.shape
    times = torch.arange(since, since + steps).repeat(copies)
    actions, to_go = torch.from_numpy(seen["actions"]).flatten(0, 1), torch.from_numpy(returns).flatten()
    with torch.no_grad():
        return policy.inputs(as_tensors(seen["observations"]), actions, to_go, times).unflatten(0, (copies, steps))


def told(policy: DecisionTransformer, seen: dict[str, Any], starts: np.ndarray) -> tuple[np.ndarray, PolicyState]:
    """Inputs (copies, steps, inputs) of play in which `seen` happens, whatever the policy chooses; and the state after it."""
    state, found = policy.initial_state(len(starts)), []
    for t in range(starts.shape[1]):
        chosen = policy.choose(at(seen["observations"], slice(None), t), state.reset(starts[:, t]), explore=False)
        found.append(chosen.extras["action_dist_inputs"])
        assert chosen.state is not None
        with torch.inference_mode():
            state = policy._acted(chosen.state, torch.from_numpy(seen["actions"][:, t]))
        state = state.received(seen["rewards"][:, t])
    return np.stack(found, axis=1), state


def left(policy: DecisionTransformer, rewards: np.ndarray) -> np.ndarray:
    """(copies, steps) what is left of the target before each step."""
    return policy.transformer.target_return - (np.cumsum(rewards, axis=1) - rewards)


@ACTION_SPACES
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("what", ["observations", "actions", "returns"])
def test_a_later_step_does_not_change_an_action(space: gym.Space[Any], training: bool, what: str) -> None:
    """Its own action, too, is not seen by a step; what came before is."""
    policy = made(space, dropout=0.0).train(training)
    seen, other = episodes(space, 2, 6), episodes(space, 2, 6, seed=1)
    returns, changed = left(policy, seen["rewards"]), left(policy, seen["rewards"])
    if what == "returns":
        changed[:, 3] += 5.0
    else:
        both = zip(nested.leaves(seen[what]), nested.leaves(other[what]), strict=True)
        swapped = [np.concatenate([a[:, :3], b[:, 3:4], a[:, 4:]], axis=1) for a, b in both]
        taken = iter(swapped)
        other = seen | {what: nested.map_leaves(lambda leaf: next(taken), seen[what])}
        assert not all(np.array_equal(a, b) for a, b in zip(swapped, nested.leaves(seen[what]), strict=True))
    other = seen if what == "returns" else other
    differs = (at_once(policy, seen, returns) != at_once(policy, other, changed)).any(dim=2).any(dim=0).tolist()
    first = 4 if what == "actions" else 3
    assert differs == [False] * first + [True] * (6 - first)


@ACTION_SPACES
def test_step_by_step_it_chooses_as_on_the_sequence_at_once(space: gym.Space[Any]) -> None:
    """To the end of the context; after it, as on the last steps alone, which keep their times and returns."""
    policy, steps = made(space), 9
    seen = episodes(space, 3, steps)
    starts = np.arange(steps) == np.zeros((3, 1))
    found, _ = told(policy, seen, starts)
    returns = left(policy, seen["rewards"])
    for t in range(steps):
        since = max(0, t + 1 - CONTEXT)
        window = {name: at(column, slice(None), slice(since, t + 1)) for name, column in seen.items()}
        expected = at_once(policy, window, returns[:, since : t + 1], since=since)[:, -1]
        np.testing.assert_allclose(found[:, t], expected, rtol=1e-4, atol=1e-4)


def test_nothing_of_an_earlier_episode_or_another_row_is_seen() -> None:
    """Rows of all ages play together; each as if it were alone, and began when it began."""
    policy, steps = made(BOX), 8
    seen = episodes(BOX, 4, steps)
    starts = np.zeros((4, steps), bool)
    starts[:, 0] = True
    begins = [0, 1, 5, 7]
    starts[range(4), begins] = True
    found, state = told(policy, seen, starts)
    assert state.context is not None and state.context.steps.tolist() == [steps - begin for begin in begins]
    for row, begin in enumerate(begins):
        own = {name: at(column, slice(row, row + 1), slice(begin, None)) for name, column in seen.items()}
        alone, _ = told(policy, own, np.arange(steps - begin)[None] == 0)
        np.testing.assert_allclose(found[row, begin:], alone[0], rtol=1e-4, atol=1e-4)
    assert np.abs(np.diff(found[:, -1], axis=0)).max() > 1e-2, "all alike, whatever is seen"


def test_the_return_to_go_falls_by_the_rewards_that_came() -> None:
    """By hand: 12, less 1 and 2.5; in the row that begins anew, 12 again, less 7."""
    policy, seen = made(), episodes(THREE, 2, 3)
    seen["rewards"] = np.array([[1.0, 2.5, 9.0], [3.0, 7.0, 9.0]])
    starts = np.array([[1, 0, 0], [1, 1, 0]], bool)
    _, state = told(policy, seen, starts)
    assert state.context is not None
    assert state.context.returns_to_go.tolist() == [8.5, 5.0]


def test_another_target_is_another_action() -> None:
    seen, starts = episodes(BOX, 1, 1), np.ones((1, 1), bool)
    low, high = (told(made(BOX, target_return=target), seen, starts)[0] for target in (0.0, 12.0))
    assert np.abs(low - high).max() > 1e-2


def test_the_loop_of_play_hands_it_the_rewards() -> None:
    """A reward of 1 a step; a copy that only resets begins with the whole target again."""
    environment = EnvironmentSpec(id="CartPole-v1", kwargs={"max_episode_steps": 6})
    env = make_vector_env(environment, 3)
    policy = DecisionTransformer(env.single_observation_space, env.single_action_space, network()).eval()
    loop = EnvironmentLoop(env, policy, seed=0, explore=True)
    ages = np.zeros(3)
    for step, _ in zip(loop, range(20), strict=False):
        context = loop._state.context
        assert context is not None
        playing = ~loop._state.starts
        assert context.returns_to_go[playing].tolist() == (12.0 - ages)[playing].tolist()
        assert context.tokens.shape == (3, CONTEXT, 3, 8), "the memory of play does not grow"
        ages = np.where(step.counts, ages + 1, 0)
    env.close()


def test_rewards_that_are_not_told_are_asked_for() -> None:
    policy = made()
    seen = episodes(THREE, 2, 2)["observations"]
    _, state = policy.act(at(seen, slice(None), 0), policy.initial_state(2))
    with pytest.raises(ConfigError, match=r"state = state\.received\(rewards\)"):
        policy.act(at(seen, slice(None), 1), state)
    policy.act(at(seen, slice(None), 1), state.reset(np.ones(2, bool)))  # new episodes have had none


def test_a_state_stays_as_it_is() -> None:
    policy, seen = made(), episodes(THREE, 2, 3)["observations"]
    _, state = policy.act(at(seen, slice(None), 0), policy.initial_state(2))
    state = state.received(np.ones(2))
    first, _ = policy.act(at(seen, slice(None), 1), state)
    policy.act(at(seen, slice(None), 2), state.reset(np.array([True, False])))
    np.testing.assert_array_equal(policy.act(at(seen, slice(None), 1), state)[0], first)


def test_times_beyond_the_last_one_that_is_told_apart_count_as_that() -> None:
    policy, seen = made(max_episode_steps=3), episodes(THREE, 1, 2)
    returns = left(policy, seen["rewards"])
    one, other, before = (at_once(policy, seen, returns, since=since) for since in (2, 40, 0))
    assert torch.equal(one, other) and not torch.equal(one, before)


@pytest.mark.parametrize("explore", [False, True])
@ACTION_SPACES
def test_it_comes_back_from_a_checkpoint_with_its_target(tmp_path: Path, space: gym.Space[Any], explore: bool) -> None:
    policy = made(space)
    manifest = save_policy(policy, str(tmp_path), operation=Operation(name="made up"))
    again = load_policy(str(tmp_path))
    assert isinstance(again, DecisionTransformer) and not again.training
    assert manifest.network.transformer is not None and manifest.network.transformer.target_return == 12.0
    assert again.network == policy.network
    observations = observed(NESTED, 5)
    actions = [
        each.act(observations, each.initial_state(5), explore=explore, generator=torch.Generator().manual_seed(0))[0]
        for each in (policy, again)
    ]
    assert np.array_equal(*actions) and all(space.contains(action) for action in actions[0])


def test_the_same_weights_with_another_target_are_another_policy(tmp_path: Path) -> None:
    """Else an evaluation of one would be taken for the other's."""
    saved = [
        save_policy(made(target_return=target), str(tmp_path / name), operation=Operation(name="made up"))
        for name, target in {"one": 1.0, "two": 2.0, "again": 1.0}.items()
    ]
    assert len({manifest.weights_sha256 for manifest in saved}) == 1
    assert saved[0].fingerprint == saved[2].fingerprint != saved[1].fingerprint


def test_what_takes_single_observations_is_refused() -> None:
    policy, observations = made(), observed(NESTED, 2)
    with pytest.raises(ConfigError, match="decision transformer cannot be exported yet"):
        Graph(policy, ["obs/at", "obs/gear"])
    with pytest.raises(ConfigError, match=r"policy\.initial_state"):
        policy.act(observations)
    with pytest.raises(ConfigError, match="not by single observations"):
        policy(as_tensors(observations))


@pytest.mark.parametrize(
    ("values", "match"),
    [({"heads": 3}, "3 heads cannot share 8 units"), ({"context_steps": 0}, "greater than or equal to 1")],
)
def test_layers_that_cannot_be_are_refused(values: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        network(**values)


def test_layers_begin_with_different_weights() -> None:
    first, second = DecisionTransformer(NESTED, THREE, network()).layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)
