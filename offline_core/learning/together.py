"""Sums over all learners of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def is_alone() -> bool:
    """Whether this process has no other learners beside it."""
    return not (torch.distributed.is_available() and torch.distributed.is_initialized())


def summed(values: Tensor) -> Tensor:
    """Return the sum of this tensor over all learners, which call this in the same order; alone, the tensor itself."""
    if is_alone():
        return values
    from offline_core.runtime.torch_settings import is_traced  # with Torch

    if is_traced():  # a graph holds what has a result of its own
        from torch.distributed import _functional_collectives as collectives

        world: Any = torch.distributed.group.WORLD
        total: Tensor = collectives.wait_tensor(collectives.all_reduce(values, "sum", world))
        return total
    values = values.clone()
    torch.distributed.all_reduce(values)
    return values


def gathered(values: Tensor) -> Tensor:
    """Return this tensor of all learners, (learners, …); alone, (1, …)."""
    if is_alone():
        return values[None]
    tensors = [torch.empty_like(values) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(tensors, values)
    return torch.stack(tensors)
