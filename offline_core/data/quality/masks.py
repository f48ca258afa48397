"""The rule about masks of actions."""

from __future__ import annotations

import numpy as np

from offline_core.data.episodes import columns
from offline_core.data.episodes.action_masks import ACTION_MASK, choices, forbidden, forbids_all, is_masked, not_binary
from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.data.quality.rule import CountingRule
from offline_core.data.quality.steps import StepBatch
from offline_core.errors import SpaceError


class ForbiddenActions(CountingRule):
    """Actions that the mask of their observation forbids, and masks that are none: what training refuses."""

    name = "forbidden_actions"
    message = "steps have an action that its mask forbids, or a mask that allows none or is not of 0 and 1"
    advice = "Leave those steps out, or find out whether masks and observations were shifted against each other by a step."

    def look(self, steps: StepBatch) -> None:
        if not is_masked(steps.observation_space) or steps.action_space is None:
            return
        masks = steps.columns[f"{columns.OBS}{PATH_SEPARATOR}{ACTION_MASK}"]
        ends = steps.columns[f"{columns.NEW_OBS}{PATH_SEPARATOR}{ACTION_MASK}"]
        try:
            sizes = choices(steps.action_space)
        except SpaceError:
            sizes = []
        if masks.shape[1:] != (sum(sizes),):
            wrong = np.ones(len(steps), bool)
        else:
            wrong = not_binary(masks) | forbids_all(masks, sizes)
            wrong |= forbidden(masks, steps.columns[columns.ACTIONS], steps.action_space)
            last = steps.last_rows  # what follows any other step is that of the next row
            wrong[last] |= not_binary(ends[last]) | (forbids_all(ends[last], sizes) & ~steps.terminated[last])
        self.tally.steps(steps, wrong)
