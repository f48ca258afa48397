"""Steps as other people keep them: by the column names of the seeds, in any kind of file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.formats.sources.opening import open_source
from offline_core.data.formats.sources.readers import FileReader
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.report import ImportResult

SEEDS: dict[str, str | list[str]] = {
    "obs": "o_t",
    "actions": "a_t",
    "rewards": "r_t",
    "new_obs": "o_tp1",
    "dones": "d_t",
}
"""The mapping of the seed documents."""

OBSERVATIONS = np.arange(14, dtype=np.float32).reshape(7, 2)
"""Of the two episodes of `steps`: four of the first, three of the second."""


def format_of(path: str | Path) -> str:
    """The format that is recognised there."""
    reader = open_source([str(path)])[0]
    assert isinstance(reader, FileReader)
    return reader.format


def steps(**changes: Any) -> dict[str, Any]:
    """Five steps of two episodes: three steps of 'a', two of 'b'."""
    columns: dict[str, Any] = {
        "eps_id": ["a", "a", "a", "b", "b"],
        "t": [0, 1, 2, 0, 1],
        "o_t": OBSERVATIONS[[0, 1, 2, 4, 5]].tolist(),
        "a_t": [0, 1, 0, 1, 1],
        "r_t": [0.5, 1.0, 1.5, 2.0, 2.5],
        "o_tp1": OBSERVATIONS[[1, 2, 3, 5, 6]].tolist(),
        "d_t": [False, False, True, False, True],
    }
    return {name: values for name, values in (columns | changes).items() if values is not None}


def scalar_steps(**changes: Any) -> dict[str, Any]:
    """The same with one number a column, as CSV has them: o_t is x and y, o_tp1 x2 and y2."""
    flat = steps(
        o_t=None,
        o_tp1=None,
        x=OBSERVATIONS[[0, 1, 2, 4, 5], 0].tolist(),
        y=OBSERVATIONS[[0, 1, 2, 4, 5], 1].tolist(),
        x2=OBSERVATIONS[[1, 2, 3, 5, 6], 0].tolist(),
        y2=OBSERVATIONS[[1, 2, 3, 5, 6], 1].tolist(),
    )
    return {name: values for name, values in (flat | changes).items() if values is not None}


SCALARS = SEEDS | {"obs": ["x", "y"], "new_obs": ["x2", "y2"]}
"""The mapping of `scalar_steps`."""


def write_steps(path: Path, columns: dict[str, Any] | pa.Table, **parquet: Any) -> None:
    """A file of the kind its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path, **parquet)
        case ".csv":
            pl.from_arrow(table).write_csv(path)  # type: ignore[union-attr]
        case ".json" | ".jsonl" | ".ndjson":
            pl.from_arrow(table).write_ndjson(path)  # type: ignore[union-attr]
        case ".arrow" | ".feather":
            pyarrow.feather.write_feather(table, str(path), compression="uncompressed")
        case ".npz":
            np.savez(path, **{name: np.asarray(values) for name, values in table.to_pydict().items()})


def tables_of(reader: StepReader) -> list[pa.Table]:
    """All that a reader gives; what it cannot read is raised."""
    tables = []
    for batch in reader.batches():
        if isinstance(batch, Unreadable):
            raise batch.located_error
        tables.append(batch)
    return tables


def imported(folder: Path, source: str | list[str] | Path, /, **config: Any) -> ImportResult:
    """What `import_data` makes of `source`, below `folder`; by the seeds' mapping if none is given."""
    whole = ImportConfig.model_validate({"mapping": SEEDS} | config)
    return import_data(whole, source=str(source) if isinstance(source, Path) else source, output=str(folder / "imported"))


def imported_episodes(folder: Path, source: str | list[str] | Path, /, **config: Any) -> list[Episode]:
    """The episodes of `imported`, by their ids."""
    result = imported(folder, source, **config)
    return sorted(open_dataset(result.dataset.uri).episodes(), key=lambda episode: episode.eps_id)


def check_steps(found: list[Episode]) -> None:
    """They are those of `steps`."""
    assert [episode.eps_id for episode in found] == ["a", "b"]
    np.testing.assert_array_equal(np.concatenate([episode.observations for episode in found]), OBSERVATIONS)
    assert [episode.actions.tolist() for episode in found] == [[0, 1, 0], [1, 1]]
    assert [episode.rewards.tolist() for episode in found] == [[0.5, 1.0, 1.5], [2.0, 2.5]]
    assert [(episode.terminated, episode.truncated) for episode in found] == [(True, False)] * 2
