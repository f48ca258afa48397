"""Steps of a source → episodes on disk.

    read ─→ prepare ─→ scatter by episode ─→ gather, assemble, write

Nothing is scattered where each id is one run of rows, as loggers write them, nor where rows without an id lie in order, or are
few enough to be linked in memory.
What cannot be read is noted with its place, lest the rows around it be taken for neighbours.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.datasets.commit import discard
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.arrow import empty_table
from offline_core.data.formats.sources.fingerprint import files_of
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.ray_reads import RayRead
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.formats.sources.small_files import small_files
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable
from offline_core.data.importing import column_values as values
from offline_core.data.importing import extras
from offline_core.data.importing.action_range import infer_range, steps_of_table
from offline_core.data.importing.assembly import Assembled, assemble
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.conversion import LOCAL_TIMES, Types
from offline_core.data.importing.episode_ids import SOURCE_FILE, id_of_lost, unique_ids
from offline_core.data.importing.exchange import read_part, scatter
from offline_core.data.importing.imported import SOURCE_ID, Imported, remove_late
from offline_core.data.importing.losses import with_losses
from offline_core.data.importing.mapping import REQUIRED
from offline_core.data.importing.notes import yaml_line
from offline_core.data.importing.preparation import Preparation
from offline_core.data.importing.report import Counts, Findings, Late, Place
from offline_core.data.importing.seen_files import SeenFiles, uris_of
from offline_core.data.importing.step_order import (
    ends_of,
    ids_lie_in_runs,
    lies_in_order,
    order_by,
    order_of,
    pace_of,
    whole_ends,
)
from offline_core.data.importing.stored import (
    Joined,
    Remainder,
    Stored,
    with_stored,
)
from offline_core.data.importing.values import empty_arrays
from offline_core.data.importing.writing import WrittenEpisodes, write
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.runtime.engine import map_items
from offline_core.runtime.prefetch import Prefetched
from offline_core.runtime.progress import progress
from offline_core.runtime.units import count_text, list_text

PART_BYTES = 16 * 2**20
"""Size of the source's files for one part: what is in them takes many times that in memory."""
MAX_PARTS = 512
"""As many files are open at a time."""
MOST_FILES = 3
"""Named in a note."""
PARTS_PER_TASK = 8
"""They share files, which else would be as small as parts are."""
TASK_BYTES = 128 * 2**20
FILES_PER_TASK = 512
"""What a task reads: files of so many bytes, or so many files."""
RUN_BYTES = 16 * 2**20
"""Rows of whole runs that are put together at a time, in memory."""


