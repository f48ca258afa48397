"""What the runs of the scaling benchmark come to: medians, the fitted model, what it says of a cluster; page and plot."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.cost_model import (
    TERMS,
    Cluster,
    CostModel,
    Extrapolation,
    Point,
    Setting,
    bootstrapped,
    errors,
    extrapolate,
    fit,
    learning,
    loading,
)

Line = dict[str, Any]
"""As `benchmarks.figure.figure` takes it."""

NODES = (1, 2, 5, 10, 20, 50, 100)
STEPS = 10**11
STAGES = ("read", "feed", "order")


@dataclass(frozen=True, slots=True)
class Median:
    """The runs of one setting."""

    setting: Setting
    curves: tuple[str, ...]
    runs: int
    steps_per_second: float
    """Learned, from the first batch that could be drawn to the end; a stream's waiting for its first steps included."""
    slowest: float
    """The same, of the slowest run."""
    fastest: float
    all_steps_per_second: float
    """Over the whole run, with Ray's start and loading."""
    load_seconds: float
    learn_seconds: float
    peak_bytes: float
    process_bytes: float
    """At the peak of the first process."""
    nodes_with_learners: int


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the page tells."""

    machine: Line
    medians: list[Median]
    points: list[Point]
    model: CostModel
    others: list[CostModel]
    """Bootstrapped."""
    extrapolations: list[Extrapolation]
    left_out: list[Line]

    @property
    def streams(self) -> list[tuple[Median, float]]:
        """Streams on nodes that the training starts itself, which were not fitted, and the seconds the model says of them."""
        found = [median for median in self.medians if median.setting.streamed and not median.setting.nodes]
        return [(median, self.model.streaming(median.setting)) for median in found]


def findings(lines: Iterable[Line]) -> Findings:
    """Everything, from lines that were measured.

    Raises:
        ValueError: there is no run among them.
    """
    by_name: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_name[line["name"]].append(line)
    runs = by_name["scaling.run"]
    points = [point for run in runs for point in points_of(run)] + stage_points(by_name["scaling.stages"])
    model, others = fit(points), bootstrapped(points)
    bytes_of = by_name["scaling.stages"][-1] if by_name["scaling.stages"] else {}
    base = Cluster(
        1, **{name: bytes_of[name] for name in ("bytes_per_step", "stored_bytes_per_step", "gradient_bytes") if bytes_of}
    )
    clusters = [replace(base, nodes=nodes, passes_on=passes) for passes in (False, True) for nodes in NODES]
    return Findings(
        by_name["scaling.machine"][-1] if by_name["scaling.machine"] else {},
        medians(runs),
        points,
        model,
        others,
        [extrapolate(model, others, cluster) for cluster in clusters],
        by_name["scaling.left_out"],
    )


def points_of(run: Line) -> list[Point]:
    """The phases of a run that the model is fitted to: of a stream only its start, of given nodes none."""
    setting = Setting(**run["setting"])
    if setting.nodes:
        return []
    name = label(setting)
    found = [Point(f"{name}: start and loading", run["load_seconds"], loading(setting))]
    if not setting.streamed:
        found.append(Point(f"{name}: learning", run["value"] - run["load_seconds"], learning(setting)))
    return found


def stage_points(lines: Iterable[Line]) -> list[Point]:
    """What was measured of each stage by itself, per million steps."""
    return [Point(f"{name} by itself", line[name] * 1e6, {name: 1e6}) for line in lines for name in STAGES]


def medians(runs: Iterable[Line]) -> list[Median]:
    """One for each setting, in the order in which they come first."""
    grouped: dict[Setting, list[Line]] = defaultdict(list)
    for run in runs:
        grouped[Setting(**run["setting"])].append(run)
    found = []
    for setting, same in grouped.items():

        def middle(of: Any, same: list[Line] = same) -> float:
            return statistics.median(of(run) for run in same)

        learned = [run["steps"] / (run["value"] - run["load_seconds"]) for run in same]
        found.append(
            Median(
                setting,
                tuple(same[0]["curves"]),
                len(same),
                statistics.median(learned),
                min(learned),
                max(learned),
                middle(lambda run: run["steps"] / run["value"]),
                middle(lambda run: run["load_seconds"]),
                middle(lambda run: run["value"] - run["load_seconds"]),
                middle(lambda run: run["bytes"]),
                middle(lambda run: run["process_bytes"]),
                max(run["nodes_with_learners"] for run in same),
            )
        )
    return found


def figures(found: Findings) -> list[Line]:
    """What was derived, as lines for `figure`."""
    lines: list[Line] = []
    for median in found.medians:
        s = median.setting
        fields = {
            "steps": s.steps,
            "epochs": s.epochs,
            "batch_size": s.batch_size,
            "streamed": s.streamed,
            "prelearners": s.prelearners,
            "learners": s.learners,
            "simulated": s.simulated,
            "runs": median.runs,
        }
        fields |= {"nodes": s.nodes, "nodes_with_learners": median.nodes_with_learners} if s.nodes else {}
        rates = {
            "all_steps_per_second": round(median.all_steps_per_second),
            "load_seconds": round(median.load_seconds, 2),
            "learn_seconds": round(median.learn_seconds, 2),
        }
        for curve in median.curves:
            lines.append(_line(f"{curve}.steps_per_second", median.steps_per_second, "steps/s", **fields, **rates))
            own = {"process_bytes": median.process_bytes}
            lines.append(_line(f"{curve}.peak_bytes", median.peak_bytes, "bytes", **fields, **own))
    for term in TERMS:
        value, (low, high) = found.model.coefficients.get(term, 0.0), interval(found, term)
        lines.append(_line(f"model.{term}", value * 1e6, "µs", low=round(low * 1e6, 4), high=round(high * 1e6, 4)))
    off = [abs(error) for error in errors(found.model, found.points)]
    lines.append(
        _line("model.error", statistics.median(off), "of the measured seconds", worst=round(max(off), 3), points=len(off))
    )
    if found.streams:
        off = [abs(seconds / median.learn_seconds - 1) for median, seconds in found.streams]
        lines.append(
            _line("model.error_of_streams", statistics.median(off), "of the measured seconds", worst=round(max(off), 3))
        )
    for said in found.extrapolations:
        fields = {"nodes": said.cluster.nodes, "passes_on": said.cluster.passes_on, "extrapolation": True}
        fields |= {"untold": found.model.untold} if found.model.untold else {}
        fields |= {"low": round(said.low), "high": round(said.high), "bottleneck": said.bottleneck}
        lines.append(_line("extrapolated.steps_per_second", said.steps_per_second, "steps/s", **fields))
    return lines


def _line(name: str, value: float, unit: str, **fields: Any) -> Line:
    return {"name": f"scaling.{name}", "value": value, "unit": unit, **fields}


def interval(found: Findings, term: str) -> tuple[float, float]:
    """5th and 95th percentile of a coefficient."""
    values = sorted(other.coefficients.get(term, 0.0) for other in found.others)
    return values[len(values) // 20], values[-1 - len(values) // 20]


def label(setting: Setting) -> str:
    """A setting in words."""
    s = setting
    words = [f"{s.steps / 1e6:g} M steps", "streamed" if s.streamed else "resident"]
    words += [f"{s.epochs} epochs"] * (s.epochs > 1) + [f"batches of {s.batch_size:,}"] * (s.batch_size != 1024)
    words += [f"{s.prelearners} prelearner{'s' * (s.prelearners > 1)}"] * bool(s.prelearners)
    words += [f"{s.learners} learner{'s' * (s.learners > 1)}"] * bool(s.learners)
    words += [f"{s.nodes} node{'s' * (s.nodes > 1)}"] * bool(s.nodes)
    return ", ".join(words) + " (simulated)" * s.simulated


def report(found: Findings, lines: Iterable[Line], path: Path) -> None:
    """Writes the page, the raw lines and the plot beside each other."""
    from benchmarks.scaling_page import page
    from benchmarks.scaling_plot import plot

    named = {ending: path.with_name(f"{path.name}.{ending}") for ending in ("md", "jsonl", "png")}
    named["jsonl"].write_text("".join(json.dumps(line) + "\n" for line in lines))
    named["md"].write_text(page(found, path.name))
    plot(found, named["png"])
