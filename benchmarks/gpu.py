"""Updates per second on a GPU: ours beside JAX's compiled scan, and the share of the time in which the GPU computes.

    python -m benchmarks.gpu [--jax /path/to/jax/venv/bin/python]

On a machine with an NVIDIA GPU and 16 CPUs it takes less than five minutes. Networks, data and losses are those of
`benchmarks.reference_speed`, with 200,000 steps. For each algorithm two processes of ours, one of which compiles, and one of
JAX build all that is measured, side by side; who is not ready after `--limit` is left out. Then they are measured one after the
other, by the clock. `launched` launches each kernel, `recorded` is what `compute.compile: auto` does in short trainings,
`compiled` what it does in long ones. `kernels` are those of an update, and `busy` is the share of its time that they take, by
Torch's profiler. `ratio` is the better of recorded and compiled over JAX with products in float32.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.figure import figure
from benchmarks.reference.our_speed import learner_of, rows_of, steps_of
from offline_core.learning.learner import Learner
from offline_core.learning.update import CALLS_BEFORE

ALGORITHMS = ("bc", "iql", "td3_bc", "rebrac", "cql", "dcql")
SIZES = ("256x256", "4096x256", "256x1024", "4096x1024")
"""Batch x units of each of two layers."""
COMPILED = "compiled"
COMPUTE: dict[str, dict[str, Any]] = {
    "launched": {"compile": False},
    "recorded": {"compile": "auto"},
    "bfloat16": {"compile": "auto", "bfloat16": True},
    COMPILED: {"compile": True},
}
"""What is measured, as parameters of `compute`. `auto` does not compile, as the trainings are short."""
SOME = {"launched": SIZES[:1], "bfloat16": SIZES[-1:], COMPILED: (SIZES[0], SIZES[-1])}
"""What is not measured at all sizes."""
PRECISIONS = ("highest", "default")
"""Precisions of JAX's products: float32, and TF32, which is its default on a GPU."""
STEPS = 200_000
PROFILED_UPDATES = 20
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "4",  # for each of the processes
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # or JAX's first process would take most of the memory
}


class Side(NamedTuple):
    """A process that says `ready`, and then measures what it is told."""

    process: subprocess.Popen[str]

    @classmethod
    def of(cls, *command: str) -> Side:
        return cls(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT))

    def is_ready(self, until: float) -> bool:
        """Return whether it is ready before this time; if it is not, end it."""
        ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.perf_counter()))
        assert self.process.stdout is not None
        if ready and self.process.stdout.readline().strip() == "ready":
            return True
        self.process.kill()
        print(f"Not ready: {self.process.args}", file=sys.stderr)
        return False

    def measured(self, line: str) -> dict[str, Any]:
        """Return what it measures for a line."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax", help="Python of an environment with jax and optax; without it, no ratios to JAX")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds until all have to be ready")
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS)
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--kinds", nargs="+", default=COMPUTE)
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS)
    parser.add_argument("--side", help="an algorithm: this process is the side that measures it")
    arguments = parser.parse_args()
    if arguments.side:
        measure(arguments.side, arguments.sizes, arguments.kinds)
        return
    begin = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.gpu", "--sizes", *arguments.sizes]
    parts = [
        part
        for part in ([kind for kind in arguments.kinds if kind != COMPILED], [COMPILED])
        if set(part) <= set(arguments.kinds)
    ]
    ours = {
        (name, *part): Side.of(*command, "--kinds", *part, "--side", name)
        for part in parts
        if part
        for name in arguments.algorithms
    }
    jax: dict[Any, Side] = {}
    if arguments.jax:
        script = str(Path(__file__).parent / "reference" / "jax_gpu.py")
        jax = {
            name: Side.of(arguments.jax, script, name, str(STEPS), *arguments.sizes, *arguments.precisions)
            for name in arguments.algorithms
        }
    sides = [(known, name) for known in (ours, jax) for name in known]
    for known, name in sides:
        if not known[name].is_ready(begin + arguments.limit):
            del known[name]
    figure("gpu.preparing", time.perf_counter() - begin, "seconds")
    for name in arguments.algorithms:
        for size in arguments.sizes:
            rates: dict[str, float] = {}
            for of, *kinds in ours:
                for kind in kinds_at(size, kinds) if of == name else ():
                    measured = ours[of, *kinds].measured(f"{kind} {size} {arguments.seconds}")
                    rates[kind] = measured.pop("rate")
                    figure(f"gpu.{name}.{size}.{kind}", rates[kind], "updates/s", **measured)
            for precision in arguments.precisions if name in jax else ():
                rates[precision] = jax[name].measured(f"{precision} {size} {arguments.seconds}")["rate"]
                figure(f"gpu.{name}.{size}.jax.{precision}", rates[precision], "updates/s")
            best = max(rates.get("recorded", 0.0), rates.get("compiled", 0.0))
            if best and "highest" in rates:
                figure(f"gpu.{name}.{size}.ratio", best / rates["highest"], "times")
    for side in (*ours.values(), *jax.values()):
        side.process.kill()


def kinds_at(size: str, kinds: Sequence[str]) -> list[str]:
    """Return which of the kinds are measured at a size."""
    return [kind for kind in kinds if size in SOME.get(kind, SIZES)]


def measure(name: str, sizes: Sequence[str], kinds: Sequence[str]) -> None:
    """Prepare all kinds and sizes of an algorithm, and measure those that are asked for."""
    steps, prepared = steps_of(name, STEPS), {}
    for size in sizes:
        batch, width = map(int, size.split("x"))
        for kind in kinds_at(size, kinds):
            compute = {"gpus_per_learner": 1} | COMPUTE[kind]
            learner = learner_of(name, batch=batch, width=width, compute=compute, total_steps=STEPS)
            learner.load(steps)
            rows = rows_of(learner)
            for _ in range(2 * CALLS_BEFORE + 2):  # of TD3 each second update is another
                learner.update(next(rows))
            learner.wait()
            prepared[kind, size] = learner, rows
    print("ready", flush=True)
    for line in sys.stdin:
        kind, size, seconds = line.split()
        learner, rows = prepared[kind, size]
        measured = rate(learner, rows, float(seconds))
        if kind == COMPILED:
            measured |= profiled(learner, rows, measured["rate"])
        print(json.dumps(measured), flush=True)


def rate(learner: Learner, rows: Iterator[torch.Tensor], seconds: float) -> dict[str, float]:
    """Return the updates per second."""
    for _ in range(10):
        learner.update(next(rows))
    learner.wait()
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(20):
            learner.update(next(rows))
        learner.wait()
        done += 20
    return {"rate": done / (time.perf_counter() - begin)}


def profiled(learner: Learner, rows: Iterator[torch.Tensor], rate: float) -> dict[str, float]:
    """Return the kernels of an update, and the share of the time in which the GPU runs them at this rate."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(PROFILED_UPDATES):
            learner.update(next(rows))
        learner.wait()
    kernels = [event.time_range for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    seconds = sum(kernel.elapsed_us() for kernel in kernels) / 1e6
    return {"kernels": len(kernels) / PROFILED_UPDATES, "busy": round(seconds / PROFILED_UPDATES * rate, 3)}


if __name__ == "__main__":
    main()
