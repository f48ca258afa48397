"""How probable recorded actions are to a policy."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from offline_core.episodes import nested
from offline_core.episodes.nested import Nested
from offline_core.policies.policy import Policy


@torch.no_grad()
def log_probabilities(policy: Policy, inputs: Tensor, actions: Nested, *, explore: bool) -> Tensor:
    """(B,) float64 of nested actions (B, …), out of distribution inputs (B, inputs).

    Arguments:
        explore: of the policy that samples; otherwise of the one that takes the most likely action: 0 for that, -inf for
            all others. There are densities for the first alone in a Box.
    """
    if explore:
        return policy.head.log_prob(inputs, actions).double()
    same = [
        (chosen == taken).flatten(1).all(dim=1) if taken.ndim > 1 else chosen == taken
        for chosen, taken in zip(nested.leaves(policy.head.mode(inputs)), nested.leaves(actions), strict=True)
    ]
    taken = functools.reduce(torch.logical_and, same)
    return torch.zeros(len(taken), dtype=torch.float64).masked_fill(~taken, -torch.inf)
