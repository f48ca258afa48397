"""A policy as one graph of tensors, written in formats that other programs run."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from offline_core.data.episodes import columns, nested
from offline_core.data.inputs.number_names import number_names
from offline_core.errors import ConfigError
from offline_core.policies.export_config import Format, MadeOf
from offline_core.policies.policy import Policy
from offline_core.runtime.extras import require_extra

OUTPUTS = ("actions", columns.ACTION_DIST_INPUTS)

Observations = dict[str, np.ndarray]
"""Arrays (B, …), or (B, frames, …), by the path of the leaf: `obs`, or `obs/position`, `obs/camera/0`."""
Run = Callable[[Observations], tuple[np.ndarray, np.ndarray]]
"""Observations → (actions, action_dist_inputs), in the program that the format is for."""


class SerializedModel(NamedTuple):
    """A model as the bytes of its file, and the same bytes loaded again."""

    data: bytes
    run: Run


class Graph(nn.Module):
    """Raw observations, a tensor a leaf in the order of `names` → greedy actions in the environment's units, and
    distribution inputs. Filter, one-hots and action scale are the policy's own, and so are inside.

    Raises:
        ConfigError: the policy is recurrent or a decision transformer, or its actions are nested.
    """

    def __init__(self, policy: Policy, names: list[str]) -> None:
        super().__init__()
        if policy.network.recurrent is not None or policy.network.transformer is not None:
            kind = "recurrent policy" if policy.network.recurrent is not None else "decision transformer"
            raise ConfigError(f"A {kind} cannot be exported yet: the export would need its state as input and output.")
        if policy.action_space.shape is None:
            raise ConfigError(f"Dict and Tuple actions cannot be exported yet, found {policy.action_space}.")
        self.policy = policy
        self.names = names
        self.dtype = torch.from_numpy(np.empty(0, policy.action_space.dtype)).dtype

    def forward(self, *leaves: Tensor) -> tuple[Tensor, Tensor]:
        observations = dict(zip(self.names, leaves, strict=True))
        inputs = self.policy(nested.unflatten(observations, columns.OBS, self.policy.observation_space))
        return self.policy.head.mode(inputs).to(self.dtype), inputs


def made_of(policy: Policy) -> MadeOf | None:
    """What the policy's observations are made of, and its actions stand for; None if it cannot act on raw rows."""
    if policy.input_columns is None or policy.has_masks:
        return None
    count = math.prod(policy.observation_space.shape or ())
    return MadeOf(numbers=number_names(columns.OBS, count, policy.input_columns), labels=policy.input_columns.labels)


def write(format: Format, graph: Graph, example: Observations) -> SerializedModel:
    """The graph in a format, for batches of any size.

    Arguments:
        example: two observations or more, to trace the graph with.

    Raises:
        ConfigError: a package is missing, or the format cannot express the policy.
    """
    leaves = tuple(torch.from_numpy(example[name]) for name in graph.names)
    writer = {"onnx": _onnx, "torch_export": _torch_export}[format]
    with _quiet():
        try:
            return writer(graph, leaves)
        except ConfigError:
            raise
        except Exception as error:  # exporters raise many types for what they cannot trace
            raise ConfigError(f"This policy cannot be exported as {format}: {error}") from error


def _onnx(graph: Graph, leaves: tuple[Tensor, ...]) -> SerializedModel:
    with require_extra("onnx"):
        import onnx_ir.passes.common as passes
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401  what Torch's exporter is written with
    program = cast(
        torch.onnx.ONNXProgram,
        torch.onnx.export(
            graph,
            leaves,
            input_names=graph.names,
            output_names=OUTPUTS,
            dynamic_shapes={"leaves": tuple({0: "batch"} for _ in leaves)},
            verbose=False,
            dynamo=True,
        ),
    )
    passes.ClearMetadataAndDocStringPass()(program.model)  # without the paths of source files
    program.model.metadata_props.clear()
    if (known := made_of(graph.policy)) is not None:
        program.model.metadata_props["made_of"] = known.model_dump_json()
    return _run(program.model_proto.SerializeToString())


def _run(data: bytes) -> SerializedModel:
    """The model, loaded."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return SerializedModel(data, lambda given: tuple(session.run(list(OUTPUTS), given)))


def _torch_export(graph: Graph, leaves: tuple[Tensor, ...]) -> SerializedModel:
    batch = torch.export.Dim("batch")
    program = torch.export.export(graph, leaves, dynamic_shapes={"leaves": tuple({0: batch} for _ in leaves)})
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # without the paths of source files
    file = io.BytesIO()
    torch.export.save(program, file)
    module = torch.export.load(io.BytesIO(file.getvalue())).module()

    @torch.inference_mode()
    def run(observations: Observations) -> tuple[np.ndarray, np.ndarray]:
        actions, inputs = module(*(torch.from_numpy(observations[name]) for name in graph.names))
        return actions.numpy(), inputs.numpy()

    return SerializedModel(file.getvalue(), run)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' warnings about torchvision and about their own deprecated calls."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
