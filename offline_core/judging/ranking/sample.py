"""Whole episodes drawn by lot, in two parts: what is fitted to one judges the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.quality.steps import StepBatch, step_batches
from offline_core.errors import EmptyDatasetError, SchemaError
from offline_core.judging.ranking.config import OutlierConfig
from offline_core.judging.ranking.steps import StepNumbers, next_observations, numbers_of
from offline_core.runtime.progress import progress
from offline_core.runtime.seeding import derive_seed

PARTS = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """The steps of the episodes that are fitted to; of each part, models are fitted to the other."""

    batch: EpisodeBatch
    """Observations and actions as they are stored."""
    numbers: StepNumbers
    following: np.ndarray
    """(N, …) float64, see `next_observations`."""
    part: np.ndarray
    """(N,) the part of each step."""
    part_by_episode: np.ndarray
    """(E,) int64, the part of each episode of the dataset."""

    @classmethod
    def draw(cls, dataset: Dataset, config: OutlierConfig) -> Sample:
        """Put all episodes into parts of equal size by lot, and read as many as have about `max_steps` steps.

        Raises:
            EmptyDatasetError: No episode with a step was drawn.
            SchemaError: The episodes do not have the same columns.
        """
        rng = np.random.default_rng(derive_seed(config.seed, "outliers", "parts"))
        part_by_episode = np.arange(dataset.ref.episodes) % PARTS
        rng.shuffle(part_by_episode)
        seen = rng.random(len(part_by_episode)) < config.max_steps / max(1, dataset.ref.steps)
        batches, numbers, following, part = [], [], [], []
        for episodes, batch, step_numbers in numbered(dataset, what="sample"):
            chosen = seen[episodes] & (batch.lengths > 0)
            if not chosen.any():
                continue
            rows = chosen[batch.episode]
            modelled = EpisodeBatch(columns=batch.leaves(columns.OBS, columns.ACTIONS), offsets=batch.offsets)
            batches.append(modelled.select(chosen))
            numbers.append(step_numbers.values[rows])
            following.append(next_observations(batch)[rows])
            part.append(part_by_episode[episodes][batch.episode][rows])
        if not batches:
            uri = dataset.location.uri
            raise EmptyDatasetError(f"{uri} holds no steps to compare.", uri=uri)
        joined = EpisodeBatch.concatenate(batches)
        return cls(
            joined,
            StepNumbers(step_numbers.names, step_numbers.columns, np.concatenate(numbers)),
            np.concatenate(following),
            np.concatenate(part),
            part_by_episode,
        )

    def outside(self, part: int) -> np.ndarray:
        """The steps of all other parts than this one; all steps where there are no others."""
        others = np.flatnonzero(self.part != part)
        return others if len(others) else np.arange(len(self.part))


def numbered(dataset: Dataset, *, what: str) -> Iterator[tuple[np.ndarray, StepBatch, StepNumbers]]:
    """Yield batches of a dataset in its order: (indices of the episodes, their steps, the numbers of the steps).

    Raises:
        SchemaError: The episodes do not have the same columns.
    """
    begin, names = 0, None
    with progress(dataset.ref.steps or None, what=what, unit="step") as bar:
        for batch in step_batches(dataset):
            numbers = numbers_of(batch, dataset.manifest.input_columns)
            names = names or numbers.names
            if differing := sorted({*names} ^ {*numbers.names}):
                raise SchemaError(
                    f"{batch.dataset}: the episodes do not all have {differing[0]!r}, as from episode {batch.eps_ids[0]} on, "
                    "so they cannot be compared. 'offline check' says which ones differ; keep one kind by pruning."
                )
            yield np.arange(begin, begin + batch.num_episodes), batch, numbers
            begin += batch.num_episodes
            bar.update(len(batch))
