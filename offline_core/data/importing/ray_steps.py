"""Read steps of any source as a lazy Ray Data dataset in canonical columns, without writing a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.opening import open_source
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.extras import check_alike
from offline_core.data.importing.preparation import Preparation
from offline_core.data.importing.report import Findings
from offline_core.data.importing.resolving import preparation_of
from offline_core.errors import ConfigError, EmptyDatasetError

if TYPE_CHECKING:
    import ray.data


def ray_steps(config: ImportConfig, *, source: str | Sequence[str]) -> ray.data.Dataset:
    """A dataset of one row a step: canonical columns, extras, and where each row comes from; needs Ray.

    Each file is read by a task of its own when it is its turn, a batch at a time; nothing is read before, but the first
    rows, which say what the columns are. Only `source`, `mapping`, `columns`, spaces and `recorded_action_range` are heeded.

    Raises:
        ConfigError: the parameters do not fit the source, or it holds episodes and not steps.
        DataError: the first rows cannot be read; others raise while the dataset is consumed.
        EmptyDatasetError: there are no rows.
    """
    import ray.data

    if config.columns.in_episode:
        raise ConfigError("columns.in_episode needs rows in order, and ray_steps gives them as they are stored: import them.")
    listing = Listing()
    readers = open_source([source] if isinstance(source, str) else list(source), config.pushed_down, listing)

    def rows_of(number: int, preparation: Preparation) -> Iterator[tuple[pa.Table, Preparation]]:
        findings = Findings("quarantine")
        for table, settled in preparation.of_readers({number: readers[number]}, findings):
            _raise_first(findings)
            check_alike(findings.extras, () if settled.types is None else settled.types.extras)
            yield table, settled
        _raise_first(findings)

    looked = (batch for number in range(len(readers)) for batch in rows_of(number, preparation_of(config, readers, listing)))
    if (first := next((batch for batch in looked if batch[0].num_rows), None)) is None:
        raise EmptyDatasetError(f"There are no rows at {source}.")
    looked.close()

    def rows(numbers: dict[str, np.ndarray]) -> Iterator[pa.Table]:
        for number in numbers["item"].tolist():
            yield from (table for table, _ in rows_of(number, first[1]))

    return ray.data.from_items(list(range(len(readers))), override_num_blocks=len(readers)).map_batches(rows, batch_size=1)


def _raise_first(findings: Findings) -> None:
    """Raise why the first rows that cannot be read cannot, with their place; an error on a whole file names it already."""
    for failure in findings.unreadable:
        raise failure.located_error if failure.rows else failure.error
