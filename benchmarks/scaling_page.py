"""The page of the scaling benchmark from its measured lines: medians, the fitted cost model, and its extrapolation."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cost_model import (
    TERMS,
    Cluster,
    Point,
    Setting,
    bootstrapped,
    bottleneck,
    fit,
    learning,
    loading,
    seconds_per_step,
    stages,
)

Line = dict[str, Any]
NODES, STEPS = (1, 2, 5, 10, 20, 50, 100), 10**11
COLUMNS = ("", "steps/s (slowest – fastest)", "with start and loading", "peak memory", "of it the training process", "runs")
TEMPLATE = Path(__file__).with_suffix(".md")
"""The text of the page; its fields are the results."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one setting, as they were printed."""

    setting: Setting
    lines: list[Line]

    @property
    def rates(self) -> list[float]:
        """Steps/s from the first batch that could be drawn to the end."""
        return [line["steps"] / (line["value"] - line["load_seconds"]) for line in self.lines]

    @property
    def steps_per_second(self) -> float:
        return statistics.median(self.rates)

    @property
    def learn_seconds(self) -> float:
        return statistics.median(line["value"] - line["load_seconds"] for line in self.lines)

    def median(self, name: str) -> float:
        return statistics.median(line[name] for line in self.lines)

    def is_in(self, curve: str) -> bool:
        return curve in self.lines[0]["curves"]

    @property
    def row(self) -> tuple[str, ...]:
        return (
            label(self.setting),
            f"{thousands(self.steps_per_second)} ({thousands(min(self.rates))} – {thousands(max(self.rates))})",
            thousands(statistics.median(line["steps"] / line["value"] for line in self.lines)),
            f"{self.median('bytes') / 1e6:,.0f} MB",
            f"{self.median('process_bytes') / 1e6:,.0f} MB",
            str(len(self.lines)),
        )


class Findings:
    """What measured lines come to."""

    def __init__(self, lines: Iterable[Line]) -> None:
        by_name: dict[str, list[Line]] = defaultdict(list)
        for line in lines:
            by_name[line["name"].removeprefix("scaling.")].append(line)
        grouped: dict[Setting, list[Line]] = defaultdict(list)
        for run in by_name["run"]:
            grouped[Setting(**run["setting"])].append(run)
        self.runs = [Runs(setting, same) for setting, same in grouped.items()]
        self.machine = by_name["machine"][-1] if by_name["machine"] else {}
        self.left_out = by_name["left_out"]
        self.points = [point for run in by_name["run"] for point in points_of(run)]
        for line in by_name["stages"]:
            self.points += [Point(f"{name} by itself", line[name] * 1e6, {name: 1e6}) for name in ("read", "feed", "order")]
        self.model, self.others = fit(self.points), bootstrapped(self.points)
        last = by_name["stages"][-1] if by_name["stages"] else {}
        sizes = ("bytes_per_step", "stored_bytes_per_step", "gradient_bytes")
        self.cluster = Cluster(1, **{name: last[name] for name in sizes if last})

    def along(self, curve: str) -> list[Runs]:
        """The runs of a curve in its order, all of one kind of reading together."""
        own = [runs for runs in self.runs if runs.is_in(curve)]
        return sorted(own, key=lambda r: (r.setting.streamed, r.setting.steps, r.setting.learners, r.setting.prelearners))

    def on(self, nodes: int, *, passes_on: bool) -> tuple[float, float, float, dict[str, float]]:
        """(steps/s of a cluster of so many nodes, its 5th and 95th percentile over the bootstrapped fits, its stages)."""
        cluster = replace(self.cluster, nodes=nodes, passes_on=passes_on)
        found = stages(self.model, cluster)
        low, high = np.quantile([1 / seconds_per_step(stages(other, cluster)) for other in self.others], [0.05, 0.95])
        return 1 / seconds_per_step(found), float(low), float(high), found


def points_of(run: Line) -> list[Point]:
    """The phases of a run that the model is fitted to: of a stream only its start, of given nodes none."""
    setting = Setting(**run["setting"])
    if setting.nodes:
        return []
    found = [Point(f"{label(setting)}: start and loading", run["load_seconds"], loading(setting))]
    if not setting.streamed:
        found.append(Point(f"{label(setting)}: learning", run["value"] - run["load_seconds"], learning(setting)))
    return found


