"""Takes a foreign folder of episodes into a dataset of ours: each episode once, checked, with a manifest."""

from __future__ import annotations

import itertools
import logging

from tqdm import tqdm

from offline_core.errors import SchemaError
from offline_core.storage.dataset import Dataset, commit, open_dataset, prepare_dataset, versions
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation
from offline_core.storage.reader import episodes, spaces_of
from offline_core.storage.writer import EpisodeWriter, FilesConfig, statistics_of

log = logging.getLogger(__name__)

EPISODES_AT_A_TIME = 256


def open_or_import(uri: str, version: int | None, *, output: str) -> Dataset:
    """A version of a dataset of ours; a foreign folder of episodes is first imported to `<output>/imported`.

    Raises:
        SchemaError: the folder holds step tables without a manifest of ours.
    """
    source = open_dataset(uri, version)
    if not source.is_foreign:
        return source
    imported = Location.of(output).child("imported").uri
    if known := versions(imported):
        earlier = open_dataset(imported, known[-1])
        if earlier.manifest.parents == [source.parent_entry]:
            return earlier
    log.info("%s has no manifest; importing it to %s", uri, imported)
    return import_episodes(source, output=imported)


def import_episodes(source: Dataset, *, output: str, files: FilesConfig = FilesConfig()) -> Dataset:
    """The episodes of a folder that RLlib (or anybody in its format) wrote, as the next version of `output`.

    Duplicates, which RLlib's recorder writes, are left out and counted in the log and in the manifest's operation.

    Raises:
        SchemaError: the folder holds step tables.
        DataError: an episode cannot be read; the message names it, and nothing is committed.
    """
    if source.manifest.format != "episodes":
        raise SchemaError(
            f"{source.location.uri} is a table without a manifest of ours; only episodes are taken over as they are. "
            "Its steps can be read with offline_core.storage.foreign.step_table."
        )
    rows = sum(file.rows for file in source.manifest.files)
    with EpisodeWriter(prepare_dataset(output), "part", format="episodes", config=files) as writer:
        found = iter(tqdm(episodes(source), total=rows, desc="import", unit="episode", disable=None))
        while batch := list(itertools.islice(found, EPISODES_AT_A_TIME)):
            writer.write(batch)
    statistics = statistics_of(writer.metadata)
    observation_space, action_space = spaces_of(source)
    return commit(
        output,
        writer.files,
        format="episodes",
        operation=Operation(
            name="import_episodes", config={"rows": rows, "duplicates": rows - statistics.episodes, "files": files.model_dump()}
        ),
        statistics=statistics,
        parents=[source.parent_entry],
        observation_space=observation_space,
        action_space=action_space,
    )
