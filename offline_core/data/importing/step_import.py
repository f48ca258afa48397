"""Steps of a source → episodes on disk.

    read ─→ prepare ─→ scatter by episode ─→ gather, assemble, write

Rows without an episode id lie in order, or are few enough to be linked in memory, and need no scattering.
What cannot be read is noted with its place, lest the rows around it be taken for neighbours.
"""

from __future__ import annotations

import base64
import functools
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.datasets.manifest import Imported
from offline_core.data.episodes import Episode, columns
from offline_core.data.formats.sources.fingerprint import files_of
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.ray_reads import RayRead
from offline_core.data.formats.sources.scans import SOURCE_ROW
from offline_core.data.formats.sources.small_files import small_files
from offline_core.data.formats.sources.step_reader import StepReader, note_of
from offline_core.data.importing import extras
from offline_core.data.importing.action_range import infer_range, steps_of_table
from offline_core.data.importing.action_units import range_from_json, range_to_json
from offline_core.data.importing.config import IdsPer, ImportConfig
from offline_core.data.importing.cuts import Remainder, sources_of
from offline_core.data.importing.episode_ids import SOURCE_FILE, unique_ids
from offline_core.data.importing.exchange import PartWriter, read_part
from offline_core.data.importing.known_episodes import new_episodes
from offline_core.data.importing.late_rows import Late, join
from offline_core.data.importing.lost import Lost
from offline_core.data.importing.pace import order_by, pace_of
from offline_core.data.importing.preparation import Preparation
from offline_core.data.importing.report import Counts, Unreadable, refuse
from offline_core.data.importing.seen_files import SeenFiles, uris_of
from offline_core.data.importing.step_order import ends_of, lies_in_order, order_of
from offline_core.data.importing.stored import Stored, mergeable, schema_of
from offline_core.data.importing.trajectories import assemble
from offline_core.data.importing.values import empty_arrays
from offline_core.data.importing.writing import WrittenEpisodes, write
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, DataError
from offline_core.runtime.engine import map_items
from offline_core.runtime.prefetch import prefetched
from offline_core.runtime.progress import progress

PART_BYTES = 16 * 2**20
"""Size of the source's files for one part: what is in them takes many times that in memory."""
MAX_PARTS = 512
"""As many files are open at a time."""
PARTS_PER_TASK = 8
"""They share files, which else would be as small as parts are."""
FILES_PER_TASK = 16
"""At least."""
SMALL_FILES_PER_TASK = 512


