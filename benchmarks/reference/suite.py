"""The suite: its tasks, kinds of data and algorithms, and what is equal on every side. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS = 100_000
"""Environment steps of a dataset, of medium-expert half of each. Medium-replay has all that a training until medium played."""
EPISODES = 10
"""Greedy episodes that the last policy of a cell plays, from the same start states on every side."""
KINDS = ("random", "medium", "medium-replay", "medium-expert", "expert")


@dataclass(frozen=True)
class Task:
    """An environment, the expert that records in it, and the returns that scores are counted from."""

    environment: str
    expert: dict[str, Any]
    """Parameters of `offline.train_expert`."""
    medium_return: float
    """A training that stops there records medium, and what it played is medium-replay."""
    random_return: float
    expert_return: float
    """Normalised score = 100 · (return − random_return) / (expert_return − random_return), with D4RL's returns for MuJoCo."""
    discrete: bool = False
    """Whether its actions are discrete."""

    @property
    def algorithms(self) -> list[str]:
        """The algorithms that learn from its actions."""
        return [name for name in SETTINGS if name == "bc" or (name == "dcql") == self.discrete]

    def score(self, mean_return: float) -> float:
        """Return the normalised score."""
        return 100 * (mean_return - self.random_return) / (self.expert_return - self.random_return)


def _sac(target: float) -> dict[str, Any]:
    return {"algorithm": "sac", "preset": "mujoco", "total_steps": 400_000, "evaluation": {"target_return": target}}


def _ppo(target: float, **others: Any) -> dict[str, Any]:
    return {"algorithm": "ppo", "evaluation": {"target_return": target}, **others}


TASKS = {
    "hopper": Task("Hopper-v5", _ppo(2_800, preset="mujoco", total_steps=2_000_000), 1_000, -20.272305, 3234.3),
    "halfcheetah": Task("HalfCheetah-v5", _sac(6_000), 3_000, -280.178953, 12135.0),
    "walker2d": Task("Walker2d-v5", _ppo(3_500, preset="mujoco", total_steps=2_000_000), 1_500, 1.629008, 4592.3),
    "cartpole": Task("CartPole-v1", _ppo(490), 150, 22.0, 500.0, discrete=True),
    "lunarlander": Task("LunarLander-v3", _ppo(200, total_steps=2_000_000), 0, -180.0, 200.0, discrete=True),
    "acrobot": Task("Acrobot-v1", _ppo(-90), -200, -500.0, -80.0, discrete=True),
}

SETTINGS: dict[str, dict[str, Any]] = {
    "bc": {"hidden": [256, 256], "batch": 256, "rates": {"policy": 1e-3}, "normalize": True},
    "td3_bc": {"hidden": [256, 256], "batch": 256, "rates": {"policy": 3e-4, "critics": 3e-4}, "normalize": True, "alpha": 2.5},
    "iql": {"hidden": [256, 256], "batch": 256, "rates": {"policy": 3e-4, "critics": 3e-4}, "scale_rewards": True},
    "cql": {"hidden": [256, 256, 256], "batch": 256, "rates": {"policy": 1e-4, "critics": 3e-4}, "alpha": 10.0},
    "rebrac": {
        "hidden": [256, 256, 256],
        "batch": 1024,
        "rates": {"policy": 1e-3, "critics": 1e-3},
        "policy_penalty": 0.05,
        "critic_penalty": 0.01,
    },
    "dcql": {"hidden": [256, 256], "batch": 256, "rates": {"critics": 3e-4}, "target_interval": 500, "alpha": 1.0},
}
"""What every side is given; dcql is discrete CQL. The rest is the same by the references: discount 0.99, targets at 0.005,
two critics, ReLU, Adam; target noise 0.2 up to 0.5 and a policy at each second update (td3_bc, rebrac); expectile 0.7,
temperature 3, weights to 100, the policy's rate falling as a cosine (iql); 10 actions, no Lagrange (cql); LayerNorm in critics
(rebrac)."""

SIDES = {
    "ours": tuple(SETTINGS),
    "ours-chosen": ("bc",),
    "d3rlpy": tuple(SETTINGS),
    "jax": tuple(SETTINGS),
    "single-file": ("bc", "td3_bc", "iql", "cql", "rebrac"),
}
"""By name, the algorithms that a side has. The first is compared with its peers, which are all but the second: that one chooses
one of its policies by the loss on held-out episodes, where losses compare, in place of the last policy."""


@dataclass(frozen=True)
class Cell:
    """One training on one side, and the play of its last policy."""

    task: str
    kind: str
    data: str
    """16 digits of what its episodes hold: an expert that is trained on another processor may record others."""
    algorithm: str
    updates: int
    seed: int

    def file(self, folder: Path, side: str) -> Path:
        """Where its result is, once it is there."""
        names = (self.task, self.kind, self.data, self.algorithm, str(self.updates), str(self.seed), side)
        return folder / "cells" / f"{'.'.join(names)}.json"

    def order(self, data: str, minari: str) -> dict[str, Any]:
        """What a side is told, as JSON: the address of a dataset, and the folder of the same in Minari's format."""
        return {
            "algorithm": self.algorithm,
            "updates": self.updates,
            "seed": self.seed,
            "environment": TASKS[self.task].environment,
            "discrete": TASKS[self.task].discrete,
            "episodes": EPISODES,
            "data": data,
            "minari": f"{minari}/data/main_data.hdf5",
            "settings": SETTINGS[self.algorithm],
        }
