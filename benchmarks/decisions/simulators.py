"""Small worlds that play thousands of episodes at once, so that the value of a policy is known to three digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import gymnasium as gym
import numpy as np
import torch

from offline_core.data.episodes import Episode
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

Array = np.ndarray


class World(Protocol):
    """N episodes side by side; those that ended stay where they are."""

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    steps: int
    gamma: float

    def reset(self, episodes: int, rng: np.random.Generator) -> Array: ...
    def step(self, actions: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]: ...
    def controller(self, rng: np.random.Generator, distance: float) -> Policy: ...


def linear(world: World, weights: Array, bias: Array, *, log_std: float | None = None) -> Policy:
    """A policy without hidden layers: logits of a list of actions, or the mean in units of the bounds."""
    policy = Policy(world.observation_space, world.action_space, NetworkConfig(hidden_sizes=[]))
    layer: Any = policy.head.logits if log_std is None else policy.head.mean  # type: ignore[attr-defined]
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(weights, dtype=torch.float32))
        layer.bias.copy_(torch.as_tensor(bias, dtype=torch.float32))
        if log_std is not None:
            policy.head.log_std.fill_(log_std)  # type: ignore[attr-defined]
    return policy


@dataclass
class Inventory:
    """Orders of a shop whose demand has a weekly season: continuous actions, a fixed horizon."""

    observation_space: ClassVar[gym.Space[Any]] = gym.spaces.Box(-10, 10, (3,), np.float32)
    action_space: ClassVar[gym.Space[Any]] = gym.spaces.Box(0, 20, (1,), np.float32)
    steps: ClassVar[int] = 28
    gamma: ClassVar[float] = 0.97

    def reset(self, episodes: int, rng: np.random.Generator) -> Array:
        self.stock, self.day = rng.uniform(0, 20, episodes), rng.integers(0, 7, episodes)
        return self._seen()

    def step(self, actions: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        held = np.minimum(self.stock + actions[:, 0], 40)
        sold = np.minimum(held, rng.poisson(10 + 4 * np.sin(2 * np.pi * self.day / 7)))
        self.stock, self.day = held - sold, self.day + 1
        return self._seen(), (4 * sold - 2 * actions[:, 0] - 0.5 * self.stock) / 10, np.zeros(len(held), bool)

    def _seen(self) -> Array:
        turn = 2 * np.pi * self.day / 7
        return np.stack([self.stock / 10 - 1, np.sin(turn), np.cos(turn)], axis=1).astype(np.float32)

    def controller(self, rng: np.random.Generator, distance: float) -> Policy:
        """Orders up to a level; at a distance of 0 nearly the best, at 1 far from it."""
        level = 0.15 + rng.choice([-1, 1]) * 0.9 * distance + 0.05 * rng.normal()
        weights = [-0.75 + 0.5 * distance, 0.35 * (1 - distance), 0.0]
        return linear(self, np.array([weights]), np.array([level]), log_std=-1.1)


@dataclass
class Queue:
    """A queue with three speeds of service: a list of actions, a fixed horizon."""

    observation_space: ClassVar[gym.Space[Any]] = gym.spaces.Box(-10, 10, (2,), np.float32)
    action_space: ClassVar[gym.Space[Any]] = gym.spaces.Discrete(3)
    steps: ClassVar[int] = 40
    gamma: ClassVar[float] = 0.97

    def reset(self, episodes: int, rng: np.random.Generator) -> Array:
        self.length, self.busy = rng.integers(0, 10, episodes).astype(float), rng.random(episodes) < 0.5
        return self._seen()

    def step(self, actions: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        served = rng.random(len(actions)) < np.array([0.15, 0.5, 0.85])[actions]
        arrived = rng.random(len(actions)) < np.where(self.busy, 0.7, 0.25)
        self.length = np.clip(self.length - served + arrived, 0, 20)
        self.busy ^= rng.random(len(actions)) < 0.1
        return self._seen(), 1 - 0.12 * self.length - np.array([0.0, 0.15, 0.5])[actions], np.zeros(len(actions), bool)

    def _seen(self) -> Array:
        return np.stack([self.length / 5 - 1, 2.0 * self.busy - 1], axis=1).astype(np.float32)

    def controller(self, rng: np.random.Generator, distance: float) -> Policy:
        """Serves faster the longer the queue; at a distance of 1 it does so by chance."""
        slope, bias = 1.6 * (1 - distance), 0.4 * (1 - 3 * distance) + 0.15 * rng.normal()
        weights = [[-slope, -0.5 * (1 - distance)], [0.2, 0.2], [slope, 0.5 * (1 - distance)]]
        return linear(self, np.array(weights), np.array([-bias, 0.2, bias - 0.3]))


@dataclass
class Balance:
    """CartPole's physics for 60 steps at most: a list of actions, and an end."""

    observation_space: ClassVar[gym.Space[Any]] = gym.spaces.Box(-10, 10, (4,), np.float32)
    action_space: ClassVar[gym.Space[Any]] = gym.spaces.Discrete(2)
    steps: ClassVar[int] = 60
    gamma: ClassVar[float] = 0.97

    def reset(self, episodes: int, rng: np.random.Generator) -> Array:
        self.state = rng.uniform(-0.15, 0.15, (episodes, 4))
        return self.state.astype(np.float32)

    def step(self, actions: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        x, speed, angle, turning = self.state.T
        force = np.where(actions == 1, 10.0, -10.0)
        cos, sin = np.cos(angle), np.sin(angle)
        pushed = (force + 0.05 * turning**2 * sin) / 1.1
        turned = (9.8 * sin - cos * pushed) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        moved = pushed - 0.05 * turned * cos / 1.1
        self.state = np.stack([x + 0.02 * speed, speed + 0.02 * moved, angle + 0.02 * turning, turning + 0.02 * turned], axis=1)
        over = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.2095)
        return self.state.astype(np.float32), np.ones(len(actions)), over

    def controller(self, rng: np.random.Generator, distance: float) -> Policy:
        """Pushes where the pole falls; at a distance of 1 by chance."""
        gains = np.array([0.2, 0.5, 8.0, 2.5]) * (1 - distance) * (1 + 0.15 * rng.normal(size=4))
        return linear(self, np.stack([-gains, gains]), np.zeros(2))


