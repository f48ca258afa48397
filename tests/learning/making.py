"""Episodes in memory, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from offline_core.learning.steps import Steps
from offline_core.prelearner.layout import IS_STEP, STARTS


def part(lengths: Sequence[int], *, first: int = 0, looks_ahead: bool = True) -> dict[str, np.ndarray]:
    """Episodes of these lengths; `obs` and `actions` count the rows, from `first`."""
    rows = [length + looks_ahead for length in lengths]
    starts, is_step = np.zeros(sum(rows), bool), np.ones(sum(rows), bool)
    starts[np.cumsum([0, *rows[:-1]])] = True
    if looks_ahead:
        is_step[np.cumsum(rows) - 1] = False
    count = np.arange(first, first + sum(rows))
    return {"obs": count.astype(np.float32)[:, None], "actions": count.copy(), STARTS: starts, IS_STEP: is_step}


def steps_of(columns: dict[str, np.ndarray], lengths: Sequence[int] | None = None, *, looks_ahead: bool = False) -> Steps:
    """`columns` cut into episodes of `lengths` (all one if not given)."""
    rows = len(next(iter(columns.values())))
    made = part([rows - looks_ahead] if lengths is None else lengths, looks_ahead=looks_ahead)
    return Steps.of({name: torch.from_numpy(array) for name, array in (made | columns).items()})
