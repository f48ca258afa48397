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


@pytest.mark.slow
def test_the_compiler_is_not_imported() -> None:
    subprocess.run([sys.executable, "-c", STEPS], check=True)
