"""Statistics of a dataset: of its episodes, and of the numbers in each column, computed batch by batch and merged without loss.

Quantiles come from a histogram with fixed buckets: a value, as float32, falls into the bucket that its sign, its exponent
and the first five bits of its mantissa name. Counts add up, so any order of any batches gives the same histogram. A bucket
stands for its end next to zero: a quantile is up to 1/32 (3.1 %) too close to zero, and exact for numbers with few
binary digits, such as whole ones up to 64.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.episodes.batch import step_column
from offline_core.data.episodes.index import episode_summary
from offline_core.data.episodes.nested import Nested
from offline_core.errors import ConfigError, CorruptFileError
from offline_core.runtime.result import StoredModel

MAX_DIMENSIONS = 64
"""Steps with more numbers than this (images) get one statistic over all of them."""

_SHIFT = 18
QUANTILE_ERROR = 1 / 32
"""A quantile is too close to zero by this share of itself at most."""
_BUCKETS = 2 ** (32 - _SHIFT)
_NEGATIVE = _BUCKETS // 2
_INFINITY = int(np.array(np.inf, np.float32).view(np.uint32)) >> _SHIFT
_CHUNK_VALUES = 2**17  # as float64 they stay in the processor's cache


class ColumnStatistics(StoredModel):
    """One column: every list has one entry a dimension of a step (in C order), or a single one for all dimensions together.

    That is so where a step has more than `MAX_DIMENSIONS` numbers, or where steps differ in how many they have. NaN and
    infinite values are counted and are not in any other number. Without a finite value, `min` and `max` are None.
    """

    count: list[int] = Field(description="Finite values.")
    nan: list[int]
    infinite: list[int]
    mean: list[float]
    std: list[float] = Field(description="Of the population.")
    min: list[float | None]
    max: list[float | None]
    histogram: str = Field(
        description="base64(zlib(int64: filled buckets, then their counts)), buckets of dimension i + i·16384."
    )

    @classmethod
    def of(cls, values: np.ndarray) -> ColumnStatistics:
        """Compute the statistics of numbers or booleans of shape (N, …)."""
        return _Sums.of(values).statistics()

    def merge(self, other: ColumnStatistics) -> ColumnStatistics:
        """Merge two statistics."""
        return _Sums.parse(self).merge(_Sums.parse(other)).statistics()

    def replaced(self, removed: ColumnStatistics, added: ColumnStatistics) -> ColumnStatistics | None:
        """Return the statistics without the values of `removed`, which are part of these, and with those of `added`.

        They are exact up to rounding. None if the least or largest value was removed and `added` has none that reaches it: the
        next one is not known.
        """
        sums, less, more = (_Sums.parse(statistics) for statistics in (self, removed, added))
        if not len(sums.count) == len(less.count) == len(more.count):
            return None
        remaining = sums.without(less, more)
        return None if remaining is None else remaining.merge(more).statistics()

    def quantile(self, q: float) -> list[float | None]:
        """The smallest value that a share `q` (0..1) of the finite values does not exceed, to 3.1 % of itself.

        Values below 1.2e-38 count as zero.
        """
        if not 0 <= q <= 1:
            raise ConfigError(f"A quantile needs a share from 0 to 1, not {q}.")
        sums = _Sums.parse(self)
        sizes = (np.arange(_INFINITY, dtype=np.uint32) << np.uint32(_SHIFT)).view(np.float32).astype(np.float64)
        values = np.concatenate([-sizes[::-1], sizes])
        positive, negative = (sums.histogram[:, start : start + _INFINITY] for start in (0, _NEGATIVE))
        below = np.cumsum(np.concatenate([negative[:, ::-1], positive], axis=1), axis=1)
        wanted = np.maximum(1, np.ceil(q * sums.count))
        places = [int(np.searchsorted(row, rank)) for row, rank in zip(below, wanted, strict=True)]
        return [
            None if low is None or high is None else float(np.clip(values[position], low, high))
            for position, low, high in zip(places, self.min, self.max, strict=True)
        ]


class StatisticsBuilder:
    """Statistics of columns that come batch after batch; larger batches (thousands of steps) go faster.

    Memory: 128 KiB a dimension, whatever the number of steps.
    """

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}

    def add(self, steps: Mapping[str, Nested]) -> None:
        """Adds columns of shape (N, …) by name; leaves of dicts and tuples are named by their path, text is skipped."""
        for column, tree in steps.items():
            for name, values in nested.flatten(tree, column).items():
                if values.dtype.kind in "biuf":
                    self._sums[name] = self._sums[name].add(values) if name in self._sums else _Sums.of(values)

    def add_episodes(self, episodes: Sequence[Episode]) -> None:
        """Adds the steps of episodes, all at once if the episodes agree on their shapes, else episode by episode."""
        for name in dict.fromkeys([*columns.STATISTICS, *(name for episode in episodes for name in episode.extras)]):
            having = [episode for episode in episodes if name in columns.STATISTICS or name in episode.extras]
            try:
                self.add({name: step_column(having, name)})
            except ValueError:
                for episode in having:
                    self.add({name: step_column([episode], name)})

    def result(self) -> dict[str, ColumnStatistics]:
        """The statistics of all columns so far, by the name of their leaf: `obs`, `obs/position`."""
        return {name: sums.statistics() for name, sums in sorted(self._sums.items())}


def merge_columns(left: Mapping[str, ColumnStatistics], right: Mapping[str, ColumnStatistics]) -> dict[str, ColumnStatistics]:
    """The statistics of two datasets together; a column that one of them lacks is the other's."""
    both = {name: left[name].merge(right[name]) for name in left.keys() & right.keys()}
    return dict(sorted({**left, **right, **both}.items()))


