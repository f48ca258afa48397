"""A dataset with nothing wrong, and ways to write one that has."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from gymnasium import spaces

from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.manifest import FileEntry, Operation
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes import Episode, episodes_to_table
from offline_core.data.episodes.codecs import Format
from offline_core.data.quality.check import check
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import Finding, QualityReport
from tests.data.datasets.factories import write_dataset

OBSERVATIONS = spaces.Box(-5, 5, (3,), np.float32)
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)


def episode(number: int, **changes: Any) -> Episode:
    """5 + number steps, values inside their spaces; every second one is truncated, the others terminate."""
    rng = np.random.default_rng(number)
    steps = 5 + number
    whole: dict[str, Any] = {
        "eps_id": f"episode-{number}",
        "observations": rng.uniform(-4, 4, (steps + 1, 3)).astype(np.float32),
        "actions": rng.uniform(-0.9, 0.9, (steps, 2)).astype(np.float32),
        "rewards": rng.uniform(0, 1, steps),
        "extras": {"action_logp": np.full(steps, -np.inf)},
        "terminated": number % 2 == 0,
        "truncated": number % 2 == 1,
        "observation_space": OBSERVATIONS,
        "action_space": ACTIONS,
    }
    return Episode(**whole | changes)


def clean(count: int = 20) -> list[Episode]:
    return [episode(i) for i in range(count)]


def steps_of(episodes: Sequence[Episode]) -> int:
    return sum(len(e) for e in episodes)


def changed(array: Any, at: Any, value: Any) -> np.ndarray:
    """A copy with other values at some places."""
    copy = np.array(array)
    copy[at] = value
    return copy


def column(table: pa.Table, name: str, values: pa.Array | np.ndarray) -> pa.Table:
    """The table with other values in a column."""
    number = table.column_names.index(name)
    array = pa.array(values) if isinstance(values, np.ndarray) else values
    return table.set_column(number, pa.field(name, array.type, nullable=False), array)


def commit_tables(folder: Path, *tables: pa.Table, row_group_size: int | None = None) -> Dataset:
    """Step tables, one a file, as a version, whatever is in them."""
    prepare_dataset(str(folder))
    files = []
    for number, table in enumerate(tables):
        path = folder / f"part-{number}.parquet"
        pq.write_table(table, path, row_group_size=row_group_size)
        data = path.read_bytes()
        entry = {"path": path.name, "rows": table.num_rows, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        files.append(FileEntry(episodes=0, steps=table.num_rows, **entry))
    return commit(str(folder), files, format="table", operation=Operation(name="test"), statistics=Statistics())


def run_check(folder: Path, data: Sequence[Episode] | pa.Table, format: Format = "episodes", **config: Any) -> QualityReport:
    """The report on a dataset of these episodes, or of these rows."""
    if isinstance(data, pa.Table):
        commit_tables(folder, data)
    else:
        write_dataset(folder, data, format, max_rows_per_file=100)
    return check(QualityConfig(**config), dataset=str(folder))


def broken(report: QualityReport) -> dict[str, Finding]:
    """What did not pass."""
    return {finding.rule: finding for finding in report.findings if finding.verdict != "pass"}


def the_finding(report: QualityReport, rule: str) -> Finding:
    """The one finding that did not pass."""
    found = broken(report)
    assert list(found) == [rule], {name: finding.message for name, finding in found.items()}
    return found[rule]


def places(finding: Finding) -> list[tuple[str, int]]:
    return [(example.eps_id, example.t) for example in finding.examples]


def table_of(episodes: Sequence[Episode]) -> pa.Table:
    return episodes_to_table(episodes)
