"""A policy at play: with what it remembers of each copy of an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Generator, Tensor

from offline_core.episodes import nested
from offline_core.episodes.nested import Nested

if TYPE_CHECKING:
    from offline_core.policies.policy import Actions, Policy


class Acting:
    """Acts in N copies of an environment, step by step; made by `Policy.acting`.

    `starts` (N,) bool says whose observation begins an episode: what was seen before is forgotten there. Under NEXT_STEP
    autoreset that is the one after the step that only resets. A policy without a memory takes no notice of it.
    """

    def __init__(self, policy: Policy, num_envs: int) -> None:
        self._policy = policy
        self._frames: Nested | None = None
        """(N, frames, …), the oldest first, raw."""
        self._state: Tensor | None = None if policy.memory is None else policy.memory.empty(num_envs)

    @torch.inference_mode()
    def act(self, observations: Nested, starts: np.ndarray, *, explore: bool, generator: Generator | None = None) -> Actions:
        """Actions for numpy observations (N, …): sampled if `explore`, else the most likely ones."""
        return self._policy.choose(self._inputs(observations, starts), explore=explore, generator=generator)

    @torch.inference_mode()
    def greedy(self, observations: Nested, starts: np.ndarray) -> Nested:
        """The most likely actions (N, *action shape), and nothing else."""
        head = self._policy.head
        return head.to_env(head.mode(self._inputs(observations, starts)))

    def _inputs(self, observations: Nested, starts: np.ndarray) -> Tensor:
        from offline_core.policies.policy import as_tensors

        if self._state is not None:
            state = self._state.masked_fill(torch.from_numpy(starts)[:, None], 0.0)
            inputs, self._state = self._policy.step(as_tensors(observations), state)
            return inputs
        if self._policy.network.frames > 1:
            observations = self._stacked(observations, starts)
        return cast(Tensor, self._policy(as_tensors(observations)))

    def _stacked(self, observations: Nested, starts: np.ndarray) -> Nested:
        def push(leaf: np.ndarray, stack: np.ndarray) -> np.ndarray:
            stack[:, :-1] = stack[:, 1:]
            stack[:, -1] = leaf
            stack[starts] = leaf[starts][:, None]
            return stack

        if self._frames is None:
            frames = self._policy.network.frames
            self._frames = nested.map_leaves(lambda leaf: np.repeat(leaf[:, None], frames, axis=1), observations)
        else:
            self._frames = nested.map_leaves(push, observations, self._frames)
        return self._frames
