"""Datasets for other people's programs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offline_core.code_permission import recorded_environment
from offline_core.config import Config, EnvironmentSpec, parse
from offline_core.conversion.importing import open_or_import
from offline_core.errors import ConfigError
from offline_core.own_code import imported
from offline_core.progress import progress
from offline_core.python_object import Arguments, Code, PythonObject, given
from offline_core.storage.dataset import Dataset, DatasetRef
from offline_core.storage.exports.custom import CustomSink
from offline_core.storage.exports.episode_sink import EpisodeSink
from offline_core.storage.kept import RESULT_FILE, keep, kept
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, identity_of
from offline_core.storage.reader import row_groups

log = logging.getLogger(__name__)

FORMATS = ("minari", "lerobot", "sample_batch", "d4rl")
DEFAULT_MINARI_ID = "offline/dataset-v0"


class ExportConfig(Config):
    """What to write, and how."""

    format: Code = Field(
        "minari",
        title="Format",
        description="minari, lerobot, sample_batch (RLlib's old JSON), d4rl (HDF5), or package.module:Writer, a class of your "
        "own that is called with the output and the arguments below and has write(episodes), as a context manager.",
    )
    arguments: Arguments = Field(
        {},
        title="Arguments",
        description='For the writer, as JSON. minari: {"dataset_id": "robot/pick-v0"}; lerobot: {"fps": 20, "task": "pick"}; '
        'sample_batch: {"compress_columns": ["obs", "new_obs"], "max_file_size": 67108864}; d4rl: none.',
    )

    @property
    def own_code(self) -> dict[str, Any]:
        return {str(self.format): self.arguments} if self.is_own else {}

    @property
    def is_own(self) -> bool:
        """Code of the user's own writes."""
        return isinstance(self.format, PythonObject) or ":" in self.format


class ExportResult(BaseModel):
    """What was written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: DatasetRef
    output: str
    format: str
    episodes: int
    steps: int
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")


def export_dataset(config: ExportConfig, *, dataset: str, output: str, version: int | None = None) -> ExportResult:
    """Writes all episodes of a dataset to `output`, whole or not at all.

    An older export there is replaced. What a writer of the user's own does is its own affair: it is always called.

    Raises:
        ConfigError: there is no such format, or it does not take the arguments.
        DataError: the format cannot hold an episode; the message names it.
        StorageError: something else is there already, or the place cannot be written.
        BusyError: another run was first.
    """
    source = open_or_import(dataset, version, output=output)
    location, place = Location.of(output), result_place(config, output)
    operation = Operation.of("export_dataset", config, version=2)
    identity = identity_of(operation, [source.parent_entry])
    if place and (found := kept(place, identity, ExportResult, fingerprint=_sizes(place.parent).get)):
        return found
    statistics = source.manifest.statistics
    result = ExportResult(
        source=source.ref,
        output=location.uri,
        format=str(config.format),
        episodes=statistics.episodes,
        steps=statistics.steps,
    )

    def complete(temporary: Location) -> None:
        keep(temporary.child(RESULT_FILE), identity, result, made=_sizes(temporary), at=place)

    with (
        _sink(config, _environment(config, source), location.uri, complete) as sink,
        progress(statistics.episodes, what="export", unit="episode") as bar,
    ):
        for group in row_groups(source):
            episodes = group.episodes()
            sink.write(episodes)
            bar.update(len(episodes))
    log.info("Exported %s to %s as %s", source.ref, location.uri, config.format)
    return result


def result_place(config: ExportConfig, output: str) -> Location | None:
    """Where the result is kept: in the folder that is replaced as a whole, if the writer is one of ours."""
    match config.format:
        case "minari":
            return Location.of(output).child(f"{config.arguments.get('dataset_id', DEFAULT_MINARI_ID)}/{RESULT_FILE}")
        case "lerobot" | "sample_batch" | "d4rl":
            return Location.of(output).child(RESULT_FILE)
    return None


def check_export(config: ExportConfig, environment: EnvironmentSpec | None, *, output: str, dataset: str) -> None:
    """Refuses at once what `export_dataset` would refuse before it writes.

    Arguments:
        environment: that of the dataset which will be exported.
        dataset: where it will be.

    Raises:
        ConfigError: there is no such format or writer, it does not take the arguments, or it would write over the dataset.
        LocationError: the output is no one place.
    """
    place = Location.of(output)
    if place.uri == Location.of(dataset).uri:
        raise ConfigError(f"{output} is recorded to and exported to: choose another output for the export.")
    if not config.is_own:
        _sink(config, environment, place.uri, lambda _: None)
        return
    writer = imported(config.format, "writer")
    try:
        inspect.signature(writer).bind(output, **given(config.arguments))
    except TypeError as error:
        raise ConfigError(f"The writer {config.format} cannot be made: {error}.") from error
    except ValueError:  # it has no signature to look at
        return


def _sizes(folder: Location) -> dict[str, str]:
    """Bytes of the files, by their names in the folder; none if there is no folder."""
    return {name: str(size) for name, size in folder.sizes().items()} if folder.is_folder() else {}


def _environment(config: ExportConfig, source: Dataset) -> EnvironmentSpec | None:
    """That of the dataset, for a format that names it."""
    if config.format != "minari" or "environment" in config.arguments:
        return None
    return recorded_environment(source.manifest.environment, file=source.location.uri)


def _sink(
    config: ExportConfig, environment: EnvironmentSpec | None, output: str, complete: Callable[[Location], None]
) -> EpisodeSink:
    arguments = given(config.arguments)
    try:
        match config.format:
            case "minari":
                from offline_core.storage.exports.minari import MinariSink

                arguments = {"dataset_id": DEFAULT_MINARI_ID, "environment": environment} | arguments
                if isinstance(arguments["environment"], dict):
                    arguments["environment"] = parse(EnvironmentSpec, arguments["environment"])
                return MinariSink(output, complete=complete, **arguments)
            case "lerobot":
                from offline_core.storage.exports.lerobot import LeRobotSink

                return LeRobotSink(output, complete=complete, **arguments)
            case "sample_batch":
                from offline_core.storage.exports.sample_batch import SampleBatchSink

                return SampleBatchSink(output, complete=complete, **arguments)
            case "d4rl":
                from offline_core.storage.exports.d4rl import D4rlSink

                return D4rlSink(output, complete=complete, **arguments)
            case name if config.is_own:
                return CustomSink(name, output, arguments)
    except (TypeError, ValidationError) as error:
        raise ConfigError(f"The writer {config.format} cannot be made: {error}.") from error
    raise ConfigError(
        f"There is no format {config.format!r} to export to; there are {', '.join(FORMATS)} and package.module:Writer."
    )
