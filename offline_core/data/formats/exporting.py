"""Export a dataset to the formats of other programs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from pydantic import Field, ValidationError

from offline_core.data.datasets.about import About, read_about
from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.data.datasets.manifest import Operation, identity_of
from offline_core.data.datasets.result_cache import RESULT_FILE, load_result, store_result
from offline_core.data.episodes import Episode
from offline_core.data.formats.exports import d4rl, lerobot, minari, sample_batch  # noqa: F401
from offline_core.data.formats.exports.episode_sink import EXPORTS, EpisodeSink
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, StorageError
from offline_core.runtime.code_permission import recorded_environment
from offline_core.runtime.config import Config, EnvironmentSpec
from offline_core.runtime.parameter_names import did_you_mean
from offline_core.runtime.progress import progress
from offline_core.runtime.python_object import Arguments, Code, PythonObject, unwrapped
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Result
from offline_core.runtime.stage import DATASET, VERSION, stage
from offline_core.runtime.stage import output as of_output
from offline_core.runtime.units import count_text
from offline_core.runtime.user_code import import_object, making, user_errors

log = logging.getLogger(__name__)


class ExportConfig(Config):
    """What to write, and how."""

    format: Code = Field(
        "minari",
        description=", ".join(f"{name} ({form.about})" if form.about else name for name, form in EXPORTS.items())
        + ", or package.module:Writer, a class of your own that is called with the output and the arguments below and has "
        "write(episodes), as a context manager.",
    )
    arguments: Arguments = Field(
        {},
        description=f"For the writer, as JSON. {'; '.join(f'{name}: {form.arguments}' for name, form in EXPORTS.items())}.",
    )

    @property
    def user_code(self) -> dict[str, Any]:
        return {str(self.format): self.arguments} if self.is_own else {}

    @property
    def is_own(self) -> bool:
        """A writer of the user's, not one of `EXPORTS`."""
        return isinstance(self.format, PythonObject) or ":" in self.format


class ExportResult(Result):
    """What was written."""

    source: DatasetRef
    output: str
    format: str
    episodes: int
    steps: int
    folder: str | None = Field(None, description="Of this result; None: of a user's writer, which may make a single file.")

    def card(self) -> Card:
        return Card(
            "Export",
            verdict="good",
            word="Exported",
            sentence=f"{count_text(self.episodes, 'episode')}, {count_text(self.steps, 'step')} as {self.format}.",
            facts={"From": self.source, "To": self.output},
            next=EXPORTS[self.format].opens.format(self.folder) if self.format in EXPORTS else "",
            about=(self.source.uri, self.source.version),
            places=[] if self.folder is None else [f"{self.folder}/card"],
        )


@stage(
    "export",
    version=2,
    after="publish",
    arguments=(DATASET, of_output("runs/export", "Folder to write; an existing export is replaced, nothing else is."), VERSION),
    hint="The format is chosen by -s format=….",
)
def export(config: ExportConfig, *, dataset: str, output: str, version: int | None = None) -> ExportResult:
    """Write a dataset for Minari, LeRobot, RLlib (sample_batch), D4RL or a writer of your own.

    All episodes are written, or nothing is. An older export at `output` is replaced. A user's writer is always called, as its
    results are not tracked.

    Raises:
        ConfigError: there is no such format, or it does not take the arguments.
        DataError: the format cannot hold an episode; the message names it.
        StorageError: `output` holds something else, or cannot be written.
        BusyError: another run was first.
    """
    source = open_committed(dataset, version)
    location, result_file = Location.of(output), result_place(config, output)
    about = _about(config, source)
    said: dict[str, Any] = {"about": about.facts} if about.facts else {}
    operation = Operation.of(export.name, config, version=export.version, **said)
    identity = identity_of(operation, [source.parent_entry])
    if result_file and (stored := load_result(result_file, identity, ExportResult, fingerprint=_sizes(result_file.parent).get)):
        return stored
    statistics = source.manifest.statistics
    result = ExportResult(
        source=source.ref,
        output=location.uri,
        format=str(config.format),
        episodes=statistics.episodes,
        steps=statistics.steps,
        folder=None if result_file is None else result_file.parent.uri,
    )

    def complete(temporary: Location) -> None:
        store_result(temporary.child(RESULT_FILE), identity, result, fingerprints=_sizes(temporary), final=result_file)

    with (
        _sink(config, _environment(config, source), location.uri, complete, about) as sink,
        progress(statistics.episodes, what="export", unit="episode") as bar,
    ):
        for group in source.row_groups():
            episodes = group.episodes()
            sink.write(episodes)
            bar.update(len(episodes))
    log.info("Exported %s to %s as %s", source.ref, location.uri, config.format)
    return result


