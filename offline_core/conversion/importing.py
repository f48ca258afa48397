"""Import experience of any kind as a dataset: whole episodes, each step once, every row accounted for."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Sequence

from offline_core.conversion.columns_config import Join
from offline_core.conversion.config import ImportConfig
from offline_core.conversion.ends import IMPORT
from offline_core.conversion.episode_files import EpisodeFiles, check_for_episodes
from offline_core.conversion.inference import inferred_spaces
from offline_core.conversion.joins import open_join
from offline_core.conversion.notes import notes_on, reasons_for_none
from offline_core.conversion.report import Counts, ImportResult, Unreadable, list_unreadable
from offline_core.conversion.resolving import inputs_of, row_columns, with_choices
from offline_core.conversion.step_import import StepImport
from offline_core.conversion.stray_actions import ActionCounts
from offline_core.conversion.writing import write
from offline_core.datasets.commit import commit, find_version
from offline_core.datasets.dataset import Dataset, open_version, versions
from offline_core.datasets.episode_index import episode_index
from offline_core.datasets.manifest import Operation, Parent, Statistics
from offline_core.datasets.prepare import prepared
from offline_core.episodes import columns
from offline_core.errors import ConfigError, EmptyDatasetError, LocationError, OfflineError
from offline_core.formats.sources.fingerprint import changes_show, files_of, fingerprint
from offline_core.formats.sources.listing import Listing
from offline_core.formats.sources.opening import EPISODES, SourceConfig, episode_files, format_of, open_source
from offline_core.formats.sources.ray_reads import RayRead
from offline_core.formats.sources.step_reader import StepReader
from offline_core.runtime.code_permission import remember_code
from offline_core.runtime.ray_session import ray_session
from offline_core.storage.location import Location, temporary_folder

log = logging.getLogger(__name__)

_HOW_FAST = {"engine"}
"""Parameters that do not change what is written."""


def import_dataset(config: ImportConfig, *, source: str | Sequence[str], output: str) -> ImportResult:
    """Commits the experience at `source` as the next version of the dataset at `output`.

    Arguments:
        source: a file, a folder, a pattern with * or **, or a list of them.
        output: URI of the dataset's folder, created if need be.

    Raises:
        ConfigError: the parameters do not fit each other or the data.
        DataError: a row or file cannot be read (and `unreadable` is "fail"), with its place; nothing is committed.
        EmptyDatasetError: there is nothing to import.
    """
    remember_code(config)
    paths, listing = _listed(source), Listing()
    if Location.of(output).uri in map(_place, paths):
        raise ConfigError(f"{output} is read from and written to: choose another output, in a folder of its own.")
    files, readers = _opened(paths, config.pushed_down, listing)
    if files:
        check_for_episodes(config)
    joins = [open_join(join, listing) for join in config.columns.joins]
    # As the files were listed, before anything was read: who changes them meanwhile makes others of them.
    parent = Parent(kind="files", uri=", ".join(paths), fingerprint=fingerprint(files or readers, listing))
    parents = [parent, *(_joined(join, each, listing) for join, each in zip(config.columns.joins, joins, strict=True))]
    operation = Operation.of(IMPORT, config, version=6, exclude=_HOW_FAST)
    shows = all(changes_show(each, listing) for each in (files or readers, *joins))
    if shows and (found := find_version(output, operation, parents)):
        return _result(found, reused=True)
    uses_ray = config.engine == "ray" or any(isinstance(reader, RayRead) for each in (readers, *joins) for reader in each)
    declared, unreadable = config.spaces(), list[Unreadable]()
    with prepared(output) as root:
        with ray_session() if uses_ray else contextlib.nullcontext(), temporary_folder(root) as folder:
            if files:
                job = EpisodeFiles(files, config, unreadable, declared)
                written, inferred, inputs = [write(root, "part", job.read(), config)], job.notes, None
            else:
                made = row_columns(config, readers, joins)
                declared, inputs = with_choices(declared, made), inputs_of(config, made)
                steps = StepImport.of(readers, config, root, folder, listing, declared, made)
                written, inferred = steps.run(unreadable), steps.notes
        counts = sum((part.counts for part in written), Counts()).with_unreadable(unreadable)
        quarantine = list_unreadable(root, unreadable) if unreadable else None
        if counts.episodes == 0:
            said = "".join(f" {reason}" for reason in reasons_for_none(counts, unreadable, config, quarantine))
            raise EmptyDatasetError(f"There is no episode in {', '.join(paths)}: {counts}. No version was committed.{said}")
    statistics = functools.reduce(Statistics.merge, (part.statistics for part in written if part.counts.episodes))
    spaces = inferred_spaces(declared, [part.episode for part in written if part.episode is not None], statistics)
    actions = functools.reduce(ActionCounts.merge, (part.actions for part in written))
    notes = [*inferred, *notes_on(counts, statistics), *actions.notes()]
    notes += [note for reader in readers for note in getattr(reader, "notes", ())]
    dataset = commit(
        output,
        [file for part in written for file in part.files],
        format=config.format,
        operation=operation,
        statistics=statistics,
        parents=parents,
        input_columns=inputs,
        environment=config.environment,
        observation_space=spaces[0],
        action_space=spaces[1],
        report={"counts": counts.model_dump(), "notes": notes, "quarantine": quarantine},
    )
    log.info("Imported %s: %s", dataset.ref, counts)
    for note in notes:
        log.warning(note)
    if (missing := replaced(dataset)) is not None:
        log.warning("%s: %s", dataset.location.uri, missing)
    return _result(dataset, replaced=missing)


def _joined(join: Join, readers: Sequence[StepReader], listing: Listing) -> Parent:
    return Parent(kind="files", uri=", ".join(join.paths), fingerprint=fingerprint(readers, listing))


def _place(path: str) -> str:
    try:
        return Location.of(path).uri
    except LocationError:  # a source that is no location, such as a query
        return path


def _result(dataset: Dataset, *, replaced: str | None = None, reused: bool = False) -> ImportResult:
    spaces = {"observation_space": dataset.observation_space, "action_space": dataset.action_space}
    texts = {name: None if space is None else str(space) for name, space in spaces.items()}
    return ImportResult(dataset=dataset.ref, **{**texts, **dataset.manifest.report}, replaced=replaced, reused=reused)


def source_sizes(config: SourceConfig, source: str | Sequence[str]) -> dict[str, int]:
    """Bytes of each file or folder that an import reads by itself, by URI; empty if the source is not files."""
    listing = Listing()
    files, readers = _opened(_listed(source), config, listing)
    sizes = {each.uri: sum(size for _, size, _ in files_of(each, listing)) for each in files or readers}
    return {uri: size for uri, size in sizes.items() if size}


def _opened(paths: Sequence[str], config: SourceConfig, listing: Listing) -> tuple[list[Location], list[StepReader]]:
    """(files of episodes, readers of steps); one of the two is empty."""
    format = format_of(paths, config, listing)
    if format == EPISODES:
        return episode_files(paths, config, listing), []
    chosen = config if config.is_own else config.model_copy(update={"format": format})
    return [], open_source(paths, chosen, listing)


def _listed(source: str | Sequence[str]) -> list[str]:
    return [source] if isinstance(source, str) else list(source)


def replaced(dataset: Dataset) -> str | None:
    """What the version before holds and this one, the latest, does not; None if it holds all of that.

    Episodes are compared by their content. Where that cannot be read, the reason is a warning: the import itself is done.
    """
    version = dataset.manifest.version
    earlier = [number for number in versions(dataset.location.uri) if number < version]
    if dataset.latest is not None or not earlier:
        return None
    try:
        before = open_version(dataset.location, earlier[-1])
        held, holds = (episode_index(each, [columns.CONTENT]) for each in (before, dataset))
    except OfflineError as error:
        log.warning("What version %d of %s replaces is not known: %s", version, dataset.location.uri, error)
        return None
    missing = len(held.filter(~held[columns.CONTENT].is_in(holds[columns.CONTENT].implode())))
    if not missing:
        return None
    of = ", ".join(parent.uri for parent in before.manifest.parents) or before.manifest.operation.name
    return (
        f"Version {version} replaces version {earlier[-1]}: {missing:,} episodes of {of} are not in it; "
        f"they stay readable as version {earlier[-1]}."
    )
