"""The version that an import is appended to: its episodes as the rows that they came from, and what the next append needs.

A stored episode is its source's rows as they are, unless it has a row in `CUTS`: then it goes by another id, began later,
ends where the source has no end, or rows around it could not be read. Rows that are in no episode, because it is incomplete,
are kept as they came. Both are files that `Imported` lists.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.datasets.copying import chosen_episodes
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import Episode, columns, episodes_to_table
from offline_core.data.episodes.arrow import empty_table, read_column, to_arrow
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.importing.config import EpisodesConfig
from offline_core.data.importing.episode_ids import SOURCE_FILE
from offline_core.data.importing.imported import SOURCE_ID, Imported, read_late, write_late
from offline_core.data.importing.losses import (
    FLAGS,
    LOSSES,
    LOST,
    LOST_AFTER,
    LOST_BEFORE,
    PASSED,
    THEN_LOST,
    over_lost,
    with_flags,
)
from offline_core.data.importing.report import Counts, Findings
from offline_core.data.importing.rows import STORED, SourceRows, same_rows
from offline_core.data.store.location import Location
from offline_core.errors import EpisodeError

IS_OPEN = "is_open"
CUTS = pa.schema(
    [
        pa.field(SOURCE_ID, pa.string(), nullable=False),
        pa.field(columns.EPS_ID, pa.string(), nullable=False),
        pa.field(columns.T, pa.int64(), nullable=False),
        pa.field(IS_OPEN, pa.bool_(), nullable=False),
        *(pa.field(name, pa.bool_(), nullable=False) for name in FLAGS),
    ]
)
"""The source's id; the stored episode's; the source's t of its first step (0: the first of an episode), if t numbers steps;
whether its end is the import's and not the source's; `FLAGS` of its first and last rows."""


@dataclass(frozen=True)
class Stored:
    """Picklable; reads episodes when they are asked for."""

    dataset: Dataset
    imported: Imported
    rules: EpisodesConfig
    places: pl.DataFrame
    """eps_id and the number of the row group of each episode, in the order of the data."""
    every: pl.DataFrame
    """`CUTS` of all episodes, those that are whole included."""
    waiting: frozenset[str]
    """Ids of the source with rows in no episode."""
    known: frozenset[str]
    """All ids of the source."""

    @classmethod
    def of(cls, dataset: Dataset, rules: EpisodesConfig) -> Stored:
        """Read the ids of all episodes, and no steps."""
        imported = Imported.of(dataset.manifest)
        assert imported is not None
        places = dataset.index([columns.EPS_ID, columns.ROW_GROUP])
        tables = [read_late(dataset.location, entry) for entry in imported.cuts]
        cuts = pl.DataFrame(pa.concat_tables([CUTS.empty_table(), *tables]))
        waiting = {
            name
            for entry in imported.left_out
            for name in pc.unique(read_late(dataset.location, entry, [columns.EPS_ID])[columns.EPS_ID]).to_pylist()
        }
        names = places.filter(~pl.col(columns.EPS_ID).is_in(cuts[columns.EPS_ID].implode()))[columns.EPS_ID]
        whole = pl.DataFrame({SOURCE_ID: names, columns.EPS_ID: names}).with_columns(
            pl.lit(0, pl.Int64).alias(columns.T), **{name: pl.lit(False) for name in (IS_OPEN, *FLAGS)}
        )
        every = pl.concat([cuts, whole])
        return cls(dataset, imported, rules, places, every, frozenset(waiting), frozenset(every[SOURCE_ID]) | waiting)

    def parts(self, ids: Collection[str]) -> pl.DataFrame:
        """`CUTS` of the stored episodes that hold steps of these ids of the source."""
        return self.every.filter(pl.col(SOURCE_ID).is_in(ids))

    def episodes(self, names: Collection[str]) -> list[Episode]:
        """The stored episodes of these names."""
        return [episode for batch in chosen_episodes(self.dataset, self.places, names) for episode in batch]

    def rows(self, ids: Collection[str]) -> pa.Table:
        """All rows of these source ids, in episodes or left out: canonical columns, with `LOSSES`, of the file `STORED`."""
        schema = self.imported.row_schema
        parts = {part[columns.EPS_ID]: part for part in self.parts(ids).iter_rows(named=True)}
        is_timed = self.imported.order == "time"
        tables = [
            _rows_of(episode, parts[episode.eps_id], self.rules, schema, is_timed=is_timed) for episode in self.episodes(parts)
        ]
        if not self.waiting.isdisjoint(ids):
            wanted = pa.array(list(ids), pa.string())
            for entry in self.imported.left_out:
                rows = read_late(self.dataset.location, entry)
                rows = rows.filter(pc.is_in(rows[columns.EPS_ID], wanted))
                tables.append(with_flags(rows.select(schema.names).cast(schema), [rows[name] for name in FLAGS]))
        none = [pa.array([], pa.bool_())] * len(FLAGS)
        table = pa.concat_tables([with_flags(empty_table(schema), none), *tables])
        table = table.append_column(SOURCE_FILE, pa.array(np.full(table.num_rows, STORED, np.int32)))
        return table.append_column(SOURCE_ROW, pa.array(np.arange(table.num_rows, dtype=np.int64)))

    def without_known(
        self, episodes: Sequence[Episode], counts: Counts, findings: Findings, uri: str
    ) -> tuple[list[Episode], Counts]:
        """(the episodes that this version lacks, their counts), for steps that have no t of their own.

        An equal episode of the same id is a duplicate. A different one is refused, as its steps cannot be merged.

        Arguments:
            uri: of the source, for messages.
        """
        names = {episode.eps_id for episode in episodes} & self.known
        stored = {episode.eps_id: episode for episode in self.episodes(names)}
        new: list[Episode] = []
        for episode in episodes:
            before = stored.get(episode.eps_id)
            if before is None:
                new.append(episode)
                continue
            counts.repeated_last_obs -= min(1, counts.repeated_last_obs)
            declared = min(int(episode.terminated), counts.declared_ends)
            counts.declared_ends -= declared
            terminations = int(episode.terminated) - declared
            counts.terminations -= terminations
            counts.lone_rows -= min(1, counts.lone_rows)
            if before == episode:
                counts.duplicates += len(episode)
                findings.late.unchanged.add(episode.eps_id)
                continue
            counts.rows -= len(episode)
            error = EpisodeError(
                f"Episode {episode.eps_id} has {len(episode):,} steps here and other ones in {self.dataset.ref.uri} version "
                f"{self.dataset.manifest.version}. Only rows with an id and a t, or a time, can be merged with those of "
                "earlier imports: map columns to eps_id and t, and import all again into another dataset."
            )
            findings.refuse(Unreadable(uri, None, len(episode), error, terminations))
        return new, counts


class Joined(NamedTuple):
    """Rows of some ids, each step once unless new rows contradict each other."""

    rows: pa.Table
    """New rows, and stored ones; those of ids of which nothing is new are in neither."""
    known: int = 0
    """New rows left out, as stored ones say the same."""
    stored: pl.DataFrame = pl.DataFrame(schema={columns.EPS_ID: pl.String, "kept": pl.Boolean, "gives_way": pl.Boolean})
    """A line a stored row: its id, and whether it is in `rows`, or gave way to a new one with other values."""
    unchanged: frozenset[str] = frozenset()
    """Ids of which no row is new, and nothing new is lost beside them."""
    grown: frozenset[str] = frozenset()
    """Ids with a row that is new, or has other values now."""


def with_stored(new: pa.Table, stored: pa.Table, read_before: Sequence[int]) -> Joined:
    """Merge new rows with stored ones. Where they differ, the new row wins; new rows that equal stored ones are left out.

    Arguments:
        new, stored: rows in the same columns, with `SOURCE_FILE`, `SOURCE_ROW` and `LOSSES`; no two stored rows are of the
            same step.
        read_before: numbers of the files that were read before: these say now what was lost around a row that is in both.
            Other files say what else was.
    """
    lines, old = (_places(table).with_row_index("line") for table in (new, stored))
    pairs = lines.join(old, on=[columns.EPS_ID, columns.T], how="inner", suffix="_old").select("line", "line_old")
    compared = [name for name in new.column_names if name not in {columns.EPS_ID, columns.T, SOURCE_FILE, SOURCE_ROW, *LOSSES}]
    both = (new.take(pairs["line"].to_arrow()), stored.take(pairs["line_old"].to_arrow()))
    pairs = pairs.with_columns(same=pl.Series(same_rows(*(table.select(compared) for table in both))))
    before = stored
    new, stored = _with_common_losses(new, stored, pairs, read_before)
    lost = np.any([stored[name].to_numpy() != before[name].to_numpy() for name in FLAGS], axis=0)
    gives_way = pl.col("line").is_in(pairs.filter(~pl.col("same"))["line_old"].implode())
    old = old.with_columns(gives_way=gives_way)
    kept_places = pairs.filter(~pl.col("line_old").is_in(old.filter("gives_way")["line"].implode()))
    lines = lines.with_columns(is_known=pl.col("line").is_in(kept_places["line"].implode()))
    grown = frozenset(lines.filter(~pl.col("is_known"))[columns.EPS_ID])
    changed = {*grown, *old.filter(pl.Series(lost))[columns.EPS_ID]}
    unchanged = set(old[columns.EPS_ID].to_list()) - changed
    old = old.with_columns(kept=~pl.col("gives_way") & ~pl.col(columns.EPS_ID).is_in(list(unchanged)))
    rest = new.filter(lines["is_known"].not_().to_arrow())
    left = stored.filter(old["kept"].to_arrow()).select(rest.column_names).cast(rest.schema)
    return Joined(pa.concat_tables([left, rest]), int(lines["is_known"].sum()), old, frozenset(unchanged), grown)


def _places(table: pa.Table) -> pl.DataFrame:
    t = read_column(table, columns.T)
    assert isinstance(t, np.ndarray)
    return pl.DataFrame({columns.EPS_ID: pl.Series(table[columns.EPS_ID].combine_chunks()), columns.T: t.reshape(len(t))})


def _with_common_losses(
    new: pa.Table, stored: pa.Table, pairs: pl.DataFrame, read_before: Sequence[int]
) -> tuple[pa.Table, pa.Table]:
    """Both, with what is known of the losses around rows that are in both.

    Arguments:
        pairs: `line` of a new row, `line_old` of the stored one, and whether they are the `same`.
    """
    is_again = np.isin(new[SOURCE_FILE].to_numpy(), read_before)[pairs["line"].to_numpy()]
    told = pairs.filter(pl.Series(is_again) & pl.col("same"))
    other = pairs.filter(pl.Series(~is_again))
    for name in FLAGS:
        of_new, of_stored = (table[name].to_numpy().copy() for table in (new, stored))
        both = of_new[other["line"]] | of_stored[other["line_old"]]
        of_stored[told["line_old"]] = of_new[told["line"]]
        of_new[other["line"]] = of_stored[other["line_old"]] = both
        new, stored = (_with(table, name, pa.array(flag)) for table, flag in ((new, of_new), (stored, of_stored)))
    for name in (PASSED, LOST):
        now = pl.Series(new[name]).gather(told["line"])
        known = pl.DataFrame({"line": told["line_old"], "now": now}).unique("line")
        before = pl.DataFrame({name: pl.Series(stored[name])}).with_row_index("line")
        column = before.join(known, on="line", how="left", maintain_order="left").select(pl.coalesce("now", name)).to_series()
        stored = _with(stored, name, column.to_arrow())
    return new, stored


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


@dataclass
class Remainder:
    """What imported steps leave besides episodes, so that an append can put these together again."""

    schema: pa.Schema
    """The schema of rows in canonical columns."""
    first_t: int | None = None
    """The offset that was subtracted from t; None if t holds times."""
    cuts: list[pa.Table] = field(default_factory=list)
    left_out: list[pa.Table] = field(default_factory=list)

    def add(self, rows: SourceRows | None) -> pl.DataFrame:
        """Takes note of rows that were assembled; returns `CUTS` of their parts, and whether these are kept."""
        if rows is None:
            return pl.DataFrame(CUTS.empty_table()).with_columns(kept=pl.lit(True))
        assert rows.ids is not None
        ids, steps = pl.Series(rows.ids), rows.steps.with_columns(pl.col(LOST_BEFORE) | over_lost(rows.steps))
        last = steps.filter("last")
        t = pl.col("t") if self.first_t is not None else pl.lit(0, pl.Int64)
        parts = steps.filter("starts").select(
            pl.lit(ids).gather(pl.col("id")).alias(SOURCE_ID), pl.col("name").alias(columns.EPS_ID), t.alias(columns.T), "kept"
        )
        # A part that lost its last step ends where the source did not end it.
        parts = parts.insert_column(3, (last["is_open"] | ~last["kept"]).alias(IS_OPEN))
        parts = parts.with_columns(steps.filter("starts")[LOST_BEFORE], *(last[name] for name in (LOST_AFTER, THEN_LOST)))
        changed = (pl.col(SOURCE_ID) != pl.col(columns.EPS_ID)) | (pl.col(columns.T) != 0)
        changed |= pl.any_horizontal(IS_OPEN, *FLAGS)
        own = parts.filter(changed & pl.col("kept")).select(CUTS.names)
        self.cuts.append(own.to_arrow().cast(CUTS))
        if not steps["kept"].all():
            self.left_out.append(self._rows(rows.with_steps(steps.filter(~pl.col("kept")))))
        return parts

    def write(self, root: Location, name: str, findings: Findings) -> None:
        """Write files of cuts and of rows left out below `root`, which the findings list."""
        for what, tables, files in (("cuts", self.cuts, findings.cuts), ("rows", self.left_out, findings.left_out)):
            if any(table.num_rows for table in tables):
                files.append(write_late(root, f"{what}-{name}", pa.concat_tables(tables)))

    def _rows(self, rows: SourceRows) -> pa.Table:
        """Steps as canonical rows."""
        assert rows.ids is not None
        names = pa.array(rows.ids).take(rows.steps["id"].to_arrow())
        t = (rows.steps["t"] if self.first_t is None else rows.steps["t"] + self.first_t).to_numpy()
        terminated, truncated = (rows.steps[f"source_{name}"].to_numpy() for name in ("terminated", "truncated"))
        left = canonical(rows.taken(), self.schema, names, t, terminated, truncated)
        for name in FLAGS:
            left = left.append_column(name, rows.steps[name].to_arrow())
        return left


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
        values = table[field.name]
        return values if values.type == field.type else values.cast(field.type)

    return pa.Table.from_arrays([column(field) for field in schema], schema=schema)


def _rows_of(episode: Episode, part: dict[str, Any], rules: EpisodesConfig, schema: pa.Schema, *, is_timed: bool) -> pa.Table:
    """A stored episode as its rows in the source.

    Arguments:
        part: its row of `CUTS`.
    """
    table = episodes_to_table([episode])
    count = len(episode)
    times = episode.extras[columns.TIME] if is_timed else rules.first_t + part[columns.T] + np.arange(count)
    terminated, truncated, *flags = np.zeros((2 + len(FLAGS), count), bool)
    if not part[IS_OPEN]:
        terminated[-1], truncated[-1] = episode.terminated, episode.truncated
    for name, flag in zip(FLAGS, flags, strict=True):
        flag[0 if name == LOST_BEFORE else -1] = part[name]
    assert isinstance(times, np.ndarray)
    ids = pa.array([part[SOURCE_ID]] * count, pa.string())
    rows = canonical(table, schema, ids, times, terminated, truncated)
    return with_flags(rows, [pa.array(flag) for flag in flags])
