"""Playing episodes: as many as asked, whole, none preferred, the same as one environment played by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from offline_core.data.environments.vector_env import make_vector_env, spaces_of
from offline_core.data.episodes import nested
from offline_core.errors import ConfigError
from offline_core.learning.evaluations import Evaluator
from offline_core.policies import rollouts as module
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.policies.rollouts import Rollouts, rollouts
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.seeding import derive_seed

torch.set_num_threads(1)

CARTPOLE = EnvironmentSpec(id="CartPole-v1")
LONG = 30


class Scripted(gym.Env[np.ndarray, Any]):
    """Every second copy plays episodes of one step, the others of `LONG`; what is earned depends on the actions.

    `drawn` makes the lengths random instead, out of the environment's own generator. `breaks_at` raises in that step.
    """

    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(3)
    open: ClassVar[int] = 0

    def __init__(self, *, drawn: bool = False, breaks_at: int | None = None) -> None:
        self.drawn, self.breaks_at = drawn, breaks_at
        self.copy = 0
        type(self).open += 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.copy = seed
        self.left = int(self.np_random.integers(1, LONG)) if self.drawn else (1 if self.copy % 2 else LONG)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.breaks_at == self.left:
            raise RuntimeError("the game is broken")
        self.left -= 1
        return self._observe(), float(action) + 0.25, self.left == 0, False, {}

    def close(self) -> None:
        type(self).open -= 1

    def _observe(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


class Composite(Scripted):
    """Earns by both parts of its action."""

    action_space = spaces.Dict([("turn", spaces.Box(-2, 2, (2,))), ("gears", spaces.Tuple([spaces.Discrete(3)]))])

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return super().step(action["turn"].sum() + 10 * action["gears"][0])


class Telling(Scripted):
    """Random lengths; the last step of every third length is a success, and so is, on the way, each step before the last.

    `how` it is said: as a bool, a number, an array of one, or only where it is so.
    """

    def __init__(self, *, how: str) -> None:
        super().__init__(drawn=True)
        self.how = how

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        observation, _ = super().reset(seed=seed)
        self.length = self.left
        return observation, {"is_success": True} if self.how == "bool" else {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        *most, _ = super().step(action)
        so = self.left > 0 or self.length % 3 == 0
        infos = {
            "bool": {"is_success": so},
            "number": {"is_success": np.float32(so)},
            "array": {"is_success": np.array([so])},
            "where so": {"is_success": True} if so else {},
        }
        return *most, infos[self.how]  # type: ignore[return-value]


class Noting(CartPoleVectorEnv):
    """Whose infos are also about all copies together."""

    def step(self, actions: np.ndarray) -> Any:
        *most, _ = super().step(actions)
        return *most, {"frame": np.array([1]), "success": most[2]}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gym.register("Scripted-v0", entry_point=Scripted)
    gym.register("Composite-v0", entry_point=Composite)
    gym.register("Telling-v0", entry_point=Telling)
    gym.register("Noting-v0", entry_point=Scripted, vector_entry_point=Noting)
    gym.register("CutOff-v0", entry_point=Scripted, max_episode_steps=7)
    gym.register("SyncCartPole-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=500)
    Scripted.open = 0
    yield
    for env_id in ("Scripted-v0", "Composite-v0", "Telling-v0", "Noting-v0", "CutOff-v0", "SyncCartPole-v0"):
        del gym.registry[env_id]
    assert Scripted.open == 0, "an environment was left open"


class LostAtTheEnd(gym.Env[np.ndarray, int]):
    """Whose last observation is no number, of which no action is chosen."""

    observation_space, action_space = gym.spaces.Box(-np.inf, np.inf, (2,)), gym.spaces.Discrete(2)

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=options.get("seed"))
        self.left = 3
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return np.full(2, 0.0 if self.left else np.nan, np.float32), 1.0, not self.left, False, {}


@pytest.mark.parametrize("num_envs", [1, 3])
def test_no_action_follows_a_last_observation(num_envs: int) -> None:
    name = f"LostAtTheEnd{num_envs}-v0"
    gym.register(name, entry_point=LostAtTheEnd, disable_env_checker=True)
    policy = Policy(LostAtTheEnd.observation_space, LostAtTheEnd.action_space, seed=0)
    spec = EnvironmentSpec(id=name)
    played = rollouts(policy, spec, episodes=4, seed=0, explore=False, num_envs=num_envs)
    assert played.returns.tolist() == [3.0] * 4


def scripted(env_id: str = "Scripted-v0", **kwargs: Any) -> EnvironmentSpec:
    return EnvironmentSpec(id=env_id, kwargs=kwargs)


def policy_for(environment: EnvironmentSpec, network: NetworkConfig = NetworkConfig(), *, seed: int = 0) -> Policy:
    """One whose choice depends on what it sees."""
    policy = Policy(*spaces_of(environment), network, seed=seed)
    with torch.no_grad():
        for parameter in policy.head.parameters():  # type: ignore[attr-defined]
            parameter.mul_(300.0)
    return policy


def by_hand(
    policy: Policy, environment: EnvironmentSpec, *, episodes: int, seed: int, num_envs: int
) -> list[tuple[float, int]]:
    """(return, length) of the same episodes, played one after the other in single environments."""
    played = []
    for copy in range(num_envs):
        env = gym.make(environment.id, **environment.kwargs)
        for k in range(episodes // num_envs + (copy < episodes % num_envs)):
            observation, _ = env.reset(seed=derive_seed(seed, "environment") + copy if k == 0 else None)
            return_, length, done = 0.0, 0, False
            state = policy.initial_state(1)
            while not done:
                action, state = policy.act(observation[None], state)
                observation, reward, terminated, truncated, _ = env.step(nested.map_leaves(lambda part: part[0], action))
                return_, length, done = return_ + float(reward), length + 1, terminated or truncated
            played.append((return_, length))
        env.close()
    return sorted(played)


def pairs(played: Rollouts) -> list[tuple[float, int]]:
    return sorted(zip(played.returns.tolist(), played.lengths.tolist(), strict=True))


@pytest.mark.parametrize(("episodes", "num_envs"), [(5, 8), (8, 8), (9, 8), (30, 8), (6, 1)])
def test_exactly_as_many_as_asked(episodes: int, num_envs: int) -> None:
    played = rollouts(policy_for(CARTPOLE), CARTPOLE, episodes=episodes, seed=0, num_envs=num_envs)
    assert played.returns.shape == played.lengths.shape == (episodes,)
    assert (played.lengths >= 1).all()


@pytest.mark.parametrize(("episodes", "num_envs"), [(7, 3), (3, 1)])
@pytest.mark.parametrize(
    "environment",
    [
        scripted(drawn=True),
        scripted("CutOff-v0", drawn=True),
        EnvironmentSpec(id="SyncCartPole-v0", kwargs={"max_episode_steps": 9}),
        EnvironmentSpec(id="Pendulum-v1", kwargs={"max_episode_steps": 12}),
    ],
    ids=lambda e: f"{e.id}{e.kwargs}",
)
def test_episodes_are_those_of_single_environments(environment: EnvironmentSpec, episodes: int, num_envs: int) -> None:
    policy = policy_for(environment)
    played = rollouts(policy, environment, episodes=episodes, seed=4, num_envs=num_envs)
    expected = by_hand(policy, environment, episodes=episodes, seed=4, num_envs=num_envs)
    np.testing.assert_allclose(pairs(played), expected, rtol=1e-4)


@pytest.mark.parametrize(
    "network",
    [NetworkConfig(frames=4), NetworkConfig(recurrent="lstm"), NetworkConfig(recurrent="gru")],
    ids=["frames", "lstm", "gru"],
)
@pytest.mark.parametrize("environment", [scripted(drawn=True), scripted("CutOff-v0", drawn=True)], ids=lambda e: e.id)
def test_what_is_remembered_is_of_the_same_episode(environment: EnvironmentSpec, network: NetworkConfig) -> None:
    """By hand, each episode is played by a policy that has seen nothing before."""
    policy = policy_for(environment, network)
    played = rollouts(policy, environment, episodes=14, seed=4, num_envs=3)
    expected = by_hand(policy, environment, episodes=14, seed=4, num_envs=3)
    np.testing.assert_allclose(pairs(played), expected, rtol=1e-4)


@pytest.mark.parametrize("squash", [False, True])
def test_actions_may_be_made_of_several(squash: bool) -> None:
    environment = scripted("Composite-v0", drawn=True)
    policy = policy_for(environment, NetworkConfig(squash=squash))
    played = rollouts(policy, environment, episodes=8, seed=4, num_envs=3)
    expected = by_hand(policy, environment, episodes=8, seed=4, num_envs=3)
    np.testing.assert_allclose(pairs(played), expected, rtol=1e-4)
    assert len(rollouts(policy, environment, episodes=8, seed=4, num_envs=3, explore=True).returns) == 8


def test_vectorised_cartpole_plays_as_single_ones_do() -> None:
    """From the same starts: its copies share one generator, so only the first episode of each can be repeated."""
    policy, copies, seed = policy_for(CARTPOLE), 20, 3
    env = make_vector_env(CARTPOLE, copies)
    assert isinstance(env.unwrapped, CartPoleVectorEnv)
    env.reset(seed=derive_seed(seed, "environment"))
    expected = []
    for start in np.array(env.unwrapped.state).T:
        single = gym.make("CartPole-v1").unwrapped
        single.reset()
        single.state, length, done = start, 0, False  # type: ignore[attr-defined]
        observation = start.astype(np.float32)
        while not done:
            observation, _, done, _, _ = single.step(policy.act(observation[None])[0])
            length += 1
        expected.append((float(length), length))
    assert pairs(rollouts(policy, CARTPOLE, episodes=copies, seed=seed)) == sorted(expected)


@pytest.mark.parametrize("episodes", [8, 40, 43])
def test_short_episodes_are_not_preferred(episodes: int) -> None:
    """Half the copies finish thirty times as often; taking whoever is first would find short ones almost only."""
    seed = next(s for s in range(9) if derive_seed(s, "environment") % 2 == 0)  # copy 0 is long, copy 1 short, …
    played = rollouts(policy_for(scripted()), scripted(), episodes=episodes, seed=seed, num_envs=8)
    quota = [episodes // 8 + (copy < episodes % 8) for copy in range(8)]
    assert Counter(played.lengths.tolist()) == {LONG: sum(quota[::2]), 1: sum(quota[1::2])}


def test_time_limits_end_episodes_too() -> None:
    environment = EnvironmentSpec(id="CartPole-v1", kwargs={"max_episode_steps": 4})
    played = rollouts(policy_for(environment), environment, episodes=30, seed=0, num_envs=7)
    assert pairs(played) == [(4.0, 4)] * 30


@pytest.mark.parametrize(
    ("environment", "explore"), [(CARTPOLE, False), (scripted(drawn=True), True)], ids=["greedy", "explore"]
)
def test_the_same_again_with_the_same_seed_and_something_else_with_another(environment: EnvironmentSpec, explore: bool) -> None:
    policy = policy_for(environment)
    torch.manual_seed(1)
    first = rollouts(policy, environment, episodes=20, seed=1, explore=explore, num_envs=6)
    torch.manual_seed(2)
    again = rollouts(policy, environment, episodes=20, seed=1, explore=explore, num_envs=6)
    other = rollouts(policy, environment, episodes=20, seed=2, explore=explore, num_envs=6)
    np.testing.assert_array_equal(first.returns, again.returns)
    np.testing.assert_array_equal(first.lengths, again.lengths)
    assert pairs(first) != pairs(other)


def test_exploring_samples_actions() -> None:
    """An undecided policy: sampled, each of the three actions is as likely; greedy, it is always the first."""
    policy = Policy(*spaces_of(scripted()))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
    sampled = rollouts(policy, scripted(), episodes=40, seed=0, explore=True)
    greedy = rollouts(policy, scripted(), episodes=40, seed=0)
    assert (greedy.returns / greedy.lengths == 0.25).all()
    assert sampled.returns.sum() / sampled.lengths.sum() == pytest.approx(1.25, abs=0.15)


@pytest.mark.parametrize("how", ["bool", "number", "array", "where so"])
def test_an_episode_whose_last_step_says_so_is_a_success(how: str) -> None:
    environment = scripted("Telling-v0", how=how)
    one = rollouts(policy_for(environment), environment, episodes=1, seed=0, num_envs=1)
    assert (one.successes is None) == (how == "where so"), "nobody can know that it is none"
    played = rollouts(policy_for(environment), environment, episodes=40, seed=0, num_envs=7)
    successes = played.lengths % 3 == 0
    assert played.successes is not None and played.successes.tolist() == successes.tolist()
    assert played.metrics["success_rate"] == successes.mean()
    assert 0 < successes.mean() < 1


def test_other_infos_are_left_alone() -> None:
    noting = EnvironmentSpec(id="Noting-v0")
    played = rollouts(Policy(*spaces_of(CARTPOLE)), noting, episodes=9, seed=0, num_envs=4)
    assert played.metrics["success_rate"] == 1.0 and len(played.returns) == 9


def test_where_nobody_speaks_of_success_there_is_no_rate() -> None:
    played = rollouts(policy_for(scripted()), scripted(), episodes=3, seed=0)
    assert played.successes is None and "success_rate" not in played.metrics


def test_metrics() -> None:
    found = Rollouts(np.array([1.0, 4.0, 10.0]), np.array([2, 2, 5])).metrics
    assert found == pytest.approx(
        {
            "episode_return_mean": 5.0,
            "episode_return_std": 14**0.5,
            "episode_return_min": 1.0,
            "episode_return_max": 10.0,
            "episode_length_mean": 3.0,
            "episodes": 3.0,
        }
    )


@pytest.mark.parametrize("breaks_at", [LONG, LONG - 3])
def test_environments_are_closed_when_one_breaks(breaks_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = watch(monkeypatch)
    environment = scripted(breaks_at=breaks_at)
    with pytest.raises(RuntimeError, match="the game is broken"):
        rollouts(policy_for(scripted()), environment, episodes=6, seed=0)
    assert opened == [6]
    assert Scripted.open == 0


def test_environments_are_closed_when_the_policy_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = watch(monkeypatch)
    for policy, what in (
        (Policy(spaces.Box(-1, 1, (4,)), Scripted.action_space), "observation"),
        (Policy(Scripted.observation_space, spaces.Discrete(4)), "action"),
        (Policy(Scripted.observation_space, spaces.Box(-1, 1, (3,))), "action"),
    ):
        with pytest.raises(ConfigError, match=rf"{what} space .*Scripted-v0"):
            rollouts(policy, scripted(), episodes=6, seed=0)
    assert opened == [6, 6, 6]
    assert Scripted.open == 0


def watch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many copies were open after each making of a vector environment, none of which goes (and so closes) by itself."""
    opened: list[int] = []
    kept: list[Any] = []

    def make(environment: EnvironmentSpec, num_envs: int) -> Any:
        env = make_vector_env(environment, num_envs)
        opened.append(Scripted.open)
        kept.append(env)
        return env

    monkeypatch.setattr(module, "make_vector_env", make)
    return opened


def test_bounds_of_observations_may_differ() -> None:
    """A policy learned from foreign data knows the shape, not the bounds, of what it sees."""
    policy = Policy(spaces.Box(-np.inf, np.inf, (3,)), Scripted.action_space)
    assert len(rollouts(policy, scripted(), episodes=2, seed=0).returns) == 2


def test_the_evaluator_plays_the_weights_it_is_sent_from_the_same_starts() -> None:
    one, other = policy_for(CARTPOLE, seed=1), policy_for(CARTPOLE, seed=2)
    weights = [{name: tensor.numpy().copy() for name, tensor in policy.state_dict().items()} for policy in (one, other)]
    evaluator = Evaluator(policy_for(CARTPOLE, seed=3), CARTPOLE, episodes=5, num_envs=2, seed=7)
    first, second, again = evaluator.evaluate(weights[0]), evaluator.evaluate(weights[1]), evaluator.evaluate(weights[0])
    assert pairs(first) == pairs(again) == pairs(rollouts(one, CARTPOLE, episodes=5, num_envs=2, seed=7))
    assert pairs(second) == pairs(rollouts(other, CARTPOLE, episodes=5, num_envs=2, seed=7)) != pairs(first)
