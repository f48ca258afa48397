"""Target networks: slow copies, which later values are taken from (Lillicrap et al. 2016, arXiv 1509.02971)."""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
from torch import nn

from offline_core.policies.policy import Policy

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def target_of(learned: AnyModule) -> AnyModule:
    """Return a copy that is not trained. A policy's shares the encoder, so that both see observations through one filter."""
    shared = {id(learned.encoder): learned.encoder} if isinstance(learned, Policy) else {}
    target = copy.deepcopy(learned, cast(dict[int, object], shared))
    return target.requires_grad_(False).eval()


@torch.no_grad()
def move(target: nn.Module, learned: nn.Module, rate: float) -> None:
    """Move a target this share of the way to the learned network."""
    torch._foreach_lerp_(list(target.parameters()), list(learned.parameters()), rate)
