"""How probable recorded actions are to a policy."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from offline_core.data.episodes import nested
from offline_core.data.episodes.nested import Nested
from offline_core.policies.composite import CompositeHead
from offline_core.policies.head import Head
from offline_core.policies.policy import Policy
from offline_core.policies.squashed import SquashedGaussianHead


@torch.no_grad()
def log_probabilities(policy: Policy, inputs: Tensor, actions: Nested, *, explore: bool, reaches_bounds: bool = True) -> Tensor:
    """(B,) float64 of nested actions (B, …), out of distribution inputs (B, inputs).

    Arguments:
        explore: of the policy that samples; otherwise of the one that takes the most likely action: 0 for that, -inf for
            all others. There are densities for the first alone in a Box.
        reaches_bounds: an action at a bound counts as one right beside it where a squashed Gaussian is asked, which has no
            other density there. Otherwise it is -inf: a policy that clips is at a bound with some probability, and this one
            with none.
    """
    if explore:
        found = policy.head.log_prob(inputs, actions).double()
        return found if reaches_bounds else found.masked_fill(_beyond_reach(policy.head, actions, len(found)), -torch.inf)
    same = [
        (chosen == taken).flatten(1).all(dim=1) if taken.ndim > 1 else chosen == taken
        for chosen, taken in zip(nested.leaves(policy.head.mode(inputs)), nested.leaves(actions), strict=True)
    ]
    taken = functools.reduce(torch.logical_and, same)
    return torch.zeros(len(taken), dtype=torch.float64).masked_fill(~taken, -torch.inf)


def _beyond_reach(head: Head, actions: Nested, count: int) -> Tensor:
    """(B,) bool: a component of the actions is at a bound that a squashed Gaussian only comes close to."""
    beyond = torch.zeros(count, dtype=torch.bool)
    if isinstance(head, CompositeHead):
        for part, key in zip(head.parts, head.keys, strict=True):
            beyond |= _beyond_reach(part, actions[key], count)
    elif isinstance(head, SquashedGaussianHead):
        flat = actions.reshape(count, head.size)
        beyond |= (((flat <= head.low) | (flat >= head.high)) & (head.low < head.high)).any(dim=1)
    return beyond
