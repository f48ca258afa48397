"""Canonical shards: each learner reads its own episodes, and all together make the global batches that one would make.

A window of an epoch is a line: its row groups one after the other, equally long, each episode where its first step is among
the steps of its row group. The line is cut into equal parts, the shards, and each learner owns neighbours of them. Nothing
depends on the number of learners but who owns what (as in MosaicML Streaming's elastic determinism). Data without row groups
is one row group a window, which all learners read and of which each keeps its shards.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offline_core.errors import ConfigError
from offline_core.runtime.seeding import derive_seed

SHARDS, SHARDS_OF_SMALL_DATA = 64, 8
SMALL_DATA_STEPS = 65_536
WINDOWS_DIVIDE_BY = 8
"""Windows of more row groups are multiples of this, so that 2, 4 and 8 learners have none in common."""
STAND_IN = -1
"""Shard of an episode that is not learned from: a learner without any computes its empty share on it."""
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Shards:
    """All shards of a window, and those of one learner."""

    number: int = 1
    rank: int = 0
    world: int = 1

    @classmethod
    def of(cls, steps: int, *, rank: int = 0, world: int = 1) -> Shards:
        """Return the shards of data of so many steps, as learner `rank` of `world` has them.

        Raises:
            ConfigError: There are fewer shards than learners.
        """
        number = SHARDS if steps >= SMALL_DATA_STEPS else SHARDS_OF_SMALL_DATA
        if world > number:
            raise ConfigError(f"{steps:,} steps are cut into {number} shards: set compute.learners to {number} at most.")
        return cls(number, rank, world)

    @property
    def own(self) -> range:
        """This learner's shards."""
        return range(self.rank * self.number // self.world, (self.rank + 1) * self.number // self.world)

    def of_episodes(self, lengths: np.ndarray, position: np.ndarray, row_groups: int) -> np.ndarray:
        """Return the shard (E,) int64 of each episode of a window.

        Arguments:
            lengths: (E,) in steps, all episodes of these row groups.
            position: (E,) rising, the position of the episode's row group in the window.
            row_groups: of the window, whichever learner reads them.
        """
        _, first, row_group = np.unique(position, return_index=True, return_inverse=True)
        begin = np.cumsum(lengths) - lengths
        steps = np.add.reduceat(lengths, first) if len(first) else lengths
        length = steps[row_group]
        at = position * length + begin - begin[first][row_group]
        return np.asarray(at * self.number // (row_groups * length))


@dataclass(frozen=True, eq=False)
class ReadingOrder:
    """The row groups of an epoch in the order they are read in, and in windows."""

    numbers: np.ndarray
    """(G,) int64, of the row groups in the dataset."""
    row_groups: int
    """Of a window; the last one may have fewer."""

    @classmethod
    def drawn(cls, seed: int, epoch: int, *, steps: int, row_groups: int, window_steps: int) -> ReadingOrder:
        """Return another order in each epoch, in windows of about `window_steps`."""
        order = np.random.default_rng(derive_seed(seed, "pieces", epoch)).permutation(row_groups)
        wanted = max(1.0, window_steps * row_groups / max(1, steps))
        if wanted < WINDOWS_DIVIDE_BY:
            return cls(order, 2 ** round(np.log2(wanted)))
        return cls(order, WINDOWS_DIVIDE_BY * round(wanted / WINDOWS_DIVIDE_BY))

    @classmethod
    def stored(cls, row_groups: int, share: float = 1.0) -> ReadingOrder:
        """Return the order of the dataset, all of it, or evenly spread a share of its row groups, as one window."""
        count = max(1, int(share * row_groups))
        numbers = ((np.arange(count) + 0.5) * row_groups / count).astype(int)  # the middle one of each part
        return cls(numbers if share < 1 else np.arange(row_groups), max(1, row_groups))

    @property
    def windows(self) -> int:
        """Number of windows."""
        return -(-len(self.numbers) // self.row_groups)

    def read_by(self, shards: Shards, first: int = 0) -> list[int]:
        """Return the numbers of the row groups with episodes of a learner's shards, from window `first` on."""
        at = np.arange(first * self.row_groups, len(self.numbers))
        window, position = np.divmod(at, self.row_groups)
        row_groups = np.minimum(self.row_groups, len(self.numbers) - window * self.row_groups)
        begins, ends = position * shards.number // row_groups, ((position + 1) * shards.number - 1) // row_groups
        wanted = (begins < shards.own.stop) & (ends >= shards.own.start)
        return self.numbers[at[wanted]].tolist()  # type: ignore[no-any-return]

    def positions_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (window, position in the window) of row groups, (E,) each."""
        return np.divmod(self._position[numbers], self.row_groups)

    @functools.cached_property
    def _position(self) -> np.ndarray:
        position = np.zeros(1 + max(self.numbers, default=-1), np.int64)
        position[self.numbers] = np.arange(len(self.numbers))
        return position

    def in_window(self, window: int) -> int:
        """Return how many row groups a window has."""
        return min(self.row_groups, len(self.numbers) - window * self.row_groups)


def batches(
    indices: Tensor,
    shards: Tensor | None = None,
    counts: Tensor | None = None,
    *,
    size: int,
    seed: int,
    epoch: int,
    window: int,
    replacement: bool = False,
) -> tuple[Tensor, ...]:
    """Return this learner's sample indices of each global batch of a window; a function of the arguments alone.

    Every batch takes its share of every shard: element j of m in shard s is at (j + u) / m of the window, where u is a
    fraction of the shard's own. All elements in this order are cut into batches of `size`, the last one shorter.

    Arguments:
        indices: (U,) int64 of this learner.
        shards: (U,) int64 rising, the shard of each; None: there is one.
        counts: (S,) int64, how many sample indices the shards have, of all learners; None: this one has all.
        replacement: draw as many as there are, each anew from all of its shard.
    """
    own = np.zeros(len(indices), np.int64) if shards is None else shards.cpu().numpy()
    sizes = np.bincount(own, minlength=1) if counts is None else counts.cpu().numpy()
    order = _order(tuple(sizes.tolist()))
    begin = int(sizes[: own[0]].sum()) if len(own) else 0
    at = np.flatnonzero((order >= begin) & (order < begin + len(own))) if len(own) < len(order) else np.arange(len(order))
    counted = np.bincount(own, minlength=len(sizes))
    shuffled = np.concatenate(
        [
            first + _shuffled(count, derive_seed(seed, "epoch", epoch, window, shard), replacement=replacement)
            for shard, (first, count) in enumerate(zip(np.cumsum(counted) - counted, counted.tolist(), strict=True))
            if count
        ]
        or [np.zeros(0, np.int64)]
    )
    chosen = indices[torch.from_numpy(shuffled[order[at] - begin]).to(indices.device)]
    cuts = np.searchsorted(at, np.arange(size, len(order), size))
    return torch.tensor_split(chosen, cuts.tolist()) if len(order) else ()


def _shuffled(count: int, seed: int, *, replacement: bool) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    if replacement:
        return torch.randint(count, (count,), generator=generator).numpy()
    return torch.randperm(count, generator=generator).numpy()


@functools.lru_cache(maxsize=1)
def _order(sizes: tuple[int, ...]) -> np.ndarray:
    """Return (M,) the elements of all shards, numbered one shard after the other, in the order of their positions."""
    fractions = _GOLDEN * (np.arange(len(sizes)) + 0.5) % 1
    positions = [(np.arange(count) + fraction) / count for count, fraction in zip(sizes, fractions, strict=True) if count]
    order = np.argsort(np.concatenate([*positions, np.zeros(0)]), kind="stable")
    return order.astype(np.int32 if len(order) < 2**31 else np.int64)