@dataclass
class Clicks:
    """One of five offers to each visitor, and perhaps a click: a list of actions, episodes of one step."""

    observation_space: ClassVar[gym.Space[Any]] = gym.spaces.Box(-10, 10, (2,), np.float32)
    action_space: ClassVar[gym.Space[Any]] = gym.spaces.Discrete(5)
    steps: ClassVar[int] = 1
    gamma: ClassVar[float] = 1.0

    def reset(self, episodes: int, rng: np.random.Generator) -> Array:
        self.visitor = rng.normal(size=(episodes, 2)).astype(np.float32)
        return self.visitor

    def step(self, actions: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        turn = 2 * np.pi * actions / 5
        liked = self.visitor[:, 0] * np.cos(turn) + self.visitor[:, 1] * np.sin(turn)
        clicked = rng.random(len(actions)) < 0.06 / (1 + np.exp(-2 * liked))
        return self.visitor, clicked.astype(np.float64), np.ones(len(actions), bool)

    def controller(self, rng: np.random.Generator, distance: float) -> Policy:
        """Offers what a visitor likes; at a distance of 1 it does so by chance."""
        turn = 2 * np.pi * np.arange(5) / 5
        weights = 2.0 * (1 - distance) * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        return linear(self, weights, 0.1 * rng.normal(size=5))


PLAYED: dict[str, type[World]] = {"inventory": Inventory, "queue": Queue, "balance": Balance}
WORLDS: dict[str, type[World]] = {**PLAYED, "clicks": Clicks}


def play(world: World, policy: Policy, episodes: int, *, seed: int, explore: bool = True, logp: bool = True) -> list[Episode]:
    """Episodes of a policy, truncated after the world's steps."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    seen, acted, paid, logs = [world.reset(episodes, rng)], [], [], []
    length, alive, ended = np.full(episodes, world.steps), np.ones(episodes, bool), np.zeros(episodes, bool)
    for t in range(world.steps):
        chosen = policy.choose(seen[-1], explore=explore, generator=generator)
        following, rewards, over = world.step(chosen.actions, rng)
        acted, paid, logs = [*acted, chosen.actions], [*paid, rewards], [*logs, chosen.extras["action_logp"]]
        seen = [*seen, following]
        length[alive & over], ended = t + 1, ended | (alive & over)
        alive &= ~over
        if not alive.any():
            break
    observations, actions, rewards, log_probabilities = (np.stack(arrays, axis=1) for arrays in (seen, acted, paid, logs))
    return [
        Episode(
            eps_id=f"{seed}-{number}",
            observations=observations[number, : steps + 1],
            actions=actions[number, :steps],
            rewards=rewards[number, :steps].astype(np.float32),
            extras={"action_logp": log_probabilities[number, :steps]} if logp else {},
            terminated=bool(ended[number]),
            truncated=not ended[number],
            observation_space=world.observation_space,
            action_space=world.action_space,
        )
        for number, steps in enumerate(length.tolist())
    ]


def value_of(world: World, policy: Policy, *, episodes: int = 20_000, seed: int = 2**30) -> float:
    """Mean discounted return."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    seen, alive, total = world.reset(episodes, rng), np.ones(episodes, bool), np.zeros(episodes)
    for t in range(world.steps):
        chosen = policy.choose(seen, explore=True, generator=generator)
        seen, rewards, over = world.step(chosen.actions, rng)
        total += np.where(alive, world.gamma**t * rewards, 0.0)
        alive &= ~over
    return float(total.mean())
