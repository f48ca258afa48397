"""What the values of columns do, row after row: grow, count, stay, mark ends."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import arrow
from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.packed import PACKED
from offline_core.data.importing.texts import has_lists, is_other_date, may_be_decimals, number_type, parsed
from offline_core.data.importing.values import flags, nanoseconds
from offline_core.data.inputs.encoding import MAX_CATEGORIES
from offline_core.errors import DataError

ALMOST_ALL = 0.95
MIN_SHARED_TIMES = 0.05
"""Rows whose time another row has, too."""
MIN_RUN = 3
"""Rows that share an id, on average."""
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_BEGINS_AS_NUMBER = r"^\s*[+-]?[€$£¥]?\s*\.?\d"
_TIME = r"^\s*\d{4}-\d\d-\d\d"
CHANCES = 10
"""Pairs of rows with the same id and number, by chance: if there are none of fewer, that proves nothing."""
RARE = 0.2
"""Ends are at most this share of the rows."""


@dataclass(frozen=True)
class SampleRows:
    """The rows of a sample under the names of the source, columns that files have in different types brought to one."""

    table: pa.Table
    file: np.ndarray
    """(N,) which of the sampled files."""

    def __len__(self) -> int:
        return len(self.file)

    @property
    def with_values(self) -> SampleRows:
        """The rows that have a value in any column."""
        filled = np.zeros(len(self), bool)
        for column in self.table.columns:
            filled |= column.is_valid().to_numpy()
        return self if filled.all() else SampleRows(self.table.filter(pa.array(filled)), self.file[filled])


def column_at(table: pa.Table, name: str) -> pa.ChunkedArray | None:
    """The column of a name, or the field inside structs by its dotted one, such as `pose.x`; None if there is none."""
    if name in table.column_names:
        return table[name]
    first, *path = name.split(".")
    if not path or first not in table.column_names:
        return None
    try:
        return pc.struct_field(table[first], path)
    except pa.ArrowException:
        return None


def numbers(column: pa.ChunkedArray, *, may_be_time: bool = False) -> np.ndarray | None:
    """(N,) float64, NaN for null, times in nanoseconds; None unless the column holds single numbers, or most texts are some."""
    if arrow.is_text(column.type):
        is_one = pc.fill_null(pc.match_substring_regex(column, _TIME if may_be_time and is_time(column) else _NUMBER), False)
        if 2 * pc.sum(is_one).as_py() <= len(column) - column.null_count:
            return None
        readable = pc.if_else(is_one, column.cast(pa.large_string()), pa.scalar(None, pa.large_string()))
        try:
            column = pa.chunked_array([parsed(readable, number_type(readable, may_be_time=may_be_time), "").combine_chunks()])
        except DataError:
            return None
    kind = column.type
    try:
        if pa.types.is_temporal(kind):
            if not may_be_time:
                return None
            there = column.is_valid().to_numpy()
            times = np.full(len(column), np.nan)
            times[there] = nanoseconds(column.drop_null(), "")[:, 0]
            return times
        if pa.types.is_decimal(kind):
            column = arrow.without_decimals(column)
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            return None
        return column.cast(pa.float64(), safe=False).combine_chunks().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, DataError):
        return None


def is_time(column: pa.ChunkedArray) -> bool:
    """Timestamps, dates, or text by ISO 8601."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return True
    if not arrow.is_text(kind):
        return False
    times = pc.sum(pc.match_substring_regex(column, _TIME)).as_py() or 0
    return bool(2 * times > len(column) - column.null_count)


def is_unread_time(column: pa.ChunkedArray) -> bool:
    """Text of dates of another form, which an expression has to read."""
    return arrow.is_text(column.type) and is_other_date(column)


def is_other_number(column: pa.ChunkedArray) -> bool:
    """Text that may hold numbers in another form, such as `86,80 €` or `2.107,50`, which an expression has to read."""
    return arrow.is_text(column.type) and numbers(column) is None and not is_sure_vector(column)


def is_text(column: pa.ChunkedArray) -> bool:
    """Text that holds neither numbers nor lists of them."""
    return arrow.is_text(column.type) and numbers(column) is None and not is_vector(column)


def is_whole(column: pa.ChunkedArray) -> bool:
    """Whether all values are whole numbers, also where a file stores them as floats."""
    values = None if pa.types.is_boolean(column.type) else numbers(column)
    return values is not None and bool((np.nan_to_num(values) == np.floor(np.nan_to_num(values))).all())


def is_vector(column: pa.ChunkedArray) -> bool:
    """Lists, tensors, structs, or text that holds lists or what RLlib packs."""
    if arrow.is_text(column.type):
        return has_lists(column) or pc.any(pc.starts_with(column, PACKED)).as_py() is True
    return bool(pa.types.is_nested(column.type) or isinstance(column.type, pa.BaseExtensionType))


