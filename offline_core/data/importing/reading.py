"""Read a source and write its episodes, for an import or for an append to one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from offline_core.data.datasets.about import About
from offline_core.data.datasets.manifest import FileEntry, Parent
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes import columns
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.formats.sources.fingerprint import changes_show, fingerprint
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.names import named, plain
from offline_core.data.formats.sources.opening import open_source
from offline_core.data.formats.sources.ray_reads import RayRead
from offline_core.data.formats.sources.readers import FileReader
from offline_core.data.formats.sources.scans import EpisodeFile
from offline_core.data.formats.sources.step_reader import Recognised, StepReader
from offline_core.data.importing.columns_config import Join
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.episode_files import EpisodeFiles
from offline_core.data.importing.imported import Imported
from offline_core.data.importing.joins import open_join
from offline_core.data.importing.mapping import sources_of
from offline_core.data.importing.notes import notes_on, notes_on_units, notes_on_unreadable
from offline_core.data.importing.recognised import MIN_NAME
from offline_core.data.importing.report import Counts, Findings, list_unreadable
from offline_core.data.importing.resolving import preparation_of
from offline_core.data.importing.seen_files import SeenFiles, seen_files
from offline_core.data.importing.step_import import StepImport
from offline_core.data.importing.stored import Stored
from offline_core.data.importing.stray_actions import ActionCounts
from offline_core.data.importing.writing import WrittenEpisodes, write
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.store.location import Location, temporary_folder
from offline_core.errors import ConfigError
from offline_core.runtime.ray_session import ray_session


class Source(NamedTuple):
    """An opened source."""

    paths: list[str]
    listing: Listing
    readers: list[StepReader]
    """Readers of steps; or, all of them, of files of episodes."""
    joins: Sequence[tuple[Join, list[StepReader]]] = ()
    """The joins, and the readers of each."""
    beside: Sequence[StepReader] = ()
    """Readers of other files of it, which tell how dates are written where its own do not."""

    @classmethod
    def of(cls, paths: Sequence[str], config: ImportConfig) -> Source:
        """Open a source with all columns that are needed, and its joins; raises what `open_source` does."""
        listing = Listing()
        readers = open_source(paths, config.pushed_down, listing)
        return cls(list(paths), listing, readers, [(join, open_join(join, listing)) for join in config.columns.joins])

    @property
    def episode_files(self) -> list[Location]:
        """The files that hold an episode a row; empty if the source has a step a row."""
        return [reader.location for reader in self.readers if isinstance(reader, EpisodeFile)]

    @property
    def about(self) -> About:
        """What its files say of it."""
        return About.together(reader.about for reader in self.readers if isinstance(reader, FileReader))

    @property
    def uri(self) -> str:
        return ", ".join(self.paths)

    @property
    def parents(self) -> list[Parent]:
        """Its files, and those of each join."""
        every = [(self.uri, self.readers), *((", ".join(join.paths), readers) for join, readers in self.joins)]
        return [Parent(kind="files", uri=uri, fingerprint=fingerprint(files, self.listing)) for uri, files in every]

    def seen(self, before: Imported, *, hashed: bool) -> SeenFiles:
        """Compare its files, and those of joins, with the files that an earlier import has read."""
        files = seen_files(self.readers, self.listing, before.sources, hashed=hashed)
        joined = [reader for _, readers in self.joins for reader in readers]
        joins = seen_files(joined, self.listing, before.joined, hashed=hashed)
        return files.with_joins(self.readers, self.listing, joins)

    @property
    def changes_show(self) -> bool:
        every = (self.readers, *(readers for _, readers in self.joins))
        return all(changes_show(readers, self.listing) for readers in every)

    @property
    def uses_ray(self) -> bool:
        return any(isinstance(reader, RayRead) for readers in (self.readers, *(r for _, r in self.joins)) for reader in readers)

    def only(self, numbers: Sequence[int]) -> Source:
        """Some of its readers."""
        beside = [reader for i, reader in enumerate(self.readers) if i not in numbers]
        return self._replace(readers=[self.readers[i] for i in numbers], beside=beside)


@dataclass(frozen=True)
class Read:
    """Episodes of a source, on disk."""

    written: list[WrittenEpisodes]
    counts: Counts
    """What became of every row; balanced."""
    findings: Findings
    quarantine: str | None
    """The URI of the file that lists the rows that cannot be read."""
    imported: Imported
    declared: StoredSpaces
    """(observation space, action space) as far as they are declared or stated, or follow from categories and bins."""
    input_columns: InputColumns | None
    """What observations are made of, if that can be said."""

    @property
    def files(self) -> list[FileEntry]:
        return [file for part in self.written for file in part.files]

    @functools.cached_property
    def statistics(self) -> Statistics:
        return functools.reduce(
            Statistics.merge, (part.statistics for part in self.written if part.counts.episodes), Statistics()
        )

    @functools.cached_property
    def actions(self) -> ActionCounts:
        return functools.reduce(ActionCounts.merge, (part.actions for part in self.written), ActionCounts())

    def report(self, notes: Sequence[str]) -> dict[str, Any]:
        """For the manifest."""
        recognised = [str(note) for note in notes if isinstance(note, Recognised)]
        told = {"notes": [str(note) for note in notes]} | ({"recognised": recognised} if recognised else {})
        return {"counts": self.counts.model_dump(), **told, "quarantine": self.quarantine}

    def notes(self, source: Source, config: ImportConfig) -> list[str]:
        """Sentences on where it guessed, and what it changed."""
        own = [note for reader in source.readers for note in getattr(reader, "notes", ())]
        of_counts = notes_on(self.counts, self.statistics, config.mapping.get(columns.REWARDS))
        in_units = config.recorded_action_range is not None
        of_units = [] if in_units else notes_on_units(self.statistics, self.declared[1])
        unreadable = notes_on_unreadable(self.findings)
        return [*unreadable, *self.findings.notes, *of_counts, *of_units, *self.actions.notes(), *own]


class NamedOtherwiseError(ConfigError):
    """Columns have names of ids of episodes or of steps, which no column is."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(", ".join(f"{name} may be {role}" for role, name in names.items()))
        self.names = names


