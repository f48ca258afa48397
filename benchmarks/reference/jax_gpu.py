"""JAX's side of `benchmarks.gpu`: the compiled scans of `jax_speed` for several batches and widths, measured when asked.

    python jax_gpu.py ALGORITHM STEPS BATCHxWIDTH … PRECISION …

It runs by itself in an environment with jax and optax. It compiles all, says `ready`, and then measures, for each line
`PRECISION BATCHxWIDTH SECONDS` that it reads, updates per second, and prints them as a JSON object. Precisions: `default` is
JAX's own, on such a GPU TF32; `highest` is float32.
"""

import json
import sys
import time

import jax
import jax_speed
from jax_algorithms import beginning, train


def compiled(name, precision, size, steps):
    """Return a function that makes `SCAN` updates."""
    batch, width = map(int, size.split("x"))
    algorithm = jax_speed.algorithm_of(name, width)
    state = beginning(algorithm, 0)
    with jax.default_matmul_precision(precision):
        function = train.lower(algorithm, batch, jax_speed.SCAN, steps, state).compile()

    def scan():
        nonlocal state
        state, losses = function(steps, state)
        losses.block_until_ready()

    scan()
    return scan


def rate(scan, seconds):
    scan()
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        scan()
        done += jax_speed.SCAN
    return done / (time.perf_counter() - begin)


def main():
    name, steps = sys.argv[1], jax_speed.data(int(sys.argv[2]))
    sizes = [word for word in sys.argv[3:] if "x" in word]
    precisions = [word for word in sys.argv[3:] if "x" not in word]
    scans = {(precision, size): compiled(name, precision, size, steps) for precision in precisions for size in sizes}
    print("ready", flush=True)
    for line in sys.stdin:
        precision, size, seconds = line.split()
        print(json.dumps({"rate": rate(scans[precision, size], float(seconds))}), flush=True)


if __name__ == "__main__":
    main()
