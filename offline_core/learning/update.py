"""One update of an algorithm's networks: loss, gradients and metrics of a batch, by Torch's operations or as one graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.steps import Batch

EXTREMES = ("_min", "_max")
"""Suffixes of metrics that are not averaged: the smallest and the largest of all steps."""


class BatchOutput(NamedTuple):
    """What an update learns of a batch besides its gradients; no tensor has gradients."""

    names: tuple[str, ...]
    """Of the metrics that are averaged: `loss` first."""
    means: Tensor
    """(names,), their sums by the weights of the steps."""
    extreme_names: tuple[str, ...]
    """Of those that are not."""
    extremes: Tensor
    """(extreme_names,), the largest of the steps with a weight; of `_min` the largest negative, which is the smallest's."""
    errors: Tensor | None
    """(B,), see `LossOutput`."""


BackwardPass = Callable[[Networks, Batch, Tensor, Tensor, bool], BatchOutput]
"""The kind of `backward_pass`."""


def backward_pass(algorithm: Networks, batch: Batch, weights: Tensor, means_by: Tensor, autocast: bool) -> BatchOutput:
    """Add the gradients of the weighted loss to those of the parameters.

    Arguments:
        batch: nested.
        weights, means_by: (B,), of each step in the loss and in the means of metrics.
        autocast: compute the loss in bfloat16 where Torch's autocast does.
    """
    with torch.autocast(weights.device.type, torch.bfloat16) if autocast else contextlib.nullcontext():
        output = algorithm(batch)
    torch.dot(output.loss, weights).backward()
    metrics = {"loss": output.loss, **output.metrics}
    extreme_names = tuple(name for name in metrics if name.endswith(EXTREMES))
    names = tuple(name for name in metrics if name not in extreme_names)
    with torch.no_grad():
        means = torch.stack([metrics[name] for name in names]).float() @ means_by
        extremes = means.new_empty(0)
        if extreme_names:
            signed = [-metrics[name] if name.endswith("_min") else metrics[name] for name in extreme_names]
            extremes = torch.stack(signed).float().where(means_by > 0, -torch.inf).amax(dim=1)
    return BatchOutput(names, means, extreme_names, extremes, output.errors)


def sum_gradients(parameters: list[nn.Parameter], means: Tensor) -> Tensor:
    """Sum the gradients of all learners, in place, and return the sums of their means, in one exchange."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    sums = torch.cat([*(gradient.flatten() for gradient in gradients), means])
    torch.distributed.all_reduce(sums)
    *found, means = sums.split([*(gradient.numel() for gradient in gradients), len(means)])
    shaped = [each.view_as(gradient) for each, gradient in zip(found, gradients, strict=True)]
    torch._foreach_copy_(gradients, shaped)
    return means


def compiled(function: BackwardPass, device: torch.device) -> BackwardPass:
    """Return the same as one graph, backward pass included, which a GPU replays as CUDA graphs.

    Random draws are those of Torch without its compiler. It raises ConfigError where an algorithm is no single graph: Torch
    would compile its parts, and lose gradients between them.
    """
    options: dict[str, Any] = {"fallback_random": True, "triton.cudagraphs": device.type == "cuda"}
    graph = torch.compile(function, fullgraph=True, options=options)
    tracing = torch._dynamo.config.patch(trace_autograd_ops=True)

    def run(algorithm: Networks, *arguments: Any) -> BatchOutput:
        try:
            with tracing:
                return graph(algorithm, *arguments)
        except (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit) as error:
            why = str(error).strip().partition("\n")[0]
            raise ConfigError(
                f"compute.compile makes one graph of an update, and found none in {algorithm.name} with this network "
                f"and these spaces ({why}): leave compute.compile out."
            ) from error

    return run
