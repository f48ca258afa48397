"""What a training costs: a few terms, each so many seconds a piece, fitted to measured runs, and what follows for a cluster.

`seconds ≈ Σ count × coefficient`. The counts of a phase follow from how the run was set up; the coefficients are fitted by
non-negative least squares of relative errors, so that a second-long run has as much say as one of a minute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

Counts = dict[str, float]

TERMS = {
    "begin": "a run's own start: the dataset opened, the network made",
    "end": "a run's own end: checkpoints and records written",
    "ray": "Ray's start",
    "pool": "an execution of Ray Data: once when resident, once an epoch when streamed",
    "group": "Start of a group of learners",
    "process": "CPU time until an actor has imported what it needs",
    "read": "reading and decoding a step, on one prelearner's core",
    "fetch": "taking a step over from a prelearner: Ray's part, in the process that feeds",
    "feed": "joining a step to its window and putting it into shared memory, in the process that feeds",
    "order": "indexing and shuffling a step of a window, which each learner does for all steps",
    "step": "gathering, forward and backward pass of a step, on the learner whose share it is",
    "update": "an update, however large the batch: Python, Adam",
    "sync": "an update of several learners: what DDP adds to it, besides the rounds",
    "round": "a round of an all-reduce, of which a ring of n has 2 (n − 1)",
}
"""What each coefficient is the seconds of."""

OF_CLUSTERS = ("read", "fetch", "feed", "order", "step", "update", "sync", "round")
"""The terms that say how fast a cluster is, once it has started."""

ALL_REDUCES = 2
"""In an update: the gradients (one bucket), and the metrics."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is varied from run to run."""

    steps: int
    """In the dataset."""
    epochs: int = 1
    batch_size: int = 1024
    """Steps per update, over all learners."""
    prelearners: int = 0
    """0: the process that feeds reads."""
    learners: int = 0
    """0: the process that feeds learns."""
    streamed: bool = False
    nodes: int = 0
    """Ray nodes on this machine, started before the training; 0: the training starts Ray if it needs it."""
    cores: int = 2
    """Of the machine."""

    @property
    def learned(self) -> int:
        """Steps, each epoch counted anew."""
        return self.epochs * self.steps

    @property
    def updates(self) -> int:
        return self.epochs * math.ceil(self.steps / self.batch_size)

    @property
    def crowding(self) -> float:
        """Learners that take turns on a core."""
        return max(1.0, self.learners / self.cores)

    @property
    def simulated(self) -> bool:
        """More actors at work than there are cores: what grows then is overhead."""
        return max(self.prelearners, self.learners) > self.cores


class Point(NamedTuple):
    """A phase of a run, as measured."""

    name: str
    seconds: float
    counts: Counts


def loading(setting: Setting) -> Counts:
    """Until the first batch can be drawn; of a stream, reading comes later."""
    s = setting
    counts = {"begin": 1.0, "process": (s.prelearners * (not s.streamed) + s.learners) / s.cores}
    counts["ray"] = float(bool(s.prelearners or s.learners) and not s.nodes)
    counts["group"] = float(s.learners > 0)
    if not s.streamed:
        read = s.steps / max(1, min(s.prelearners, s.cores))
        counts |= {
            "pool": float(s.prelearners > 0),
            "read": read,
            "fetch": float(s.steps * (s.prelearners > 0)),
            "feed": s.steps,
        }
    return counts


def learning(setting: Setting) -> Counts:
    """From the first batch to the end, on data that is there."""
    s, share = setting, max(1, setting.learners)
    together = s.updates * s.crowding * (s.learners > 1)
    return {
        "end": 1.0,
        "order": s.learned * s.crowding,
        "step": s.learned * s.crowding / share,
        "update": s.updates * s.crowding,
        "sync": together,
        "round": together * ALL_REDUCES * rounds(share),
    }


