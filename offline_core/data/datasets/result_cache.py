"""The result of a stage, as what the stage makes: kept next to its output, so that the same is found instead of made again."""

from __future__ import annotations

import contextlib
import json
import logging
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ValidationError

from offline_core.data.datasets.failure import forget_failure, keep_failure
from offline_core.data.datasets.manifest import Operation, Parent, identity_of
from offline_core.data.datasets.tags import VERSIONS
from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.data.store.location import Location
from offline_core.data.store.partial_files import remove_partial_files_of_failed_run, remove_partial_files_on_disk
from offline_core.errors import ConfigError, CorruptFileError, StorageError, StorageUnavailableError
from offline_core.runtime.config import Config
from offline_core.runtime.parameter_errors import problems
from offline_core.runtime.stage import Stage

log = logging.getLogger(__name__)
log_replaced = logging.getLogger(f"{__name__}.replaced")  # whose lines a terminal shows

RESULT_FILE = "result.json"
STATES = "checkpoints"
"""Folder next to a result with the last states of an unfinished run, which goes on from them."""
SIDECAR_FILES = frozenset({RESULT_FILE, "card.md", "card.html", "card.png"})
"""Files that describe the output next to them, and are not part of it."""

Result = TypeVar("Result", bound=BaseModel)


class _FoundMeanwhile(Exception):  # noqa: N818 - not an error
    """Another run made the same while this one looked."""

    def __init__(self, result: BaseModel) -> None:
        super().__init__()
        self.result = result


@dataclass(frozen=True)
class BegunResult:
    """A result that is being made: what the work of a stage is told."""

    file: Location
    """File of the result."""
    operation: Operation
    parents: Sequence[Parent]
    start: Callable[[], None] = lambda: None
    """Takes the folder for this run; called by a stage that starts itself (see `StoredResult`), before it writes."""

    @property
    def folder(self) -> Location:
        """Folder in which the file and most outputs go."""
        return self.file.parent

    @property
    def identity(self) -> str:
        """See `identity_of`."""
        return identity_of(self.operation, self.parents)


