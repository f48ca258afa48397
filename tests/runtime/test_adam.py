"""Adam without Torch's compiler: the same bits, and a process that never imports it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from offline_core.runtime.adam import Adam

STEPS = """
import sys, torch
from offline_core.runtime.adam import Adam
vector = torch.nn.Parameter(torch.ones(3))
optimizer = Adam([vector], lr=0.1)
vector.square().sum().backward()
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
assert "torch._dynamo" not in sys.modules
"""


def trained(kind: type[torch.optim.Adam], **options: bool) -> tuple[torch.Tensor, dict]:
    layer = torch.nn.Linear(4, 2)
    torch.nn.init.constant_(layer.weight, 0.3)
    torch.nn.init.zeros_(layer.bias)
    optimizer = kind([{"params": [layer.weight], "lr": 0.1}, {"params": [layer.bias], "weight_decay": 0.2}], **options)
    for number in range(5):
        layer.zero_grad()
        layer(torch.arange(4.0) + number).square().sum().backward()
        optimizer.step()
    return layer.weight.detach(), optimizer.state_dict()


def test_updates_and_states_are_those_of_torch() -> None:
    (ours, our_state), (torchs, torch_state) = trained(Adam), trained(torch.optim.Adam, fused=True)
    assert torch.equal(ours, torchs)
    assert str(our_state) == str(torch_state)


def alternating(kind: type[torch.optim.Adam], **options: bool) -> list[torch.Tensor]:
    """Parameters of which some learn in each update: all, the same few again, others, and after a restored state."""
    vectors = [torch.nn.Parameter(torch.full((3,), float(number))) for number in range(4)]
    optimizer = kind(vectors, lr=0.1, **options)
    for update, learning in enumerate([(0, 1), (0, 1), (0, 1, 2, 3), (2,), (0, 1), (0,), (0, 1, 2, 3), (1, 3), (0, 1, 2, 3)]):
        if update == 6:
            optimizer.load_state_dict(optimizer.state_dict())
        for vector in vectors:
            vector.grad = None
        for number in learning:
            vectors[number].grad = torch.arange(3.0) + update
        optimizer.step()
    steps = [optimizer.state[vector]["step"].clone() for vector in vectors]
    return [*(vector.detach() for vector in vectors), *steps]


def test_parameters_that_do_not_always_learn_count_their_own_updates() -> None:
    ours, torchs = alternating(Adam), alternating(torch.optim.Adam, fused=True)
    assert all(torch.equal(one, other) for one, other in zip(ours, torchs, strict=True))


@pytest.mark.slow
def test_the_compiler_is_not_imported() -> None:
    subprocess.run([sys.executable, "-c", STEPS], check=True)
