"""A Markov decision process of three states whose values are known, episodes of it, and policies that act in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from offline_core.data.episodes import Episode
from offline_core.judging.estimation.trajectories import Model, Trajectories
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

SPACES = spaces.Discrete(3), spaces.Discrete(2)
GAMMA = 0.9
# (states, actions, next states); what is missing to 1 is the end.
MOVES = np.array([[[0.2, 0.5, 0.1], [0.1, 0.1, 0.4]], [[0.3, 0.0, 0.3], [0.0, 0.6, 0.2]], [[0.5, 0.1, 0.0], [0.0, 0.2, 0.3]]])
REWARDS = np.array([[1.0, -0.5], [0.0, 2.0], [3.0, 0.5]])
BEHAVIOUR = np.array([[0.5, 0.5], [0.7, 0.3], [0.4, 0.6]])
TARGET = np.array([[0.8, 0.2], [0.35, 0.65], [0.6, 0.4]])
START = np.array([0.6, 0.3, 0.1])


def true_q(policy: np.ndarray, gamma: float = GAMMA, *, moves: np.ndarray = MOVES) -> np.ndarray:
    """(states, actions), by linear algebra."""
    to = np.einsum("sap,pb->sapb", moves, policy).reshape(6, 6)
    return np.linalg.solve(np.eye(6) - gamma * to, REWARDS.reshape(6)).reshape(3, 2)


def true_value(policy: np.ndarray, gamma: float = GAMMA) -> float:
    """Of the start."""
    return float(START @ (policy * true_q(policy, gamma)).sum(axis=1))


def played(episodes: int, *, seed: int, behaviour: np.ndarray = BEHAVIOUR) -> list[tuple[np.ndarray, np.ndarray]]:
    """(states, actions) of each episode of the behaviour, to its end."""
    rng = np.random.default_rng(seed)
    state, going = rng.choice(3, size=episodes, p=START), np.arange(episodes)
    seen: list[tuple[list[int], list[int]]] = [([], []) for _ in range(episodes)]
    while len(going):
        action = (rng.random(len(going)) >= behaviour[state, 0]).astype(int)
        for episode, s, a in zip(going.tolist(), state.tolist(), action.tolist(), strict=True):
            seen[episode][0].append(s)
            seen[episode][1].append(a)
        state = (rng.random(len(going))[:, None] >= MOVES[state, action].cumsum(axis=1)).sum(axis=1)
        going, state = going[state < 3], state[state < 3]
    return [(np.array(states), np.array(actions)) for states, actions in seen]


def moves_of(episodes: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The moves as these episodes have them."""
    counts = np.zeros((3, 2, 4))
    for states, actions in episodes:
        np.add.at(counts, (states, actions, np.append(states[1:], 3)), 1)
    return (counts / counts.sum(axis=2, keepdims=True))[:, :, :3]


def trajectories(
    episodes: list[tuple[np.ndarray, np.ndarray]], *, q: np.ndarray | None = None, target: np.ndarray = TARGET
) -> Trajectories:
    """With the model `q` (states, actions), if there is one."""
    states, actions = (np.concatenate(parts) for parts in zip(*episodes, strict=True))
    lengths = np.array([len(each) for each, _ in episodes])
    ends = np.cumsum(lengths) - 1
    model = None
    if q is not None:
        v = (target * q).sum(axis=1)[states]
        following = np.append(v[1:], 0.0)
        following[ends] = 0.0
        model = Model(v[ends - lengths + 1], REWARDS[states, actions] + GAMMA * following - q[states, actions], following[ends])
    log_ratios = np.log(target[states, actions]) - np.log(BEHAVIOUR[states, actions])
    return Trajectories(lengths, REWARDS[states, actions], log_ratios, GAMMA, model)


def episode_of(
    number: int,
    observations: Any,
    actions: Any,
    rewards: Any,
    *,
    logp: np.ndarray | None = None,
    terminated: bool = True,
    of: tuple[spaces.Space, spaces.Space] = SPACES,
) -> Episode:
    """An episode that terminates, or else is truncated."""
    return Episode(
        eps_id=f"{number:032x}",
        observations=np.asarray(observations),
        actions=np.asarray(actions),
        rewards=np.asarray(rewards, np.float64),
        terminated=terminated,
        truncated=not terminated,
        extras={} if logp is None else {"action_logp": logp.astype(np.float32)},
        observation_space=of[0],
        action_space=of[1],
    )


def recorded(episodes: list[tuple[np.ndarray, np.ndarray]], *, logp: bool = True, first: int = 0) -> list[Episode]:
    """As episodes to be stored, with ids from a first one on."""
    return [
        episode_of(
            number,
            np.append(states, 0),
            actions,
            REWARDS[states, actions],
            logp=np.log(BEHAVIOUR[states, actions]) if logp else None,
        )
        for number, (states, actions) in enumerate(episodes, start=first)
    ]


def policy_of(chances: np.ndarray, of: tuple[spaces.Space, spaces.Space] = SPACES) -> Policy:
    """A policy that does what `chances` (states, actions) say."""
    policy = Policy(*of, NetworkConfig(hidden_sizes=[]))
    with torch.no_grad():
        policy.head.logits.weight.copy_(torch.from_numpy(np.log(chances).T))  # type: ignore[attr-defined]
        policy.head.logits.bias.zero_()  # type: ignore[attr-defined]
    return policy.eval()
