"""Append to an import: its next version lists the files of the one before, and new ones for what is new."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from offline_core.data.datasets.commit import commit, prepared
from offline_core.data.datasets.copying import files_without, statistics_without
from offline_core.data.datasets.dataset import VERSIONS, Dataset, is_dataset, open_version, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.episodes import columns
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.ends import IMPORT
from offline_core.data.importing.imported import Imported
from offline_core.data.importing.notes import yaml_line
from offline_core.data.importing.reading import Read, Source, read
from offline_core.data.importing.report import Appended, Counts, ImportResult, Late, result_of
from offline_core.data.importing.seen_files import SeenFiles
from offline_core.data.importing.stored import Stored
from offline_core.data.inputs.input_columns import common_inputs
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.errors import ConfigError, VersionExistsError
from offline_core.runtime.config import parse
from offline_core.runtime.overlay import overlaid
from offline_core.secrets import masked

log = logging.getLogger(__name__)

OLDEST = 15
"""The first version of the import of which rows mean what they mean today."""
_SETTLED = ("mapping", "columns", "episodes", "observation_space", "action_space")
"""Parameters that an import may find by itself."""
_FREE = {"append", "unreadable", "partitions", "files"}
"""Parameters that may differ from those of the version before: they do not change what rows mean."""


def newest_import(output: str, config: ImportConfig, operation: Operation) -> Dataset | None:
    """Return the version to append to; None if `output` has none yet.

    Raises:
        ConfigError: `output` holds no import by the same parameters; the message names what differs.
    """
    location = Location.of(output)
    committed = versions(output)
    base = open_version(location, committed[-1]) if committed else None
    if open_ended := [name for name, encoding in config.columns.encode.items() if encoding.categories == "auto"]:
        raise ConfigError(
            f"The categories of {', '.join(open_ended)} are found in the data, which grows: name them by columns.encode."
            f"{_proposed(config, open_ended, _categories_of(base))}"
        )
    if names := [name for name, binning in config.columns.discretise.items() if binning.needs_data]:
        raise ConfigError(f"The bins of {names[0]} are found in the data, which grows: declare their edges.")
    if config.columns.in_episode:
        name = next(iter(config.columns.in_episode))
        raise ConfigError(
            f"{name} (columns.in_episode) needs earlier rows, which a stored episode has not: leave append out, or set a "
            "constant where a value is missing (columns.fill) and import anew."
        )
    if base is None:
        if not is_dataset(output) and any(name.endswith(".parquet") for name in location.files()):
            raise ConfigError(
                f"{output} holds Parquet files and no committed version, so nothing can be appended to it. Import them."
            )
        return None
    named, before = f"{output} version {base.manifest.version}", base.manifest.operation
    if before.stage != IMPORT:
        raise ConfigError(f"{named} was made by {before.stage}; only imports are appended to. Choose the folder of an import.")
    again = "Import all of the source again, into another dataset."
    imported = Imported.of(base.manifest)
    if imported is None or not OLDEST <= before.version <= operation.version:
        raise ConfigError(
            f"{named} was imported by an earlier version of this package, and its rows mean something else. {again}"
        )
    settled = imported.settled or {}
    asked, now = before.config, operation.config
    again_so = {name: value for name, value in settled.items() if now.get(name) == asked.get(name)}
    known = _categories_of(base)
    asked, now = (_with_categories({**parameters, **more}, known) for parameters, more in ((asked, settled), (now, again_so)))
    if differ := _differences(_with_defaults(asked), _with_defaults(now)):
        name, old, new = differ[0]
        raise ConfigError(
            f"{named} was imported with {name} {old!r}, not {new!r}. Append with the same parameters. Or: {again}"
        )
    if before.code != operation.code:
        changed = sorted(
            name for name in before.code.keys() | operation.code if before.code.get(name) != operation.code.get(name)
        )
        raise ConfigError(f"{named} was imported with other code of {', '.join(changed)}. {again}")
    return base


def _categories_of(base: Dataset | None) -> dict[str, list[Any]]:
    """The categories by which a version numbers its columns, whether they were named or found."""
    inputs = None if base is None else base.manifest.input_columns
    if inputs is None:
        return {}
    observed = {name: [*encoding.categories] for name, encoding in inputs.steps.encode.items() if encoding.categories != "auto"}
    return observed if inputs.labels is None or inputs.action is None else {inputs.action: [*inputs.labels]} | observed


def _proposed(config: ImportConfig, names: Sequence[str], known: Mapping[str, list[Any]]) -> str:
    """The line of YAML that names the categories of the version before; empty where they are not all known."""
    if not {*names} <= known.keys():
        return ""
    encode = {
        name: {**encoding.model_dump(exclude_defaults=True), "categories": known.get(name, encoding.categories)}
        for name, encoding in config.columns.encode.items()
    }
    return f" Those of the version before: {yaml_line({'columns': {'encode': encode}})}"


def _with_categories(config: dict[str, Any], known: Mapping[str, list[Any]]) -> dict[str, Any]:
    """The parameters with the categories that were found, so that an append may name the same ones."""
    declared = config.get("columns") or {}
    encode = {
        name: {**encoding, "categories": known[name]}
        if name in known and encoding.get("categories", "auto") == "auto"
        else encoding
        for name, encoding in (declared.get("encode") or {}).items()
    }
    return {**config, "columns": {**declared, "encode": encode}} if encode else config


def append(config: ImportConfig, source: Source, output: str, operation: Operation, base: Dataset) -> ImportResult:
    """Commit the version after `base` with what is new in the source; return `base` itself if nothing is new.

    Raises:
        VersionExistsError: another writer committed a version first.
    """
    before = Imported.of(base.manifest)
    assert before is not None
    seen = source.seen(before, hashed=True)
    if not seen.to_read:
        return _nothing_new(base, seen, None)
    fresh = source.only(seen.to_read)
    with prepared(output) as root:
        next_version(base.location, base)  # it may have been rewritten before the dataset was held
        stored = Stored.of(base, config.episodes)
        outcome = read(fresh, config, root, seen, base=stored)
        if outcome.input_columns and base.manifest.input_columns:
            common_inputs([(str(base.ref), base.manifest.input_columns), (fresh.uri, outcome.input_columns)])
        names = stored.parts(outcome.findings.late.replaced)[columns.EPS_ID].to_list()
        files, removed = files_without(base, stored.places, names, root, config.files)
        files += outcome.files
        imported = _merged(before.without(base.location, outcome.findings.late.replaced), outcome)
        if not seen.new and files == base.manifest.files and imported == before:
            return _nothing_new(base, seen, outcome)
        statistics = statistics_without(base, removed, outcome.statistics, files)
        done = _account(seen, outcome, base.statistics.steps, statistics.steps)
        notes = [str(done), *outcome.notes(fresh, config), *_note_on_losses(imported)]
        dataset = commit(
            output,
            files,
            format=config.format,
            operation=operation,
            statistics=statistics,
            parents=[*fresh.parents, base.parent_entry],
            input_columns=base.manifest.input_columns,
            environment=config.environment,
            observation_space=base.observation_space,
            action_space=base.action_space,
            report=outcome.report(notes) | {"appended": done.model_dump()},
            kept=imported.kept,
            version=next_version(base.location, base),
        )
    log.info("Appended to %s: %s", dataset.ref, done)
    return result_of(dataset)


def of_settled(asked: ImportConfig, config: ImportConfig) -> dict[str, Any]:
    """Return the parameters, as JSON, that were inferred: those in which `config` differs from `asked`."""
    after = config.model_dump(mode="json", include={*_SETTLED}, exclude_unset=True)
    before = asked.model_dump(mode="json", include={*_SETTLED}, exclude_unset=True)
    return {name: value for name, value in after.items() if value != before.get(name)}


def with_settled(config: ImportConfig, base: Dataset) -> ImportConfig:
    """Return the parameters, completed by those that the import of `base` inferred, with the categories that it found."""
    imported = Imported.of(base.manifest)
    if imported is None or not imported.settled:
        return config
    parameters = {name: getattr(config, name) for name in config.model_fields_set}
    return parse(ImportConfig, {**parameters, **_with_categories(imported.settled, _categories_of(base))})


def next_version(location: Location, base: Dataset | None) -> int:
    """The number after `base`.

    Raises:
        VersionExistsError: another version follows it already, or it is not what it was: episodes of it were forgotten.
    """
    listed = NumberedLog(location, VERSIONS).listed()
    known = listed.numbers
    if known[-1:] != ([] if base is None else [base.manifest.version]):
        raise VersionExistsError(f"Version {known[-1] if known else 0} of {location.uri} was committed by another writer.")
    if base is not None and open_version(location, known[-1]).manifest != base.manifest:
        raise VersionExistsError(f"Version {known[-1]} of {location.uri} was written again by another writer.")
    return listed.highest + 1


def _nothing_new(base: Dataset, seen: SeenFiles, outcome: Read | None) -> ImportResult:
    done = _account(seen, outcome, 0, 0)
    note = f"Nothing is new, so version {base.manifest.version} stays the latest: {done}"
    log.info("%s: %s", base.ref, note)
    counts = Counts() if outcome is None else outcome.counts
    result = result_of(base, reused=True)
    return result.model_copy(update={"appended": done, "counts": counts, "notes": [note]})


def _account(seen: SeenFiles, outcome: Read | None, steps_before: int, steps_after: int) -> Appended:
    late = Late() if outcome is None else outcome.findings.late
    return Appended(
        files_seen=seen.seen,
        files_read_again=seen.again,
        files_new=seen.new,
        files_changed=seen.changed,
        episodes_added=0 if outcome is None else outcome.counts.episodes - late.rebuilt,
        episodes_unchanged=len(late.unchanged) + len(late.losses_changed),
        episodes_completed=len(late.completed),
        episodes_corrected=len(late.corrected),
        steps_added=steps_after - steps_before,
        steps_corrected=late.corrected_steps,
    )


def _merged(before: Imported, outcome: Read) -> Imported:
    """Return what later appends need from both imports. The ids that were built again are no longer in `before`."""
    now = outcome.imported
    both = {
        "sources": now.sources,
        "joined": now.joined,
        "cuts": before.cuts + now.cuts,
        "left_out": before.left_out + now.left_out,
        "has_lost": before.has_lost or now.has_lost,
    }
    return before.model_copy(update=both)


def _note_on_losses(imported: Imported) -> list[str]:
    """Say what an append cannot see of rows that could not be read, now or before."""
    if not imported.has_lost or imported.order != "time" or columns.NEW_OBS in imported.row_schema.names:
        return []
    return [
        "Some rows could not be read, now or before. Steps are not joined over them where rows of the same id were read from "
        "the same file; over others they may be. To be sure, mend the rows and import all again into another dataset."
    ]


def _with_defaults(parameters: dict[str, Any]) -> dict[str, Any]:
    """All parameters of a stored import, as JSON; those at their defaults may be missing in it."""
    try:
        return masked(ImportConfig.model_validate(parameters).model_dump(mode="json"))  # type: ignore[no-any-return]
    except ValidationError:  # they name an object of another Python process
        return overlaid(ImportConfig().model_dump(mode="json"), parameters)


def _differences(before: Any, now: Any, at: str = "") -> list[tuple[str, Any, Any]]:
    """(name of the field, old value, new value) of all parameters that differ and may not."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = [name for name in dict.fromkeys([*before, *now]) if at or name not in _FREE]
        return [difference for name in names for difference in _differences(before.get(name), now.get(name), f"{at}{name}.")]
    return [] if before == now else [(at.rstrip("."), before, now)]