def report(lines: Sequence[Line], path: Path) -> None:
    """Write the page, the raw lines and the plot beside each other."""
    from benchmarks.scaling_plot import plot

    found = Findings(lines)
    path.with_name(f"{path.name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    path.with_name(f"{path.name}.md").write_text(page(found, path.name))
    plot(found, path.with_name(f"{path.name}.png"))


def page(found: Findings, name: str) -> str:
    """Markdown; `name` is that of the files beside it."""
    unknown = dict.fromkeys(("processor", "value", "memory_gib", "python", "ray", "torch", "load_before"), "?")
    machine = {"command": "python -m benchmarks.scaling", "algorithm": "bc", **unknown, **found.machine}
    tables = {curve: table(COLUMNS, [runs.row for runs in found.along(curve)]) for curve in ("size", "learners", "batch")}
    nodes = [(*runs.row, str(max(line["nodes_with_learners"] for line in runs.lines))) for runs in found.along("nodes")]
    c = found.cluster
    text = TEMPLATE.read_text().format(
        date=name.removesuffix("-scaling"),
        name=name,
        machine=machine,
        **tables,
        prelearners=table(COLUMNS, [runs.row for runs in found.along("prelearners")]),
        loading=loading_table(found),
        nodes=table((*COLUMNS, "nodes with learners"), nodes),
        **model_fields(found),
        cluster=c,
        batch_per_learner=f"{c.batch_per_learner:,}",
        network=f"{c.network_bytes_per_second * 8 / 1e9:.0f}",
        **cluster_fields(found),
    )
    return text + left_out(found.left_out)


def loading_table(found: Findings) -> str:
    """How long loading takes, Ray's start and that of the actors included."""
    own = [r for r in found.runs if not r.setting.streamed and not r.setting.learners and r.setting.batch_size == 1024]
    base = {runs.setting.steps for runs in own if runs.is_in("loading")}
    own = sorted((runs for runs in own if runs.setting.steps in base), key=lambda runs: runs.setting.prelearners)
    rows = [(label(runs.setting), f"{runs.median('load_seconds'):.1f} s") for runs in own]
    return table(("", "until the first batch, Ray's start included"), rows)


def model_fields(found: Findings) -> dict[str, Any]:
    """Coefficients, and how far the model is off."""
    model = found.model
    rows = []
    for term, meaning in TERMS.items():
        values = sorted(other.coefficients.get(term, 0.0) for other in found.others)
        low, high = values[len(values) // 20], values[-1 - len(values) // 20]
        rows.append((term, seconds(model.coefficients.get(term, 0.0)), f"{seconds(low)} – {seconds(high)}", meaning))
    phases = [(point.name, point.seconds, model.seconds(point.counts)) for point in found.points]
    off = [abs(said / measured - 1) for _, measured, said in phases]
    worst = sorted(phases, key=lambda phase: -abs(phase[2] / phase[1] - 1))[:8]
    streams = [
        (label(runs.setting), runs.learn_seconds, model.streaming(runs.setting))
        for runs in found.runs
        if runs.setting.streamed and not runs.setting.nodes
    ]
    return {
        "points": len(found.points),
        "terms": table(("term", "costs", "interval", "is"), rows),
        "half": f"{statistics.median(off):.0%}",
        "farthest": compared("phase", worst),
        "streams": compared("stream", streams),
    }


def compared(kind: str, phases: Iterable[tuple[str, float, float]]) -> str:
    """A table of (name, measured seconds, seconds by the model)."""
    rows = [(name, seconds(real), seconds(said), f"{said / real - 1:+.0%}") for name, real, said in phases]
    return table((kind, "measured", "model", "off by"), rows)


def cluster_fields(found: Findings) -> dict[str, str]:
    """What the model says of clusters."""
    tables = []
    for passes_on in (False, True):
        rows = []
        for nodes in NODES:
            rate, low, high, stages_ = found.on(nodes, passes_on=passes_on)
            interval = f"{thousands(low)} – {thousands(high)}"
            rows.append((nodes, thousands(rate), interval, f"{STEPS / rate / 3600:,.1f} h", bottleneck(stages_)))
        tables.append(table(("nodes", "steps/s", "interval", "10¹¹ steps, once", "bottleneck"), rows))
    (*_, fetched), (*_, passed) = (found.on(NODES[-1], passes_on=passes) for passes in (False, True))
    limits = sorted(fetched.items(), key=lambda item: -item[1])
    rest = {name: cost for name, cost in passed.items() if name != bottleneck(passed)}
    verdict = (
        f"So the bottleneck of {NODES[-1]} nodes is **{bottleneck(fetched)}**; if nodes pass windows on, "
        f"**{bottleneck(passed)}**, and next **{bottleneck(rest)}**."
    )
    if untold := found.model.untold:
        verdict += (
            f"\n\n**The fit found nothing for {', '.join(untold)}**: these runs cannot tell it from other terms, or did not "
            "have it. The rates above take it for free, and are a best case in that."
        )
    rates = [(name, thousands(1 / cost) if cost else "no limit found") for name, cost in limits]
    return {"fetching": tables[0], "passing": tables[1], "limits": table(("stage", "steps/s"), rates), "verdict": verdict}


def left_out(lines: Iterable[Line]) -> str:
    """What was not measured."""
    names = []
    for line in lines:
        name = label(Setting(**line["setting"])) if "setting" in line else ", ".join(line["curves"])
        turn = f", turn {line['repeat'] + 1}" if "repeat" in line else ""
        names.append(f"- {name}{turn}: {line['why']}" + (f" ({line['value']:.0f} s)" if line["value"] else ""))
    return "\n## Left out\n\n" + "\n".join(names) + "\n" if names else ""


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) if rows else "Nothing of it was measured."


def label(setting: Setting) -> str:
    """A setting in words."""
    s = setting
    words = [f"{s.steps / 1e6:g} M steps", "streamed" if s.streamed else "resident"]
    words += [f"{s.epochs} epochs"] * (s.epochs > 1) + [f"batches of {s.batch_size:,}"] * (s.batch_size != 1024)
    for count, word in ((s.prelearners, "prelearner"), (s.learners, "learner"), (s.nodes, "node")):
        words += [f"{count} {word}{'s' * (count > 1)}"] * bool(count)
    return ", ".join(words) + " (simulated)" * s.simulated


def thousands(rate: float) -> str:
    """1,234,567 → 1.23 M."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if rate >= size:
            return f"{rate / size:.3g}{unit}"
    return f"{rate:.3g}"


def seconds(value: float) -> str:
    """With a unit that fits."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"
