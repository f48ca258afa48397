"""When a function is fitted well enough: held-out episodes say it, by which it has memorised nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from offline_core.judging.estimation.q_table import fitted_to
from offline_core.runtime.seeding import derive_seed

SHARE = 0.2
"""Share of the episodes by which functions are stopped."""
LEAST_HELD_OUT = 10
"""Held-out episodes of each function; with fewer, chance alone would choose among its weights."""
MOST_STEPS = 10_000
"""Held-out steps that are looked at, so that all looks together take less than a tenth of the time of the updates."""
LEAST_UPDATES_BETWEEN_LOOKS = 50
PATIENCE = 6
"""Looks without a lower loss after which a function is fitted."""


def held_out_of(together: np.ndarray, part: np.ndarray, *, seed: int) -> np.ndarray | None:
    """(E,) bool, a `SHARE` of the episodes by lot; None: some function would have fewer than `LEAST_HELD_OUT` of them.

    Arguments:
        together: (E,) int64; episodes with the same number are held out together.
        part: (E,) int64, the part of each episode; each function is fitted to the episodes of the other parts.
    """
    heads = np.unique(together)
    order = np.random.default_rng(derive_seed(seed, "fqe", "held out")).permutation(heads)
    held_out = np.isin(together, order[: round(SHARE * len(heads))])
    own = (fitted_to(part, number) & held_out for number in range(int(part.max()) + 1))
    return held_out if min(len(np.unique(together[mask])) for mask in own) >= LEAST_HELD_OUT else None


def look_after(update: int) -> int:
    """The update at which to look next after a look at this one: a tenth later, as a loss falls ever more slowly."""
    return update + max(LEAST_UPDATES_BETWEEN_LOOKS, update // 10)


class BestWeights:
    """The weights of functions that are fitted at once, each as it was when its loss on held-out steps was lowest.

    A function is fitted after `PATIENCE` looks without a lower loss, however long the others take: what it ends as does not
    depend on them.
    """

    def __init__(self, functions: Sequence[nn.Module]) -> None:
        self._functions = functions
        self._lowest = [np.inf for _ in functions]
        self._looks_since = [0 for _ in functions]
        self._weights: list[dict[str, Tensor]] = [{} for _ in functions]

    def look(self, losses: Sequence[float]) -> None:
        """Keep the weights of each function that is not fitted yet and has a lower loss than ever before."""
        for place, (function, loss) in enumerate(zip(self._functions, losses, strict=True)):
            if self._looks_since[place] >= PATIENCE:
                continue
            self._looks_since[place] += 1
            if loss < self._lowest[place]:
                self._lowest[place], self._looks_since[place] = loss, 0
                self._weights[place] = {name: tensor.clone() for name, tensor in function.state_dict().items()}

    @property
    def are_found(self) -> bool:
        """Whether all functions are fitted."""
        return min(self._looks_since) >= PATIENCE

    def restore(self) -> None:
        """Give each function its best weights."""
        for function, weights in zip(self._functions, self._weights, strict=True):
            function.load_state_dict(weights)
