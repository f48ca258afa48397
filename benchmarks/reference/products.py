"""What the matrix products of an update take alone, over what the update takes: our share of the machine's limit.

python -m benchmarks.reference.products ALGORITHM SECONDS [compile]

Every product that an update makes is recorded, and timed again by itself, by each library of Torch's wheel, as it is and
transposed; the fastest counts. So nothing that multiplies the same matrices can be faster than the sum.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.reference.our_speed import learner_of, rows_of, steps_of

CALLS = 20


class _Products(TorchDispatchMode):
    """Remembers the operands of each product."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        if name.startswith(("aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.")):
            a, b = args[-2:]
            pairs = zip(a, b, strict=True) if a.ndim == 3 else [(a, b)]
            self.found += [(one.detach(), other.detach()) for one, other in pairs]
        elif name.startswith("mkldnn._linear_pointwise"):
            self.found.append((args[0].detach(), args[1].detach().t()))
        return function(*args, **kwargs or {})


def best_seconds(a: Tensor, b: Tensor, seconds: float) -> float:
    """Return the time of a @ b by the fastest way there is."""
    one_dnn = torch.ops.mkldnn._linear_pointwise
    ways: list[Callable[[], Any]] = [
        lambda: torch.mm(a, b),
        lambda: torch.mm(b.t(), a.t()),
        lambda: one_dnn(a, b.t(), None, "none", [], ""),
    ]
    return min(least(way, seconds / len(ways)) for way in ways)


def least(call: Callable[[], Any], seconds: float) -> float:
    """Return the time of a call, the least of all that fit in so many seconds."""
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or not times:
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - begin) / CALLS)
    return min(times)


def main() -> None:
    name, seconds = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(1)
    learner = learner_of(name)
    learner.load(steps_of(name))
    drawn = rows_of(learner)
    learner.update(next(drawn))
    products = _Products()
    with products:
        for _ in range(2):  # of TD3 each second update is another
            learner.update(next(drawn))
    with torch.inference_mode():
        alone = sum(best_seconds(*pair, 0.05) for pair in products.found) / 2
    floating = sum(2 * a.shape[0] * a.shape[1] * b.shape[1] for a, b in products.found) / 2
    learner = learner_of(name, *sys.argv[3:])
    learner.load(steps_of(name))
    drawn = rows_of(learner)
    for _ in range(2):  # compiles
        learner.update(next(drawn))
    update = least(lambda: learner.update(next(drawn)), seconds)
    print(json.dumps({"products": alone, "update": update, "share": alone / update, "gflops": floating / alone / 1e9}))


if __name__ == "__main__":
    main()