def is_sure_vector(column: pa.ChunkedArray) -> bool:
    """A vector that is none of numbers with decimal commas."""
    return is_vector(column) and not (arrow.is_text(column.type) and may_be_decimals(column))


def is_flag(column: pa.ChunkedArray) -> bool:
    """True and false, 1 and 0, or their texts."""
    try:
        flags(read_column(pa.table({"": column.drop_null()}), ""), "")
    except DataError:
        return False
    return True


def is_choice(column: pa.ChunkedArray) -> bool:
    """Texts of a few kinds, each of which many rows have."""
    if not arrow.is_text(column.type) or is_time(column) or is_unread_time(column):
        return False
    if is_vector(column) or numbers(column) is not None:
        return False
    return bool(1 < pc.count_distinct(column).as_py() <= min(MAX_CATEGORIES, len(column) / MIN_RUN))


def is_category(column: pa.ChunkedArray) -> bool:
    """A choice of words, and not of numbers with a unit, such as 21.5 C."""
    return is_choice(column) and not pc.any(pc.match_substring_regex(column, _BEGINS_AS_NUMBER)).as_py()


def _may_name(column: pa.ChunkedArray) -> bool:
    """Whether each row has a value that may say what the row is of: no time but a text, and neither real nor several."""
    kind = column.type
    is_several = pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)
    is_real = pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.scale > 0)
    return not (column.null_count or is_several or is_real or pa.types.is_boolean(kind) or pa.types.is_temporal(kind))


def _may_be_id(column: pa.ChunkedArray) -> bool:
    """Whether each row has a value that may say what the row is of, and that is no time."""
    return _may_name(column) and not (is_time(column) or is_unread_time(column))


def same_run(column: pa.ChunkedArray, file: np.ndarray) -> np.ndarray:
    """(N-1,) bool: the next row is of the same file and has the same value."""
    codes = column.combine_chunks().dictionary_encode().indices.cast(pa.int64()).fill_null(-1).to_numpy()
    return (np.diff(codes) == 0) & (np.diff(file) == 0)  # type: ignore[no-any-return]


def runs(t: np.ndarray, file: np.ndarray, eps_id: pa.ChunkedArray | None = None) -> np.ndarray:
    """(N,) the run of each row: the rows of a file with one id; without ids, those in which t does not fall.

    A row that is there twice stays in its run.
    """
    if eps_id is None:
        return np.cumsum(np.append(False, (np.diff(file) != 0) | (np.diff(t) < 0)))[: len(t)]
    codes = eps_id.combine_chunks().dictionary_encode().indices.cast(pa.int64()).fill_null(-1).to_numpy()
    return codes * (file.max(initial=0) + 1) + file  # type: ignore[no-any-return]


def counted_from(t: np.ndarray, run: np.ndarray, file: np.ndarray) -> float | None:
    """Return the number from which t counts the rows of each run by one, nearly always; None if it does not.

    A few rows may be missing, or there twice. The run of a file's first row may have begun in a file before, so other runs
    say where t begins, if there are any.
    """
    order = np.argsort(run, kind="stable")
    same = np.diff(run[order]) == 0
    if not same.any() or (np.diff(t[order])[same] == 1).mean() < ALMOST_ALL:
        return None
    is_first = np.append(True, ~same)
    begins = t[order][is_first]
    may_go_on = np.isin(run[order][is_first], run[np.append(True, np.diff(file) != 0)])
    if not may_go_on.all():
        begins = begins[~may_go_on]
    firsts, counts = np.unique(begins, return_counts=True)
    return float(firsts[counts.argmax()]) if counts.max() >= ALMOST_ALL * len(begins) else None


def numbers_rows(column: pa.ChunkedArray, file: np.ndarray, eps_id: pa.ChunkedArray | None) -> float | None:
    """Return the number, 0 or 1, from which a column counts the rows of each run; None if it does not, as a flag never does."""
    if column.null_count or not is_whole(column) or pc.count_distinct(column).as_py() < 3:
        return None
    t = numbers(column)
    assert t is not None
    first = counted_from(t, runs(t, file, eps_id), file)
    return first if first in (0, 1) else None


def grows(values: np.ndarray, same: np.ndarray) -> bool:
    """Whether the next row of the same run is larger, nearly always."""
    return bool(same.any() and (np.diff(values)[same] > 0).mean() >= ALMOST_ALL)


