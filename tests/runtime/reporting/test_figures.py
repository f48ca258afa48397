"""Pictures: what is drawn is what was given, and nothing that can be given breaks them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from offline_core.runtime.reporting import figures
from tests.cases import examples

numbers = st.floats(-1e300, 1e300) | st.just(math.nan) | st.just(math.inf) | st.just(-math.inf)


def drawn(axes: Any) -> np.ndarray:
    """The pixels (height, width, 4)."""
    pixels = figures.pixels(axes)
    assert pixels.shape == (300, 450, 4)
    return pixels


def heights(axes: Any) -> list[int]:
    return [round(patch.get_height()) for patch in axes.patches]


def test_a_curve_goes_through_its_points() -> None:
    axes = figures.new_axes()
    figures.curve(axes, [(0, 1.5), (10, 2.5), (20, math.nan)], x="steps", y="return", target=9.0)
    line, target = axes.lines
    np.testing.assert_array_equal(line.get_xydata(), [[0, 1.5], [10, 2.5], [20, np.nan]])
    assert set(target.get_ydata()) == {9.0}
    assert [text.get_text() for text in axes.texts] == ["target 9"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("steps", "return")


def test_lines_have_names_and_bands() -> None:
    axes = figures.new_axes()
    figures.lines(axes, {"1": [(0, 1.0, 0.5, 2.0), (10, 3.0, 2.5, 3.5)], "2": [(0, 1.0), (10, 2.0)]}, x="updates", y="mean")
    one, two = axes.lines
    np.testing.assert_array_equal(one.get_xydata(), [[0, 1], [10, 3]])
    np.testing.assert_array_equal(two.get_xydata(), [[0, 1], [10, 2]])
    (band,) = axes.collections
    ends = band.get_paths()[0].vertices[:, 1]
    assert (ends.min(), ends.max()) == (0.5, 3.5) and (band.get_facecolor()[0, :3] == to_rgb(one.get_color())).all()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["1", "2"]
    figures.lines(figures.new_axes(), {}, x="x", y="y")
    drawn(axes)


def test_a_forest_has_the_judged_interval_above_the_paler_one() -> None:
    axes = figures.new_axes()
    rows = {"a": ((1.0, 0.5, 1.5), (0.8, 0.0, 1.6)), "$\\frac{": ((2.0, -math.inf, math.inf), None)}
    figures.forest(axes, rows, x="difference", lines={"what runs today": 0.0, "margin": None})
    judged, selected = (line for line in axes.lines if len(line.get_xdata()) == 3)
    np.testing.assert_array_equal(judged.get_xdata(), [0.5, 1.0, 1.5])
    assert judged.get_ydata()[0] > 1 > selected.get_ydata()[0] and sum(to_rgb(judged.get_color())) < sum(
        to_rgb(selected.get_color())
    )
    assert [text.get_text() for text in axes.texts] == ["judged: no bound"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["$\\frac{", "a"], "the first on top"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["judged", "selecting side", "what runs today"]
    drawn(axes)


def test_shares_below_the_least_are_hatched_and_all_are_in_numbers() -> None:
    axes = figures.new_axes()
    figures.shares(axes, {"a": 0.93, "b": 0.4, "c": math.nan}, x="overlap", least=0.8)
    assert [bool(patch.get_hatch()) for patch in axes.patches] == [True, True, False]
    assert [text.get_text() for text in axes.texts] == ["0 %", "40 %", "93 %"]
    drawn(axes)


def test_lights_have_words_beside_their_colours() -> None:
    axes = figures.new_axes()
    figures.lights(axes, {"bc, cost": ("holds", "+1"), "x" * 99: ("falls", "-1")})
    assert [text.get_text() for text in axes.texts] == ["bc, cost: holds", "+1", f"...{'x' * 34}: falls", "-1"]
    assert len({line.get_color() for line in axes.lines}) == 2
    drawn(axes)


@pytest.mark.parametrize("tenths", [[], [(0.1, 0.2, 5), (0.9, 0.8, 500)]])
def test_a_calibration_shows_what_was_done_over_what_was_said(tenths: list[tuple[float, float, int]]) -> None:
    axes = figures.new_axes()
    figures.calibration(axes, tenths, x="said", y="done")
    diagonal, *points = axes.lines
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    assert [tuple(point.get_xydata()[0]) for point in points] == [each[:2] for each in tenths]
    drawn(axes)


@pytest.mark.parametrize("target", [None, math.nan, math.inf])
def test_a_target_that_is_no_number_is_not_drawn(target: float | None) -> None:
    axes = figures.new_axes()
    figures.curve(axes, [(0, 1.0), (1, 2.0)], x="x", y="y", target=target)
    assert len(axes.lines) == 1
    drawn(axes)


@settings(max_examples=examples(10))
@given(st.lists(st.tuples(st.integers(0, 10**9), numbers), max_size=60), st.none() | numbers)
def test_any_curve_can_be_drawn(points: list[tuple[int, float]], target: float | None) -> None:
    axes = figures.new_axes()
    figures.curve(axes, points, x="x", y="y", target=target)
    drawn(axes)


def test_a_histogram_counts_every_episode() -> None:
    axes = figures.new_axes()
    values = np.array([0.0, 0.0, 0.1, 5.0, 9.99, 10.0])
    figures.histogram(axes, {"played": values}, x="return")
    assert heights(axes) == [3, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("return", "episodes")
    assert axes.get_legend() is None


def test_groups_share_their_bins() -> None:
    axes = figures.new_axes()
    figures.histogram(axes, {"before": [0, 5, 10], "after": np.array([10])}, x="return")
    assert heights(axes) == [1, 0, 0, 0, 0, 1, 0, 0, 0, 1] + [0] * 9 + [1]
    lefts = [patch.get_x() for patch in axes.patches]
    assert lefts[:10] == lefts[10:]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["before", "after"]
    assert len({patch.get_facecolor() for patch in axes.patches}) == 2


@pytest.mark.parametrize("value", [0.0, 500.0, -3.5, 1e17, 1e-300])
def test_values_all_alike_are_one_bar_in_the_middle(value: float) -> None:
    axes = figures.new_axes()
    figures.histogram(axes, {"played": [value] * 9}, x="return")
    counts = heights(axes)
    assert sum(counts) == max(counts) == 9
    left, right = axes.patches[0].get_x(), axes.patches[-1].get_x() + axes.patches[-1].get_width()
    assert (left + right) / 2 == pytest.approx(value)


@pytest.mark.parametrize("groups", [{}, {"played": []}, {"before": [1.0, 2.0], "after": []}], ids=str)
def test_no_episodes_are_an_empty_histogram(groups: dict[str, list[float]]) -> None:
    axes = figures.new_axes()
    figures.histogram(axes, groups, x="return")
    assert sum(heights(axes)) == sum(map(len, groups.values()))
    drawn(axes)


def test_what_is_no_number_is_counted_beside_the_histogram() -> None:
    axes = figures.new_axes()
    figures.histogram(axes, {"a": [1.0, math.nan, 2.0], "b": [math.inf, 1.0]}, x="return")
    assert sum(heights(axes)) == 3
    assert axes.get_xlabel() == "return (2 not finite)"


@settings(max_examples=examples(10))
@given(st.lists(st.lists(numbers, max_size=9), min_size=1, max_size=2))
def test_any_histogram_can_be_drawn(groups: list[list[float]]) -> None:
    axes = figures.new_axes()
    figures.histogram(axes, {str(i): group for i, group in enumerate(groups)}, x="x")
    assert sum(heights(axes)) == sum(math.isfinite(value) for group in groups for value in group)
    drawn(axes)


def test_a_counted_histogram_is_drawn_as_it_was_counted() -> None:
    axes = figures.new_axes()
    figures.counts(axes, [0.0, 1.0, 3.0], [5, 2], x="return")
    [steps] = axes.patches
    values, edges, _ = steps.get_data()
    assert (list(values), list(edges)) == ([5, 2], [0.0, 1.0, 3.0])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("return", "episodes")


def test_bars_begin_with_the_first_on_top() -> None:
    axes = figures.new_axes()
    figures.bars(axes, {"expert": 12.0, "record": 3.25, "lost": math.nan, "stuck": math.inf}, x="seconds")
    named = {label.get_text(): patch for label, patch in zip(axes.get_yticklabels(), axes.patches, strict=True)}
    middles = {name: patch.get_y() for name, patch in named.items()}
    assert sorted(middles, key=middles.__getitem__, reverse=True) == ["expert", "record", "lost", "stuck"]
    assert [named[name].get_width() for name in ("expert", "record")] == [12.0, 3.25]
    assert {text.get_text() for text in axes.texts} == {"12.0", "3.2", "nan", "inf"}