@dataclass(frozen=True)
class StepImport:
    """What has to be known wherever a part of the work is done; all of it is settled by `of`."""

    readers: Sequence[StepReader]
    sizes: Sequence[int]
    """Bytes that each reader reads; 0 if it reads no files."""
    config: ImportConfig
    root: Location
    """The root of the dataset."""
    folder: Location
    """The folder for rows on their way to their part."""
    parts: int
    preparation: Preparation
    base: Stored | None = None
    """The version that is appended to."""
    order: str = ""
    """The order of rows, as of `order_of`; empty if there are no rows."""
    schema: pa.Schema = pa.schema([])  # noqa: RUF009
    """The schema of the rows in canonical columns."""
    notes: tuple[str, ...] = ()
    """What was inferred from the first rows and not declared."""

    @classmethod
    def of(
        cls,
        readers: Sequence[StepReader],
        config: ImportConfig,
        root: Location,
        folder: Location,
        listing: Listing,
        preparation: Preparation,
        base: Stored | None = None,
    ) -> StepImport:
        """Look at the first rows for columns, order and the range of actions; `base` says them where there is one.

        Raises:
            ConfigError: the parameters do not fit the source.
        """
        sizes = [sum(size for _, size, _ in files_of(reader, listing)) for reader in readers]
        parts = config.partitions or min(MAX_PARTS, max(1, -(-sum(sizes) // PART_BYTES)))
        if base is None:
            return cls(readers, sizes, config, root, folder, parts, preparation)._looked()
        schema = base.imported.row_schema
        preparation = replace(
            preparation,
            recorded_action_range=base.imported.action_range,
            types=Types(empty_arrays(empty_table(schema)), {}),
            within=(base.dataset.observation_space, base.dataset.action_space),
        )
        job = cls(readers, sizes, config, root, folder, parts, preparation, base, base.imported.order, schema)
        with contextlib.closing(job._prepared(range(len(readers)), Findings("quarantine"))) as tables:
            if (first := next(tables, None)) is not None:
                job = replace(job, preparation=first[1])
        return job

    def _looked(self) -> StepImport:
        """Return the same import, completed by what the first rows tell: columns, order and range of actions."""
        config, every, findings = self.config, range(len(self.readers)), Findings(self.config.unreadable)
        with contextlib.closing(self._prepared(every, findings)) as tables:  # or Ray's tasks would go on
            if (first := next(tables, None)) is None:
                _check_mapped(findings.unreadable, config)
                return self
            table, preparation = first
            notes: list[str | None] = []
            if config.recorded_action_range is None:
                rest = itertools.chain([table], (more for more, _ in tables))
                action_range, note = infer_range(map(steps_of_table, rest), preparation.spaces[1])
                preparation = replace(preparation, recorded_action_range=action_range)
                notes.append(note)
        schema = pa.schema([field for field in table.schema if field.name not in (SOURCE_FILE, SOURCE_ROW)])
        job = replace(self, preparation=preparation, schema=schema)
        notes += preparation.notes
        try:
            order = order_of(config.episodes, table)
            if config.episodes.time_zone is not None and preparation.types and preparation.types.clock == LOCAL_TIMES:
                raise ConfigError(
                    "The times in t have no offset, so they are local ones, whose days begin at their own midnight: leave "
                    "episodes.time_zone out."
                )
            if config.episodes.order == "auto" and order == "t":
                unique = functools.partial(unique_ids, rules=config.episodes, files=self._files)
                rows = (unique(table) for table, _ in job._prepared(every, Findings(config.unreadable)))
                order, note = order_by(pace_of(rows, first=unique(table)))
                notes.append(note)
        except ConfigError as error:
            raise ConfigError(" ".join([str(error), *preparation.notes])) from error
        if config.episodes.order == "auto" and order == "stored":
            notes += _notes_on_counters(table)
        job = replace(job, order=order, notes=tuple(note for note in notes if note is not None))
        return replace(job, order="stored") if job.may_link and order == "linked" else job

    @property
    def has_ids(self) -> bool:
        return columns.EPS_ID in self.schema.names

    @property
    def may_link(self) -> bool:
        """Rows that turn out not to lie in order are linked."""
        return self.config.episodes.order == "auto" and not self.has_ids and columns.NEW_OBS in self.schema.names

    @property
    def can_merge(self) -> bool:
        """Rows that come later have a place in a stored episode."""
        if not self.has_ids or columns.IS_LAST in self.schema.names:  # stored episodes have no such rows
            return False
        return self.order == "t" or (self.order == "time" and columns.TIME not in self.schema.names)

    @property
    def _files(self) -> list[str]:
        return [reader.uri for reader in self.readers]

    def run(self, findings: Findings) -> list[WrittenEpisodes]:
        """Write the episodes, by part. Notes, and what cannot be read, are added to `findings`."""
        findings.note(*self.notes)
        written = self._written(findings)
        findings.note(*extras.note_on(findings.extras))
        if findings.empty_files and self.config.source.where is None:
            names = list_text([self._files[number] for number in sorted(findings.empty_files)], MOST_FILES)
            findings.note(f"{len(findings.empty_files):,} of {count_text(len(self.readers), 'file')} gave no row: {names}.")
        findings.note(*self.preparation.made.notes(findings.without_partner))
        return written

    def imported(self, seen: SeenFiles, listing: Listing, findings: Findings) -> Imported:
        """Return what later appends to this import need to know."""
        files = [uris_of(reader, listing) for reader in self.readers]
        waiting = {uri for number in findings.waiting for uri in files[number]}
        imported = Imported(
            sources=seen.having_read({uri for uris in files for uri in uris}, waiting),
            joined=seen.joined,
            order=self.order,
            cuts=findings.cuts,
            left_out=findings.left_out,
            has_lost=bool(findings.places),
        )
        return imported.with_rows(self.without_extras(findings.extras).schema, self.preparation.recorded_action_range)

    def without_extras(self, names: Iterable[str]) -> StepImport:
        """Return the same import without these extra columns, which some rows lack."""
        dropped = {*names} - self.preparation.templates.keys()
        if not dropped:
            return self
        schema = pa.schema([field for field in self.schema if field.name not in dropped])
        return replace(self, preparation=self.preparation.without_extras(dropped), schema=schema)

    def _written(self, findings: Findings) -> list[WrittenEpisodes]:
        if not self.has_ids and self.order != "linked":
            return self._written_in_order([range(len(self.readers))], findings)
        if not self.has_ids or self.parts == 1:
            return [self._written_of(self._all_rows(findings), "part", findings)]
        groups = _groups(self.sizes)
        if ids_lie_in_runs(self.readers, self.sizes, groups, self.preparation.source_of(columns.EPS_ID)):
            return self._written_in_order(groups, findings)
        read_with = "local" if any(isinstance(reader, RayRead) for reader in self.readers) else self.config.engine
        with progress(len(groups), what="read", unit="part") as bar:
            for more in map_items(read_with, self._scatter, groups):
                findings += more
                bar.update(1)
        job, parts = self.without_extras(findings.extras), range(self.parts)
        shares = [parts[i : i + PARTS_PER_TASK] for i in range(0, len(parts), PARTS_PER_TASK)]
        written = []
        with progress(len(shares), what="write", unit="part") as bar:
            for part, more in map_items(self.config.engine, functools.partial(job._gather, findings.places), shares):
                written.append(part)
                findings += replace(more, places=[])
                bar.update(1)
        return written

    def assembled(self, findings: Findings) -> Iterator[tuple[list[Episode], Counts]]:
        """Build all episodes in this process, of rows that are all held in memory. Rows with ids are built all at once."""
        at_once = self.has_ids or self.order == "linked"
        rows = self._all_rows(findings) if at_once else [*self._in_order(range(len(self.readers)), findings)]
        job = self.without_extras(findings.extras)
        yield from (job._new(job._in_schema(table), order, findings) for table, order in rows)

    def _scatter(self, group: range) -> Findings:
        findings, ids_per_file = Findings(self.config.unreadable), self.config.episodes.ids_per == "file"
        tables = self._prepared_together(group, findings)
        scatter(tables, self.folder, f"{group.start:08d}", parts=self.parts, ids_per_file=ids_per_file)
        return findings

    def _gather(self, places: list[Place], parts: range) -> tuple[WrittenEpisodes, Findings]:
        findings = Findings(self.config.unreadable, places=places)
        tables = (read_part(self.folder, part) for part in parts)
        wanted = ((self._in_schema(table), self.order) for table in tables if table is not None)
        return self._written_of(wanted, f"part-{parts.start:05d}", findings), findings

    def _written_in_order(self, groups: Sequence[range], findings: Findings) -> list[WrittenEpisodes]:
        """Write rows that lie in order as they are read. If an extra column changes on the way, all are written again."""
        first = Findings(findings.rule)
        written = self._written_groups(groups, first)
        job = self.without_extras(first.extras)
        if job.schema != self.schema:
            discard(self.root, (file for part in written for file in part.files))
            remove_late(self.root, [*first.cuts, *first.left_out])
            first = Findings(findings.rule, extras=first.extras, notes=first.notes)
            written = job._written_groups(groups, first)
        findings += first
        return written

    def _written_groups(self, groups: Sequence[range], findings: Findings) -> list[WrittenEpisodes]:
        written = []
        with progress(len(groups), what="import", unit="part") as bar:
            for part, more in map_items(self.config.engine if self.has_ids else "local", self._written_group, groups):
                written.append(part)
                findings += more
                bar.update(1)
        return written

    def _written_group(self, which: range) -> tuple[WrittenEpisodes, Findings]:
        findings = Findings(self.config.unreadable)
        prefix = f"part-{which.start:05d}" if len(which) < len(self.readers) else "part"
        return self._written_of(Prefetched(self._in_order(which, findings)), prefix, findings), findings

    def _all_rows(self, findings: Findings) -> list[tuple[pa.Table, str]]:
        """All rows in one table, with their order; an empty list if there are no rows."""
        tables = list(self._prepared_together(range(len(self.readers)), findings))
        job = self.without_extras(findings.extras)
        return [(pa.concat_tables([job._in_schema(table) for table in tables]), self.order)] if tables else []

    def _in_schema(self, table: pa.Table) -> pa.Table:
        """Rows that were read before it was known which extra columns are left out."""
        return table.select([name for name in table.column_names if name in {SOURCE_FILE, SOURCE_ROW, *self.schema.names}])

    def _written_of(self, rows: Iterable[tuple[pa.Table, str]], prefix: str, findings: Findings) -> WrittenEpisodes:
        """Write the episodes of tables that each hold all rows of their episodes, and next to them the rows left over.

        Arguments:
            rows: tables, each with its order.
        """
        if not self.can_merge:
            return write(self.root, prefix, Prefetched(self._new(table, order, findings) for table, order in rows), self.config)
        schema = self.without_extras(findings.extras).schema
        remainder = Remainder(schema, self.config.episodes.first_t if self.order == "t" else None)
        episodes = Prefetched(self._merged(table, findings, remainder) for table, _ in rows)  # while those before are written
        written = write(self.root, prefix, episodes, self.config)
        remainder.write(self.root, prefix, findings)
        return written

    def _merged(self, table: pa.Table, findings: Findings, remainder: Remainder) -> tuple[list[Episode], Counts]:
        """Build episodes of new rows and of the stored rows of the same ids."""
        table = self._as_episodes(table, findings)
        if self.base is None:
            made = self._assembled(table, findings)
            remainder.add(made.rows)
            return made.episodes, made.counts
        late = self.base.known.intersection(pc.unique(table[columns.EPS_ID]).to_pylist())
        known = {file.uri for file in self.base.imported.sources}
        read_before = [number for number, uri in enumerate(self._files) if uri in known]
        joined = with_stored(table, self.base.rows(late), read_before) if late else Joined(table)
        counts = Counts(rows=joined.known, duplicates=joined.known)
        if not joined.rows.num_rows:
            findings.late += Late(unchanged={*joined.unchanged})
            return [], counts
        made = self._assembled(joined.rows, findings)
        parts = remainder.add(made.rows)
        again = {*parts[SOURCE_ID].to_list()} & late  # others were refused, and stay as they are
        before = joined.stored.filter(pl.col(columns.EPS_ID).is_in([*again]))
        corrected, stored = {*before.filter("gives_way")[columns.EPS_ID]}, int(before["kept"].sum())
        findings.late += Late(
            {*joined.unchanged},
            again & joined.grown - corrected,
            corrected,
            int(before["gives_way"].sum()),
            parts.filter(pl.col("kept") & pl.col(SOURCE_ID).is_in([*again])).height,
            again - corrected - joined.grown - joined.unchanged,
        )
        counts += made.counts
        return made.episodes, counts.model_copy(update={"rows": counts.rows - stored, "stored_rows": stored})

    def _new(self, table: pa.Table, order: str, findings: Findings) -> tuple[list[Episode], Counts]:
        """Build episodes of rows that cannot be merged with stored ones."""
        episodes, counts, _ = self._assembled(self._as_episodes(table, findings), findings, order=order)
        return (episodes, counts) if self.base is None else self.base.without_known(episodes, counts, findings, self._files[0])

    def _prepared(self, which: Iterable[int], findings: Findings) -> Generator[tuple[pa.Table, Preparation]]:
        """(rows in canonical columns, what prepared them) of readers; `findings` lists or raises what cannot be read."""
        return self.preparation.of_readers({number: self.readers[number] for number in which}, findings)

    def _prepared_together(self, which: Iterable[int], findings: Findings) -> Iterator[pa.Table]:
        """Yield the rows of `_prepared` in larger tables: small files are converted together, and a thread reads ahead."""
        for numbers, rows in Prefetched(small_files(self.readers, self.sizes, which)):
            table = None if rows is None else self.preparation.together(rows, findings)
            if rows is None or table is None:
                yield from (table for table, _ in self._prepared(numbers, findings))
            else:
                findings.empty_files |= {*numbers} - {*np.unique(rows.file).tolist()}
                yield table

    def _in_order(self, which: range, findings: Findings) -> Iterator[tuple[pa.Table, str]]:
        """Yield (rows of whole episodes, their order) as soon as their end is read.

        Without ids, all rows from the first that do not lie in order are yielded at the end, to be linked.
        """
        waiting: list[pa.Table] = []
        if self.has_ids:
            tables: Iterator[pa.Table] = self._prepared_together(which, findings)
        else:
            tables = (table for table, _ in self._prepared(which, findings))
        for table in tables:
            if self.may_link and not lies_in_order(table):
                yield pa.concat_tables([*waiting, table, *tables]), "linked"
                return
            cut = self._last_end(waiting, table)
            if cut is not None and (not self.has_ids or sum(rows.nbytes for rows in (*waiting, table)) >= RUN_BYTES):
                yield pa.concat_tables([*waiting, table.slice(0, cut)]), self.order
                waiting, table = [], table.slice(cut)
            if table.num_rows:
                waiting.append(table)
        if waiting:
            yield pa.concat_tables(waiting), self.order

    def _last_end(self, before: Sequence[pa.Table], table: pa.Table) -> int | None:
        """How many of the rows belong to episodes that end among them, or with the row before them; None: none ends."""
        if self.has_ids:
            ids = table[columns.EPS_ID].combine_chunks()
            ends, more = pc.not_equal(ids[:-1], ids[1:]).to_numpy(zero_copy_only=False), 0
        else:
            last = [rows.slice(rows.num_rows - 1) for rows in before[-1:]]
            table, more = pa.concat_tables([*last, table]), len(last)
            match self.order:
                case "single_step":
                    ends = np.ones(table.num_rows, bool)
                case "t" | "time":
                    ends = whole_ends(table, is_first=not last)
                case _:
                    ends = ends_of(table)
        return int(np.flatnonzero(ends)[-1]) + 1 - more if ends.any() else None

    def _as_episodes(self, table: pa.Table, findings: Findings) -> pa.Table:
        """Rows under the ids that their episodes have in the dataset, with what could not be read around them."""
        per = self.config.episodes.ids_per
        lost = [place._replace(eps_id=id_of_lost(place.eps_id, place.file, self._files, per)) for place in findings.places]
        return with_losses(unique_ids(table, self.config.episodes, self._files), lost)

    def _assembled(self, table: pa.Table, findings: Findings, *, order: str | None = None) -> Assembled:
        """Build the episodes of rows by `_as_episodes`."""
        return assemble(
            table,
            self.config.episodes,
            order=order or self.order,
            files=self._files,
            spaces=self.preparation.spaces,
            findings=findings,
            mapping=self.preparation.mapping,
            in_order=self.preparation.made.in_order,
        )


def _check_mapped(unreadable: Sequence[Unreadable], config: ImportConfig) -> None:
    """Raise what is wrong of the columns and not of rows, where that keeps all rows out of an import that lists them."""
    for failure in unreadable:
        if failure.row is None and failure.error.column in REQUIRED and failure.error.column not in config.mapping:
            raise failure.located_error


def _notes_on_counters(table: pa.Table) -> list[str | None]:
    """Note the columns that number the rows of each id and are not mapped, where rows are taken in the order they lie."""
    if columns.EPS_ID not in table.column_names:
        return []
    file, ids = table[SOURCE_FILE].to_numpy().astype(np.int64), table[columns.EPS_ID]
    extra = [name for name in table.column_names if name not in (*columns.STEP_COLUMNS, SOURCE_FILE, SOURCE_ROW)]
    return [
        f"Column {name} numbers the rows of each eps_id, and is not mapped: rows are taken in the order they lie, and one that "
        f"is there twice or missing is not seen. If it numbers steps, set "
        f"{yaml_line({'mapping': {columns.T: name}})}."
        for name in extra
        if values.numbers_rows(table[name], file, ids) is not None
    ]


def _groups(sizes: Sequence[int]) -> list[range]:
    """The files of each task that reads them."""
    groups, start, size = [], 0, 0
    for number, more in enumerate(sizes):
        count = number - start
        if size >= TASK_BYTES or count >= FILES_PER_TASK:
            groups.append(range(start, number))
            start, size = number, 0
        size += more
    return [*groups, range(start, len(sizes))]
