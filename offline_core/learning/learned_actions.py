"""Whether a policy acts differently at different steps, where the recorded actions differ: what no loss shows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import gymnasium as gym
import numpy as np
import torch

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.spaces import space_leaves
from offline_core.data.inputs.number_names import number_names
from offline_core.learning.steps import MASK, BatchSpec, Steps, nested_as
from offline_core.policies.policy import Policy
from offline_core.runtime.units import count_text, number_text

MOST_STEPS = 2_000
"""Recorded steps at which the policy is asked, about."""
LEAST_SPREAD = 0.05
"""Share of the recorded spread below which the numbers of a policy's actions are all alike."""
VARIED = 1e-3
"""Spread, in units of the largest recorded number, up to which a number is held constant, with noise."""
AS_OFTEN = 0.1
"""How far the mean probability of a choice is from its recorded share, at most, where a policy makes it as often."""
MOSTLY = 0.9
"""Share of the steps from which on a recorded choice is nearly always the same, and a policy that always takes it is right."""


@torch.no_grad()
def warnings_of_actions(policy: Policy, steps: Steps, spec: BatchSpec) -> list[str]:
    """Return what speaks against the greedy actions of a policy beside the recorded ones; nothing where it has learned them.

    A decision transformer acts by a return that is asked for, so it is not compared.

    Arguments:
        policy: on the CPU, in evaluation mode.
        steps: that were learned from, at most `MOST_STEPS` of which are looked at, spread over all.
        spec: of the batches of the training.
    """
    if policy.network.transformer is not None or not len(steps):
        return []
    spec = BatchSpec((columns.OBS, columns.ACTIONS), spec.frames, spec.sequence_steps, spec.burn_in_steps)
    indices = steps.indices(spec)
    apart = 1 + len(indices) * (spec.sequence_steps or 1) // MOST_STEPS
    batch = {path: column.cpu() for path, column in steps.batch(indices[::apart], spec).items()}
    counts = batch.pop(MASK, None)
    observations = {path: column for path, column in batch.items() if path.partition(nested.PATH_SEPARATOR)[0] == columns.OBS}
    recorded = {path: column for path, column in batch.items() if path not in observations}
    inputs = policy(nested_as(observations, (policy.observation_space, policy.action_space))[columns.OBS])
    likeliest = policy.head.mode(inputs)
    actions = nested.flatten(policy.head.to_env(likeliest), columns.ACTIONS)
    chances = policy.head.log_prob(inputs, likeliest).exp()
    if counts is not None:  # of sequences, whose steps follow each other on one axis in what the policy gives
        recorded = {path: column.flatten(0, 1)[counts.flatten()] for path, column in recorded.items()}
        actions = {path: leaf[counts.flatten().numpy()] for path, leaf in actions.items()}
        chances = chances[counts.flatten()]
    chance = float(chances.mean()) if isinstance(policy.action_space, gym.spaces.Discrete) else None
    return unlearned(policy.action_space, actions, {path: column.numpy() for path, column in recorded.items()}, chance=chance)


def unlearned(
    space: gym.Space[object],
    actions: Mapping[str, np.ndarray],
    recorded: Mapping[str, np.ndarray],
    *,
    chance: float | None = None,
) -> list[str]:
    """Return a sentence on each part of an action that a policy always takes alike, where it was not recorded so.

    Arguments:
        actions: (N, …) the likeliest ones of the policy, by path.
        recorded: (N, …) at the same steps.
        chance: the mean probability of those of a Discrete space; None: the space is another one.
    """
    told = []
    for path, leaf in space_leaves(space, columns.ACTIONS).items():
        if path not in actions or path not in recorded:
            continue
        own, logged = (values[path].reshape(len(values[path]), -1) for values in (actions, recorded))
        names = number_names(path, own.shape[1])
        about = _about_number if isinstance(leaf, gym.spaces.Box) else partial(_about_choice, chance=chance)
        sentences = (about(name, own[:, number], logged[:, number]) for number, name in enumerate(names))
        told += [sentence for sentence in sentences if sentence is not None]
    return told


def _about_number(name: str, own: np.ndarray, logged: np.ndarray) -> str | None:
    own, logged = own.astype(np.float64), logged.astype(np.float64)
    spread, recorded_spread = (float(np.subtract(*np.quantile(values, [0.95, 0.05]))) for values in (own, logged))
    if recorded_spread <= VARIED * np.abs(logged).max() or spread >= LEAST_SPREAD * recorded_spread:
        return None
    ranges = [f"from {number_text(float(values.min()))} to {number_text(float(values.max()))}" for values in (own, logged)]
    return (
        f"The policy's {name} run {ranges[0]}, the recorded ones {ranges[1]}: it has not learned what they depend on, "
        "unless they depend on nothing that it sees."
    )


def _about_choice(name: str, own: np.ndarray, logged: np.ndarray, *, chance: float | None) -> str | None:
    share = (logged == own[0]).mean()
    if (own != own[0]).any() or share >= MOSTLY:
        return None
    if chance is not None and abs(chance - share) <= AS_OFTEN:
        return (
            f"The policy's likeliest {name} are always {own[0]}, at a chance of {100 * chance:.0f} %, and so are "
            f"{100 * share:.0f} % of the recorded ones. If what acted drew them by lot, it has learned that, and should draw "
            "as well; if not, it has not learned what they depend on."
        )
    others = "others were" if (logged != own[0]).all() else f"{count_text(len(np.unique(logged)), 'choice')} were"
    return (
        f"The policy's {name} are always {own[0]}, where {others} recorded: it has not learned what they depend on, "
        "unless one choice is best wherever it is made."
    )