def id_candidates(rows: SampleRows, names: Iterable[str], t: np.ndarray | None) -> list[str]:
    """Return the columns that may be episode ids: they stay the same for a run of rows, and change where t begins anew.

    Without t, each value has to come in a single run of a file.
    """
    inside = np.diff(rows.file) == 0
    candidates = []
    for name in names:
        column = rows.table[name]
        if not _may_be_id(column):
            continue
        same = same_run(column, rows.file)
        changes = inside & ~same
        if not changes.any() or same.sum() < (MIN_RUN - 1) * (changes.sum() + 1):
            continue
        if t is not None:
            anew = (np.diff(t)[changes] <= 0).mean() >= ALMOST_ALL
            if anew and grows(t, same):
                candidates.append(name)
        elif pc.count_distinct(column).as_py() >= changes.sum() + 1:
            candidates.append(name)
    return candidates


def one_in_each_file(rows: SampleRows, names: Iterable[str]) -> list[str]:
    """Return the columns with one value in each of several files, and another in nearly each: a file may be there twice."""
    files = len(np.unique(rows.file))
    candidates = []
    for name in names if files >= MIN_RUN else ():
        column = rows.table[name]
        if not _may_be_id(column):
            continue
        codes = column.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        pairs = len(np.unique(np.stack([codes, rows.file]), axis=1).T)
        if pairs == files and codes.max(initial=0) + 1 >= ALMOST_ALL * files:
            candidates.append(name)
    return candidates


def numbered_in_any_order(rows: SampleRows, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs (episode id, t) of columns: t numbers the rows of each id from 0 or 1, in whatever order the rows lie.

    Apart from duplicate rows, no two rows have the same pair, though by chance many would.
    """
    codes, pairs = dict[str, np.ndarray](), dict[str, float]()
    for name in names:
        column = rows.table[name]
        if not _may_name(column):
            continue
        encoded = column.combine_chunks().dictionary_encode()
        if len(encoded.dictionary) >= MIN_RUN:
            codes[name] = encoded.indices.to_numpy().astype(np.int64)
            of_each = np.bincount(codes[name]).astype(np.float64)
            pairs[name] = float((of_each * (of_each - 1) / 2).sum())
    numbering = [name for name in codes if _counts_from_the_first(rows.table[name])]
    if not numbering or len(codes) == 1:
        return []
    distinct, all_pairs, candidates = _distinct_rows(rows.table), len(rows) * (len(rows) - 1) / 2, []
    for t in numbering:
        for eps_id in [name for name in codes if name != t and pairs[name] * pairs[t] / all_pairs >= CHANCES]:
            if (codes[eps_id].max() + 1) * (codes[t].max() + 1) < distinct:
                continue
            if len(np.unique(codes[eps_id] * (codes[t].max() + 1) + codes[t])) == distinct:
                candidates.append((eps_id, t))
    return candidates


def _counts_from_the_first(column: pa.ChunkedArray) -> bool:
    """Whether the column has every whole number from 0 or 1 to its largest."""
    if not is_whole(column):
        return False
    distinct = np.unique(numbers(column))  # type: ignore[arg-type]
    return bool(distinct[0] in (0, 1) and distinct[-1] - distinct[0] + 1 == len(distinct))


def _distinct_rows(table: pa.Table) -> int:
    single = [name for name in table.column_names if not is_vector(table[name])]
    return int(table.select(single).group_by(single).aggregate([]).num_rows)


def apart_at_one_time(rows: SampleRows, names: Iterable[str], t: np.ndarray, *, several: int = 1) -> list[tuple[str, ...]]:
    """Return the columns, or so many together, that tell rows of the same time apart, as names of machines or rooms do."""
    times, time = np.unique(t, return_inverse=True)
    same_time = 1 - len(times) / max(1, len(t))
    if same_time < MIN_SHARED_TIMES:
        return []
    codes = {name: _codes(rows.table[name]) for name in names if _may_be_id(rows.table[name])}
    candidates = []
    for together in itertools.combinations(codes, several):
        key = functools.reduce(_joint, (codes[name] for name in together))
        if key.max(initial=0) + 1 > len(t) / MIN_RUN:
            continue
        pairs = len(np.unique(key * len(times) + time))
        if 1 - pairs / len(t) <= (1 - ALMOST_ALL) * same_time:
            candidates.append(together)
    return candidates


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """(N,) int64: equal values share a number from 0 on."""
    return column.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _joint(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(N,) int64: rows that are equal in both share a number from 0 on."""
    return np.unique(one * (other.max(initial=0) + 1) + other, return_inverse=True)[1]


def end_candidates(rows: SampleRows, names: Iterable[str], same: np.ndarray) -> list[str]:
    """Return the flags that are set at the last rows of runs and nowhere else.

    Arguments:
        same: (N-1,) bool, the next row is of the same run.
    """
    last = np.append(~same, True)
    candidates = []
    for name in names:
        column = rows.table[name]
        if column.null_count or not is_flag(column):
            continue
        flag = flags(read_column(rows.table, name), name)
        if 0 < flag.mean() <= RARE and last[flag].all():
            candidates.append(name)
    return candidates