class Summary(StoredModel):
    """Count, mean, standard deviation (population), minimum and maximum of one number per episode; mergeable."""

    count: int = 0
    mean: float = 0.0
    std: float = 0.0
    min: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: np.ndarray) -> Summary:
        if len(values) == 0:
            return cls()
        numbers = values.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # of infinite returns the deviation is NaN
            mean, std = float(numbers.mean()), float(numbers.std())
        return cls(count=len(numbers), mean=mean, std=std, min=float(numbers.min()), max=float(numbers.max()))

    def merge(self, other: Summary) -> Summary:
        """Merge two summaries."""
        if not (self.count and other.count):
            return self if self.count else other
        count, distance = self.count + other.count, other.mean - self.mean
        variance = (self.count * self.std * self.std + other.count * other.std * other.std) / count
        variance += distance * (distance * (self.count / count) * (other.count / count))
        return Summary(
            count=count,
            mean=self.mean + distance * (other.count / count),
            std=math.sqrt(variance),
            min=min((end for end in (self.min, other.min) if end is not None), default=None),
            max=max((end for end in (self.max, other.max) if end is not None), default=None),
        )


class Statistics(StoredModel):
    """Counts and statistics of a dataset."""

    episodes: int = 0
    steps: int = 0
    terminated: int = 0
    truncated: int = 0
    returns: Summary = Summary()
    lengths: Summary = Summary()
    columns: dict[str, ColumnStatistics] | None = None
    """By the name of the leaf (`obs/position`); None: unknown."""

    @classmethod
    def of(cls, summaries: Sequence[Mapping[str, np.ndarray]], builder: StatisticsBuilder | None = None) -> Statistics:
        """Compute the statistics of episodes by their `episode_summary`, in the order given, and of their columns, if known."""
        if not summaries:
            return cls(columns=None if builder is None else builder.result())
        names = (columns.LENGTH, columns.RETURN, columns.TERMINATED, columns.TRUNCATED)
        joined = {name: np.concatenate([part[name] for part in summaries]) for name in names}
        return cls(
            episodes=len(joined[columns.LENGTH]),
            steps=int(joined[columns.LENGTH].sum()),
            terminated=int(joined[columns.TERMINATED].sum()),
            truncated=int(joined[columns.TRUNCATED].sum()),
            returns=Summary.of(joined[columns.RETURN]),
            lengths=Summary.of(joined[columns.LENGTH]),
            columns=None if builder is None else builder.result(),
        )

    @classmethod
    def of_episodes(cls, batches: Iterable[Sequence[Episode]]) -> Statistics:
        """Compute the statistics of decoded episodes, and of their columns."""
        builder, summaries = StatisticsBuilder(), []
        for episodes in batches:
            builder.add_episodes(episodes)
            summaries.append(episode_summary(episodes))
        return cls.of(summaries, builder)

    def merge(self, other: Statistics) -> Statistics:
        """Merge the statistics of two datasets; columns stay known only if both have them."""
        if not (self.episodes and other.episodes):
            return self if self.episodes else other
        return Statistics(
            episodes=self.episodes + other.episodes,
            steps=self.steps + other.steps,
            terminated=self.terminated + other.terminated,
            truncated=self.truncated + other.truncated,
            returns=self.returns.merge(other.returns),
            lengths=self.lengths.merge(other.lengths),
            columns=None if self.columns is None or other.columns is None else merge_columns(self.columns, other.columns),
        )

    def replaced_columns(self, removed: Statistics, added: Statistics) -> dict[str, ColumnStatistics] | None:
        """Return the columns' statistics without the episodes of `removed`, which are part of these, and with those of `added`.

        None if they are not known, see `ColumnStatistics.replaced`.
        """
        if self.columns is None or added.columns is None:
            return None
        merged = dict(added.columns)
        for name, before in self.columns.items():
            less, more = (removed.columns or {}).get(name), added.columns.get(name)
            now = before if more is None else before.merge(more) if less is None else before.replaced(less, more)
            if now is None or (less is not None and more is None):
                return None
            merged[name] = now
        return dict(sorted(merged.items()))