@dataclass
class StepImport:
    """What has to be known wherever a part of the work is done."""

    readers: Sequence[StepReader]
    sizes: Sequence[int]
    """Bytes that each reader reads; 0 if it reads no files."""
    config: ImportConfig
    root: Location
    """Of the dataset."""
    folder: Location
    """For rows on their way to their part."""
    parts: int
    preparation: Preparation
    order: str = ""
    """As `order_of` says; empty if there are no rows."""
    has_ids: bool = False
    may_link: bool = False
    """Rows that turn out not to lie in order are linked."""
    notes: list[str] = field(default_factory=list)
    """What was inferred from the first rows and not declared."""
    base: Stored | None = None
    """The version that is appended to."""
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """Of the rows in canonical columns."""

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
        if base is not None:
            preparation.recorded_action_range = range_from_json(base.imported.recorded_action_range)
            preparation.templates = empty_arrays(schema_of(base.imported).empty_table())
            preparation.extras.templates = {}
            preparation.within = (base.dataset.observation_space, base.dataset.action_space)
        sizes = [sum(size for _, size, _ in files_of(reader, listing)) for reader in readers]
        parts = config.partitions or min(MAX_PARTS, max(1, -(-sum(sizes) // PART_BYTES)))
        job = cls(readers, sizes, config, root, folder, parts, preparation)
        if base is not None:
            job.base, job.order, job.has_ids = base, base.imported.order, base.imported.has_ids
            job.schema = schema_of(base.imported)
            job.may_link = job._has_to_link(config)
            return job
        tables = job._prepared(range(len(readers)), Lost())
        if (table := next(tables, None)) is not None:
            if config.recorded_action_range is None:
                job._infer_range(itertools.chain([table], tables))
            tables.close()  # or what reads for it, Ray's tasks among them, goes on
            job.schema = pa.schema([each for each in table.schema if each.name not in (SOURCE_FILE, SOURCE_ROW)])
            job.has_ids = columns.EPS_ID in table.column_names
            job.notes += preparation.notes
            try:
                job.order = order_of(config.episodes, table)
                if config.episodes.order == "auto" and job.order == "t":
                    files, per = [reader.uri for reader in readers], config.episodes.ids_per
                    pace = pace_of(job._prepared(range(len(readers)), Lost()), first=table, files=files, per=per)
                    job.order, note = order_by(pace)
                    job.notes += [] if note is None else [note]
            except ConfigError as error:
                raise ConfigError(" ".join([str(error), *preparation.notes])) from error
            job.may_link = job._has_to_link(config)
            if job.may_link and job.order == "linked":
                job.order = "stored"
        return job

    def _has_to_link(self, config: ImportConfig) -> bool:
        return config.episodes.order == "auto" and not self.has_ids and columns.NEW_OBS in self.schema.names

    def _infer_range(self, tables: Iterable[pa.Table]) -> None:
        self.preparation.recorded_action_range, note = infer_range(map(steps_of_table, tables), self.preparation.spaces[1])
        self.notes += [] if note is None else [note]

    def run(self, lost: Lost) -> list[WrittenEpisodes]:
        """Writes everything, part by part; what cannot be read is added to `lost`."""
        written = self._written(lost)
        written[0].counts.clipped_actions = lost.clipped_actions
        self.notes += [*lost.notes, *extras.note_on(lost.extras)]
        if self.preparation.made is not None:
            self.notes += self.preparation.made.notes(lost.without_partner)
        return written

    def imported(self, seen: SeenFiles, listing: Listing, lost: Lost) -> Imported:
        """What appends to this import have to know."""
        files = [uris_of(reader, listing) for reader in self.readers]
        waiting = {uri for number in lost.waiting for uri in files[number]}
        return Imported(
            sources=seen.having_read({uri for uris in files for uri in uris}, waiting),
            joined=seen.joined,
            order=self.order,
            has_ids=self.has_ids,
            recorded_action_range=range_to_json(self.preparation.recorded_action_range),
            arrow_schema=base64.b64encode(self.schema.serialize()).decode(),
            cuts=lost.cuts,
            left_out=lost.left_out,
        )

    def _written(self, lost: Lost) -> list[WrittenEpisodes]:
        if not self.has_ids and self.order != "linked":
            return [self._written_in_order(lost)]
        if not self.has_ids or self.parts == 1:
            return [self._written_of(self._all_rows(lost), "part", lost)]
        groups = _groups(self.sizes)
        read_with = "local" if any(isinstance(reader, RayRead) for reader in self.readers) else self.config.engine
        with progress(len(groups), what="read", unit="part") as bar:
            for found in map_items(read_with, self._scatter, groups):
                lost += found
                bar.update(1)
        self._leave_out(lost.extras)
        parts = range(self.parts)
        shares = [parts[i : i + PARTS_PER_TASK] for i in range(0, len(parts), PARTS_PER_TASK)]
        written = []
        with progress(len(shares), what="write", unit="part") as bar:
            for part, found in map_items(self.config.engine, functools.partial(self._gather, lost.places), shares):
                written.append(part)
                lost += replace(found, places=[])
                bar.update(1)
        return written

    def assembled(self, lost: Lost) -> Iterator[tuple[list[Episode], Counts]]:
        """All episodes, put together in this process; of rows with ids, all at once."""
        if not self.has_ids and self.order != "linked":
            for _ in self._prepared(range(len(self.readers)), first := Lost()):
                pass
            self._leave_out(first.extras)
            yield from self._in_order(lost)
        else:
            for table in self._all_rows(lost):
                yield self._assemble(table, lost)

    def _scatter(self, group: range) -> Lost:
        lost, ids_per_file = Lost(), self.config.episodes.ids_per == "file"
        with PartWriter(self.folder, f"{group.start:08d}", parts=self.parts, ids_per_file=ids_per_file) as writer:
            for table in self._prepared_together(group, lost):
                writer.write(table)
        return lost

    def _gather(self, places: list[tuple[int, int]], parts: range) -> tuple[WrittenEpisodes, Lost]:
        lost = Lost(places=places)
        tables = (read_part(self.folder, part) for part in parts)
        wanted = (self._without_extras(table) for table in tables if table is not None)
        return self._written_of(wanted, f"part-{parts.start:05d}", lost), lost

    def _written_in_order(self, lost: Lost) -> WrittenEpisodes:
        """Writes rows that lie in order as they are read; once more where an extra column changes on the way."""
        found = Lost()
        written = write(self.root, "part", self._in_order(found), self.config)
        if self.preparation.extras.templates and not found.extras.keys().isdisjoint(self.preparation.extras.templates):
            for file in written.files:
                self.root.child(file.path).delete()
            self._leave_out(found.extras)
            found = Lost(extras=found.extras, notes=found.notes)
            written = write(self.root, "part", self._in_order(found), self.config)
        lost += found
        return written

    def _all_rows(self, lost: Lost) -> list[pa.Table]:
        """All rows in one table; none if there are none."""
        tables = list(self._prepared_together(range(len(self.readers)), lost))
        self._leave_out(lost.extras)
        return [pa.concat_tables(map(self._without_extras, tables))] if tables else []

    def _leave_out(self, names: Iterable[str]) -> None:
        """Drop extra columns that some rows lack of all of them."""
        self.preparation.extras.drop(names)
        dropped = {*names} - self.preparation.templates.keys()
        self.schema = pa.schema([each for each in self.schema if each.name not in dropped])

    def _without_extras(self, table: pa.Table) -> pa.Table:
        """Rows that were read before it was known which extra columns are left out."""
        return table.select([name for name in table.column_names if name in {SOURCE_FILE, SOURCE_ROW, *self.schema.names}])

    def _written_of(self, tables: Iterable[pa.Table], prefix: str, lost: Lost) -> WrittenEpisodes:
        """Writes the episodes of tables that each hold all rows of some ids, and beside them what they leave."""
        if not mergeable(self.order, has_ids=self.has_ids, schema=self.schema):
            return write(self.root, prefix, (self._assemble(table, lost) for table in tables), self.config)
        first_t = self.config.episodes.first_t if self.order == "t" else None
        remainder = Remainder(self.schema, first_t)
        written = write(self.root, prefix, (self._merged(table, lost, remainder) for table in tables), self.config)
        cuts, left_out = remainder.written(self.root, prefix)
        lost.cuts += cuts
        lost.left_out += left_out
        return written

    def _merged(self, table: pa.Table, lost: Lost, remainder: Remainder) -> tuple[list[Episode], Counts]:
        """Episodes of new rows and of the stored ones of the same ids."""
        rules, files = self.config.episodes, [reader.uri for reader in self.readers]
        if self.base is None:
            return self._assemble(table, lost, remainder=remainder)
        table = unique_ids(table, rules.ids_per, files)
        ids = pc.unique(table[columns.EPS_ID]).to_pylist()
        late = self.base.known.intersection(ids)
        if not late:
            return self._assemble(table, lost, remainder=remainder, per="source")
        joined = join(table, self.base.rows(late))
        counts = Counts(rows=joined.known, duplicates=joined.known)
        before, cuts = set(remainder.ids), len(remainder.cuts)
        if not joined.rows.num_rows:
            lost.late += Late(unchanged=joined.unchanged)
            return [], counts
        episodes, more = self._assemble(joined.rows, lost, remainder=remainder, per="source", stored=self.base.dataset.ref.uri)
        found = (remainder.ids - before) & late  # others were refused, and stay as they are
        corrected = found & joined.corrected.keys()
        own = Late(
            joined.unchanged,
            found - corrected - joined.unchanged,
            corrected,
            sum(joined.corrected[name] for name in corrected),
            sum(joined.stored.get(name, 0) for name in found),
            sum(name in found for name in sources_of(episodes, remainder.cuts[cuts:])),
        )
        lost.late += own
        more.alternating_ids = 0  # late rows may lie anywhere
        counts = more + counts
        counts.rows -= own.stored_rows
        counts.stored_rows += own.stored_rows
        return episodes, counts

    def _prepared(self, which: Iterable[int], lost: Lost) -> Generator[pa.Table]:
        """The rows of some readers in our columns; what cannot be read is added to `lost`, or raised."""
        for number in which:
            reader, row, reached = self.readers[number], 0, 0
            before = self.preparation.counted()
            try:
                for batch in reader.batches():
                    lost.note(note_of(batch))
                    table, bad = self.preparation(batch, file=number, first_row=row, uri=reader.uri)
                    row += batch.num_rows
                    for each in bad:
                        refuse(each, self.config.unreadable, lost.unreadable)
                        lost.places.append((number, reached if each.row is None else each.row))
                    if table is not None and table.num_rows:
                        reached = table[SOURCE_ROW][-1].as_py() + 1
                        yield table
            except DataError as error:  # and no StorageError: what is out of reach is not damaged
                if self.config.unreadable == "fail":
                    raise
                lost.unreadable.append(Unreadable(reader.uri, None, 0, error))
                lost.places.append((number, reached))
            after = self.preparation.counted()
            lost.count(before, after)
            lost.extras |= self.preparation.extras.left_out
            lost.waiting |= {number} if after[1] != before[1] else set()

    def _prepared_together(self, which: Iterable[int], lost: Lost) -> Iterator[pa.Table]:
        """As `_prepared`, in larger tables: small files are read and converted many at a time; a thread reads ahead."""
        for numbers, rows in prefetched(small_files(self.readers, self.sizes, which)):
            before = self.preparation.counted()
            if rows is not None and (table := self.preparation.together(rows)) is not None:
                lost.count(before, self.preparation.counted())
                lost.extras |= self.preparation.extras.left_out
                yield table
            else:
                yield from self._prepared(numbers, lost)

    def _in_order(self, lost: Lost) -> Iterator[tuple[list[Episode], Counts]]:
        """Episodes of rows stored in order, as soon as their end is read; from the first rows out of order, all are linked."""
        waiting: list[pa.Table] = []
        tables = self._prepared(range(len(self.readers)), lost)
        for table in tables:
            if self.may_link and not lies_in_order(table):
                yield self._assemble(pa.concat_tables([*waiting, table, *tables]), lost, order="linked")
                return
            ends = np.ones(table.num_rows, bool) if self.order == "single_step" else ends_of(table)
            cut = int(np.flatnonzero(ends)[-1]) + 1 if ends.any() else 0
            if cut:
                yield self._assemble(pa.concat_tables([*waiting, table.slice(0, cut)]), lost)
                waiting = []
            if cut < table.num_rows:
                waiting.append(table.slice(cut))
        if waiting:
            yield self._assemble(pa.concat_tables(waiting), lost)

    def _assemble(
        self,
        table: pa.Table,
        lost: Lost,
        order: str | None = None,
        *,
        remainder: Remainder | None = None,
        per: IdsPer | None = None,
        stored: str | None = None,
    ) -> tuple[list[Episode], Counts]:
        """Arguments:
        per: in place of the config's `ids_per`.
        stored: what file number 0 is, whose rows come from the version before; files of the source follow.
        """
        rules, files, places = self.config.episodes, [reader.uri for reader in self.readers], lost.places
        if stored is not None:
            files, places = [stored, *files], [(number + 1, row) for number, row in places]

        def refuse_new(found: Unreadable) -> None:
            if found.uri != stored:  # what is stored stays as it is
                refuse(found, self.config.unreadable, lost.unreadable)

        episodes, counts = assemble(
            table,
            rules if per is None else rules.model_copy(update={"ids_per": per}),
            order=order or self.order,
            files=files,
            spaces=self.preparation.spaces,
            refuse=refuse_new,
            lost=places,
            mapping=self.preparation.mapping,
            in_order=None if self.preparation.made is None else self.preparation.made.in_order,
            remainder=remainder,
        )
        if self.base is None or remainder is not None:
            return episodes, counts
        return new_episodes(episodes, counts, self.base, lost.late, refuse_new, files[0])


def _groups(sizes: Sequence[int]) -> list[range]:
    """The files of each task that reads them."""
    groups, start, size = [], 0, 0
    for number, more in enumerate(sizes):
        count = number - start
        if count >= FILES_PER_TASK and (size >= PART_BYTES or count >= SMALL_FILES_PER_TASK):
            groups.append(range(start, number))
            start, size = number, 0
        size += more
    return [*groups, range(start, len(sizes))]
