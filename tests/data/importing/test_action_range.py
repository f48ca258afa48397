"""In what units actions were recorded, told from what follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from offline_core.data.importing.action_range import SampledSteps, told_range
from offline_core.errors import ConfigError

BOX = spaces.Box(-3, 3, (2,), np.float32)


def played(reach: float, *, spread: float = 2.0, noise: float = 0.1, count: int = 1000, by_rllib: bool = True) -> SampledSteps:
    """A noisy nonlinear world that feels an action as far as `reach`."""
    rng = np.random.default_rng(0)
    obs, actions = rng.normal(size=(count, 3)), rng.normal(0, spread, (count, 2))
    felt = np.clip(actions, -reach, reach)
    moved = np.sin(obs) @ rng.normal(size=(3, 3)) + felt @ rng.normal(size=(2, 3)) + noise * rng.normal(size=(count, 3))
    return SampledSteps(actions, obs, np.concatenate([moved, -(obs**2).sum(1, keepdims=True)], axis=1), by_rllib)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_what_matters_as_far_as_one_is_normalised(noise: float) -> None:
    found, note = told_range(played(1, noise=noise), BOX)
    assert found == (-1.0, 1.0) and note is not None and "as far as -1 and 1, and no further" in note


def test_what_matters_as_far_as_the_bounds_is_clipped_to_them() -> None:
    found, note = told_range(played(3), BOX)
    assert found is not None and np.array_equal(found, (BOX.low, BOX.high)) and "clipped to the action space" in str(note)


def test_a_space_from_minus_one_to_one_leaves_no_doubt() -> None:
    space = spaces.Box(-1, 1, (2,), np.float32)
    found, _ = told_range(played(1, noise=100.0), space)
    assert found is not None and np.array_equal(found, (space.low, space.high))


@pytest.mark.parametrize(
    "steps",
    [played(1, noise=1000.0), played(1, spread=0.2), played(1, count=20)],
    ids=["actions matter little", "none beyond one", "few steps"],
)
@pytest.mark.parametrize("space", [BOX, None])
def test_where_it_cannot_be_told_a_recording_of_rllib_is_refused(steps: SampledSteps, space: Any) -> None:
    with pytest.raises(ConfigError, match=r"Declare recorded_action_range: \[-1, 1\] if they are normalised"):
        told_range(steps, space)


def test_without_bounds_normalised_actions_are_refused_and_others_said() -> None:
    with pytest.raises(ConfigError, match=r"declare them by environment\.id or by action_space"):
        told_range(played(1), None)
    found, note = told_range(played(np.inf), None)
    assert found is None and "an effect beyond -1 and 1" in str(note)


def test_what_rllib_did_not_record_is_left_alone_unless_it_is_plain() -> None:
    inside = played(1, spread=0.3, by_rllib=False)
    assert told_range(inside, BOX) == told_range(played(1, by_rllib=False), None) == (None, None)
    assert told_range(played(1, by_rllib=False), BOX)[0] == (-1.0, 1.0)
    found, note = told_range(played(3, by_rllib=False), BOX)
    assert found is None and "lie outside the action space. They are imported as they are." in str(note)
