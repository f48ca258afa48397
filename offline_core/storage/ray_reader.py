"""Reads datasets through Ray Data: lazily, in parallel, for everything larger than one process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import ray.data
import ray.exceptions

from offline_core.errors import OfflineError
from offline_core.storage.dataset import Dataset, read_footer
from offline_core.storage.pieces import Piece


def ray_pieces(pieces: Sequence[Piece], names: Sequence[str], *, pieces_per_read: int = 1) -> ray.data.Dataset:
    """The rows of these pieces with the columns `names`, read lazily, so many pieces a block, in this order."""
    blocks = max(1, -(-len(pieces) // pieces_per_read))
    numbered = ray.data.range(len(pieces), override_num_blocks=blocks)
    return numbered.map_batches(
        partial(_read, pieces=list(pieces), names=list(names)), batch_size=None, batch_format="numpy", num_cpus=1
    )


def _read(numbers: dict[str, np.ndarray], *, pieces: list[Piece], names: list[str]) -> pa.Table:
    return pa.concat_tables([pieces[number].read(names) for number in numbers["id"]])


@contextlib.contextmanager
def reading(dataset: Dataset) -> Iterator[None]:
    """Around whatever makes Ray read `dataset`: errors of ours come out as they were raised, damaged and missing files as
    errors that name the file.
    """
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, OfflineError):
            message, _, _ = str(error.cause).partition("\nFailed to ")  # Ray Data appends advice on retries
            raise type(error.cause)(message) from None
        _find_damage(dataset)
        raise
    except (pa.ArrowException, OSError):
        _find_damage(dataset)
        raise


def _find_damage(dataset: Dataset) -> None:
    for entry in dataset.manifest.files:
        read_footer(dataset.location.child(entry.path))