def rounds(learners: int) -> int:
    """Of a ring's all-reduce: Gloo's way, unless told otherwise."""
    return 2 * (learners - 1)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of each term."""

    coefficients: dict[str, float]

    def seconds(self, counts: Mapping[str, float]) -> float:
        """What so many of each take, one after the other."""
        return sum(count * self.coefficients.get(term, 0.0) for term, count in counts.items())

    @property
    def untold(self) -> list[str]:
        """Terms of `OF_CLUSTERS` for which the fit found nothing: what is said of clusters is a best case in them."""
        return [term for term in OF_CLUSTERS if not self.coefficients.get(term)]

    def streaming(self, setting: Setting) -> float:
        """Seconds of the learning phase of a stream, never fitted: the slowest of what goes on at once.

        That is learning, reading or feeding; or all of their work, where it is more than the machine has cores for.
        """
        s = setting
        reading = self.seconds({"read": s.learned / max(1, min(s.prelearners, s.cores))})
        feeding = self.seconds({"fetch": float(s.learned * (s.prelearners > 0)), "feed": float(s.learned)})
        if not s.prelearners:
            feeding, reading = feeding + reading, 0.0
        learns = self.seconds(learning(s))
        work = learns * min(max(1, s.learners), s.cores) + self.seconds({"read": s.learned}) + feeding
        starting = self.seconds({"pool": s.epochs, "process": s.epochs * s.prelearners / s.cores}) if s.prelearners else 0.0
        return starting + max(learns, reading, feeding, work / s.cores)


def fit(points: Sequence[Point]) -> CostModel:
    """Return the coefficients, none below zero, that make the sum of squared relative errors least."""
    terms = sorted({term for point in points for term, count in point.counts.items() if count})
    rows = np.array([[point.counts.get(term, 0.0) / point.seconds for term in terms] for point in points])
    scale = rows.max(axis=0)  # counts are from one to billions
    found, _ = nnls(rows / scale, np.ones(len(points)))
    return CostModel(dict(zip(terms, (found / scale).tolist(), strict=True)))


def bootstrapped(points: Sequence[Point], *, count: int = 200, seed: int = 0) -> list[CostModel]:
    """Models of as many imagined measurements: the fitted seconds, each off by as much as some measured one was."""
    model, rng = fit(points), np.random.default_rng(seed)
    fitted = [max(1e-9, model.seconds(point.counts)) for point in points]
    off = np.array([point.seconds / seconds for point, seconds in zip(points, fitted, strict=True)])
    models = []
    for _ in range(count):
        drawn = fitted * rng.choice(off, len(points))
        models.append(fit([point._replace(seconds=float(s)) for point, s in zip(points, drawn, strict=True)]))
    return models


@dataclass(frozen=True, slots=True)
class Cluster:
    """Machines that were not measured: all numbers but those of the model are assumptions."""

    nodes: int
    cores: int = 16
    learners_per_node: int = 8
    """Each on a core of its own; the other cores but one are prelearners'."""
    batch_per_learner: int = 1024
    network_bytes_per_second: float = 25e9 / 8
    """Of each node, in each direction."""
    bytes_per_step: float = 26.0
    """In memory, and on the way to learners."""
    stored_bytes_per_step: float = 34.0
    gradient_bytes: float = 20_000.0
    passes_on: bool = False
    """Nodes fetch a window from each other as well; else all of them fetch it from the node that feeds."""

    @property
    def learners(self) -> int:
        return self.nodes * self.learners_per_node

    @property
    def prelearners(self) -> int:
        return self.nodes * max(1, self.cores - self.learners_per_node - 1)


def stages(model: CostModel, cluster: Cluster) -> dict[str, float]:
    """Return the seconds per step of all stages, which run at once; the largest is the bottleneck."""
    c, cost = cluster, model.coefficients.get
    n = c.learners
    copies = (1 if c.passes_on else c.nodes - 1) if c.nodes > 1 else 0
    exchanged = rounds(n) / n * c.gradient_bytes / c.network_bytes_per_second
    update = cost("update", 0.0) + (n > 1) * (cost("sync", 0.0) + ALL_REDUCES * rounds(n) * cost("round", 0.0) + exchanged)
    return {
        "prelearners: reading and decoding": cost("read", 0.0) / c.prelearners,
        "network: from storage": c.stored_bytes_per_step / (c.nodes * c.network_bytes_per_second),
        "network: into the node that feeds": c.bytes_per_step * (c.nodes - 1) / c.nodes / c.network_bytes_per_second,
        "network: out of the node that feeds": c.bytes_per_step * copies / c.network_bytes_per_second,
        "the process that feeds": cost("fetch", 0.0) + cost("feed", 0.0),
        "learners: order of all steps": cost("order", 0.0),
        "learners: their share of a batch": cost("step", 0.0) / n,
        "learners: update and all-reduce": update / (n * c.batch_per_learner),
    }


def seconds_per_step(found: Mapping[str, float]) -> float:
    """Of a pipeline with these `stages`: a learner does its parts one after the other, all else goes on meanwhile."""
    learner = sum(seconds for name, seconds in found.items() if name.startswith("learners:"))
    return max([learner, *(seconds for name, seconds in found.items() if not name.startswith("learners:"))])


def bottleneck(found: Mapping[str, float]) -> str:
    """The stage to widen first; if learners are slowest, the largest of their parts."""
    learner = {name: seconds for name, seconds in found.items() if name.startswith("learners:")}
    others = {name: seconds for name, seconds in found.items() if name not in learner}
    slower = learner if not others or sum(learner.values()) >= max(others.values()) else others
    return max(slower, key=lambda name: slower[name])
