"""Observations of logs that have columns for the actions that were allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.data.episodes import action_masks, columns
from offline_core.data.episodes.action_masks import ACTION_MASK, NEW_ACTION_MASK, OBSERVATIONS
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.importing.mapping import ColumnMapping
from offline_core.errors import ConfigError, SchemaError, SpaceError

MASKS = (ACTION_MASK, NEW_ACTION_MASK)


def masked_spaces(spaces: StoredSpaces, mapping: ColumnMapping) -> StoredSpaces:
    """Declared spaces, where the mapping names masks of actions: observations have these, too.

    Raises:
        ConfigError: the length of the masks is not known, or actions are no choices.
    """
    observation, action = spaces
    if ACTION_MASK not in mapping:
        if NEW_ACTION_MASK in mapping:
            raise ConfigError(f"mapping.{NEW_ACTION_MASK} is what follows mapping.{ACTION_MASK}: map that, too.")
        return spaces
    try:
        if action is not None:
            action_masks.choices(action)
        if observation is None or action_masks.is_masked(observation):
            return spaces
        if action is None:
            raise ConfigError(f"With mapping.{ACTION_MASK} and an observation_space, declare the action_space, too.")
        return action_masks.with_mask(observation, action), action
    except SpaceError as error:
        raise ConfigError(f"mapping.{ACTION_MASK}: {error}") from error


def without_masks(spaces: StoredSpaces, mapping: ColumnMapping) -> StoredSpaces:
    """What the column `obs` itself is of, of spaces by `masked_spaces`.

    Raises:
        ConfigError: observations have other parts beside the mask.
    """
    if ACTION_MASK not in mapping or spaces[0] is None:
        return spaces
    assert action_masks.is_masked(spaces[0])
    if spaces[0].keys() != {ACTION_MASK, OBSERVATIONS}:
        raise ConfigError(
            f"mapping.{ACTION_MASK} makes observations of {OBSERVATIONS} and {ACTION_MASK}, and the declared ones have "
            f"{', '.join(spaces[0])}."
        )
    return spaces[0][OBSERVATIONS], spaces[1]


def with_masks(trees: Mapping[str, Any], action_space: gym.Space[Any] | None) -> dict[str, Any]:
    """Return the canonical columns with the masks as a part of the observations.

    Raises:
        SchemaError: `new_obs` has no mask.
        SpaceError: a mask is invalid, allows no action, or forbids the action of its step.
    """
    merged = {name: tree for name, tree in trees.items() if name not in MASKS}
    masks, actions = _masks(trees[ACTION_MASK], ACTION_MASK), trees[columns.ACTIONS]
    whole = isinstance(actions, np.ndarray) and (actions.dtype.kind in "iu" or action_space is not None)
    if not whole or (action_space is None and actions.size != len(actions)):
        raise SpaceError(
            f"mapping.{ACTION_MASK} is for actions that are one whole number each; declare the action_space (discrete or "
            "multi-discrete) of others, or encode them by columns.encode with form: index."
        )
    space = gym.spaces.Discrete(masks.shape[1]) if action_space is None else action_space
    if (problem := action_masks.problem(masks, actions, space)) is not None:
        raise SpaceError(f"Where the action is {actions[problem[0]][0]}, {problem[1]}: {masks[problem[0]][0].tolist()}.")
    merged[columns.OBS] = {ACTION_MASK: masks, OBSERVATIONS: trees[columns.OBS]}
    if columns.NEW_OBS in trees:
        if NEW_ACTION_MASK not in trees:
            raise SchemaError(
                f"Column {columns.NEW_OBS!r} has no mask of actions: map it as mapping.{NEW_ACTION_MASK}, or leave "
                f"{columns.NEW_OBS} out by source.columns and set episodes.last_new_obs."
            )
        merged[columns.NEW_OBS] = {
            ACTION_MASK: _masks(trees[NEW_ACTION_MASK], NEW_ACTION_MASK),
            OBSERVATIONS: trees[columns.NEW_OBS],
        }
    return merged


def _masks(tree: Any, name: str) -> np.ndarray:
    """(N, n) int8."""
    if not isinstance(tree, np.ndarray) or tree.ndim != 2 or tree.dtype.kind not in "biuf":
        raise SpaceError(f"Column {name!r} has to be a list of 0 and 1, one number for each action, or as many columns.")
    if (wrong := action_masks.not_binary(tree)).any():
        raise SpaceError(f"Column {name!r} holds {tree[wrong][0].tolist()}; a mask is of 0 and 1.")
    return tree.astype(np.int8)
