"""Environments by name: made in one way, or refused with a message that helps."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from offline_core.data.environments import vector_env
from offline_core.data.environments.vector_env import make_vector_env, reward_threshold, shares, spaces_of
from offline_core.errors import ConfigError, EnvironmentNotFoundError
from offline_core.runtime.config import EnvironmentSpec

half_made = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gymnasium's close() of such


class Countdown(gym.Env[np.ndarray, Any]):
    """Each episode is two steps long, then rewards 1; shouts when it is closed."""

    observation_space = gym.spaces.Box(0, 2, (1,))
    action_space = gym.spaces.Discrete(2)
    closed: ClassVar[int] = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 2
        return np.array([2.0], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return np.array([self.left], np.float32), 1.0, self.left == 0, False, {}

    def close(self) -> None:
        type(self).closed += 1


class SameStepCartPole(CartPoleVectorEnv):
    metadata: ClassVar[dict[str, Any]] = {**CartPoleVectorEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}


@pytest.fixture
def countdown() -> Iterator[EnvironmentSpec]:
    gym.register("Countdown-v0", entry_point=Countdown, reward_threshold=1.5)
    Countdown.closed = 0
    yield EnvironmentSpec(id="Countdown-v0")
    del gym.registry["Countdown-v0"]


@pytest.mark.parametrize(
    ("env_id", "suggestion"),
    [
        ("CrtPole-v1", "'CartPole-v1'"),
        ("CartPole", "'CartPole-v1'"),
        ("CartPole-v77", "'CartPole-v1'"),
        (" CartPole-v1", "'CartPole-v1'"),
        ("ALE/Pong-v5", "install that and name its module"),
        ("", "install that and name its module"),
    ],
)
def test_an_unknown_id_is_named_with_what_to_do(env_id: str, suggestion: str) -> None:
    for ask in (lambda e: make_vector_env(e, 2), spaces_of, reward_threshold):
        with pytest.raises(EnvironmentNotFoundError) as caught:
            ask(EnvironmentSpec(id=env_id))
        assert repr(env_id) in str(caught.value)
        assert suggestion in str(caught.value)


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(
        EnvironmentNotFoundError, match=r"'no_such_package\.envs:Thing-v0': cannot import 'no_such_package\.envs'"
    ):
        make_vector_env(EnvironmentSpec(id="no_such_package.envs:Thing-v0"), 1)


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "is_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        EnvironmentNotFoundError, match=r"cannot import 'is_broken': ZeroDivisionError.* its folder the current"
    ):
        make_vector_env(EnvironmentSpec(id="is_broken:Thing-v0"), 1)


def test_a_module_is_imported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brings_an_environment.py").write_text(
        textwrap.dedent(
            """
            import gymnasium as gym
            gym.register("Brought-v3", entry_point="gymnasium.envs.classic_control:PendulumEnv", reward_threshold=-7.0)
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentNotFoundError, match="Brought-v3"):
        make_vector_env(EnvironmentSpec(id="Brought-v3"), 1)
    environment = EnvironmentSpec(id="brings_an_environment:Brought-v3")
    try:
        assert reward_threshold(environment) == -7.0
        observation_space, action_space = spaces_of(environment)
    finally:
        gym.registry.pop("Brought-v3", None)
    assert observation_space.shape == (3,)
    assert action_space == gym.spaces.Box(-2, 2, (1,))


