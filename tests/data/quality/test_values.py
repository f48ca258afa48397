"""The rule about masks of actions, and what training says of the same data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from gymnasium import spaces

from offline_core.data.episodes import Episode, EpisodeBatch
from offline_core.data.episodes.action_masks import with_mask
from offline_core.errors import SpaceError
from offline_core.learning.prelearner.connectors import check_spaces
from tests.data.quality.datasets import broken, places, run_check

THREE = spaces.Discrete(3)
SPACE = with_mask(spaces.Box(-1, 1, (2,)), THREE)


def episode(number: int, *changes: tuple[int, list[int]], terminated: bool = True) -> Episode:
    """Five steps with actions 0, 1, 2, 0, 1, which are allowed, and masks that are changed in some rows."""
    rng = np.random.default_rng(number)
    masks = np.ones((6, 3), np.int8)
    for row, mask in changes:
        masks[row] = mask
    return Episode(
        eps_id=f"e{number}",
        observations={"action_mask": masks, "observations": rng.uniform(-1, 1, (6, 2)).astype(np.float32)},
        actions=np.array([0, 1, 2, 0, 1]),
        rewards=rng.uniform(size=5),
        terminated=terminated,
        truncated=not terminated,
        observation_space=SPACE,
        action_space=THREE,
    )


Case = tuple[tuple[int, list[int]], bool, list[int]]
CASES: dict[str, Case] = {
    "forbidden": ((1, [1, 0, 1]), True, [1]),
    "none allowed": ((2, [0, 0, 0]), True, [2]),
    "no mask": ((3, [1, 2, 0]), True, [3]),
    "nothing after a truncation": ((5, [0, 0, 0]), False, [4]),
    "nothing after a termination": ((5, [0, 0, 0]), True, []),
    "others forbidden": ((1, [0, 1, 0]), True, []),
}


@pytest.mark.parametrize("format", ["episodes", "table"])
@pytest.mark.parametrize("name", CASES)
def test_forbidden_actions(tmp_path: Path, name: str, format: Literal["episodes", "table"]) -> None:
    change, terminated, expected = CASES[name]
    others: list[Any] = [episode(number, (0, [1, 0, 1])) for number in range(3)]
    data = [*others, episode(9, change, terminated=terminated)]
    report = run_check(tmp_path, data, format)
    found = broken(report).get("forbidden_actions")
    assert (found is not None) == bool(expected)
    if found is not None:
        assert (found.verdict, places(found)) == ("fail", [("e9", row) for row in expected])
    batch = EpisodeBatch.of(data, ["obs", "actions", "terminateds"], has_last=True)
    if expected:
        with pytest.raises(SpaceError, match=r"forbidden_actions|outside"):
            check_spaces(batch, SPACE, THREE)
    else:
        check_spaces(batch, SPACE, THREE)
