"""The gradients of one update: forward pass, loss, backward pass and means of metrics, as one compiled function if wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.steps import Batch

EXTREMES: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "_min": (torch.amin, torch.inf),
    "_max": (torch.amax, -torch.inf),
}
"""Suffix of metrics that are not averaged: (reduction, its neutral value)."""


class BatchOutput(NamedTuple):
    """What an update learns of a batch besides its gradients; tensors without gradients."""

    names: tuple[str, ...]
    """Of the metrics that are averaged: `loss` first."""
    means: Tensor
    """(names,), their sums by the weights of the steps."""
    extremes: dict[str, Tensor]
    """() each, of the steps with a weight."""
    errors: Tensor | None
    """(B,), see `LossOutput`."""


BackwardPass = Callable[[Algorithm, Batch, Tensor, Tensor, bool], BatchOutput]
"""The kind of `backward_pass`."""


def backward_pass(algorithm: Algorithm, batch: Batch, weights: Tensor, means_by: Tensor, autocast: bool) -> BatchOutput:
    """Add the gradients of the weighted loss to those of the parameters.

    Arguments:
        batch: nested.
        weights, means_by: (B,), of each step in the loss and in the means of metrics.
        autocast: compute the loss in bfloat16 where Torch's autocast does.
    """
    with torch.autocast(weights.device.type, torch.bfloat16, enabled=autocast):
        output = algorithm(batch)
    (output.loss * weights).sum().backward()
    metrics = {name: value.detach().float() for name, value in {"loss": output.loss, **output.metrics}.items()}
    names = tuple(name for name in metrics if name[-4:] not in EXTREMES)
    means = torch.stack([metrics[name] for name in names]) @ means_by
    extremes = {}
    for name in (name for name in metrics if name not in names):
        extreme, none = EXTREMES[name[-4:]]
        extremes[name] = extreme(metrics[name].where(means_by > 0, none))
    return BatchOutput(names, means, extremes, output.errors)


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

    def run(algorithm: Algorithm, *arguments: Any) -> BatchOutput:
        try:
            with tracing:
                return graph(algorithm, *arguments)
        except (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit) as error:
            why = str(error).strip().partition("\n")[0]
            raise ConfigError(
                f"compute.compile makes one graph of an update, and found none in {type(algorithm).__name__} with this network "
                f"and these spaces ({why}): leave compute.compile out."
            ) from error

    return run