@dataclass(slots=True)
class _Sums:
    """Arrays of shape (D,), in numbers that can be added; `histogram` is (D, buckets)."""

    count: np.ndarray
    nan: np.ndarray
    infinite: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    """Squared distances from the mean."""
    min: np.ndarray
    max: np.ndarray
    histogram: np.ndarray

    @classmethod
    def empty(cls, dimensions: int) -> _Sums:
        counts = np.zeros((3, dimensions), np.int64)
        moments = np.zeros((2, dimensions))
        ends = np.full(dimensions, np.inf)
        histogram = np.zeros((dimensions, _BUCKETS), np.int64)
        return cls(counts[0], counts[1], counts[2], moments[0], moments[1], ends, -ends, histogram)

    @classmethod
    def of(cls, values: np.ndarray) -> _Sums:
        dimensions = math.prod(values.shape[1:])
        return cls.empty(dimensions if dimensions <= MAX_DIMENSIONS else 1).add(values)

    def add(self, values: np.ndarray) -> _Sums:
        """These sums with values of shape (N, …) added."""
        dimensions = math.prod(values.shape[1:])
        sums = self if len(self.count) in (1, dimensions) else self._pooled()
        flat = values.reshape(-1, 1) if len(sums.count) == 1 else values.reshape(len(values), dimensions)
        rows = max(1, _CHUNK_VALUES // max(1, flat.shape[1]))
        for start in range(0, len(flat), rows):
            sums._add_chunk(np.ascontiguousarray(flat[start : start + rows].T, np.float64))
        return sums

    def _add_chunk(self, numbers: np.ndarray) -> None:
        """Adds values of shape (D, n)."""
        with np.errstate(over="ignore", invalid="ignore"):
            totals = numbers.sum(axis=1)
            if not np.isfinite(totals).all():
                finite = np.isfinite(numbers)
                if not finite.all():
                    for i, (row, kept) in enumerate(zip(numbers, finite, strict=True)):
                        self._add_finite(slice(i, i + 1), row[kept][None])
                    self.nan += np.isnan(numbers).sum(axis=1)
                    self.infinite += np.isinf(numbers).sum(axis=1)
                    return
            self._add_finite(slice(None), numbers)

    def _add_finite(self, dimensions: slice, numbers: np.ndarray) -> None:
        length = numbers.shape[1]
        if length == 0:
            return
        mean = numbers.mean(axis=1)
        distances = numbers - mean[:, None]
        squares = np.einsum("dn,dn->d", distances, distances)
        self._add_moments(dimensions, np.full(len(mean), length), mean, squares)
        self.min[dimensions] = np.minimum(self.min[dimensions], numbers.min(axis=1))
        self.max[dimensions] = np.maximum(self.max[dimensions], numbers.max(axis=1))
        buckets = (numbers.astype(np.float32).view(np.uint32) >> np.uint32(_SHIFT)).astype(np.intp)
        buckets[buckets & (_NEGATIVE - 1) == _INFINITY] -= 1  # finite as float64, too large for float32
        buckets += np.arange(len(mean))[:, None] * _BUCKETS
        np.add.at(self.histogram[dimensions].reshape(-1), buckets.reshape(-1), 1)

    def _add_moments(self, dimensions: slice, count: np.ndarray, mean: np.ndarray, squares: np.ndarray) -> None:
        """Chan, Golub, LeVeque 1979: the pairwise update, which loses no digits when there are many values."""
        before = self.count[dimensions]
        together = np.maximum(1, before + count)
        distance = mean - self.mean[dimensions]
        self.mean[dimensions] += distance * (count / together)
        self.squares[dimensions] += squares + distance * (distance * (before * (count / together)))
        self.count[dimensions] += count

    def merge(self, other: _Sums) -> _Sums:
        """These sums with the others added."""
        if len(self.count) != len(other.count):
            return self._pooled().merge(other._pooled())
        with np.errstate(over="ignore", invalid="ignore"):
            self._add_moments(slice(None), other.count, other.mean, other.squares)
        self.nan += other.nan
        self.infinite += other.infinite
        self.min = np.minimum(self.min, other.min)
        self.max = np.maximum(self.max, other.max)
        self.histogram += other.histogram
        return self

    def without(self, other: _Sums, more: _Sums) -> _Sums | None:
        """These sums without the others, whose extremes are those that hold with `more` merged; None if they are not known."""
        count = self.count - other.count
        rest = np.maximum(1, count)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = self.mean + (self.mean - other.mean) * (other.count / rest)
            distance = other.mean - mean
            between = distance * (distance * (other.count * (count / np.maximum(1, self.count))))
            squares = np.maximum(0.0, self.squares - other.squares - between)
        low = np.where((other.min > self.min) | (other.count == 0), self.min, more.min)
        high = np.where((other.max < self.max) | (other.count == 0), self.max, more.max)
        if ((count > 0) & ((low > self.min) | (high < self.max))).any():
            return None
        none = count == 0
        return _Sums(
            count=count,
            nan=self.nan - other.nan,
            infinite=self.infinite - other.infinite,
            mean=np.where(none, 0.0, mean),
            squares=np.where(none, 0.0, squares),
            min=np.where(none, np.inf, low),
            max=np.where(none, -np.inf, high),
            histogram=self.histogram - other.histogram,
        )

    def _pooled(self) -> _Sums:
        """All dimensions as one."""
        pooled = _Sums.empty(1)
        for i in range(len(self.count)):
            one = (getattr(self, name)[i : i + 1] for name in self.__slots__)
            pooled.merge(_Sums(*one))
        return pooled

    def statistics(self) -> ColumnStatistics:
        with np.errstate(over="ignore", invalid="ignore"):
            std = np.sqrt(self.squares / np.maximum(1, self.count))
        return ColumnStatistics(
            count=self.count.tolist(),
            nan=self.nan.tolist(),
            infinite=self.infinite.tolist(),
            mean=self.mean.tolist(),
            std=std.tolist(),
            min=[value if n else None for value, n in zip(self.min.tolist(), self.count, strict=True)],
            max=[value if n else None for value, n in zip(self.max.tolist(), self.count, strict=True)],
            histogram=_pack(self.histogram),
        )

    @classmethod
    def parse(cls, stored: ColumnStatistics) -> _Sums:
        count = np.array(stored.count, np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.array(stored.std, np.float64) ** 2 * count
        return cls(
            count=count,
            nan=np.array(stored.nan, np.int64),
            infinite=np.array(stored.infinite, np.int64),
            mean=np.array(stored.mean, np.float64),
            squares=squares,
            min=np.array([np.inf if value is None else value for value in stored.min], np.float64),
            max=np.array([-np.inf if value is None else value for value in stored.max], np.float64),
            histogram=_unpack(stored.histogram, len(count)),
        )


def _pack(histogram: np.ndarray) -> str:
    counts = histogram.reshape(-1)
    filled = np.flatnonzero(counts)
    return base64.b64encode(zlib.compress(np.concatenate([filled, counts[filled]]).astype("<i8").tobytes())).decode("ascii")


def _unpack(text: str, dimensions: int) -> np.ndarray:
    counts = np.zeros(dimensions * _BUCKETS, np.int64)
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), 16 * counts.size + 1)
        filled, values = np.frombuffer(data, "<i8").reshape(2, -1)
        counts[filled] = values
    except (binascii.Error, zlib.error, ValueError, IndexError) as error:
        raise CorruptFileError(f"A stored histogram cannot be read: {error}. Make the statistics anew.") from error
    return counts.reshape(dimensions, _BUCKETS)