@half_made
@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("CartPole-v1", {"gravitas": 1.0}),  # a vector entry point
        ("Pendulum-v1", {"gravitas": 1.0}),
        ("FrozenLake-v1", {"map_name": "gravitas"}),  # raises KeyError
        ("Pendulum-v1", {"num_envs": "gravitas"}),
    ],
)
def test_wrong_arguments_are_named(env_id: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        make_vector_env(EnvironmentSpec(id=env_id, kwargs=kwargs), 2)
    assert not isinstance(caught.value, EnvironmentNotFoundError)
    assert env_id in str(caught.value)
    assert "gravitas" in str(caught.value)


def test_the_environments_own_vectorisation_is_used_where_there_is_one() -> None:
    env = make_vector_env(EnvironmentSpec(id="CartPole-v1"), 5)
    assert isinstance(env.unwrapped, CartPoleVectorEnv)
    assert env.num_envs == 5
    env.close()


def test_copies_are_stepped_one_by_one_elsewhere(countdown: EnvironmentSpec) -> None:
    env = make_vector_env(countdown, 3)
    assert isinstance(env.unwrapped, SyncVectorEnv)
    assert env.num_envs == 3
    env.close()
    assert Countdown.closed == 3


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Countdown-v0", "SameStep-v0"])
@pytest.mark.usefixtures("countdown")
def test_the_step_after_an_end_is_only_a_reset(env_id: str) -> None:
    """An environment whose own vectorisation resets at once is not used that way."""
    gym.register(
        "SameStep-v0",
        entry_point="gymnasium.envs.classic_control:CartPoleEnv",
        vector_entry_point=SameStepCartPole,
        max_episode_steps=500,
    )
    try:
        env = make_vector_env(EnvironmentSpec(id=env_id), 2)
    finally:
        del gym.registry["SameStep-v0"]
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    env.reset(seed=0)
    for _ in range(100):
        _, rewards, terminated, _, _ = env.step(np.zeros(2, np.int64))
        if terminated[0]:
            break
    assert terminated[0] and rewards[0] == 1.0
    observations, rewards, terminated, truncated, _ = env.step(np.zeros(2, np.int64))
    assert not terminated[0] and not truncated[0] and rewards[0] == 0.0
    assert observations[0] == pytest.approx(2.0 if env_id == "Countdown-v0" else 0.0, abs=0.06)
    env.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_arguments_reach_the_environment(env_id: str) -> None:
    env = make_vector_env(EnvironmentSpec(id=env_id, kwargs={"max_episode_steps": 4}), 2)
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[3].tolist() for _ in range(4)]
    env.close()
    assert ends == [[False, False]] * 3 + [[True, True]]


def test_spaces_are_those_of_a_single_copy_and_nothing_stays_open(
    countdown: EnvironmentSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []  # or else it would go, and so close, by itself

    def make(*arguments: Any) -> Any:
        kept.append(make_vector_env(*arguments))
        return kept[-1]

    monkeypatch.setattr(vector_env, "make_vector_env", make)
    assert spaces_of(countdown) == (Countdown.observation_space, Countdown.action_space)
    assert Countdown.closed == 1
    assert spaces_of(EnvironmentSpec(id="CartPole-v1"))[1] == gym.spaces.Discrete(2)


def test_reward_threshold(countdown: EnvironmentSpec) -> None:
    assert reward_threshold(countdown) == 1.5
    assert reward_threshold(EnvironmentSpec(id="CartPole-v1")) == 475.0
    assert reward_threshold(EnvironmentSpec(id="Pendulum-v1")) is None


@pytest.mark.parametrize(
    ("episodes", "players", "each"), [(7, 3, [3, 2, 2]), (2, 3, [1, 1, 0]), (6, 3, [2, 2, 2]), (0, 2, [0, 0]), (5, 1, [5])]
)
def test_all_play_as_many_as_the_others_or_one_more(episodes: int, players: int, each: list[int]) -> None:
    assert shares(episodes, players).tolist() == each


@pytest.mark.parametrize(
    ("env_id", "package", "advice"),
    [
        ("Hopper-v5", "mujoco", r"'\.\[mujoco\]'"),
        ("Hopper-v5", "imageio", r"'\.\[mujoco\]'"),
        ("LunarLander-v3", "Box2D", "Install it"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    env_id: str, package: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("gymnasium.envs.mujoco", "gymnasium.envs.box2d"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EnvironmentNotFoundError, match=f"(?i){env_id}.*not installed: .*{package}.*{advice}"):
        make_vector_env(EnvironmentSpec(id=env_id), 1)


def test_mujoco_plays() -> None:
    env = make_vector_env(EnvironmentSpec(id="Hopper-v5"), 2)
    assert env.reset(seed=0)[0].shape == (2, 11)
    env.close()
