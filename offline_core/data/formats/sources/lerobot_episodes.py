"""Read the columns that an export of this package adds to LeRobot's `meta/episodes`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.episodes.arrow import from_arrow
from offline_core.data.episodes.codec import unpack
from offline_core.data.formats.sources.lerobot_frames import Frames, Spaces, observations_of
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import open_parquet, parquet_errors
from offline_core.errors import CorruptFileError

_FINAL = "final_"
_ADDED = {columns.EPS_ID, columns.TERMINATED, columns.TRUNCATED}
_OPTIONAL = (columns.AGENT_ID, columns.MODULE_ID, columns.INFOS, columns.CUSTOM_DATA)


@dataclass(frozen=True)
class EpisodeRows:
    """`meta/episodes` by the number of the episode."""

    rows: pa.Table
    numbers: dict[int, int]
    """Number of the episode → row."""

    @classmethod
    def of(cls, dataset: Location) -> EpisodeRows | None:
        """None if another program wrote it."""
        folder = dataset.child("meta/episodes")
        tables = [_read(folder.child(name)) for name in folder.files() if name.endswith(".parquet")]
        if not tables or any(table is None for table in tables):
            return None
        rows = pa.concat_tables([table for table in tables if table is not None])
        return cls(rows, {number: row for row, number in enumerate(rows["episode_index"].to_pylist())})

    def row(self, number: int) -> dict[str, Any]:
        """The row of an episode.

        Raises:
            CorruptFileError: it has none.
        """
        if number not in self.numbers:
            raise CorruptFileError(f"meta/episodes has no row for episode {number}: fetch the files again.")
        return self.rows.select([*_ADDED, *_OPTIONAL]).slice(self.numbers[number], 1).to_pylist()[0]  # type: ignore[no-any-return]

    def final_observations(self, numbers: list[int], spaces: Spaces) -> Any:
        """(E, …) the observations after the last step of these episodes."""
        names = [name for name in self.rows.column_names if name.startswith(f"{_FINAL}observation")]
        rows = self.rows.select(names).take(pa.array([self.numbers[number] for number in numbers]))
        return observations_of({name.removeprefix(_FINAL): from_arrow(rows[name], name) for name in names}, spaces)


def exported_episodes(frames: Frames, known: EpisodeRows, spaces: Spaces) -> list[Episode]:
    """The episodes as they were before the export."""
    bounds = [*frames.starts.tolist(), len(frames.t)]
    numbers = frames.episode[frames.starts].tolist()
    rows = [known.row(number) for number in numbers]
    final = known.final_observations(numbers, spaces)

    def episode(i: int, start: int, stop: int) -> Episode:
        row = rows[i]
        infos, custom = row[columns.INFOS], row[columns.CUSTOM_DATA]
        return Episode(
            eps_id=row[columns.EPS_ID],
            observations=nested.map_leaves(
                lambda steps, last: np.concatenate([steps[start:stop], last[i : i + 1]]), frames.observations, final
            ),
            actions=nested.map_leaves(lambda leaf: leaf[start:stop], frames.actions),
            rewards=frames.rewards[start:stop],
            infos=None if infos is None else unpack(infos),
            extras={name: array[start:stop] for name, array in frames.extras.items()},
            terminated=row[columns.TERMINATED],
            truncated=row[columns.TRUNCATED],
            observation_space=spaces[0],
            action_space=spaces[1],
            agent_id=row[columns.AGENT_ID],
            module_id=row[columns.MODULE_ID],
            custom_data={} if custom is None else unpack(custom),
        )

    return [episode(i, start, stop) for i, (start, stop) in enumerate(itertools.pairwise(bounds))]


def _read(file: Location) -> pa.Table | None:
    """The columns that an export adds, or None if one is missing."""
    with parquet_errors(file.uri), open_parquet(file) as parquet:
        names = parquet.schema_arrow.names
        final = [name for name in names if name.startswith(f"{_FINAL}observation")]
        if not final or not {*_ADDED, *_OPTIONAL, "episode_index"} <= set(names):
            return None
        wanted = ["episode_index", *_ADDED, *_OPTIONAL, *final]
        return parquet.read(columns=wanted).select(wanted).replace_schema_metadata(None)