def _named_otherwise(config: ImportConfig, steps: StepImport) -> dict[str, str]:
    """Columns that stay extra outputs and are named like an id or a step, by the role that no column has."""
    needed = {"stored": (columns.EPS_ID,), "single_step": ()}.get(config.episodes.order, (columns.EPS_ID, columns.T))
    types = steps.preparation.types
    extras = [] if types is None else [name for name in (*types.extras, *types.left_out) if len(plain(name)) >= MIN_NAME]
    mapped = {*sources_of(config.mapping, config.mapping), *config.mapping}
    left = [name for name in extras if name not in mapped]
    return {role: found[0] for role in needed if role not in steps.schema.names and (found := named(role, left))}


def read(
    source: Source,
    config: ImportConfig,
    root: Location,
    seen: SeenFiles,
    *,
    base: Stored | None = None,
    asks: bool = False,
) -> Read:
    """Write the episodes of a source below `root`; with a `base`, only those that it lacks.

    Arguments:
        asks: stop before anything is written where ids or steps may be columns of other names.

    Raises:
        NamedOtherwiseError: That is so.
        ConfigError: the parameters do not fit the source.
        DataError: something cannot be read, and `unreadable` is "fail".
    """
    uses_ray = config.engine == "ray" or source.uses_ray
    findings, inputs = Findings(config.unreadable), None
    with ray_session() if uses_ray else contextlib.nullcontext(), temporary_folder(root) as folder:
        if files := source.episode_files:
            job = EpisodeFiles(files, config, findings, None if base is None else base.imported)
            episodes = job.read()
            if base is not None:
                episodes = (base.without_known(*batch, findings, source.uri) for batch in episodes)
            written, declared = [write(root, "part", episodes, config)], job.spaces
            imported = Imported(sources=seen.sources).with_rows(None, job.recorded_action_range)
        else:
            preparation = preparation_of(config, source.readers, source.listing, source.beside)
            inputs = preparation.made.inputs
            steps = StepImport.of(source.readers, config, root, folder, source.listing, preparation, base)
            if asks and not uses_ray and (names := _named_otherwise(config, steps)):
                raise NamedOtherwiseError(names)
            written = steps.run(findings)
            imported, declared = steps.imported(seen, source.listing, findings), steps.preparation.spaces
    counts = sum((part.counts for part in written), Counts()).with_findings(findings)
    quarantine = list_unreadable(root, findings.unreadable) if findings.unreadable else None
    return Read(written, counts, findings, quarantine, imported, declared, inputs)
