"""Eight seeds of one setting over one: a sweep of them, and what training them as one batched network would take.

    python -m benchmarks.reference.seeds_speed [--updates 20000]

    reference.seeds8.ratio                        wall time of a sweep of eight seeds over one of one seed; BC, WIDTH 256
    reference.seeds8.ALGORITHM.WIDTH.batched      an update of all eight by `torch.func.vmap`, over one learner's update
    reference.seeds8.ALGORITHM.WIDTH.products     eight times the matrix products of an update, over one learner's update:
                                                  no batching of seeds can be below it

Two layers of WIDTH, batches of 256 of 11 observations and 3 actions, one thread, float32. All but the first are ratios of CPU
time; for the first the machine has to be quiet. `batched` leaves out what a sweep would need besides: draws, schedules and
reports of each seed.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import logging
import tempfile
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.data import write_recording
from benchmarks.figure import figure, seconds
from benchmarks.reference.our_speed import ACTIONS, BATCH, NETWORK, OBSERVATION, STEPS, learner_of, steps_of
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.sweep import sweep
from offline_core.learning.learner import Learner
from offline_core.runtime.config import parse
from offline_core.runtime.ray_session import local_cpus

SEEDS = 8
ALGORITHMS = ("bc", "iql", "td3_bc")
WIDTHS = (256, 64)
MEASURED_SECONDS = 2.0
ROUNDS = 3
TARGET_RATE = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=20_000, help="of each run of the sweeps")
    measure(parser.parse_args().updates)


def measure(updates: int) -> None:
    """Print all figures."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for width, name in itertools.product(WIDTHS, ALGORITHMS):
        for figure_name, ratio in batched_ratios(name, width).items():
            figure(f"reference.seeds8.{name.replace('_', '')}.{width}.{figure_name}", ratio, "times")
    figure("reference.seeds8.ratio", sweep_ratio(updates), "times", cpus=local_cpus(), updates=updates)


def batched_ratios(name: str, width: int) -> dict[str, float]:
    """`batched` and `products` of an algorithm: medians of rounds in turns."""
    learner = seeded(name, width, 0)
    learner.load(steps_of(name))
    fixed = learner.indices()[:BATCH]
    products = products_of(lambda: [learner.update(fixed) for _ in range(2)])  # TD3's policy learns in each second update
    actions: dict[str, Callable[[], Any]] = {
        "one": lambda: [learner.update(fixed) for _ in range(2)],
        "batched": lambda update=batched_update(name, width, learner): [update() for _ in range(2)],
        "products": lambda: [product() for product in products],
    }
    times: dict[str, list[float]] = {kind: [] for kind in actions}
    for _, (kind, action) in itertools.product(range(ROUNDS), actions.items()):
        times[kind].append(cpu_seconds(action))
    one, batched, bare = (float(np.median(times[kind])) for kind in actions)
    return {"batched": batched / one, "products": SEEDS * bare / one}


def seeded(name: str, width: int, seed: int) -> Learner:
    """A learner whose policy has means in bounds, as d3rlpy's."""
    network = NETWORK | {"hidden_sizes": [width, width]} | ({} if name == "td3_bc" else {"bounded_mean": True})
    return learner_of(name, network=network, seed=seed)


def batched_update(name: str, width: int, learner: Learner) -> Callable[[], dict[str, Tensor]]:
    """An update of eight seeds at once, each on a batch of its own, which returns all their parameters by name, stacked."""
    algorithms = [seeded(name, width, seed).networks for seed in range(SEEDS)]
    base = copy.deepcopy(algorithms[0])
    parameters, buffers = stack_module_state(algorithms)  # type: ignore[arg-type]
    learned = {name for name, parameter in base.named_parameters() if parameter.requires_grad}
    trained = {name: tensor.detach().clone().requires_grad_() for name, tensor in parameters.items() if name in learned}
    fixed = {name: tensor.detach().clone() for name, tensor in (parameters | buffers).items() if name not in learned}
    optimizer = torch.optim.Adam(trained.values(), lr=3e-4, fused=True)
    sources = {target: target.replace("targets.", "critics.").replace("target_policy.", "policy.") for target in fixed}
    moved = [(fixed[target], trained[source]) for target, source in sources.items() if source in trained]
    forward = vmap(lambda *tensors: functional_call(base, tensors[:2], tensors[2])[:2], randomness="different")
    assert learner._steps is not None
    indices = torch.stack([learner.indices().roll(BATCH * seed)[:BATCH] for seed in range(SEEDS)])
    done = itertools.count()

    def update() -> dict[str, Tensor]:
        flat = learner._steps.batch(indices.flatten(), learner.spec)  # type: ignore[union-attr]
        base.updates = next(done)
        base.algorithm.before_update(base)
        loss, metrics = forward(trained, fixed, learner.nested({k: v.unflatten(0, (SEEDS, BATCH)) for k, v in flat.items()}))
        optimizer.zero_grad(set_to_none=True)
        (loss.sum() / BATCH).backward()
        optimizer.step()
        torch.stack([loss.detach(), *metrics.values()]).mean(dim=-1)
        if moved and getattr(base, "policy_learns", True):
            with torch.no_grad():
                torch._foreach_lerp_([target for target, _ in moved], [source for _, source in moved], TARGET_RATE)
        return trained

    return update


class _Products(TorchDispatchMode):
    """Remembers matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Callable[[], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in PRODUCTS:
            self.found.append(lambda: func(*args, **(kwargs or {})))
        return func(*args, **(kwargs or {}))


PRODUCTS = {getattr(torch.ops.aten, name) for name in ("mm", "addmm", "bmm", "baddbmm")}


def products_of(action: Callable[[], object]) -> list[Callable[[], Any]]:
    """The matrix products of an action, to do again."""
    with _Products() as products:
        action()
    return products.found


def cpu_seconds(action: Callable[[], object]) -> float:
    """CPU time of a call, from as many as fill the time."""
    for _ in range(5):
        action()
    begin, done = time.process_time(), 0
    while time.process_time() - begin < MEASURED_SECONDS / ROUNDS:
        action()
        done += 1
    return (time.process_time() - begin) / done


def sweep_ratio(updates: int) -> float:
    """Wall time of a sweep of eight seeds over one of one seed, Ray's start included; the dataset is read once."""
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
        spaces = tuple(gym.spaces.Box(-bound, bound, (size,)) for bound, size in ((np.inf, OBSERVATION), (1.0, ACTIONS)))
        for name, steps in {"data": STEPS, "held_out": STEPS // 10}.items():
            write_recording(f"{root}/{name}", steps, format="episodes", spaces=spaces)

        def run_sweep(seeds: int, updates: int) -> float:
            training = {
                "network": NETWORK,
                "optimizer": {"batch_size": BATCH, "max_updates": updates, "updates_per_iteration": updates},
                "evaluation": {"held_out": f"{root}/held_out"},
            }
            config = parse(SweepConfig, {"training": training, "seeds": seeds})
            return seconds(sweep, config, dataset=f"{root}/data", output=f"{root}/{seeds}-{updates}")

        run_sweep(1, 10)  # imports
        one = run_sweep(1, updates)
        return run_sweep(SEEDS, updates) / one


if __name__ == "__main__":
    main()
