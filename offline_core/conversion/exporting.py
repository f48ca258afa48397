"""Datasets for other people's programs."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ImportString, TypeAdapter, ValidationError

from offline_core.config import Config, EnvironmentSpec, parse
from offline_core.conversion.importing import open_or_import
from offline_core.errors import ConfigError
from offline_core.progress import progress
from offline_core.storage.dataset import Dataset, DatasetRef
from offline_core.storage.exports.episode_sink import EpisodeSink
from offline_core.storage.kept import BESIDE, RESULT_FILE, keep, kept
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, digest, identity_of
from offline_core.storage.reader import row_groups

log = logging.getLogger(__name__)

DEFAULT_MINARI_ID = "offline/dataset-v0"


class ExportConfig(Config):
    """What to write, and how."""

    format: str = Field(
        "minari",
        title="Format",
        description="minari, lerobot, or package.module:Writer, a class of your own that is called with the output and the "
        "arguments below and has write(episodes), as a context manager.",
    )
    arguments: dict[str, Any] = Field(
        {},
        title="Arguments",
        description='For the writer, as JSON. minari: {"dataset_id": "robot/pick-v0"}; lerobot: {"fps": 20, "task": "pick"}.',
    )


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

    Raises:
        ConfigError: there is no such format, or it does not take the arguments.
        DataError: the format cannot hold an episode; the message names it.
        StorageError: something is there already, or the place cannot be written.
    """
    source = open_or_import(dataset, version, output=output)
    operation = Operation(name="export_dataset", config=config.model_dump(mode="json"))
    identity = identity_of(operation, [source.parent_entry])
    place = Location.of(output).child(RESULT_FILE)
    if found := kept(place, identity, ExportResult, fingerprint=_fingerprint):
        return found
    written = steps = 0
    total = source.manifest.statistics.episodes
    with _sink(config, source, output) as sink, progress(total, what="export", unit="episode") as bar:
        for group in row_groups(source):
            episodes = group.episodes()
            sink.write(episodes)
            written, steps = written + len(episodes), steps + sum(map(len, episodes))
            bar.update(len(episodes))
    log.info("Exported %s to %s as %s", source.ref, output, config.format)
    result = ExportResult(source=source.ref, output=output, format=config.format, episodes=written, steps=steps)
    if Location.of(output).is_folder():  # a writer of the user's own may make a single file
        keep(place, identity, result, made={output: _fingerprint(output)})
    return result


def _fingerprint(output: str) -> str:
    """Of the names and sizes of the files, but for the ones beside the export that tell about it."""
    return digest(sorted((name, size) for name, size in Location.of(output).sizes().items() if name not in BESIDE))


def _sink(config: ExportConfig, source: Dataset, output: str) -> EpisodeSink:
    try:
        match config.format:
            case "minari":
                from offline_core.storage.exports.minari import MinariSink

                arguments = {"dataset_id": DEFAULT_MINARI_ID, "environment": source.manifest.environment} | config.arguments
                if isinstance(arguments["environment"], dict):
                    arguments["environment"] = parse(EnvironmentSpec, arguments["environment"])
                return MinariSink(output, **arguments)
            case "lerobot":
                from offline_core.storage.exports.lerobot import LeRobotSink

                return LeRobotSink(output, **config.arguments)
            case name if ":" in name:
                return TypeAdapter(ImportString).validate_python(name)(output, **config.arguments)  # type: ignore[no-any-return]
    except (TypeError, ValidationError) as error:
        raise ConfigError(f"The writer {config.format} cannot be made: {error}.") from error
    raise ConfigError(
        f"There is no format {config.format!r} to export to; there are minari, lerobot and package.module:Writer."
    )
