"""Pictures for the cards, drawn with matplotlib into PNG bytes: transparent, in colours that read on light and on dark."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from offline_core.runtime.reporting.palette import PICTURE, SERIES, pale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image

WIDTH_INCHES, HEIGHT_INCHES = 3.6, 2.4
DOTS_PER_INCH = 125  # two pictures are 900 wide, and still readable where the UI has room for 580
MAX_BINS = 40
MOST_LETTERS, MOST_OF_INTERVALS = 24, 32
"""Of a name beside a picture."""
FIRST, SECOND, *_ = COLORS = [PICTURE[name] for name in SERIES]
QUIET, GOOD = PICTURE["quiet"], PICTURE["good"]
Interval = tuple[float, float, float]
"""(value, low, high)."""
Picture = Callable[["Axes"], None]
"""Draws itself."""


def curve(
    axes: Axes,
    points: Sequence[tuple[int, float]],
    *,
    x: str,
    y: str,
    target: float | None = None,
    beside: Mapping[str, Sequence[tuple[int, float]]] | None = None,
) -> None:
    """A line through (x, y) points, with the target as a dashed one, and named lines beside it."""
    if points:
        axes.plot(*zip(*points, strict=True), marker="." if len(points) < 50 else "", color=FIRST)
    others = {name: line for name, line in (beside or {}).items() if line}
    for name, line in others.items():
        axes.plot(*zip(*line, strict=True), marker="." if len(line) < 50 else "", color=SECOND, label=name)
    if others:
        axes.legend(fontsize=8)
    if target is not None and np.isfinite(target):
        axes.axhline(target, color=GOOD, linestyle="--", linewidth=1)
        axes.annotate(
            f"target {target:g}", (0.99, target), xycoords=("axes fraction", "data"), ha="right", va="top", fontsize=8
        )
    axes.set(xlabel=x, ylabel=y)
    axes.locator_params(axis="x", integer=True, nbins=5)  # updates, steps
    axes.grid(alpha=0.3)


def lines(
    axes: Axes,
    named: Mapping[str, Sequence[tuple[float, ...]]],
    *,
    x: str,
    y: str,
) -> None:
    """Draw named lines through points (x, y), or through points (x, y, low, high) with a band from low to high."""
    for name, points in named.items():
        curve = np.array(points, np.float64)
        (line,) = axes.plot(curve[:, 0], curve[:, 1], marker="." if len(curve) < 30 else "", label=name)
        if curve.shape[1] == 4:
            axes.fill_between(curve[:, 0], curve[:, 2], curve[:, 3], color=line.get_color(), alpha=0.2, linewidth=0)
    if named:
        axes.legend(fontsize=8)
    axes.set(xlabel=x, ylabel=y)
    are_counts = all(float(point[0]).is_integer() for points in named.values() for point in points)
    axes.locator_params(axis="x", nbins=5, integer=are_counts)
    axes.grid(alpha=0.3)


def histogram(axes: Axes, groups: Mapping[str, Sequence[float] | np.ndarray], *, x: str) -> None:
    """Counts of one number per episode, one colour a group, all with the same bins."""
    arrays = {name: np.asarray(values, np.float64) for name, values in groups.items()}
    if len(arrays) > 1 and len({array.tobytes() for array in arrays.values()}) == 1:
        arrays = {" and ".join(arrays): next(iter(arrays.values()))}  # alike: drawn once
    finite = {name: array[np.isfinite(array)] for name, array in arrays.items()}
    everything = np.concatenate([np.empty(0), *finite.values()])
    lost = sum(map(len, arrays.values())) - len(everything)
    low, high = (everything.min(), everything.max()) if len(everything) else (0.0, 1.0)
    if high - low < 1e-9 * max(1.0, abs(high)):
        low, high = low - 1.0, high + 1.0  # all alike: one bar in the middle
    bins = np.linspace(low, high, min(MAX_BINS, max(10, int(len(everything) ** 0.5))) + 1).tolist()
    for (name, values), color in zip(finite.items(), (QUIET, FIRST, SECOND), strict=False):
        own = color if len(arrays) > 1 else FIRST
        fill = (own, 0.4 if len(arrays) > 1 else 1.0)  # through which the others are seen
        axes.hist(values, bins=bins, label=name, facecolor=fill, edgecolor=own, linewidth=1.5)
    if len(groups) > 1:
        axes.legend(fontsize=8)
    axes.set(xlabel=f"{x} ({lost} not finite)" if lost else x, ylabel="episodes")
    axes.grid(alpha=0.3)


def counts(axes: Axes, edges: Sequence[float], heights: Sequence[int], *, x: str) -> None:
    """A histogram that is counted already: one more edge than heights, or nothing."""
    if len(heights):
        axes.stairs(heights, edges, fill=True, color=FIRST)
    axes.set(xlabel=x, ylabel="episodes")
    axes.grid(alpha=0.3)


def bars(axes: Axes, values: Mapping[str, float], *, x: str) -> None:
    """Horizontal bars, one a name, the first on top."""
    names = list(values)[::-1]
    drawn = axes.barh(names, [values[name] if np.isfinite(values[name]) else 0.0 for name in names], color=FIRST)
    axes.bar_label(drawn, [_short(values[name]) for name in names], padding=3, fontsize=8)
    axes.margins(x=0.2)
    axes.locator_params(axis="x", nbins=4)
    axes.set(xlabel=x)


def intervals(
    axes: Axes,
    values: Mapping[str, tuple[float, float, float]],
    *,
    x: str,
    lines: Mapping[str, float | None],
) -> None:
    """Points with bars from low to high, out of (value, low, high) by name, the first on top; named upright lines."""
    names = list(values)[::-1]
    finite = [(row, values[name]) for row, name in enumerate(names) if np.isfinite(values[name]).all()]
    for row, (value, low, high) in finite:
        axes.plot([low, high], [row, row], color=FIRST, linewidth=2)
        axes.plot([value], [row], marker="o", markersize=6, color=FIRST)
    if _upright(axes, lines):
        _legend_above(axes)
    _names(axes, values, MOST_OF_INTERVALS)
    axes.locator_params(axis="x", nbins=4)
    axes.set(xlabel=x)
    axes.grid(alpha=0.3, axis="x")


JUDGED, SELECTED = "judged", "selecting side"


def forest(
    axes: Axes, rows: Mapping[str, tuple[Interval | None, Interval | None]], *, x: str, lines: Mapping[str, float | None]
) -> None:
    """Draw two intervals for each name, the first dark and the second paler below it, and named vertical lines."""
    styles: tuple[tuple[str, float, dict[str, Any]], ...] = (
        (JUDGED, 0.14, {"color": FIRST, "marker": "o", "linewidth": 2.5}),
        (SELECTED, -0.18, {"color": pale(FIRST, 0.4), "marker": "s", "linewidth": 2}),
    )
    for row, pair in enumerate([*rows.values()][::-1]):
        for interval, (label, offset, style) in zip(pair, styles, strict=True):
            if interval is None:
                continue
            if np.isfinite(interval).all():
                value, low, high = interval
                axes.plot([low, value, high], [row + offset] * 3, markevery=[1], markersize=5, **style)
            else:
                position = (0.02, row + offset)
                axes.annotate(f"{label}: no bound", position, xycoords=("axes fraction", "data"), va="center", fontsize=8)
    for label, _, style in styles:
        axes.plot([], [], label=label, markersize=5, **style)
    _upright(axes, lines)
    _legend_above(axes)
    _names(axes, rows)
    axes.locator_params(axis="x", nbins=5)
    axes.set(xlabel=x)
    axes.grid(alpha=0.3, axis="x")


def _upright(axes: Axes, lines: Mapping[str, float | None]) -> bool:
    """Draw named vertical lines, those that there are; whether there are any."""
    values = {name: line for name, line in lines.items() if line is not None}
    for (name, line), color in zip(values.items(), (QUIET, GOOD), strict=False):
        axes.axvline(line, color=color, linestyle="--", linewidth=1, label=name)
    return bool(values)


def shares(axes: Axes, values: Mapping[str, float], *, x: str, least: float) -> None:
    """Horizontal bars from 0 to 1, one a name, the first on top; those below the least are hatched."""
    for row, value in enumerate([*values.values()][::-1]):
        length = min(value, 1.0) if np.isfinite(value) else 0.0
        color, hatch = (FIRST, "") if length >= least else (SECOND, "///")
        axes.barh(row, length, color=color, hatch=hatch, edgecolor=QUIET, height=0.6)
        axes.text(length + 0.02, row, f"{100 * length:.0f} %", va="center", fontsize=8)
    axes.axvline(least, color=QUIET, linestyle="--", linewidth=1, label=f"needed: {100 * least:g} %")
    _legend_above(axes)
    _names(axes, values)
    axes.set(xlabel=x, xlim=(0, 1.22), xticks=[0, 0.25, 0.5, 0.75, 1])


def _legend_above(axes: Axes) -> None:
    axes.legend(
        fontsize=9,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=2,
        frameon=False,
        borderaxespad=0,
        handlelength=1.2,
        columnspacing=1.0,
        labelspacing=0.2,
    )


LIGHTS = {"holds": PICTURE["good"], "unsure": PICTURE["fair"], "falls": PICTURE["bad"]}
"""Colours of traffic lights, by the word that is next to them."""


def lights(axes: Axes, rows: Mapping[str, tuple[str, str]]) -> None:
    """A traffic light a name, out of (holds, unsure or falls; its numbers)."""
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.4, -0.6))
    axes.axis("off")
    for row, (name, (word, numbers)) in enumerate(rows.items()):
        axes.plot([0.04], [row], marker="o", markersize=11, color=LIGHTS[word])
        axes.text(0.11, row - 0.04, label(f"{name}: {word}", 44), va="bottom", fontsize=8, parse_math=False)
        axes.text(0.11, row + 0.04, numbers, va="top", fontsize=7, color=QUIET, parse_math=False)


def calibration(axes: Axes, tenths: Sequence[tuple[float, float, int]], *, x: str, y: str) -> None:
    """What was said beside what was, out of (said, done, how often); on the line both are the same."""
    axes.plot([0, 1], [0, 1], color=QUIET, linestyle="--", linewidth=1)
    largest = max((count for _, _, count in tenths), default=1)
    for said, done, count in tenths:
        axes.plot([said], [done], marker="o", markersize=3 + 7 * (count / max(largest, 1)) ** 0.5, color=FIRST, alpha=0.8)
    axes.set(xlabel=x, ylabel=y, xlim=(-0.05, 1.05), ylim=(-0.05, 1.05))
    axes.grid(alpha=0.3)


def _names(axes: Axes, names: Iterable[str], most: int = MOST_LETTERS) -> None:
    labels = [label(name, most) for name in names][::-1]
    axes.set_yticks(range(len(labels)), labels, fontsize=8, parse_math=False)
    axes.set_ylim(-0.6, len(labels) - 0.4)


def label(name: str, most: int = MOST_LETTERS) -> str:
    """A name in letters that the font has, with its end if it is long."""
    text = "".join(letter if letter.isprintable() and ord(letter) < 256 else "?" for letter in name)
    return text if len(text) <= most else f"...{text[3 - most :]}"


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


@dataclass(frozen=True, slots=True)
class Drawing:
    """Pictures as PNG: one by one for pages, which let them flow, and all in one."""

    pictures: Sequence[bytes]
    together: bytes


def drawn(pictures: Callable[[], Sequence[Picture]]) -> Callable[[], Drawing]:
    """What gives these pictures, drawn when they are first asked for; two lie side by side where all are in one."""

    @functools.cache
    def drawing() -> Drawing:
        from PIL import Image

        images = [Image.fromarray(_pixels(draw)) for draw in pictures()]
        columns, rows = min(len(images), 2), (len(images) + 1) // 2
        width, height = images[0].size
        together = Image.new("RGBA", (columns * width, rows * height))
        for number, image in enumerate(images):
            together.paste(image, (number % columns * width, number // columns * height))
        whole = _png(together)
        return Drawing([whole] if len(images) == 1 else [_png(image) for image in images], whole)

    return drawing


def new_axes() -> Axes:
    """Axes to draw a picture in, alone in their figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), dpi=DOTS_PER_INCH, layout="constrained", facecolor="none")
    axes: Axes = figure.subplots()
    axes.set_prop_cycle(color=COLORS)
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(QUIET)
    axes.tick_params(colors=QUIET)
    return axes


def pixels(axes: Axes) -> np.ndarray:
    """(height, width, 4) bytes of the figure of these axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for label in (axes.xaxis.label, axes.yaxis.label, *axes.texts):
        label.set_color(QUIET)
    if (legend := axes.get_legend()) is not None:
        legend.get_frame().set(alpha=0)
        for label in legend.get_texts():
            label.set_color(QUIET)
    figure = axes.get_figure(root=True)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]


def _pixels(draw: Picture) -> np.ndarray:
    axes = new_axes()
    draw(axes)
    return pixels(axes)


def _png(image: Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
