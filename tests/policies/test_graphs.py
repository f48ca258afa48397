"""A policy in the hands of torch: exported for batches of any size, and shared among learners."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from offline_core.episodes import nested
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy, as_tensors
from tests.policies.sampling import observed

pytestmark = pytest.mark.filterwarnings("ignore:.*_flat_weights.* were assigned during export:UserWarning")  # torch's own LSTM

VECTOR = spaces.Box(-1, 1, (4,))
IMAGE = spaces.Box(0, 255, (8, 9, 3), np.uint8)
NESTED = spaces.Dict([("z", VECTOR), ("a", spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 3])]))])
KINDS: dict[str, tuple[gym.Space[Any], gym.Space[Any], NetworkConfig, tuple[int, ...]]] = {
    "nested": (NESTED, spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (2,))), NetworkConfig(squash=True), ()),
    "image": (spaces.Dict(eye=IMAGE, at=VECTOR), spaces.Discrete(3), NetworkConfig(normalize_observations=True), ()),
    "frames": (spaces.Tuple([IMAGE, VECTOR]), spaces.Box(-1, 1, (2,)), NetworkConfig(frames=3), (3,)),
    "lstm": (VECTOR, spaces.Discrete(3), NetworkConfig(recurrent="lstm"), (5,)),
    "gru": (VECTOR, spaces.Discrete(3), NetworkConfig(recurrent="gru"), (5,)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def made(kind: str) -> tuple[Policy, Any, Any]:
    """The policy, four observations of it and nine."""
    observation_space, action_space, network, axes = KINDS[kind]
    policy = Policy(observation_space, action_space, network).eval()
    four, nine = (as_tensors(observed(observation_space, size, *axes)) for size in (4, 9))
    return policy, four, nine


@every_kind
def test_one_graph_is_for_batches_of_any_size(kind: str) -> None:
    policy, four, nine = made(kind)
    batch = torch.export.Dim("batch")
    program = torch.export.export(policy, (four,), dynamic_shapes=(nested.map_leaves(lambda _: {0: batch}, four),))
    torch.testing.assert_close(program.module()(nine), policy(nine))


class Step(nn.Module):
    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy.step(observations, state)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_one_step_of_a_memory_is_a_graph_too(kind: str) -> None:
    policy, four, nine = made(kind)
    assert policy.memory is not None
    batch = torch.export.Dim("batch")
    example = (four[:, 0], policy.memory.empty(4))
    program = torch.export.export(Step(policy), example, dynamic_shapes=({0: batch}, {0: batch}))
    now = (nine[:, 0], torch.randn(9, policy.memory.state_size, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(program.module()(*now), policy.step(*now))


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@every_kind
def test_every_weight_gets_a_gradient_among_several_learners(kind: str, process_group: None) -> None:
    """DDP complains in the second update of what the first left without one."""
    policy, four, _ = made(kind)
    shared = DistributedDataParallel(policy.train())
    for _ in range(2):
        shared(four).square().sum().backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())
