"""The episodes of the version that an import is appended to: found by their id, and turned back into rows."""

from __future__ import annotations

import base64
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.episode_index import places_of_ids
from offline_core.data.datasets.manifest import Imported
from offline_core.data.datasets.replacing import chosen_episodes
from offline_core.data.episodes import Episode, columns, episodes_to_table
from offline_core.data.episodes.extension_types import refuse_extension_types
from offline_core.data.importing.config import EpisodesConfig
from offline_core.data.importing.cuts import CUTS, IS_OPEN, canonical
from offline_core.data.importing.late_files import SOURCE_ID, read_late


@dataclass(frozen=True)
class Stored:
    """Picklable; reads episodes when they are asked for."""

    dataset: Dataset
    imported: Imported
    rules: EpisodesConfig
    places: pl.DataFrame
    """eps_id and the number of the row group of each episode, in the order of the data."""
    cuts: pl.DataFrame
    """`CUTS`."""
    waiting: frozenset[str]
    """Ids of the source with rows in no episode."""
    known: frozenset[str] = field(default_factory=frozenset)
    """All ids of the source."""

    @classmethod
    def of(cls, dataset: Dataset, rules: EpisodesConfig) -> Stored:
        """Reads the ids of all episodes and nothing else of them."""
        imported = dataset.manifest.imported
        assert imported is not None
        places = places_of_ids(dataset)
        found = [read_late(dataset.location, entry) for entry in imported.cuts]
        cuts = pl.DataFrame(pa.concat_tables([CUTS.empty_table(), *found]))
        waiting = {
            name
            for entry in imported.left_out
            for name in pc.unique(read_late(dataset.location, entry, [columns.EPS_ID])[columns.EPS_ID]).to_pylist()
        }
        whole = set(places[columns.EPS_ID].to_list()) - set(cuts[columns.EPS_ID].to_list())
        known = frozenset(whole | set(cuts[SOURCE_ID].to_list()) | waiting)
        return cls(dataset, imported, rules, places, cuts, frozenset(waiting), known)

    def parts(self, ids: Collection[str]) -> pl.DataFrame:
        """`CUTS` of the stored episodes that hold steps of these ids of the source, those that are whole included."""
        own = self.cuts.filter(pl.col(SOURCE_ID).is_in(ids))
        whole = set(ids) - set(self.cuts[columns.EPS_ID].to_list())
        names = self.places.filter(pl.col(columns.EPS_ID).is_in(whole))[columns.EPS_ID]
        others = pl.DataFrame({SOURCE_ID: names, columns.EPS_ID: names}).with_columns(
            pl.lit(0, pl.Int64).alias(columns.T), pl.lit(False).alias(IS_OPEN)
        )
        return pl.concat([own, others])

    def episodes(self, names: Collection[str]) -> list[Episode]:
        """The stored episodes of these names."""
        return [episode for batch in chosen_episodes(self.dataset, self.places, names) for episode in batch]

    def rows(self, ids: Collection[str]) -> pa.Table:
        """All rows of these ids of the source, in episodes or left out, under canonical names."""
        schema = schema_of(self.imported)
        parts = {name: (source, t, is_open) for source, name, t, is_open in self.parts(ids).iter_rows()}
        tables = [
            _rows_of(episode, *parts[episode.eps_id], self.rules, schema, self._is_timed) for episode in self.episodes(parts)
        ]
        if not self.waiting.isdisjoint(ids):
            wanted = pa.array(list(ids), pa.string())
            for entry in self.imported.left_out:
                rows = read_late(self.dataset.location, entry)
                tables.append(rows.filter(pc.is_in(rows[columns.EPS_ID], wanted)).cast(schema))
        return pa.concat_tables([schema.empty_table(), *tables])

    @property
    def _is_timed(self) -> bool:
        return self.imported.order == "time"


def mergeable(order: str, *, has_ids: bool, schema: pa.Schema) -> bool:
    """Whether rows that come later have a place in a stored episode."""
    if columns.IS_LAST in schema.names:  # stored episodes have no such rows
        return False
    return has_ids and (order == "t" or (order == "time" and columns.TIME not in schema.names))


def schema_of(imported: Imported) -> pa.Schema:
    """Of the rows, under canonical names."""
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(imported.arrow_schema)))
    refuse_extension_types(schema, "the dataset's manifest")
    return schema


def _rows_of(
    episode: Episode, source: str, t: int, is_open: bool, rules: EpisodesConfig, schema: pa.Schema, is_timed: bool
) -> pa.Table:
    """A stored episode as its rows in the source."""
    table = episodes_to_table([episode])
    count = len(episode)
    times = episode.extras[columns.TIME] if is_timed else rules.first_t + t + np.arange(count)
    terminated, truncated = np.zeros(count, bool), np.zeros(count, bool)
    terminated[-1], truncated[-1] = episode.terminated, episode.truncated and not is_open
    assert isinstance(times, np.ndarray)
    return canonical(table, schema, pa.array([source] * count, pa.string()), times, terminated, truncated)
