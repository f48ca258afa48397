"""Make ids of episodes unique where a source uses one again in another file, folder or on another date."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.data.episodes import columns
from offline_core.data.episodes.arrow import read_column
from offline_core.data.importing.config import EpisodesConfig, IdsPer
from offline_core.data.importing.times import NANOSECONDS

SOURCE_FILE = "_source_file"
"""A column beside the step columns: the number of the file in the source."""


def unique_ids(table: pa.Table, rules: EpisodesConfig, files: Sequence[str]) -> pa.Table:
    """Rows in canonical columns, with a `SOURCE_FILE`, under ids that are unique everywhere; rows without ids as they are.

    Arguments:
        files: URIs by their number.
    """
    if rules.ids_per == "source" or columns.EPS_ID not in table.column_names:
        return table
    labels, label = _labels(table, files, rules)
    encoded = table[columns.EPS_ID].combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    pairs = pa.array(encoded.indices.to_numpy().astype(np.int64) * len(labels) + label).dictionary_encode()
    unique = id_of_date if rules.ids_per == "date" else unique_id
    ids = [unique(names[pair // len(labels)], labels[pair % len(labels)]) for pair in pairs.dictionary.to_pylist()]
    at = table.column_names.index(columns.EPS_ID)
    return table.set_column(at, table.schema.field(at), pa.array(ids, pa.string()).take(pairs.indices))


def unique_id(eps_id: str, label: str) -> str:
    """Return an id that differs from those of other files or folders.

    Arguments:
        label: the file or folder.
    """
    return f"{eps_id}@{hashed(label, 8)}"


def id_of_date(eps_id: str, date: str) -> str:
    """Return an id that says the date; the hash keeps it apart from ids in the data."""
    return f"{eps_id}@{date}-{hashed(f'{eps_id}@{date}', 4)}"


def id_within(eps_id: str, uri: str, per: IdsPer) -> str:
    """Return the unique id of an episode in this file; by date it is not known."""
    return eps_id if per == "source" else unique_id(eps_id, uri if per == "file" else folder_of(uri))


def id_of_lost(eps_id: str | None, file: int, files: Sequence[str], per: IdsPer) -> str | None:
    """Return the unique id of a row that could not be read; None if it may be of any episode.

    By date it may, as the time of the row is not known.
    """
    return None if eps_id is None or per == "date" else id_within(eps_id, files[file], per)


def id_of_part(eps_id: str, t: int) -> str:
    """An id for what goes on at step t after an end or a gap; the hash keeps it apart from ids in the data."""
    return f"{eps_id}@{t}-{hashed(f'{eps_id}@{t}', 4)}"


def folder_of(uri: str) -> str:
    return uri.rpartition("/")[0]


def hashed(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def _labels(table: pa.Table, files: Sequence[str], rules: EpisodesConfig) -> tuple[list[str], np.ndarray]:
    """(what may follow an id, the number of each row's)."""
    if rules.ids_per == "date":
        t = read_column(table, columns.T).reshape(table.num_rows)
        if (zone := rules.time_zone) is None:
            date = t // (86_400 * NANOSECONDS)
        else:
            times = pl.Series(t).cast(pl.Datetime("ns", "UTC")).dt.convert_time_zone(zone)
            date = times.dt.date().cast(pl.Int32).to_numpy()
        days, label = np.unique(date, return_inverse=True)
        return [str(np.datetime64(int(day), "D")) for day in days], label
    file = table[SOURCE_FILE].to_numpy().astype(np.int64)
    if rules.ids_per == "file":
        return list(files), file
    folders, number = np.unique([folder_of(uri) for uri in files], return_inverse=True)
    return folders.tolist(), number[file]
