"""Find out how rows become episodes: what t is, where ids mean one episode, what follows the last step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns
from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.importing.column_values import grows
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.episode_ids import SOURCE_FILE, folder_of
from offline_core.data.importing.planning.trial import Trial, tried
from offline_core.data.importing.times import GAP_FACTOR, NANOSECONDS, has_timestamps

MOST = 0.9
HALF = 0.5
DAY = 86_400 * NANOSECONDS


Choice: TypeAlias = tuple[Any, str]
"""(a parameter of the import, why)"""


@dataclass
class OrderedRows:
    """N rows of a canonical table in the order of id, file and t."""

    t: np.ndarray
    same: np.ndarray
    """(N-1,) bool: the next row has the same id."""
    same_file: np.ndarray
    adjacent: np.ndarray
    """(N-1,) bool: nothing that lies between the row and the next one was left unread."""
    group: np.ndarray
    folder: np.ndarray
    is_timestamp: bool
    knows_gaps: bool
    """All rows are read, or those of an id lie in the order of t: no row between two of them is unread."""

    @classmethod
    def of(cls, table: pa.Table, readers: Sequence[FirstRows], numbers: Sequence[int]) -> OrderedRows | None:
        """Sort the rows of a table; None if it has no column t."""
        if columns.T not in table.column_names:
            return None
        t = read_column(table, columns.T).reshape(table.num_rows)
        file = table[SOURCE_FILE].to_numpy().astype(np.int64)
        group = np.zeros(len(t), np.int64)
        if columns.EPS_ID in table.column_names:
            group = table[columns.EPS_ID].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        whole = np.array([reader.is_whole for reader in readers])
        as_stored = np.lexsort((np.arange(len(t)), file, group))
        inside = (np.diff(group[as_stored]) == 0) & (np.diff(file[as_stored]) == 0)
        knows_gaps = bool(whole.all()) or grows(t[as_stored].astype(np.float64), inside)
        order = np.lexsort((t, file, group))
        t, file, group = t[order], file[order], group[order]
        same_file = np.diff(file) == 0
        joins = (np.diff(np.array(numbers)[file]) == np.diff(file)) & whole[file[:-1]]
        folders = np.unique([folder_of(reader.uri) for reader in readers], return_inverse=True)[1]
        return cls(
            t, np.diff(group) == 0, same_file, same_file | joins, group, folders[file], has_timestamps(table), knows_gaps
        )

    def goes_on(self, *, are_copies: bool) -> np.ndarray:
        """(N-1,) bool: the next row is not there twice.

        Arguments:
            are_copies: rows of one id and time are equal.
        """
        if not are_copies:
            return np.ones(len(self.t[1:]), bool)
        _, row, count = np.unique(np.stack([self.group, self.t]), axis=1, return_inverse=True, return_counts=True)
        return np.asarray(count[row.reshape(-1)][1:] == 1)

    def took(self) -> np.ndarray:
        """(N-1,) float64: the time from each row to the next."""
        return np.diff(self.t).astype(np.float64)


def order_and_first_t(clock: OrderedRows, has_ids: bool) -> dict[str, Choice]:
    """Choose an order and a first t other than the defaults if whole numbers do not count steps, or do not begin at 0."""
    if clock.is_timestamp or clock.t.dtype.kind == "f":
        return {}
    if not clock.knows_gaps:
        numbers = np.unique(clock.t)
        if not has_ids or numbers[0] not in (0, 1) or numbers[-1] - numbers[0] + 1 != len(numbers):
            return {}
        order = ("t", "rows lie in no order, and column t numbers those of an episode")
        return {"order": order, "first_t": (1, "the smallest t is 1")} if numbers[0] == 1 else {"order": order}
    inside = clock.same & clock.same_file if has_ids else clock.same_file & (np.diff(clock.t) > 0)
    if not inside.any():
        return {}
    if (np.isin(clock.took()[inside], (0, 1))).mean() < HALF:
        usual = float(np.median(clock.took()[inside]))
        return {"order": ("time", f"column t does not count steps by one (by {usual:,.6g} mostly): it only sorts them")}
    begins = clock.t[np.append(True, ~inside)]
    values, counts = np.unique(begins, return_counts=True)
    first = int(values[np.argmax(counts)])
    if first != 0 and counts.max() > HALF * len(begins):
        return {"first_t": (first, f"{counts.max():,} of {len(begins):,} episodes begin at t = {first}")}
    return {}


def ids_per(clock: OrderedRows | None, readers: Sequence[FirstRows], config: ImportConfig, trial: Trial) -> Choice | None:
    """Choose the scope in which an id means one episode; None: the whole source, as is the default.

    Each scope is tried by the import's own code. The first one wins in which the fewest rows contradict each other, and the
    fewest ids alternate between files or begin again after an end. Where times sort the steps, a change of file or date
    that nearly always comes with a gap limits ids, too, if gaps hardly come elsewhere.
    """
    if trial.order == "time" and clock is not None:
        choice = _by_gaps(clock, clock.goes_on(are_copies=not _contradictions(trial)))
        if choice is not None:
            return choice
    if not (worst := _contradictions(trial)):
        return None
    several = len({folder_of(reader.uri) for reader in readers}) > 1
    best = "source"
    for per in (["folder"] if several else []) + ["file"] * (len(readers) > 1):
        count = _contradictions(tried(readers, config.having("episodes.ids_per", per)))
        if count < worst:
            best, worst = per, count
    if best != "source":
        return (best, f"ids come again in another {best} for other episodes")
    return None


def _contradictions(trial: Trial) -> int:
    claims = sum(failure.rows for failure in trial.findings.unreadable if "rows claim to be" in str(failure.error))
    return claims + trial.counts.alternating_ids + trial.counts.restarted_ids


def _by_gaps(clock: OrderedRows, goes_on: np.ndarray) -> Choice | None:
    """Choose the scope of ids by gaps in time alone, without new_obs and ends.

    Arguments:
        goes_on: (N-1,) bool, the next row is none that an earlier file has as well.
    """
    took, pairs = clock.took(), clock.same & clock.adjacent & goes_on
    inside = pairs & clock.same_file
    if not inside.any():
        return None
    is_gap = (took > GAP_FACTOR * np.median(took[inside])) | (took < 0)
    changes = pairs & ~clock.same_file
    of_folder = changes & (np.diff(clock.folder) != 0)
    if changes.any() and is_gap[changes].mean() >= MOST:
        unit = "file" if (changes & ~of_folder).any() or not of_folder.any() else "folder"
        return (unit, f"ids come again in the next {unit}, after a gap")
    if of_folder.any() and is_gap[of_folder].mean() >= MOST:
        return ("folder", "ids come again in the next folder, after a gap")
    if not clock.is_timestamp:
        return None
    new_date = pairs & (np.diff(clock.t // DAY) != 0)
    if new_date.any() and is_gap[new_date].mean() >= MOST and not is_gap[inside & ~new_date].any():
        return ("date", "ids come again on the next day (UTC), after a gap")
    return None
