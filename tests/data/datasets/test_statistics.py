"""Statistics of columns: numpy's numbers, whatever the batches, and quantiles as exact as they say."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from offline_core.data.datasets.statistics import ColumnStatistics, StatisticsBuilder, merge_columns
from offline_core.errors import ConfigError, CorruptFileError

DTYPES = ["f2", "f4", "f8", ">f8", "i1", "u1", "i4", "i8", "u8", "?"]
QUANTILES = [0.0, 0.01, 0.25, 0.5, 0.9, 1.0]


def arrays(*, shape: Any = None, special: bool = True) -> st.SearchStrategy[np.ndarray]:
    """Columns of all dtypes with NaN, infinities and zeros of both signs among the values, and no values at all."""
    shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6) if shape is None else st.just(shape)

    def values(dtype: str) -> st.SearchStrategy[np.ndarray]:
        if np.dtype(dtype).kind != "f":
            return hnp.arrays(dtype, shapes)
        limit = {2: 6e4, 4: 2.0**127, 8: 1e100}[np.dtype(dtype).itemsize]
        limit = float(np.dtype(dtype).type(limit))
        floats = st.floats(-limit, limit, width=8 * np.dtype(dtype).itemsize)
        odd = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0])
        return hnp.arrays(dtype, shapes, elements=floats | odd if special else floats)

    return st.sampled_from(DTYPES).flatmap(values)


def dimensions(values: np.ndarray) -> np.ndarray:
    """(N, …) as float64 of shape (D, N)."""
    return values.reshape(len(values), math.prod(values.shape[1:])).astype(np.float64).T


def check(statistics: ColumnStatistics, rows: np.ndarray) -> None:
    """Against numpy, dimension by dimension."""
    assert len(statistics.count) == len(rows)
    for i, row in enumerate(rows):
        finite = row[np.isfinite(row)]
        assert statistics.count[i] == len(finite)
        assert statistics.nan[i] == np.isnan(row).sum()
        assert statistics.infinite[i] == np.isinf(row).sum()
        assert statistics.min[i] == (finite.min() if len(finite) else None)
        assert statistics.max[i] == (finite.max() if len(finite) else None)
        scale = np.abs(finite).max(initial=0)
        assert statistics.mean[i] == pytest.approx(finite.mean() if len(finite) else 0, rel=1e-9, abs=1e-12 * scale + 1e-300)
        assert statistics.std[i] == pytest.approx(finite.std() if len(finite) else 0, rel=1e-9, abs=1e-9 * scale)


@given(arrays())
def test_the_numbers_are_numpys(values: np.ndarray) -> None:
    check(ColumnStatistics.of(values), dimensions(values))


@given(arrays())
def test_quantiles_are_as_exact_as_they_say(values: np.ndarray) -> None:
    statistics = ColumnStatistics.of(values)
    for q in QUANTILES:
        for found, row in zip(statistics.quantile(q), dimensions(values), strict=True):
            finite = np.sort(row[np.isfinite(row)])
            if len(finite) == 0:
                assert found is None
                continue
            exact = finite[max(1, math.ceil(q * len(finite))) - 1]
            assert found == pytest.approx(np.clip(exact, -3.5e38, 3.5e38), rel=1 / 32, abs=1.2e-38) or abs(exact) > 3.3e38
            assert finite[0] <= found <= finite[-1]


def test_quantiles_of_small_whole_numbers_are_exact() -> None:
    values = np.random.default_rng(0).integers(-64, 65, 1001)
    for q in QUANTILES:
        assert ColumnStatistics.of(values).quantile(q) == [np.quantile(values, q, method="inverted_cdf")]


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_quantile_beyond_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        ColumnStatistics.of(np.arange(3)).quantile(q)


@given(arrays(shape=(12, 2)), st.lists(st.integers(0, 12), max_size=4))
def test_batches_and_merged_parts_are_the_whole(values: np.ndarray, cuts: list[int]) -> None:
    parts = np.split(values, sorted(cuts))
    builder = StatisticsBuilder()
    for part in parts:
        builder.add({"x": part})
    merged = ColumnStatistics.of(parts[0])
    for part in parts[1:]:
        merged = merged.merge(ColumnStatistics.of(part))
    whole = ColumnStatistics.of(values)
    for statistics in (builder.result()["x"], merged):
        check(statistics, dimensions(values))
        assert statistics.histogram == whole.histogram


@given(arrays(shape=(5, 2)), arrays(shape=(9, 2)), arrays(shape=(3, 2)))
def test_the_order_of_merging_changes_no_count(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    one, two, three = map(ColumnStatistics.of, (a, b, c))
    counted = {"count", "nan", "infinite", "min", "max", "histogram"}
    left = one.merge(two).merge(three).model_dump(include=counted)
    assert left == three.merge(two.merge(one)).model_dump(include=counted)


def test_many_values_far_from_zero_lose_no_digits() -> None:
    values = 1e9 + np.random.default_rng(0).standard_normal(300_000)
    builder = StatisticsBuilder()
    for part in np.split(values, 1000):
        builder.add({"x": part})
    assert builder.result()["x"].std[0] == pytest.approx(values.std(), rel=1e-9)


def test_values_beyond_float32_are_counted_at_its_end() -> None:
    statistics = ColumnStatistics.of(np.array([-1e300, 1e300, 1e300]))
    assert (statistics.min, statistics.max) == ([-1e300], [1e300])
    assert statistics.quantile(0.5)[0] == pytest.approx(2.0**128, rel=1 / 32)
    assert ColumnStatistics.model_validate_json(statistics.model_dump_json()) == statistics, "with an infinite deviation"


def test_leaves_are_named_by_their_path_and_text_is_passed_over() -> None:
    builder = StatisticsBuilder()
    builder.add({"obs": {"position": np.zeros((2, 3)), "pair": (np.array([True, False]), np.array(["a", "b"]))}})
    builder.add({"rewards": np.array([1, 2])})
    assert {name: len(found.count) for name, found in builder.result().items()} == {
        "obs/pair/0": 1,
        "obs/position": 3,
        "rewards": 1,
    }
    assert builder.result()["obs/pair/0"].mean == [0.5]


def test_images_are_summed_up_over_all_their_numbers() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 1), np.uint8)
    builder = StatisticsBuilder()
    builder.add({"obs": images[:1]})
    builder.add({"obs": images[1:]})
    check(builder.result()["obs"], images.reshape(1, -1).astype(np.float64))
    assert len(ColumnStatistics.of(np.zeros((3, 64))).count) == 64
    assert len(ColumnStatistics.of(np.zeros((3, 65))).count) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_steps_of_different_sizes_are_summed_up_together(first: int) -> None:
    parts = [np.arange(6.0).reshape(2, 3), np.arange(8.0).reshape(2, 4)]
    builder = StatisticsBuilder()
    for part in (parts[first], parts[1 - first]):
        builder.add({"obs": part})
    merged = ColumnStatistics.of(parts[first]).merge(ColumnStatistics.of(parts[1 - first]))
    for statistics in (builder.result()["obs"], merged):
        check(statistics, np.concatenate([np.arange(6.0), np.arange(8.0)])[None])


def test_a_column_of_one_dataset_alone_is_kept() -> None:
    a, b = ColumnStatistics.of(np.arange(3)), ColumnStatistics.of(np.arange(4))
    merged = merge_columns({"x": a, "y": a}, {"y": b, "z": b})
    assert {name: column.count for name, column in merged.items()} == {"x": [3], "y": [7], "z": [4]}


@pytest.mark.parametrize("histogram", ["?", "AAAA", "eJxjZIAAAAASAAI="])
def test_a_broken_histogram_is_refused(histogram: str) -> None:
    data = json.loads(ColumnStatistics.of(np.arange(3)).model_dump_json()) | {"histogram": histogram}
    with pytest.raises(CorruptFileError, match="histogram cannot be read"):
        ColumnStatistics.model_validate(data).quantile(0.5)


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 40), st.integers(0, 40))
@example(252, 1, 1, 1)
def test_values_replaced_by_others(seed: int, kept: int, removed: int, added: int) -> None:
    random = np.random.default_rng(seed)
    a, b, c = (random.choice([-1.0, 0.0, 2.5, 3.0, np.nan, np.inf], (count, 2)) for count in (kept, removed, added))
    before, expected = ColumnStatistics.of(np.concatenate([a, b])), ColumnStatistics.of(np.concatenate([a, c]))
    found = before.replaced(ColumnStatistics.of(b), ColumnStatistics.of(c))
    if found is None:  # an extreme value went, and none came
        of_b, of_c = ColumnStatistics.of(b), ColumnStatistics.of(c)
        assert any(
            low is not None and low == least and (other is None or other > least)
            for low, least, other in zip(of_b.min, before.min, of_c.min, strict=True)
        ) or any(
            high is not None and high == most and (other is None or other < most)
            for high, most, other in zip(of_b.max, before.max, of_c.max, strict=True)
        )
        return
    exact = {"count", "nan", "infinite", "min", "max", "histogram"}
    assert found.model_dump(include=exact) == expected.model_dump(include=exact)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(found.std, expected.std, atol=1e-6)