def result_place(config: ExportConfig, output: str) -> Location | None:
    """Location of the stored result, in the folder that is replaced as a whole; None for a user's writer."""
    form = EXPORTS.get(str(config.format))
    return None if form is None else Location.of(output).child(f"{form.folder(config.arguments)}{RESULT_FILE}")


def check_export(config: ExportConfig, environment: EnvironmentSpec | None, *, output: str, dataset: str) -> None:
    """Check an export: raise at once what `export` would raise before it writes.

    Arguments:
        environment: that of the dataset which will be exported.
        dataset: URI of the dataset that will be exported.

    Raises:
        ConfigError: there is no such format or writer, it does not take the arguments, or it would write over the dataset.
        LocationError: the output is not a single location.
    """
    location = Location.of(output)
    if location.uri == Location.of(dataset).uri:
        raise ConfigError(f"{output} is recorded to and exported to: choose another output for the export.")
    if not config.is_own:
        _sink(config, environment, location.uri, lambda _: None)
        return
    writer = import_object(config.format, "writer")
    try:
        inspect.signature(writer).bind(output, **unwrapped(config.arguments))
    except TypeError as error:
        raise ConfigError(f"The writer {config.format} cannot be made: {error}.") from error
    except ValueError:  # it has no signature to look at
        return


def _sizes(folder: Location) -> dict[str, str]:
    """Bytes of the files, by their names in the folder; none if there is no folder."""
    return {name: str(size) for name, size in folder.sizes().items()} if folder.is_folder() else {}


def _environment(config: ExportConfig, source: Dataset) -> EnvironmentSpec | None:
    """That of the dataset, for a format that names it."""
    form = EXPORTS.get(str(config.format))
    if form is None or not form.names_environment or "environment" in config.arguments:
        return None
    return recorded_environment(source.manifest.environment, file=source.location.uri)


def _about(config: ExportConfig, source: Dataset) -> About:
    """What is said of the dataset, for a format that says it."""
    form = EXPORTS.get(str(config.format))
    return About() if form is None or not form.says_about else read_about(source.location)


def _sink(
    config: ExportConfig,
    environment: EnvironmentSpec | None,
    output: str,
    complete: Callable[[Location], None],
    about: About = About(),
) -> EpisodeSink:
    arguments = unwrapped(config.arguments)
    if config.is_own:
        return CustomSink(config.format, output, arguments)
    if (form := EXPORTS.get(str(config.format))) is None:
        raise ConfigError(
            f"There is no format {config.format!r} to export to{did_you_mean(str(config.format), EXPORTS)}; there are "
            f"{', '.join(EXPORTS)} and package.module:Writer."
        )
    known: dict[str, Any] = {"environment": environment} if form.names_environment else {}
    known |= {"about": about} if form.says_about else {}
    try:
        return form.sink(output, complete=complete, **known | arguments)
    except (TypeError, ValidationError) as error:
        raise ConfigError(f"The writer {config.format} cannot be made: {error}.") from error


class CustomSink:
    """A user's writer; its errors name it and the output, and it cannot suppress errors.

    Raises:
        ConfigError: it cannot be imported or made, or is not a context manager.
    """

    def __init__(self, path: str | PythonObject, output: str, arguments: Mapping[str, Any]) -> None:
        self._what, self._where = f"writer {path}", f"at {output}"
        make = import_object(path, "writer")
        with making("writer", path, arguments):
            self._made = make(output, **arguments)
        if not (hasattr(self._made, "__enter__") and hasattr(self._made, "__exit__")):
            raise ConfigError(f"The {self._what} gives {type(self._made).__name__}, which is not a context manager.")

    def __enter__(self) -> EpisodeSink:
        with user_errors(self._what, self._where, StorageError):
            self._sink: EpisodeSink = self._made.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with user_errors(self._what, self._where, StorageError):
            self._made.__exit__(kind, error, trace)

    def write(self, episodes: Sequence[Episode]) -> None:
        """See `EpisodeSink`."""
        with user_errors(self._what, self._where, StorageError):
            self._sink.write(episodes)
