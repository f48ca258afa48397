"""Episodes out of files that hold an episode a row, RLlib's and ours: each once, checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow.parquet as pq
from tqdm import tqdm

from offline_core.conversion.config import ImportConfig
from offline_core.conversion.report import Counts
from offline_core.conversion.unreadable import Unreadable, refuse
from offline_core.episodes import Episode, columns, decode
from offline_core.episodes.metadata import content_of
from offline_core.errors import DataError, EpisodeError
from offline_core.storage.dataset import parquet_errors
from offline_core.storage.location import Location


def read_episodes(
    files: Sequence[Location], config: ImportConfig, unreadable: list[Unreadable]
) -> Iterator[tuple[list[Episode], Counts]]:
    """The episodes of a row group and what became of its steps.

    An episode is there twice if one of its id, first step and content came before, as RLlib's recorder writes them.

    Raises:
        DataError: an episode cannot be read, and `unreadable` is "fail"; the message names file and row.
        EpisodeError: two different episodes share an id.
    """
    seen: dict[tuple[str, int], str] = {}
    for file in tqdm(files, desc="read", unit="file", disable=None):
        try:
            for first_row, items in _items(file):
                found = [(row, item) for row, item in enumerate(items, first_row)]
                counts = Counts()
                episodes = []
                for row, item in found:
                    try:
                        episode = decode(item).validate()
                    except DataError as error:
                        refuse(Unreadable(file.uri, row, 1, error), config.unreadable, unreadable)
                        continue
                    counts.rows += len(episode)
                    if _is_new(episode, seen, file.uri, row):
                        episodes += _whole(episode, config, counts)
                    else:
                        counts.duplicates += len(episode)
                counts.episodes, counts.steps = len(episodes), sum(map(len, episodes))
                yield episodes, counts
        except DataError as error:
            if config.unreadable == "fail":
                raise
            unreadable.append(Unreadable(file.uri, None, 0, error))


def _items(file: Location) -> Iterator[tuple[int, list[bytes]]]:
    """(number of the first row, the rows) of each row group."""
    with parquet_errors(file.uri), pq.ParquetFile(file.path, filesystem=file.filesystem) as parquet:
        row = 0
        for number in range(parquet.num_row_groups):
            items = parquet.read_row_group(number, columns=[columns.ITEM])[columns.ITEM].to_pylist()
            yield row, items
            row += len(items)


def _is_new(episode: Episode, seen: dict[tuple[str, int], str], uri: str, row: int) -> bool:
    key, content = (episode.eps_id, episode.t_started), content_of(episode)
    if key in seen and seen[key] != content:
        raise EpisodeError(
            f"{uri}, row {row:,}: another episode {episode.eps_id} with other steps came before. Import the files separately, "
            "and merge them then."
        )
    is_new = key not in seen
    seen[key] = content
    return is_new


def _whole(episode: Episode, config: ImportConfig, counts: Counts) -> list[Episode]:
    """The episode under the rule for incomplete ones."""
    if episode.is_done:
        limit = config.episodes.time_limit_steps
        if limit is not None and episode.terminated and episode.t >= limit:
            counts.time_limits += 1
            return [replace(episode, terminated=False, truncated=True)]
        return [episode]
    counts.open_ends += 1
    if config.episodes.incomplete == "drop":
        counts.dropped_episodes += 1
        counts.dropped_steps += len(episode)
        return []
    return [replace(episode, truncated=True)] if config.episodes.incomplete == "cut" else [episode]
