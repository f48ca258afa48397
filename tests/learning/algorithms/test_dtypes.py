"""Every algorithm with the dtypes that logs and environments have, in observations and in actions: an update of each."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.data.episodes import nested
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.dt import DT
from offline_core.learning.algorithms.registry import algorithms
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.learning.steps import Steps
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import parse
from tests.learning.algorithms.making import make_networks
from tests.learning.making import steps_of

NAMES = sorted(algorithms())
ANY_BOX, ANY_SPACE = {"bc", "marwil", "iql", "awac"}, {"bc", "marwil", "iql", "awac"}
"""Algorithms of Boxes without bounds, and of Dict and Tuple."""
NO_BOX = {"dqn", "bcq"}
FLOATS, WHOLE = ("float16", "float32", "float64"), ("int8", "int64", "uint8", "uint16", "uint32", "uint64")
ROWS = 6


def box(dtype: str, *, bounded: bool, shape: tuple[int, ...] = (2,)) -> gym.spaces.Box:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        low, high = (-0.1, 1.7) if bounded else (-np.inf, np.inf)
    else:
        low, high = (0, 5) if bounded else (np.iinfo(kind).min, np.iinfo(kind).max)
    return gym.spaces.Box(low, high, shape, kind.type)


def spaces_of(dtype: str) -> dict[str, gym.Space[Any]]:
    bounded, unbounded = box(dtype, bounded=True), box(dtype, bounded=False)
    parts = {"one": box(dtype, bounded=True, shape=()), "two": unbounded}
    return {
        "bounded": bounded,
        "scalar": box(dtype, bounded=True, shape=()),
        "unbounded": unbounded,
        "dict": gym.spaces.Dict(parts),
        "tuple": gym.spaces.Tuple([gym.spaces.Discrete(3), bounded]),
    }


def columns_of(space: gym.Space[Any], name: str) -> dict[str, np.ndarray]:
    """Values of the space by path, small ones where it has no bounds, in its own dtype."""
    space.seed(0)
    rows = [space.sample() for _ in range(ROWS)]
    tree = nested.map_leaves(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *rows)
    flat = nested.flatten(tree, name)
    return {path: (leaf % 6).astype(leaf.dtype) if leaf.dtype.kind in "iu" else leaf for path, leaf in flat.items()}


def episodes_of(observations: gym.Space[Any], actions: gym.Space[Any]) -> Steps:
    ends = np.arange(ROWS) == ROWS - 2
    columns = columns_of(observations, "obs") | columns_of(actions, "actions")
    columns |= {"rewards": np.linspace(-1, 1, ROWS), "terminateds": ends}
    return steps_of({path: leaf.copy() for path, leaf in columns.items()}, needs_next_obs=True)


def updated(name: str, observations: gym.Space[Any], actions: gym.Space[Any]) -> Learner:
    """A learner after an update by all steps.

    Raises:
        ConfigError: the algorithm cannot learn in these spaces.
    """
    config = DT(target_return=1.0, return_scale=1.0, context_steps=2, units=4, layers=1) if name == "dt" else None
    networks = make_networks(name, observations, actions, NetworkConfig(hidden_sizes=[4]), config)
    learner = Learner(networks, parse(TrainingConfig, {"algorithm": name}), total_steps=ROWS)
    steps = episodes_of(observations, actions)
    learner.load(steps)
    assert learner.update(steps.indices(learner.spec)), "the loss is not finite"
    return learner


def learns(name: str, kind: str, dtype: str) -> bool:
    """It takes actions of this kind and dtype; others are refused before an update."""
    if dtype not in FLOATS or name in NO_BOX:
        return False
    return name in {"unbounded": ANY_BOX, "dict": ANY_SPACE, "tuple": ANY_SPACE}.get(kind, NAMES)


@pytest.mark.parametrize("dtype", [*FLOATS, "int64"])
@pytest.mark.parametrize("name", NAMES)
def test_an_update_by_actions_of_each_dtype(name: str, dtype: str) -> None:
    """What cannot be learned is refused with what can be: whole numbers of a Box, bounds that are missing."""
    observations = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    for kind, actions in spaces_of(dtype).items():
        if not learns(name, kind, dtype):
            with pytest.raises(ConfigError, match=r"actions|Actions|action space"):
                updated(name, observations, actions)
            continue
        learner = updated(name, observations, actions)
        with torch.no_grad():
            acted = learner.networks.policy.eval().act(space_rows(observations)) if name != "dt" else None
        if acted is not None:
            assert [leaf.dtype for leaf in nested.leaves(acted)] == [leaf.dtype for leaf in nested.leaves(space_rows(actions))]


def space_rows(space: gym.Space[Any]) -> Any:
    """Nested values (rows, …) of the space."""
    return nested.unflatten(columns_of(space, "obs"), "obs", space)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, dtype) for name in NAMES for dtype in ("float16", "float64", "int64")), *(("iql", dtype) for dtype in WHOLE)],
)
def test_an_update_by_observations_of_each_dtype(name: str, dtype: str) -> None:
    actions = gym.spaces.Discrete(2) if name in NO_BOX else gym.spaces.Box(-1, 1, (2,), np.float64)
    for observations in spaces_of(dtype).values():
        updated(name, observations, actions)


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_log_probabilities_have_the_dtype_of_the_network(squash: bool, dtype: str) -> None:
    """Actions of another dtype are the same actions: a policy's density does not depend on how they are stored."""
    actions = box(dtype, bounded=True)
    networks = make_networks("bc", gym.spaces.Box(-1, 1, (3,)), actions, NetworkConfig(hidden_sizes=[4], squash=squash))
    head = networks.policy.head
    taken = torch.from_numpy(space_rows(actions))
    inputs = torch.zeros(len(taken), head.inputs_size)
    found = head.log_prob(inputs, taken)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, head.log_prob(inputs, taken.float()), rtol=0, atol=0)
