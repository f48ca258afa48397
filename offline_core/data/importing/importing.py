"""Import experience of any kind as a dataset: whole episodes, each step once, every row accounted for."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from offline_core.data.datasets.commit import commit, find_version, prepared
from offline_core.data.datasets.dataset import Dataset, open_version, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.episodes import columns
from offline_core.data.importing.appending import append, newest_import, next_version, of_settled, with_settled
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.ends import IMPORT
from offline_core.data.importing.episode_files import check_for_episodes
from offline_core.data.importing.imported import Imported, remove_late
from offline_core.data.importing.inference import inferred_spaces
from offline_core.data.importing.notes import reasons_for_none
from offline_core.data.importing.planning.plan import by_other_names, settled
from offline_core.data.importing.reading import NamedOtherwiseError, Source, read
from offline_core.data.importing.report import ImportResult, result_of
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, DataError, EmptyDatasetError, LocationError, OfflineError, VersionExistsError
from offline_core.runtime.stage import Argument, output, stage
from offline_core.runtime.units import count_text

log = logging.getLogger(__name__)

_HOW_FAST = {"engine"}
"""Parameters that do not change what is written."""


@stage(
    "import",
    version=18,
    after="record",
    arguments=(
        Argument(
            "source", "Files, folders or patterns with * or **, of RLlib, tables, Minari, D4RL, CSV …", ["data"], "sources"
        ),
        output("runs/imported", is_option=True),
        Argument("append", "Add what is new to the latest version.", False, "switch", is_option=True),
    ),
    writes=("dataset",),
    hint="Columns are named by -s mapping.obs=o_t -s mapping.dones=d_t, and so on.",
    event="dataset.imported",
    plan="data.importing.planning.plan:plan_import",
    plan_help="Only look: first rows, what the columns are taken for and why, what is to decide, and the YAML for -c, "
    "which -o FILE.yaml or > FILE keeps.",
    short=("config", "mapping", "environment", "unreadable"),
)
def import_data(config: ImportConfig, *, source: str | Sequence[str], output: str) -> ImportResult:
    """Import experience of any kind: recordings of RLlib, tables, Minari and D4RL files, CSV and more.

    It becomes the next version of the dataset at `output`.

    Arguments:
        source: a file, a folder, a pattern with * or **, or a list of them.
        output: URI of the dataset's folder, created if need be.

    Raises:
        ConfigError: the parameters do not fit each other or the data.
        DataError: a row or file cannot be read (and `unreadable` is "fail"), with its place; nothing is committed.
        EmptyDatasetError: there is nothing to import.
    """
    paths = [source] if isinstance(source, str) else list(source)
    if Location.of(output).uri in map(_place, paths):
        raise ConfigError(f"{output} is read from and written to: choose another output, in a folder of its own.")
    opened = Source.of(paths, config)
    if opened.episode_files:
        check_for_episodes(config)
    operation = Operation.of(IMPORT, config, version=import_data.version, exclude=_HOW_FAST)
    while config.append:
        base = newest_import(output, config, operation)
        try:
            if base is None:
                return _import(config, opened, output, operation)
            return append(with_settled(config, base), opened, output, operation, base)
        except VersionExistsError as error:
            log.info("%s What it has not is appended to it.", error)
            opened = Source.of(paths, config)  # files may have come meanwhile
    return _import(config, opened, output, operation)


def _import(config: ImportConfig, source: Source, output: str, operation: Operation) -> ImportResult:
    """Import all of a source.

    Raises:
        VersionExistsError: `append` is set, and another writer committed the first version.
    """
    # The fingerprints are of the files as they were listed: a file that changes while it is read is another source.
    parents = source.parents
    if not config.append and source.changes_show and (known := find_version(output, operation, parents)):
        return result_of(known, reused=True)
    seen = source.seen(Imported(), hashed=config.append)
    with prepared(output) as root:
        asked, choices = config, list[str]()
        try:
            try:
                outcome = read(source, config, root, seen, asks=True)
            except NamedOtherwiseError as error:
                config, choices = by_other_names(config, source.paths, error.names, output)
                source = Source.of(source.paths, config)
                outcome = read(source, config, root, seen)
        except (ConfigError, DataError) as error:
            if source.episode_files:
                raise
            if config != asked:
                told = "; ".join(choice.removesuffix(".") for choice in choices)
                error.args = (f"{error} By their names, {told}: if one is none, map its column to another name.",)
            config, choices = settled(asked, source.paths, error, output)
            source = Source.of(source.paths, config)
            outcome = read(source, config, root, seen)
        imported = outcome.imported.model_copy(update={"settled": of_settled(asked, config)})
        if outcome.counts.episodes == 0:
            remove_late(root, [*outcome.imported.cuts, *outcome.imported.left_out])
            reasons = reasons_for_none(outcome.counts, outcome.findings, config, outcome.quarantine)
            said = "".join(f" {reason}" for reason in reasons)
            raise EmptyDatasetError(f"There is no episode in {source.uri}: {outcome.counts}. No version was committed.{said}")
        example = next(part.episode for part in outcome.written if part.episode is not None)
        spaces, doubts = inferred_spaces(outcome.declared, example, outcome.statistics, outcome.actions)
        notes = [*choices, *outcome.notes(source, config), *doubts]
        dataset = commit(
            output,
            outcome.files,
            format=config.format,
            operation=operation,
            statistics=outcome.statistics,
            parents=parents,
            input_columns=outcome.input_columns,
            environment=config.environment,
            observation_space=spaces[0],
            action_space=spaces[1],
            report=outcome.report(notes),
            kept=imported.kept,
            about=source.about,
            version=next_version(Location.of(output), None) if config.append else None,
        )
    log.info("Imported %s: %s", dataset.ref, outcome.counts)
    if (missing := replaced(dataset)) is not None:
        log.warning("%s: %s", dataset.location.uri, missing)
    return result_of(dataset, replaced=missing)


def _place(path: str) -> str:
    try:
        return Location.of(path).uri
    except LocationError:  # a source that is no location, such as a query
        return path


def replaced(dataset: Dataset) -> str | None:
    """Describe the episodes of the earlier version that the latest one, `dataset`, lacks; None if it lacks none.

    Episodes are compared by their content. If that cannot be read, a warning is logged: the import itself is complete.
    """
    version = dataset.manifest.version
    earlier = [number for number in versions(dataset.location.uri) if number < version]
    if dataset.latest is not None or not earlier:
        return None
    try:
        before = open_version(dataset.location, earlier[-1])
        held, holds = (stored.index([columns.CONTENT]) for stored in (before, dataset))
    except OfflineError as error:
        log.warning("What version %d of %s replaces is not known: %s", version, dataset.location.uri, error)
        return None
    missing = len(held.filter(~held[columns.CONTENT].is_in(holds[columns.CONTENT].implode())))
    if not missing:
        return None
    of = ", ".join(parent.uri for parent in before.manifest.parents) or before.manifest.operation.stage
    return (
        f"Version {version} replaces version {earlier[-1]}: {count_text(missing, 'episode')} of {of} "
        f"{'is not in it; it stays' if missing == 1 else 'are not in it; they stay'} readable as version {earlier[-1]}."
    )
