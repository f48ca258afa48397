"""The steps of a dataset as batches of tensors, for a training loop of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.config import DataConfig
from offline_core.learning.data_loader import DataLoader, make_data_loader
from offline_core.learning.shards import batches
from offline_core.learning.source import Recorded, is_streamed
from offline_core.learning.steps import Batch, BatchSpec, nested_as


@dataclass(frozen=True, slots=True)
class _Needs:
    """What the batches hold, as `ColumnNeeds`."""

    stored: tuple[str, ...]
    batch_columns: tuple[str, ...]
    needs_next_obs: bool


class TorchBatches:
    """Batches of steps as dicts of tensors (B, …): `for batch in batches` is an epoch, which has each step once.

    Each epoch has another order, which is a function of the seed and the epoch's number. Observations and actions of Dict and
    Tuple spaces are dicts and tuples of tensors. The data loader of trainings reads: data that takes up to 2 GiB stays in
    memory, and larger data is read again in each epoch, in windows that are shuffled. The last batch of an epoch, and of a
    window, may be smaller.

    Arguments:
        names: of the columns.
        seed: of the order.
        device: where the tensors are. Windows are moved there as wholes.
    """

    def __init__(self, dataset: Dataset, *, batch_size: int, names: Sequence[str], seed: int, device: str) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; it has to be 1 at least.")
        self.epoch = 0
        """Number of the next epoch; set it to go on where another process stopped."""
        self._batch_size, self._seed, self._device = batch_size, seed, torch.device(device)
        self._source, self._config, self._dataset = Recorded.of(dataset), DataConfig(), dataset
        stored = tuple(dict.fromkeys(columns.OBS if name == columns.NEW_OBS else name for name in names))
        self._needs = _Needs(stored, tuple(names), columns.NEW_OBS in names)
        self._loader: DataLoader | None = None

    def __iter__(self) -> Iterator[Batch]:
        """Return the batches of the next epoch.

        Raises:
            EmptyDatasetError: It has no steps.
            DataError: It cannot be read.
        """
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self._batches(epoch)

    def _batches(self, epoch: int) -> Iterator[Batch]:
        with self._dataset.reading():
            steps = self._dataset.ref.steps
            if self._loader is None:
                streamed = is_streamed(self._source, steps, self._config)
                self._loader = make_data_loader(
                    self._source, self._config, self._needs, expected_steps=steps, streamed=streamed, seed=self._seed
                )
            spec = BatchSpec(self._needs.batch_columns)
            for number, window in enumerate(self._loader.windows(epoch)):
                window.to(self._device)
                drawn = batches(window.rows, size=self._batch_size, seed=self._seed, epoch=epoch, window=number)
                for indices in drawn:
                    yield nested_as(window.batch(indices, spec), self._source.pipeline.spaces)
