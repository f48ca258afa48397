"""Play a policy in a vector environment: the one loop that does, and the returns of whole episodes, no short one preferred.

Evaluation, recording and learning from play take the steps of the loop.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from offline_core.data.environments.vector_env import NUM_ENVS, info_of, make_vector_env, shares
from offline_core.data.episodes import nested
from offline_core.data.episodes.action_masks import ACTION_MASK, is_masked
from offline_core.data.episodes.index import SUCCESS_KEYS, success_of
from offline_core.data.episodes.nested import Nested
from offline_core.policies.played_step import Metric, PlayedStep
from offline_core.policies.policy import Policy, PolicyState
from offline_core.policies.quick import QuickPolicy
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.seeding import derive_seed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class PlayedSteps:
    """T consecutive steps of N copies of an environment; the fields are those of `PlayedStep`, (T, N, …) each.

    No `EpisodeBatch`: its episodes may be open at both ends, and some of its rows only reset a copy.
    """

    observations: Nested
    """(T+1, N, …): before the first step, and after each."""
    actions: Nested
    extras: dict[str, np.ndarray]
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    counts: np.ndarray
    infos: list[dict[str, Any]]
    """T+1 dicts as the vector environment gives them: arrays over copies, with `_key` masks beside them."""

    @classmethod
    def of(cls, played: Sequence[PlayedStep], infos: dict[str, Any]) -> PlayedSteps:
        """Stack steps that follow each other, of which there is at least one; `infos` are those before the first."""
        columns = [(p.actions, p.extras, p.rewards, p.terminated, p.truncated, p.counts) for p in played]
        observations = _stacked([played[0].observations, *(p.next_observations for p in played)])
        actions, extras, rewards, terminated, truncated, counts = _stacked(columns)
        all_infos = [infos, *(p.infos for p in played)]
        return cls(observations, actions, extras, rewards, terminated, truncated, counts, all_infos)


class EnvironmentLoop(Iterator[PlayedStep]):
    """Steps all copies of an environment together, without end or until each has played its share of episodes.

    Under NEXT_STEP autoreset the step after an episode's end only resets its copy. It belongs to no episode, and the policy
    forgets the ended one with it. The same arguments give the same steps.

    Arguments:
        env: made by `make_vector_env`; the caller closes it.
        seed: of the start states and of sampled actions.
        explore: sample actions; otherwise take the most likely ones.
        quota: (N,) how many episodes of each copy count, its first ones. They are fixed before the first step, so that no
            episode is preferred for being short. None: all count, without end.
        with_extras: also give the distribution inputs and log-probabilities of the actions.
    """

    def __init__(
        self,
        env: VectorEnv,
        policy: Policy | QuickPolicy,
        *,
        seed: int,
        explore: bool,
        quota: np.ndarray | None = None,
        with_extras: bool = False,
    ) -> None:
        self.env = env
        self._policy = policy
        self._has_masks = is_masked(env.single_observation_space)
        self._explore = explore
        self._with_extras = with_extras
        self._quota = np.full(env.num_envs, np.iinfo(np.int64).max) if quota is None else quota.copy()
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "actions"))
        self.uniform = False
        """Draw actions uniformly from the action space for now, and do not ask the policy."""
        env.action_space.seed(derive_seed(seed, "uniform actions"))
        self._state = policy.initial_state(env.num_envs)
        observations, infos = env.reset(seed=derive_seed(seed, "environment"))
        self.infos: dict[str, Any] = infos
        """As the vector environment gave them before the next step."""
        if ACTION_MASK in self.infos and not self._has_masks:
            _say_masks_are_ignored(str(env.spec and env.spec.id))
        self.observations: Nested = nested.map_leaves(np.ndarray.copy, observations)
        """(N, …): before the next step."""
        self._done = np.zeros(env.num_envs, bool)
        self.is_over = not self._quota.any()
        """All episodes that count have ended."""

    def __next__(self) -> PlayedStep:
        if self.is_over:
            raise StopIteration
        actions, extras, state = self._act()
        observations, rewards, terminated, truncated, self.infos = self.env.step(actions)
        done, counts = terminated | truncated, ~self._done & (self._quota > 0)
        step = PlayedStep(
            observations=self.observations,
            # Copies, because a vector environment may write the next step into the same arrays.
            next_observations=nested.map_leaves(np.ndarray.copy, observations),
            actions=actions,
            extras=extras,
            rewards=rewards.copy(),
            terminated=terminated.copy(),
            truncated=truncated.copy(),
            infos=self.infos,
            counts=counts,
            ends=counts & done,
        )
        self.observations = step.next_observations
        self._state = state.received(step.rewards).reset(self._done)  # these copies were reset in this step
        self._done = done
        if step.ends.any():
            self._quota -= step.ends
            self.is_over = not self._quota.any()
        return step

    def _act(self) -> tuple[Nested, dict[str, np.ndarray], PolicyState]:
        if self.uniform:
            return self.env.action_space.sample(), {}, self._state
        observations = self._to_act_on()
        if not self._with_extras:
            actions, state = self._policy.act(observations, self._state, explore=self._explore, generator=self._generator)
            return actions, {}, state
        policy = cast(Policy, self._policy)
        chosen = policy.choose(observations, self._state, explore=self._explore, generator=self._generator)
        assert chosen.state is not None
        return chosen.actions, chosen.extras, chosen.state

    def _to_act_on(self) -> Nested:
        """The observations. Where a copy only resets, its action is ignored: all are allowed, and what is not finite is 0."""
        if not self._done.any():
            return self.observations

        def known(leaf: np.ndarray) -> np.ndarray:
            if leaf.dtype.kind != "f" or np.isfinite(leaf[self._done]).all():
                return leaf
            leaf = leaf.copy()
            leaf[self._done] = 0
            return leaf

        observations = nested.map_leaves(known, self.observations)
        if not self._has_masks:
            return observations
        masks = observations[ACTION_MASK].copy()
        masks[self._done] = 1
        return {**observations, ACTION_MASK: masks}

    def take(self, steps: int, *, deadline: float = math.inf) -> PlayedSteps:
        """Return the next steps, stacked: fewer if the loop is over before, or it is `deadline`.

        Arguments:
            deadline: in seconds of `time.perf_counter`; one step is played in any case.
        """
        infos, played = self.infos, list[PlayedStep]()
        while len(played) < steps and not self.is_over:
            played.append(next(self))
            if time.perf_counter() > deadline:
                break
        return PlayedSteps.of(played, infos)


@functools.cache
def _say_masks_are_ignored(name: str) -> None:
    log.info(
        "Environment %s says which actions are allowed. Set environment.action_mask, and policies choose among those.", name
    )


def _stacked(trees: list[Nested]) -> Nested:
    return nested.map_leaves(lambda *leaves: np.stack(leaves), *trees)


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Returns and lengths (steps) of played episodes, both of shape (episodes,)."""

    returns: np.ndarray
    lengths: np.ndarray
    successes: np.ndarray | None = None
    """Shape (episodes,), bool: `success_of` the info of each last step; None: no episode's info has it."""

    @classmethod
    def joined(cls, parts: Sequence[Rollouts]) -> Rollouts:
        """Join the episodes of all parts, in this order."""
        successes = [np.zeros(len(part.returns), bool) if part.successes is None else part.successes for part in parts]
        return cls(
            np.concatenate([part.returns for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            None if all(part.successes is None for part in parts) else np.concatenate(successes),
        )

    @property
    def metrics(self) -> dict[str, float]:
        """Mean, standard deviation, minimum and maximum return, mean length, number of episodes, success rate."""
        success = {} if self.successes is None else {"success_rate": float(self.successes.mean())}
        return {
            "episode_return_mean": float(self.returns.mean()),
            "episode_return_std": float(self.returns.std()),
            "episode_return_min": float(self.returns.min()),
            "episode_return_max": float(self.returns.max()),
            "episode_length_mean": float(self.lengths.mean()),
            "episodes": float(len(self.returns)),
            **success,
        }


def rollouts(
    policy: Policy,
    environment: EnvironmentSpec,
    *,
    episodes: int,
    seed: int,
    explore: bool = False,
    num_envs: int = NUM_ENVS,
    on_ended: Callable[[int], object] | None = None,
    metrics: Sequence[Metric] = (),
) -> Rollouts:
    """Play exactly `episodes` episodes; each copy's share is fixed before the first step.

    The same (policy, environment, episodes, seed, explore, num_envs) gives the same returns; another
    number of copies plays other episodes.

    Arguments:
        num_envs: copies of the environment, at most.
        on_ended: called with the number of episodes that ended in a step.
        metrics: see each step.

    Raises:
        ConfigError: the environment cannot be made, or its spaces do not fit the policy.
    """
    num_envs = min(num_envs, episodes)
    with contextlib.closing(make_vector_env(environment, num_envs)) as env:
        policy.check_spaces(f"environment {environment.id}", (env.single_observation_space, env.single_action_space))
        returns, lengths = np.zeros(num_envs), np.zeros(num_envs, int)
        finished: list[tuple[np.ndarray, np.ndarray]] = []
        successes: list[bool | None] = []
        for step in EnvironmentLoop(env, policy, seed=seed, explore=explore, quota=shares(episodes, num_envs)):
            if metrics:
                shown = step.read_only()
                for metric in metrics:
                    metric.look(shown)
            returns += np.where(step.counts, step.rewards, 0.0)
            lengths += step.counts
            if (ends := step.ends).any():
                finished.append((returns[ends], lengths[ends]))
                said = {key: value for key, value in step.infos.items() if key.removeprefix("_") in SUCCESS_KEYS}
                successes += [success_of(info_of(said, int(copy))) for copy in np.flatnonzero(ends)]
                if on_ended:
                    on_ended(int(ends.sum()))
                returns[ends] = 0.0
                lengths[ends] = 0
    return Rollouts(
        np.concatenate([r for r, _ in finished]),
        np.concatenate([n for _, n in finished]),
        None if successes.count(None) == len(successes) else np.array(successes, bool),
    )
