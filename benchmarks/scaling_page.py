"""The page of the scaling benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from benchmarks.cost_model import TERMS, Extrapolation, Setting, bottleneck, errors
from benchmarks.scaling_report import STEPS, Findings, Line, Median, interval, label

COLUMNS = ("", "steps/s (slowest – fastest)", "with start and loading", "peak memory", "of it the training process", "runs")
BEYOND = """\
It takes for granted: {cores} cores a node, {learners} of them learners and the others but one prelearners; {batch} steps of \
each batch for each learner; {network:.0f} Gbit/s for each node in each direction; cores, Ray and latency as they were here, \
however many there are; storage that keeps up; nobody lost on the way. It knows nothing of what only shows at size: Ray Data's \
bookkeeping of some million row groups, the list of them that goes along with each read task, manifests of 10¹¹ steps, batches \
so large that more of them are needed to learn as much."""


def page(found: Findings, name: str) -> str:
    """Markdown; `name` is that of the files beside it."""
    machine = found.machine
    where = (
        f"{machine.get('processor', 'unknown')}, {machine.get('value', '?')} cores, {machine.get('memory_gib', '?')} GiB, "
        f"Python {machine.get('python', '?')}, Ray {machine.get('ray', '?')}, Torch {machine.get('torch', '?')}, load before "
        f"{machine.get('load_before', '?')}"
    )
    parts = [
        f"# Scaling, {name.removesuffix('-scaling')}",
        f"`{machine.get('command', 'python -m benchmarks.scaling')}` on {where}. Each run is `train_policy` "
        f"({machine.get('algorithm', 'bc')}, the default network, CartPole-like steps of four floats in episode format) in a "
        f"process of its own; settings took turns, forwards and then backwards; medians. Raw lines: "
        f"[{name}.jsonl]({name}.jsonl); this page and the plot are made from them by `--from`.",
        f"![Scaling]({name}.png)",
        "**Steps/s** are those learned from the moment when the first batch could be drawn to the end, for a stream with the "
        "wait for its first steps. **Peak memory** is the sum of the proportional set sizes (PSS) of the training process and "
        "of all processes below it, so Ray's own, idle workers, actors, and what is in use of the object store; taken every "
        "0.3 s.",
        "## Size of the dataset\n\nOne prelearner; small datasets for more epochs, so that there is something to measure. Each "
        "epoch of a stream starts a pool of prelearners: of a small dataset, it is mostly that.",
        table(found, "size"),
        "## Prelearners\n\nStreamed, the process that feeds learns; without prelearners it reads as well. "
        "Simulated: more of them than cores, by fractions of CPUs, so what they add is overhead and says nothing about more "
        "cores.",
        table(found, "prelearners"),
        "The same, loading a dataset that stays in memory; nothing is learned meanwhile:",
        loading_table(found),
        "## Learners\n\nResident, the process that feeds reads; each global batch is shared. Simulated ones share cores: what "
        "grows with them is overhead.",
        table(found, "learners"),
        "## Batches",
        table(found, "batch"),
        "## Two Ray nodes\n\nTwo raylets on this machine, with an object store each, against one with the CPUs of both; two "
        "learners, one prelearner, streamed. No network is between them, and no core comes with the second: it shows what "
        "passing steps from store to store costs.",
        nodes_table(found),
        *model_part(found),
        *extrapolation_part(found),
        *left_out_part(found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def table(found: Findings, curve: str) -> str:
    """The settings of a curve."""
    rows = [row(median) for median in along(found, curve)]
    return markdown(COLUMNS, rows) if rows else "Nothing of it was measured."


def along(found: Findings, curve: str) -> list[Median]:
    """The settings of a curve in its order, all of one kind of reading together."""
    own = [median for median in found.medians if curve in median.curves]
    return sorted(own, key=lambda m: (m.setting.streamed, m.setting.steps, m.setting.learners, m.setting.prelearners))


def row(median: Median) -> tuple[str, ...]:
    """A setting."""
    return (
        label(median.setting),
        f"{thousands(median.steps_per_second)} ({thousands(median.slowest)} – {thousands(median.fastest)})",
        thousands(median.all_steps_per_second),
        f"{median.peak_bytes / 1e6:,.0f} MB",
        f"{median.process_bytes / 1e6:,.0f} MB",
        str(median.runs),
    )


def loading_table(found: Findings) -> str:
    """How long loading takes, Ray's start and that of the actors included."""
    medians = [m for m in found.medians if not m.setting.streamed and not m.setting.learners and m.setting.batch_size == 1024]
    base = {m.setting.steps for m in medians if "loading" in m.curves}
    medians = sorted((m for m in medians if m.setting.steps in base), key=lambda m: m.setting.prelearners)
    rows = [(label(m.setting), f"{m.load_seconds:.1f} s") for m in medians]
    return markdown(("", "until the first batch, Ray's start included"), rows) if rows else "Nothing of it was measured."


def nodes_table(found: Findings) -> str:
    """One and two nodes, and on how many there were learners."""
    medians = [median for median in found.medians if "nodes" in median.curves]
    if not medians:
        return "Nothing of it was measured."
    return markdown((*COLUMNS, "nodes with learners"), [(*row(median), str(median.nodes_with_learners)) for median in medians])


def model_part(found: Findings) -> list[str]:
    """Coefficients, and how far the model is off."""
    rows = []
    for term, meaning in TERMS.items():
        low, high = interval(found, term)
        rows.append((term, seconds(found.model.coefficients.get(term, 0.0)), f"{seconds(low)} – {seconds(high)}", meaning))
    off = errors(found.model, found.points)
    worst = sorted(zip(found.points, off, strict=True), key=lambda pair: -abs(pair[1]))[:8]
    parts = [
        "## Cost model\n\nseconds = Σ count × coefficient, fitted by non-negative least squares of relative errors to the "
        f"{len(found.points)} phases that were measured (start and loading; learning of resident data; stages by themselves). "
        "Intervals: 5th to 95th percentile of 200 bootstrapped fits. A coefficient of 0 is one that these runs cannot tell "
        "from the others.",
        markdown(("term", "costs", "interval", "is"), rows),
        f"Half of the points are off by less than {statistics.median(map(abs, off)):.0%}. The farthest:",
        markdown(
            ("phase", "measured", "model", "off by"),
            [
                (point.name, seconds(point.seconds), seconds(found.model.seconds(point.counts)), f"{error:+.0%}")
                for point, error in worst
            ],
        ),
    ]
    if found.streams:
        parts += [
            "Streams were not fitted. What the model says of them (the slowest of learning, reading and feeding, or all their "
            "work over the cores) is a test of it:",
            markdown(
                ("stream", "measured", "model", "off by"),
                [
                    (label(m.setting), seconds(m.learn_seconds), seconds(said), f"{said / m.learn_seconds - 1:+.0%}")
                    for m, said in found.streams
                ],
            ),
        ]
    return parts


def extrapolation_part(found: Findings) -> list[str]:
    """What the model says of clusters."""
    last = found.extrapolations[-1].cluster
    beyond = BEYOND.format(
        cores=last.cores,
        learners=last.learners_per_node,
        batch=f"{last.batch_per_learner:,}",
        network=last.network_bytes_per_second * 8 / 1e9,
    )
    parts = [
        "## Extrapolation: 100 nodes, 10¹¹ steps\n\n**Nobody has measured this.** It is the model above, a stream, and these "
        f"assumptions. {beyond} The intervals are of the fit alone, not of all that.",
    ]
    for passes_on, title in (
        (False, "Every node fetches each window from the node that feeds:"),
        (True, "If nodes pass windows on to each other, as Ray may let them:"),
    ):
        said = [one for one in found.extrapolations if one.cluster.passes_on == passes_on]
        parts += [title, markdown(("nodes", "steps/s", "interval", "10¹¹ steps, once", "bottleneck"), map(extrapolated, said))]
    largest = [one for one in found.extrapolations if one.cluster.nodes == last.nodes]
    limits = sorted(largest[0].stages.items(), key=lambda item: -item[1])
    parts += [
        f"What each stage could do on {last.nodes} nodes if nothing else held it up, the narrowest first (the learners' three "
        "come one after the other, all else goes on at once):",
        markdown(("stage", "steps/s"), [(name, thousands(1 / cost) if cost else "no limit found") for name, cost in limits]),
        verdict(largest),
    ]
    if untold := found.model.untold:
        parts.append(
            f"**The fit found nothing for {', '.join(untold)}**: these runs cannot tell it from other terms, or did not have "
            "it. The rates above take it for free, and are a best case in that."
        )
    return parts


def extrapolated(said: Extrapolation) -> tuple[str, ...]:
    """A row."""
    interval = f"{thousands(said.low)} – {thousands(said.high)}"
    took = f"{said.hours(STEPS):,.1f} h"
    return str(said.cluster.nodes), thousands(said.steps_per_second), interval, took, said.bottleneck


def verdict(largest: Sequence[Extrapolation]) -> str:
    """The bottleneck, in a sentence."""
    fetched, passed = largest
    rest = {name: cost for name, cost in passed.stages.items() if name != bottleneck(passed.stages)}
    return (
        f"So the bottleneck of {fetched.cluster.nodes} nodes is **{fetched.bottleneck}**; if nodes pass windows on, "
        f"**{passed.bottleneck}**, and next **{bottleneck(rest)}**."
    )


def left_out_part(found: Findings) -> list[str]:
    """What was not measured."""
    if not found.left_out:
        return []
    names = [
        f"- {label_of(line)}: {line['why']}" + (f" ({line['value']:.0f} s)" if line["value"] else "") for line in found.left_out
    ]
    return ["## Left out", "\n".join(names)]


def label_of(line: Line) -> str:
    """What a line is of."""
    name = label(Setting(**line["setting"])) if "setting" in line else ", ".join(line["curves"])
    return f"{name}, turn {line['repeat'] + 1}" if "repeat" in line else name


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
