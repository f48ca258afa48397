"""Reads datasets through Ray Data: lazily, in parallel, for everything larger than one process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import ray.data

from offline_core.storage.pieces import Piece, read_pieces


def ray_pieces(
    pieces: Sequence[Piece], names: Sequence[str], *, pieces_per_read: int = 1, timed: bool = False
) -> ray.data.Dataset:
    """The rows of these pieces with the columns `names`, read lazily, so many pieces a block, in this order.

    Arguments:
        timed: see `read_pieces`.
    """
    blocks = max(1, -(-len(pieces) // pieces_per_read))
    numbered = ray.data.range(len(pieces), override_num_blocks=blocks)
    numbered.context.target_max_block_size = None  # an episode of a table is not cut, however large a block becomes
    return numbered.map_batches(
        partial(_read, pieces=list(pieces), names=list(names), timed=timed), batch_size=None, batch_format="numpy", num_cpus=1
    )


def _read(numbers: dict[str, np.ndarray], *, pieces: list[Piece], names: list[str], timed: bool) -> pa.Table:
    return read_pieces([pieces[number] for number in numbers["id"]], names, timed=timed)