@dataclass(frozen=True)
class StoredResult(Generic[Result]):
    """What a stage yields that writes no version; its work returns the result, once all outputs are there.

    One run at a time writes to a folder: another one is told that it is busy. While outputs are replaced there is no result.
    That of before comes back if the work fails and left its outputs as they were; if they are all elsewhere, it stays until
    the new one is stored.
    """

    model: type[Result]
    folder: Location
    parents: Sequence[Parent]
    fingerprint: Callable[[str], str | None]
    """Returns the fingerprint of an output, by its name, as it is now; None if the output is missing or incomplete."""
    outputs: Callable[[Result], Iterable[str]]
    """Names of the outputs without which the result is void."""
    config: Config | None = None
    """Parameters, whose values but for those that are excluded decide the result."""
    operation: Operation | None = None
    """What decides the result, in place of the config."""
    exclude: Set[str] = frozenset()
    more: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What decides the result besides the config."""
    name: str = RESULT_FILE
    """Name of the file, in which {identity} is filled in."""
    is_beside: bool = False
    """The file is kept beside what was looked at, and nothing else is written: no run waits for another, and where the file
    cannot be written the caller has the result."""
    starts_itself: bool = False
    """The work first looks for more that it refuses, and calls `start` before it writes."""
    may_reuse: bool = True
    """False: what was given does not show whether it has changed."""
    is_whole: Callable[[Result], bool] = lambda _: True
    """Whether a stored result may be reused."""
    has_states: bool = False
    """An unfinished run leaves its last states in `STATES`, which goes when the result is stored, and if it failed says why. It
    replaces what is beside the result of before, which so goes as it begins; elsewhere that stays until there is another."""

    def found(self, stage: Stage[..., Any]) -> Result | None:
        """Return the stored result of the same operation, if its outputs are as they were."""
        begun = self._begun(stage)
        if not self.may_reuse:
            return None
        known = load_result(begun.file, begun.identity, self.model, fingerprint=self.fingerprint)
        return known if known is not None and self.is_whole(known) else None

    def make(self, stage: Stage[..., Any], work: Callable[[BegunResult], Result]) -> Result:
        """See `Making`."""
        if (known := self.found(stage)) is not None:
            self._remove_old_states(stage)
            return known
        begun = self._begun(stage)
        if self.is_beside:
            result = work(begun)
            try:
                remove_partial_files_on_disk(begun.file.parent, recursive=False)
                self._store(begun, result)
            except StorageError as error:
                log.warning("The result is not kept at %s: %s", begun.file.uri, error)
            return result
        if self.name == RESULT_FILE and self.folder.child(VERSIONS).is_folder():
            raise ConfigError(f"{self.folder.uri} is a dataset, beside which no result is stored: give another output.")
        is_started = is_held = False
        aside: dict[str, bytes] = {}
        with contextlib.ExitStack() as held:

            def start() -> None:
                nonlocal is_started, is_held
                is_started = True
                held.enter_context(self.folder.make_folder().locked())
                is_held = True
                remove_partial_files_on_disk(self.folder)
                if (known := self.found(stage)) is not None:
                    raise _FoundMeanwhile(known)
                _say_what_is_replaced(begun)
                if self.has_states:  # whose metrics and states are beside the result, and are replaced as well
                    invalidate_result(begun.file)
                    forget_failure(self.folder)
                elif not _has_outputs_elsewhere(begun.file):
                    aside.update(_set_aside(begun.file))

            try:
                if not self.starts_itself:
                    start()
                result = work(replace(begun, start=start))
                if not is_started:
                    raise RuntimeError(f"The stage {stage.name} starts itself, and never called start.")
                aside.update(_set_aside(begun.file))
                self._store(begun, result)
            except _FoundMeanwhile as other:
                return cast(Result, other.result)
            except BaseException as error:
                if is_held:
                    remove_partial_files_of_failed_run(self.folder)
                    self._bring_back(begun.file, aside)
                if is_held and self.has_states and isinstance(error, Exception):
                    keep_failure(self.folder, error, begun.operation, begun.parents)
                raise
            if self.has_states:
                self.folder.child(STATES).delete_folder()
                forget_failure(self.folder)  # of a run that lost the folder to this one
        return result

    def _bring_back(self, file: Location, aside: Mapping[str, bytes]) -> None:
        """Write the files of the result that was set aside, if its outputs are as they were."""
        try:
            stored = _values_of(aside[file.uri]) if file.uri in aside else None
            if stored is not None and all(self.fingerprint(name) == expected for name, expected in stored.made.items()):
                for uri, data in aside.items():
                    Location.of(uri).write(data)
        except Exception as error:  # the error of the work is the one to tell
            log.warning("The result of before is not brought back to %s: %s", file.uri, error)

    def _remove_old_states(self, stage: Stage[..., Any]) -> None:
        """Remove the states of a run that was killed after its result was stored."""
        states = self.folder.child(STATES)
        if not self.has_states or not states.is_folder():
            return
        try:
            with self.folder.locked():
                if self.found(stage) is not None:  # else a new run has begun meanwhile
                    states.delete_folder()
        except StorageError as error:
            log.warning("The states of a finished run are still at %s: %s", states.uri, error)

    def _begun(self, stage: Stage[..., Any]) -> BegunResult:
        operation = self.operation
        if operation is None:
            assert self.config is not None
            operation = Operation.of(stage.name, self.config, version=stage.version, exclude=self.exclude, **self.more)
        identity = identity_of(operation, self.parents)
        return BegunResult(self.folder.child(self.name.format(identity=identity)), operation, self.parents)

    def _store(self, begun: BegunResult, result: Result) -> None:
        if not self.may_reuse or not self.is_whole(result):
            return
        made = {name: self.fingerprint(name) or "" for name in self.outputs(result)}
        store_result(begun.file, begun.identity, result, fingerprints=made)


def _say_what_is_replaced(begun: BegunResult) -> None:
    """Work of hours must not go without a word because a default has changed or a folder was moved."""
    try:
        stored = stored_values(begun.file) if begun.file.is_file() else None
    except CorruptFileError:
        return  # was said as it was looked for
    if stored is None:
        return
    if stored.uri != begun.file.uri:
        log.warning("The result at %s was made at %s, and its copy is not used: it is made again.", begun.file.uri, stored.uri)
    elif stored.identity != begun.identity:
        told = "%s holds the result of other settings, data, or code, which is to be replaced: %s."
        log_replaced.info(told, begun.folder.uri, _in_words(begun.file, stored))


def _in_words(file: Location, stored: StoredValues) -> str:
    """What a stored result is, by its algorithm, if it has one, and when it was made, if the store says so."""
    modified, algorithm = file.modified, stored.result.get("algorithm")
    made = "made before" if modified is None else f"made {modified:%Y-%m-%d %H:%M} UTC"
    return f"{algorithm}, {made}" if algorithm else made


def store_result(
    location: Location,
    identity: str,
    result: BaseModel,
    *,
    fingerprints: Mapping[str, str],
    final: Location | None = None,
) -> None:
    """Writes the result to the file `location`, replacing an older one.

    Arguments:
        identity: of the stage, see `identity_of`.
        fingerprints: of the outputs without which the result is void, by URI or any name that `load_result` is given a
            `fingerprint` function for.
        final: where the file is moved to later; None: it stays.
    """
    # Infinity and NaN are written as JavaScript's words for them, which `json` reads as well.
    values = {
        "place": (final or location).uri,
        "identity": identity,
        "made": dict(fingerprints),
        "result": result.model_dump(mode="python", warnings=False),
    }
    location.write(with_checksum(json.dumps(values, indent=2, default=str)))


class StoredValues(NamedTuple):
    """What the file of a result holds."""

    uri: str
    """Where the file was written; a copy elsewhere has the same."""
    identity: str
    made: dict[str, str]
    """Fingerprints of the outputs by their names."""
    result: dict[str, Any]


def stored_values(file: Location) -> StoredValues | None:
    """What a file holds that `store_result` wrote; None if another program wrote it.

    Raises:
        CorruptFileError: it is not what was written.
        StorageError: it cannot be read.
    """
    return _values_of(without_checksum(file.read(), file.uri))


def _values_of(data: bytes) -> StoredValues | None:
    try:
        values = json.loads(data)
        return StoredValues(str(values["place"]), str(values["identity"]), dict(values["made"]), dict(values["result"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def load_result(
    location: Location, identity: str, model: type[Result], *, fingerprint: Callable[[str], str | None]
) -> Result | None:
    """The stored result of the same stage, with `reused` set; None if none is stored or one of its outputs has changed.

    A copied or moved file is not used: its URIs lead back to the original.

    Arguments:
        model: of the result; it has a field `reused`.
        fingerprint: current fingerprint of an output by its name; None if it is missing or incomplete.

    Raises:
        StorageUnavailableError: the storage does not answer, so whether a result exists is unknown.
    """
    if not location.is_file():
        return None
    try:
        if (stored := stored_values(location)) is None:
            raise ValueError("no stage wrote it")
        if (stored.uri, stored.identity) != (location.uri, identity):
            return None
        result = model.model_validate(stored.result | {"reused": True})
        if far := [name for name in stored.made if not location.is_near(name)]:
            raise ValueError(f"it names {far[0][:200]!r}, which is in another bucket")
        changed = [name for name, expected in stored.made.items() if fingerprint(name) != expected]
    except StorageUnavailableError:  # an outage does not make a result invalid
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, CorruptFileError, StorageError) as error:
        what = problems(error) if isinstance(error, ValidationError) else error
        log.warning("The result stored at %s cannot be used: %s", location.uri, what)
        return None
    if changed:
        log.warning("%s has changed since it was made: it is made again.", changed[0])
        return None
    log.info("Reused: %s", location.uri)
    return result


def stored_result(location: Location, model: type[Result]) -> tuple[Result, dict[str, str]] | None:
    """(the stored result of whatever stage wrote it, the fingerprints of its outputs by name); None if none of this kind is."""
    try:
        stored = stored_values(location) if location.is_file() else None
        return None if stored is None else (model.model_validate(stored.result), stored.made)
    except (ValidationError, CorruptFileError):
        return None


def is_result(location: Location) -> bool:
    """Whether `store_result` wrote this file."""
    if posixpath.basename(location.path) != RESULT_FILE:
        return False
    try:
        return bool({"place", "identity", "made", "result"} <= json.loads(location.read()).keys())
    except (ValueError, AttributeError, RecursionError):
        return False


def invalidate_result(location: Location) -> None:
    """Deletes the result at `location` and the card beside it, if they exist: its output is about to be replaced."""
    for file in _described(location):
        file.delete()


def _described(location: Location) -> list[Location]:
    """The files that are there of a result and its card."""
    files = (location, *(location.parent.child(name) for name in sorted(SIDECAR_FILES - {RESULT_FILE})))
    return [file for file in files if file.is_file()]


def _has_outputs_elsewhere(location: Location) -> bool:
    """Whether there is a result, and none of its outputs is in its folder."""
    with contextlib.suppress(CorruptFileError):
        stored = stored_values(location) if location.is_file() else None
        return stored is not None and not any(name.startswith(f"{location.parent.uri}/") for name in stored.made)
    return False


def _set_aside(location: Location) -> dict[str, bytes]:
    """What the files of a result hold, by their URIs; they are deleted as `invalidate_result` does."""
    held = {file.uri: file.read() for file in _described(location)}
    invalidate_result(location)
    return held
