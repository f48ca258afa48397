"""What an import cut and left out, so that an append can put episodes together again.

A stored episode is its source's rows as they are, unless it has a row in `CUTS`: then it goes by another id, began later, or
was truncated by the import. Rows that are in no episode, because it is incomplete, are kept as they came.
Both are files of `late_files`, which the manifest lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.importing.late_files import SOURCE_ID, write_late
from offline_core.data.importing.ordering import SourceRows
from offline_core.data.store.location import Location

IS_OPEN = "is_open"
CUTS = pa.schema(
    [
        pa.field(SOURCE_ID, pa.string(), nullable=False),
        pa.field(columns.EPS_ID, pa.string(), nullable=False),
        pa.field(columns.T, pa.int64(), nullable=False),
        pa.field(IS_OPEN, pa.bool_(), nullable=False),
    ]
)
"""The source's id; the stored episode's; the source's t of its first step (0: the first of an episode), if t numbers steps;
whether its truncation is the import's and not the source's."""


@dataclass
class Remainder:
    """What imported steps leave besides episodes."""

    schema: pa.Schema
    """Of rows in canonical columns."""
    first_t: int | None = None
    """What was taken from t; None if it holds times."""
    cuts: list[pa.Table] = field(default_factory=list)
    left_out: list[pa.Table] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    """Those of the source of which rows could be put in order."""

    def add(
        self, steps: SourceRows, first: np.ndarray, last: np.ndarray, is_open: np.ndarray, ids: Sequence[str], kept: np.ndarray
    ) -> None:
        """Takes note of steps in order.

        Arguments:
            steps: as their source says, with its flags and t.
            first, last: (P,) steps of each part.
            is_open: (P,) bool: no flag of the source is at its last step.
            ids: P of the stored episodes.
            kept: (N,) bool, the step is in an episode.
        """
        assert steps.ids is not None
        sources = [steps.ids[group] for group in steps.group[first]]
        self.ids.update(sources)
        t = np.zeros(len(first), np.int64) if self.first_t is None else steps.t[first]
        open_now = is_open | ~kept[last]  # a part that lost its last step ends where the source did not end it
        renamed = np.array([one != other for one, other in zip(sources, ids, strict=True)], bool)
        marked = (renamed | (t != 0) | open_now) & kept[first]
        columns_of = (sources, list(ids), t, open_now)
        table = pa.Table.from_arrays(
            [pa.array(values, kind.type) for values, kind in zip(columns_of, CUTS, strict=True)], schema=CUTS
        )
        self.cuts.append(table.filter(pa.array(marked)))
        if not kept.all():
            self.left_out.append(self.rows(steps.take(np.flatnonzero(~kept))))

    def rows(self, steps: SourceRows) -> pa.Table:
        """Steps as canonical rows."""
        assert steps.ids is not None
        names = pa.array(steps.ids).take(pa.array(steps.group))
        t = steps.t if self.first_t is None else steps.t + self.first_t
        return canonical(steps.table, self.schema, names, t, steps.terminated, steps.truncated)

    def written(self, root: Location, name: str) -> tuple[list[FileEntry], list[FileEntry]]:
        """(files of cuts, files of rows left out) below `root`."""
        cuts, left_out = ([table for table in tables if table.num_rows] for tables in (self.cuts, self.left_out))
        found = []
        for what, tables in (("cuts", cuts), ("rows", left_out)):
            found.append([write_late(root, f"{what}-{name}", pa.concat_tables(tables))] if tables else [])
        return found[0], found[1]


def sources_of(episodes: Sequence[Episode], cuts: Sequence[pa.Table]) -> list[str]:
    """The ids of the source of new episodes."""
    renamed = {
        eps_id: source for table in cuts for source, eps_id in zip(table[0].to_pylist(), table[1].to_pylist(), strict=True)
    }
    return [renamed.get(episode.eps_id, episode.eps_id) for episode in episodes]


def canonical(
    table: pa.Table, schema: pa.Schema, ids: pa.Array, t: np.ndarray, terminated: np.ndarray, truncated: np.ndarray
) -> pa.Table:
    """A table of `schema`, with these ids, times and ends.

    A truncation is a termination where the source has one flag for both; columns that are in no row are null.
    """
    names = schema.names
    if columns.TRUNCATEDS not in names:
        terminated = terminated | truncated
    own = {columns.EPS_ID: ids, columns.TERMINATEDS: pa.array(terminated), columns.TRUNCATEDS: pa.array(truncated)}
    if columns.T in names:
        kind = schema.field(columns.T).type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        own[columns.T] = pa.array(t, kind) if is_number else to_arrow(t[:, np.newaxis], columns.T)
    there = set(table.column_names)

    def column(field: pa.Field) -> pa.Array | pa.ChunkedArray:
        if field.name in own:
            return own[field.name]
        if field.name not in there:
            return pa.nulls(table.num_rows, field.type)
        found = table[field.name]
        return found if found.type == field.type else found.cast(field.type)

    return pa.Table.from_arrays([column(field) for field in schema], schema=schema)
