"""Our losses against those of the JAX loop (`jax_speed`), of equal networks and batches, with all draws at zero.

python -m benchmarks.reference.jax_losses --jax /path/to/jax/venv/bin/python [ALGORITHM ...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks.reference.our_speed import learner_of, rows_of, steps_of
from offline_core.learning.algorithms.critics import Critics
from offline_core.learning.learner import Learner
from offline_core.policies.policy import Policy

ALGORITHMS = ("bc", "iql", "td3_bc", "rebrac", "cql", "dcql")
PEER = Path(__file__).parent / "jax_speed.py"
GAMMA = 0.99
Tree = Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax", required=True, help="Python of an environment with jax and optax")
    parser.add_argument("algorithms", nargs="*", default=ALGORITHMS)
    arguments = parser.parse_args()
    for name in arguments.algorithms:
        ours, theirs = losses(name, arguments.jax)
        print(f"{name}: ours {ours:.7g}, JAX {theirs:.7g}")
        if abs(ours - theirs) > 1e-5 * max(1.0, abs(ours)):
            raise SystemExit(f"The losses of {name} differ.")


def losses(name: str, peer: str) -> tuple[float, float]:
    """Return our loss of a batch, and that of the JAX loop."""
    learner = learner_of(name)
    torch.manual_seed(0)
    for parameter in learner.networks.parameters():
        parameter.data.add_(0.03 * torch.randn_like(parameter))
    learner.load(steps_of(name))
    rows = next(rows_of(learner))
    if name in ("td3_bc", "rebrac"):
        learner.networks.updates = 1
        learner.algorithm.before_update(learner.networks)  # in which the policy learns, too
    batch = learner.nested(learner._steps.batch(rows, learner.spec))  # type: ignore[union-attr]
    with (
        mock.patch("torch.randn_like", lambda x, **_: torch.zeros_like(x)),
        mock.patch("torch.rand", lambda *shape, **_: torch.full(shape, 0.5)),
        torch.no_grad(),
    ):
        ours = float(learner.networks(batch).loss.mean())
    values = {"learned": learned(learner), "target": target(learner), "batch": columns_of(batch)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "loss.json"
        file.write_text(json.dumps(values))
        done = subprocess.run([peer, str(PEER), name, "--loss", str(file)], check=True, capture_output=True, text=True)
    return ours, float(json.loads(done.stdout.splitlines()[-1])["loss"])


def columns_of(batch: dict[str, Tensor]) -> Tree:
    """Return a batch by the names that `jax_speed` has."""
    names = {"n_step_rewards": "rewards", "n_step_discounts": "open"}
    columns = {names.get(name, name): column for name, column in batch.items()}
    if "open" in columns:
        columns["open"] = columns["open"] / GAMMA
    if columns["actions"].dtype == torch.int64:
        columns["choices"] = columns.pop("actions")
    return {name: column.float().tolist() if name != "choices" else column.tolist() for name, column in columns.items()}


def layer(weight: Tensor, bias: Tensor) -> dict[str, Tree]:
    return {"w": weight.tolist(), "b": bias.flatten().tolist()}


def linears(*modules: nn.Module) -> list[Tree]:
    """Return the layers of modules that follow each other."""
    layers = [part for module in modules for part in module.modules() if isinstance(part, nn.Linear)]
    return [layer(linear.weight.t(), linear.bias) for linear in layers]


def actor(policy: Policy) -> list[Tree]:
    hidden, head = linears(policy.hidden), list(policy._head.children())
    if len(head) == 2:  # mean and log std are one layer there
        mean, log_std = head
        assert isinstance(mean, nn.Linear) and isinstance(log_std, nn.Linear)
        weight, bias = torch.cat([mean.weight, log_std.weight]), torch.cat([mean.bias, log_std.bias])
        return [*hidden, layer(weight.t(), bias)]
    return [*hidden, *linears(policy._head)]


def ensemble(critics: Critics) -> list[Tree]:
    layers_by_critic = []
    for number in range(len(critics.weights[0])):
        layers = [layer(weight[number], bias[number]) for weight, bias in zip(critics.weights, critics.biases, strict=True)]
        for parameters, scale, shift in zip(layers, critics.scales, critics.shifts, strict=False):
            parameters |= {"scale": scale[number, 0].tolist(), "shift": shift[number, 0].tolist()}
        layers_by_critic.append(layers)
    return layers_by_critic


def learned(learner: Learner) -> Tree:
    algorithm: Any = learner.networks
    policy: Tree = actor(algorithm.policy)
    weights: dict[str, Tree] = {"policy": policy}
    if hasattr(algorithm, "critics"):
        weights["critics"] = ensemble(algorithm.critics)
    if algorithm.policy.value_function:
        weights["policy"] = {"layers": policy, "log_std": algorithm.policy._head.log_std.tolist()}
        weights["value"] = linears(algorithm.policy.value_hidden, algorithm.policy.value)
    if hasattr(algorithm, "log_temperature"):
        weights["log_temperature"] = float(algorithm.log_temperature)
    return weights


def target(learner: Learner) -> Tree:
    algorithm: Any = learner.networks
    if hasattr(algorithm, "target"):
        return {"policy": actor(algorithm.target)}
    weights: dict[str, Tree] = {}
    if hasattr(algorithm, "targets"):
        weights["critics"] = ensemble(algorithm.targets)
    if hasattr(algorithm, "target_policy"):
        weights["policy"] = actor(algorithm.target_policy)
    return weights


if __name__ == "__main__":
    main()
