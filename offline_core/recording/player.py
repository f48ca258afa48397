"""Plays one assignment: a number of episodes, in chunks, with one vector environment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from offline_core.config import EnvironmentSpec
from offline_core.environments import make_vector_env, shares
from offline_core.episodes import Episode, columns, nested
from offline_core.policies.policy import Policy
from offline_core.recording.cutter import Chunk, EpisodeCutter
from offline_core.seeding import derive_seed

CHUNK_BYTES = 64 * 2**20
"""Memory for observations before finished episodes are cut out and handed on."""
MAX_CHUNK_STEPS = 1024


@dataclass(frozen=True, slots=True)
class Assignment:
    """The episodes that one recorder plays in one round."""

    round: int
    recorder: int
    episodes: int


def assignments(*, rounds: int, episodes: int, num_recorders: int) -> list[Assignment]:
    """Who plays what, fixed before anything is played: each round's episodes shared out as evenly as can be."""
    each = shares(episodes, num_recorders).tolist()
    return [Assignment(r, recorder, share) for r in range(rounds) for recorder, share in enumerate(each) if share]


def play(
    policy: Policy,
    environment: EnvironmentSpec,
    assignment: Assignment,
    *,
    identity: str,
    num_envs: int,
    seed: int,
    explore: bool,
    keep_action_distribution: bool = True,
) -> Iterator[list[Episode]]:
    """Yields the assignment's episodes as they end, exactly as many as assigned, each complete.

    The same arguments give the same episodes, wherever and whenever they are played. All that shapes them goes into
    their ids, `identity` for the policy, so that equal ids mean equal episodes.
    """
    num_envs = min(num_envs, assignment.episodes)
    seed = derive_seed(seed, "recording", assignment.round, assignment.recorder)
    quota = shares(assignment.episodes, num_envs)
    what = f"{identity} {environment.model_dump_json()} {assignment} {num_envs} {seed} {explore}"
    env = make_vector_env(environment, num_envs)
    generator = torch.Generator().manual_seed(derive_seed(seed, "actions"))
    spaces = (env.single_observation_space, env.single_action_space)
    cutter = EpisodeCutter(quota, eps_id=lambda copy, k: _eps_id(what, copy, k), spaces=spaces)
    try:
        observations, info = env.reset(seed=derive_seed(seed, "environment"))
        step_bytes = max(1, sum(leaf.nbytes for leaf in nested.leaves(observations)))
        chunk_steps = int(np.clip(CHUNK_BYTES // step_bytes, 1, MAX_CHUNK_STEPS))
        remaining = quota.copy()
        acting = policy.acting(num_envs)
        done, starts = np.zeros(num_envs, bool), np.ones(num_envs, bool)
        while remaining.any():
            steps: list[tuple[Any, ...]] = []
            seen, infos = [nested.map_leaves(np.copy, observations)], [info]
            while len(steps) < chunk_steps and remaining.any():
                chosen = acting.act(observations, starts, explore=explore, generator=generator)
                observations, rewards, terminated, truncated, info = env.step(chosen.actions)
                extras = chosen.extras if keep_action_distribution else {}
                # Copies, because a vector environment may write the next step into the same arrays.
                steps.append((chosen.actions, rewards.copy(), terminated.copy(), truncated.copy(), extras))
                seen.append(nested.map_leaves(np.copy, observations))
                infos.append(info)
                starts, done = done, terminated | truncated  # the observation after a reset, one step after the end
                remaining -= done & (remaining > 0)
            actions, rewards, terminated, truncated, extras = nested.map_leaves(lambda *leaves: np.stack(leaves), *steps)
            stacked = nested.map_leaves(lambda *leaves: np.stack(leaves), *seen)
            finished = cutter.cut(Chunk(stacked, actions, rewards, terminated, truncated, extras, infos))
            yield [replace(episode, custom_data={columns.POLICY_ID: identity}) for episode in finished]
    finally:
        env.close()


def _eps_id(*parts: str | int) -> str:
    """32 hex digits, as RLlib's ids are, but the same in every run."""
    return hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=16).hexdigest()
