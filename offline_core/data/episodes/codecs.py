"""The storage formats, each a codec between episodes and the rows of a file: no other module asks which format it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns
from offline_core.data.episodes.batch import EpisodeBatch
from offline_core.data.episodes.episode import Episode
from offline_core.data.episodes.episode_codec import EpisodeCodec
from offline_core.data.episodes.index import Read, Share
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.table_codec import TableCodec

Format = Literal["episodes", "table"]


class Codec(Protocol):
    """How episodes lie in the rows of files. A row group holds whole episodes, or whole pieces of them.

    So rows of chosen episodes, of which `rows_of` says how many each has, are filtered and joined without decoding them.
    """

    @property
    def name(self) -> Format:
        """Name of the format, as manifests say it."""

    @property
    def needs_import(self) -> bool:
        """Files of others hold no episodes as they are: parts of one may be apart, and steps out of order."""

    @property
    def metadata(self) -> Sequence[str]:
        """The columns of the index that are read without observations and actions."""

    # Writing

    def rows_of(self, lengths: np.ndarray) -> np.ndarray:
        """(episodes,) the rows that each takes, of (episodes,) steps."""

    def encode(self, episodes: Sequence[Episode]) -> pa.Table:
        """The rows of some episodes, at least one."""

    def encoded(self, episodes: Sequence[Episode], share: Share) -> Iterator[tuple[pa.Table, int, int]]:
        """(rows of a row group, start, stop of its episodes), of all of them in order."""

    def shared(self, rows: pa.Table, summary: Mapping[str, np.ndarray], share: Share) -> Iterator[tuple[pa.Table, int, int]]:
        """As `encoded`, of rows that were read, with the `episode_summary` of their episodes; nothing is decoded."""

    def numbers(self, rows: pa.Table) -> Mapping[str, Nested] | None:
        """The columns with statistics; None if these are not seen without decoding."""

    # Reading

    def stored(self, names: Sequence[str] | None) -> Sequence[str] | None:
        """The columns of a file that hold these columns of steps; None: all."""

    def projection(self, names: Sequence[str], schema: pa.Schema, uri: str) -> Sequence[str]:
        """The columns that a copy keeps which keeps these.

        Raises:
            ConfigError: Columns are not stored apart.
            SchemaError: There is no such column.
        """

    def starts(self, rows: pa.Table) -> np.ndarray:
        """(episodes,) the first row of each."""

    def episodes(self, rows: pa.Table, only: np.ndarray | None = None) -> list[Episode]:
        """The episodes of a row group, not validated; `only`, (episodes,) booleans, leaves out others.

        Raises:
            CorruptFileError, EpisodeError, SchemaError, UnsafeDataError: they cannot be read.
        """

    def batch(self, rows: pa.Table, names: Sequence[str], *, has_last: bool) -> EpisodeBatch:
        """Some columns of the episodes that have a step; with `has_last`, a row more for each, see `EpisodeBatch`."""

    def as_stored(self, tables: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[EpisodeBatch, list[str]]]:
        """(steps, contents of their pieces) of (URI, rows) of all row groups, however broken, and nothing left out."""

    def index(self, names: Sequence[str], read: Read) -> pa.Table:
        """Columns of the index, or `ROW_GROUP`; one row an episode."""

    def firsts(self, name: str, read: Read) -> list[object]:
        """For each episode the value of an extra column in its first step, None if it has none."""

    def constants(self, name: str, read: Read) -> list[object]:
        """For each episode the value that a column of its steps has in all of them, None if it has several or none."""


CODECS: Mapping[str, Codec] = {codec.name: codec for codec in (EpisodeCodec(), TableCodec())}


def codec_of(schema: pa.Schema) -> Codec:
    """The codec of a file with these columns. An `item` that is not binary is a column of a user's log."""
    is_stored = columns.ITEM in schema.names and schema.field(columns.ITEM).type in (pa.binary(), pa.large_binary())
    return CODECS["episodes" if is_stored else "table"]
