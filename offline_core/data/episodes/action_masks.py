"""Masks of actions: which actions of a list are allowed, as part of an observation.

An observation is then a dict with the key `action_mask` beside others, as RLlib has it: {"observations": …, "action_mask":
(n,)}, 1 where an action is allowed. So there is one mask more than there are steps: that of what an episode ends in counts for
nothing if the end is a terminal state, and may forbid everything.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import gymnasium as gym
import numpy as np

from offline_core.errors import ConfigError, SpaceError

ACTION_MASK, OBSERVATIONS = "action_mask", "observations"
NEW_ACTION_MASK = "new_action_mask"
"""Column of logs: the mask of what follows a step."""


def is_masked(space: gym.Space[Any] | None) -> TypeGuard[gym.spaces.Dict]:
    """Whether observations of the space say which actions are allowed."""
    return isinstance(space, gym.spaces.Dict) and ACTION_MASK in space.spaces


def without_mask(space: gym.Space[Any]) -> gym.Space[Any]:
    """The space of what a network sees of an observation: all but the mask."""
    if not is_masked(space):
        return space
    return gym.spaces.Dict([(key, child) for key, child in space.spaces.items() if key != ACTION_MASK])


def with_mask(space: gym.Space[Any], action_space: gym.Space[Any]) -> gym.spaces.Dict:
    """The space of observations of `space`, each with a mask of the actions.

    Raises:
        SpaceError: Actions are no choices.
    """
    size = sum(choices(action_space))
    return gym.spaces.Dict([(ACTION_MASK, gym.spaces.MultiBinary(size)), (OBSERVATIONS, space)])


def choices(action_space: gym.Space[Any]) -> list[int]:
    """How many choices each component of an action has; a mask has as many numbers, one component after the other.

    Raises:
        SpaceError: Actions are no choices.
    """
    match action_space:
        case gym.spaces.Discrete():
            return [int(action_space.n)]
        case gym.spaces.MultiDiscrete():
            return [int(size) for size in action_space.nvec.reshape(-1)]
    raise SpaceError(
        f"Observations have an {ACTION_MASK}, which is for Discrete and MultiDiscrete actions, and the action space is "
        f"{action_space}. Rename that key if it means something else, or leave it out."
    )


def check_spaces(observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
    """Check that the masks of a masked observation space are of these actions.

    Raises:
        ConfigError: They are not.
    """
    assert is_masked(observation_space)
    try:
        mask, expected = observation_space[ACTION_MASK], (sum(choices(action_space)),)
    except SpaceError as error:
        raise ConfigError(str(error)) from error
    if mask.shape != expected:
        raise ConfigError(
            f"The {ACTION_MASK} of observations has the space {mask}, and the actions {action_space} need one number for each "
            f"of their {expected[0]} choices."
        )
    if len(observation_space.spaces) == 1:
        raise ConfigError(f"Observations have an {ACTION_MASK} and nothing else that a policy could see.")


def not_binary(masks: np.ndarray) -> np.ndarray:
    """(N,) which of the masks (N, n) have a number other than 0 and 1."""
    return np.asarray((~np.isin(masks, (0, 1))).any(axis=1))


def forbids_all(masks: np.ndarray, sizes: list[int]) -> np.ndarray:
    """(N,) which of the masks (N, n) allow no choice of some component."""
    starts = np.cumsum([0, *sizes[:-1]])
    return np.asarray(~np.logical_or.reduceat(masks != 0, starts, axis=1).all(axis=1))


def forbidden(masks: np.ndarray, actions: np.ndarray, action_space: gym.Space[Any]) -> np.ndarray:
    """(N,) which of the actions (N, …) their masks (N, n) forbid, or are none of the space."""
    sizes = np.array(choices(action_space))
    start = np.asarray(getattr(action_space, "start", 0)).reshape(-1)
    indices = actions.reshape(len(actions), len(sizes)).astype(np.int64) - start
    inside = (indices >= 0) & (indices < sizes)
    at = np.where(inside, indices, 0) + np.cumsum(sizes) - sizes
    return np.asarray(~(inside & (np.take_along_axis(masks, at, axis=1) != 0)).all(axis=1))


def problem(masks: np.ndarray, actions: np.ndarray, action_space: gym.Space[Any]) -> tuple[np.ndarray, str] | None:
    """What is wrong with the masks (N, n) of steps and the actions (N, …) taken: ((N,) which, in words); None: nothing.

    Raises:
        SpaceError: Masks have another length than the actions have choices.
    """
    sizes = choices(action_space)
    if masks.shape[1:] != (sum(sizes),):
        raise SpaceError(
            f"The {ACTION_MASK} has shape {masks.shape[1:]} a step; the actions {action_space} need {sum(sizes)} numbers."
        )
    if (wrong := not_binary(masks)).any():
        return wrong, f"the {ACTION_MASK} has a number that is neither 0 nor 1"
    if (wrong := forbids_all(masks, sizes)).any():
        return wrong, f"the {ACTION_MASK} allows no action"
    if (wrong := forbidden(masks, actions, action_space)).any():
        return wrong, f"the action taken is one that its {ACTION_MASK} forbids"
    return None


def check_masks(masks: np.ndarray, action_space: gym.Space[Any]) -> None:
    """Check that an action can be chosen by each of the masks (N, n).

    Raises:
        SpaceError: One is no mask, or allows no action.
    """
    if not_binary(masks).any():
        raise SpaceError(f"The {ACTION_MASK} of an observation has a number that is neither 0 nor 1.")
    if (wrong := forbids_all(masks, choices(action_space))).any():
        raise SpaceError(
            f"The {ACTION_MASK} of observation {int(np.argmax(wrong))} of {len(masks)} allows no action, so none can be "
            "chosen: the episode has to end before, or the mask is wrong."
        )
