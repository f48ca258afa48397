"""Episodes out of files that hold an episode, or a piece of one, a row, RLlib's and ours: each once, checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from offline_core.conversion.config import EpisodesConfig, ImportConfig
from offline_core.conversion.report import Counts
from offline_core.conversion.unreadable import Unreadable, refuse
from offline_core.episodes import Episode, columns, decode
from offline_core.episodes.metadata import content_of
from offline_core.errors import CorruptFileError, DataError, EpisodeError, SchemaError, StorageError
from offline_core.storage.dataset import parquet_errors
from offline_core.storage.location import Location

Seen = dict[tuple[str, int], str]
"""Content by id and first step."""


def read_episodes(
    files: Sequence[Location], config: ImportConfig, unreadable: list[Unreadable]
) -> Iterator[tuple[list[Episode], Counts]]:
    """The episodes of a row group and what became of its steps; at the end, the episodes that lay there in pieces.

    An episode is there twice if one of its id, first step and content came before, as RLlib's recorder writes them.
    Memory: a row group, all pieces, and an id for each episode.

    Raises:
        DataError: an episode cannot be read, or contradicts one of the same id, and `unreadable` is "fail"; the message
            names file and row.
    """
    seen: Seen = {}
    limit = config.episodes.time_limit_steps
    pieces: dict[str, list[Episode]] = {}
    for file in tqdm(files, desc="read", unit="file", disable=None):
        for first_row, items in _items(file, config, unreadable):
            episodes, counts = [], Counts()
            for row, item in enumerate(items, first_row):
                try:
                    episode = _decoded(item)
                    is_new = _is_new(episode, seen)
                except DataError as error:
                    refuse(Unreadable(file.uri, row, 1, error), config.unreadable, unreadable)
                    continue
                counts.rows += len(episode)
                if not is_new:
                    counts.duplicates += len(episode)
                elif len(episode) == 0:
                    counts.dropped_episodes += 1
                elif episode.t_started == 0 and episode.is_done:
                    episodes.append(episode)
                else:
                    pieces.setdefault(episode.eps_id, []).append(episode)
            yield _counted(episodes, limit, counts)
    for eps_id, found in pieces.items():
        counts, parts = Counts(), _joined(found)
        first = 0 if (eps_id, 0) in seen else parts[0].t_started
        yield _counted(_completed(parts, config.episodes, counts, first=first), limit, counts)


def _items(file: Location, config: ImportConfig, unreadable: list[Unreadable]) -> Iterator[tuple[int, list[bytes | None]]]:
    """(number of the first row, the rows) of each row group, as far as the file can be read."""
    try:
        with parquet_errors(file.uri), pq.ParquetFile(file.path, filesystem=file.filesystem) as parquet:
            schema, row = parquet.schema_arrow, 0
            if columns.ITEM not in schema.names or schema.field(columns.ITEM).type not in (pa.binary(), pa.large_binary()):
                raise SchemaError(f"{file.uri} holds no episodes but {schema.names}; import each kind by itself.")
            for number in range(parquet.num_row_groups):
                items = parquet.read_row_group(number, columns=[columns.ITEM])[columns.ITEM].to_pylist()
                yield row, items
                row += len(items)
    except (DataError, StorageError) as error:
        if config.unreadable == "fail":
            raise
        unreadable.append(Unreadable(file.uri, None, 0, error))


def _decoded(item: bytes | None) -> Episode:
    if item is None:
        raise CorruptFileError("There are no bytes where an episode has to be.")
    return decode(item).validate()


def _is_new(episode: Episode, seen: Seen) -> bool:
    key, content = (episode.eps_id, episode.t_started), content_of(episode)
    if key not in seen:
        seen[key] = content
        return True
    if seen[key] != content:
        raise EpisodeError(
            f"Another episode {episode.eps_id} with other steps came before. Import the files separately, and merge them then."
        )
    return False


def _joined(pieces: Sequence[Episode]) -> list[Episode]:
    """The pieces of one episode in order, those that follow one another as one."""
    parts: list[Episode] = []
    for piece in sorted(pieces, key=lambda piece: piece.t_started):
        try:
            parts[-1:] = [parts[-1].concat(piece) if parts else piece]
        except EpisodeError:  # steps are missing between them
            parts.append(piece)
    return parts


def _completed(parts: Sequence[Episode], rules: EpisodesConfig, counts: Counts, *, first: int) -> list[Episode]:
    """The parts of one episode under the rule for incomplete ones; that at step `first` keeps the id, others are `<id>@<t>`."""
    broken = [not before.is_done for before in parts[:-1]]
    counts.gaps, counts.restarted_ids = sum(broken), len(broken) - sum(broken)
    counts.late_starts = int(first > 0)
    counts.open_ends = sum(not part.is_done for part in parts)
    if rules.incomplete == "drop" and counts.gaps + counts.late_starts + counts.open_ends:
        counts.dropped_episodes, counts.dropped_steps = 1, sum(map(len, parts))
        return []
    parts = [p if p.t_started == first else replace(p, eps_id=f"{p.eps_id}@{p.t_started}") for p in parts]
    if rules.incomplete == "cut":
        return [replace(part, t_started=0, truncated=part.truncated or not part.is_done) for part in parts]
    return parts


def _counted(episodes: Sequence[Episode], limit: int | None, counts: Counts) -> tuple[list[Episode], Counts]:
    """The episodes, with ends at the time limit made truncations, and the complete account of them."""
    at_limit = [limit is not None and episode.terminated and episode.t >= limit for episode in episodes]
    counts.time_limits = sum(at_limit)
    counts.episodes, counts.steps = len(episodes), sum(map(len, episodes))
    pairs = zip(episodes, at_limit, strict=True)
    return [replace(episode, terminated=False, truncated=True) if late else episode for episode, late in pairs], counts
