"""What learners eat: every step of the dataset exactly once an epoch, in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from offline_core.errors import EmptyDatasetError
from offline_core.seeding import derive_seed

if TYPE_CHECKING:
    import ray.data

log = logging.getLogger(__name__)

FlatBatch = dict[str, Tensor]


class Feed(Protocol):
    """Global batches of one epoch after the other, whoever computes on them."""

    steps: int | None
    """Steps an epoch; None while a stream has not been through once."""

    def batches(self, epoch: int) -> Iterator[FlatBatch]:
        """Flat columns, (batch_size, …) each, the last batch of an epoch shorter."""


class ResidentFeed:
    """The whole dataset in memory; each epoch is one random permutation of all its steps.

    Memory: the columns once. Order: `torch.randperm` seeded by (seed, epoch), so resuming at any batch of any epoch needs
    nothing but those two numbers and an index.
    """

    def __init__(self, mapped: ray.data.Dataset, *, batch_size: int, seed: int, expected_steps: int | None) -> None:
        _keep_order(mapped)
        parts: dict[str, list[np.ndarray]] = {}
        with tqdm(total=expected_steps or None, desc="load", unit="step", disable=None) as bar:
            for batch in mapped.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=2):
                for name, array in batch.items():
                    parts.setdefault(name, []).append(array)
                bar.update(len(next(iter(batch.values()))))
        if not parts:
            raise EmptyDatasetError("The dataset holds no steps to learn from.")
        self.columns = {name: torch.from_numpy(np.concatenate(arrays)) for name, arrays in parts.items()}
        self.steps: int | None = len(next(iter(self.columns.values())))
        self.batch_size = batch_size
        self.seed = seed

    def batches(self, epoch: int) -> Iterator[FlatBatch]:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "epoch", epoch))
        order = torch.randperm(self.steps or 0, generator=generator)
        for indices in order.split(self.batch_size):
            yield {name: column.index_select(0, indices) for name, column in self.columns.items()}


class StreamingFeed:
    """Reads the dataset anew each epoch; batches are drawn at random from a window of steps that moves along.

    Memory: the window and what Ray prefetches. Order: a function of (seed, epoch), because reading keeps its order.
    """

    def __init__(self, mapped: ray.data.Dataset, *, batch_size: int, seed: int, window_steps: int) -> None:
        _keep_order(mapped)
        self.mapped = mapped
        self.batch_size = batch_size
        self.seed = seed
        self.window_steps = max(window_steps, batch_size)
        self.steps: int | None = None

    def batches(self, epoch: int) -> Iterator[FlatBatch]:
        steps = 0
        for batch in self.mapped.iter_batches(
            batch_size=self.batch_size,
            batch_format="numpy",
            prefetch_batches=2,
            local_shuffle_buffer_size=self.window_steps,
            local_shuffle_seed=derive_seed(self.seed, "epoch", epoch),
        ):
            steps += len(next(iter(batch.values())))
            yield {name: _tensor(array) for name, array in batch.items()}
        if steps == 0:
            raise EmptyDatasetError("The dataset holds no steps to learn from.")
        self.steps = steps


def _keep_order(mapped: ray.data.Dataset) -> None:
    """Blocks arrive in the order of the files and not in that of their completion."""
    mapped.context.execution_options.preserve_order = True


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())
