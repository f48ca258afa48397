"""The work of an export: each model is written in its format, loaded again, and held against the policy."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector.utils import batch_space
from torch import Tensor, nn

from offline_core.data.datasets.result_cache import BegunResult
from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.action_masks import ACTION_MASK, choices
from offline_core.data.inputs.number_names import number_names
from offline_core.data.store.json_files import without_secrets
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.export_config import (
    EXPORT_FILE,
    FILES,
    ExportedModel,
    ExportManifest,
    Format,
    Latency,
    MadeOf,
    PolicyExportConfig,
    PolicyExportResult,
    Port,
)
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy, as_tensors
from offline_core.runtime.extras import require_extra
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_settings import torch_threads

COMPARED_BATCHES = (1, 2, 7, 64, 1024)
TIMED_BATCHES = (1, 64)
PLAUSIBLE = 1e6
"""Bounds beyond this count as none, such as 3.4e38."""

OUTPUTS = ("actions", columns.ACTION_DIST_INPUTS)

Observations = dict[str, np.ndarray]
"""Arrays (B, …), or (B, frames, …), by the path of the leaf: `obs`, or `obs/position`, `obs/camera/0`."""
Run = Callable[[Observations], tuple[np.ndarray, np.ndarray]]
"""Observations → (actions, action_dist_inputs), in the program that the format is for."""


def exported(config: PolicyExportConfig, policy: str, manifest: PolicyManifest, begun: BegunResult) -> PolicyExportResult:
    """Return what `export_policy` returns, see there."""
    start = time.perf_counter()
    loaded = load_policy(policy, manifest)
    batches = [observations_like(loaded, size, seed=config.seed) for size in COMPARED_BATCHES]
    graph = Graph(loaded, list(batches[1])).eval().requires_grad_(False)
    timed = {size: observations_like(loaded, size, seed=config.seed) for size in TIMED_BATCHES}
    written, models = {}, {}
    for format in dict.fromkeys(config.formats):
        data, run = write(format, graph, batches[1])
        difference = max(_difference(loaded, format, run(batch), batch, config.tolerance) for batch in batches)
        written[format] = data
        models[format] = ExportedModel(
            file=FILES[format],
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            max_abs_difference=difference,
            latency=_latencies(run, timed, calls=config.latency_calls),
        )
    policy_latency = _latencies(lambda batch: _decide(loaded, batch), timed, calls=config.latency_calls)
    actions, inputs = _decide(loaded, batches[1])
    described = ExportManifest(
        inputs=[_port(name, array) for name, array in batches[1].items()],
        outputs=[_port(name, array) for name, array in zip(OUTPUTS, (actions, inputs), strict=True)],
        made_of=made_of(loaded),
        models=models,
        policy_latency=policy_latency,
        config=config,
        checkpoint=manifest.parent_entry(policy),
        policy=manifest,
    )
    files = {FILES[format]: data for format, data in written.items()}
    files[EXPORT_FILE] = without_secrets(described.model_dump_json(indent=2)).encode()
    begun.start()
    _put(begun.folder, files)
    return PolicyExportResult(
        output=begun.folder.uri,
        policy=Location.of(policy).uri,
        observations_compared=sum(COMPARED_BATCHES),
        models=models,
        policy_latency=policy_latency,
        seconds=time.perf_counter() - start,
    )


def observations_like(policy: Policy, size: int, *, seed: int) -> Observations:
    """Random observations by flat names: uniform between bounds, normal without, exponential with one of them."""
    frames = policy.network.frames
    space = _plausible(policy.observation_space)
    space = space if frames == 1 else batch_space(space, frames)
    batched = batch_space(space, size)
    batched.seed(derive_seed(seed, "observations", size))
    drawn = nested.flatten(nested.map_leaves(np.ascontiguousarray, batched.sample()), columns.OBS)
    if policy.has_masks:
        name = f"{columns.OBS}{nested.PATH_SEPARATOR}{ACTION_MASK}"
        drawn[name] = _masks_like(drawn[name], choices(policy.action_space), seed=derive_seed(seed, "masks", size))
    return drawn


def _masks_like(masks: np.ndarray, sizes: list[int], *, seed: int) -> np.ndarray:
    """Random masks in the shape and type of these, each with some choice of each component."""
    random = np.random.default_rng(seed)
    made = random.integers(0, 2, masks.shape)
    starts = np.cumsum([0, *sizes[:-1]])
    made[..., starts + random.integers(0, sizes)] = 1
    return made.astype(masks.dtype)


def _plausible(space: gym.Space[Any]) -> gym.Space[Any]:
    match space:
        case gym.spaces.Box() if np.issubdtype(space.dtype, np.floating):
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            low, high = np.where(low < -PLAUSIBLE, -np.inf, low), np.where(high > PLAUSIBLE, np.inf, high)
            low, high = low.astype(space.dtype), high.astype(space.dtype)
            return gym.spaces.Box(low, high, dtype=low.dtype.type)
        case gym.spaces.Dict():
            return gym.spaces.Dict([(key, _plausible(child)) for key, child in space.spaces.items()])
        case gym.spaces.Tuple():
            return gym.spaces.Tuple([_plausible(child) for child in space.spaces])
    return space


@torch.inference_mode()
def _decide(policy: Policy, batch: Observations) -> tuple[np.ndarray, np.ndarray]:
    """The policy's greedy actions and distribution inputs, which an export has to give."""
    inputs = policy(as_tensors(nested.unflatten(batch, columns.OBS, policy.observation_space)))
    return policy.head.to_env(policy.head.mode(inputs)), inputs.numpy()


def _difference(
    policy: Policy, format: str, found_outputs: tuple[np.ndarray, np.ndarray], batch: Observations, tolerance: float
) -> float:
    """Return the largest difference of any output.

    Actions are compared with those that the policy's head takes for the *export's* distribution inputs: between two
    actions of nearly the same probability rounding may decide, and neither is wrong.

    Raises:
        ConfigError: the difference is too large, or an output has another shape or type.
    """
    actions, inputs = found_outputs
    with torch.inference_mode():
        consistent = policy.head.to_env(policy.head.mode(torch.from_numpy(inputs)))
    largest = 0.0
    for name, output, expected in zip(OUTPUTS[::-1], (inputs, actions), (_decide(policy, batch)[1], consistent), strict=True):
        if (output.shape, output.dtype) != (expected.shape, expected.dtype):
            raise ConfigError(f"As {format}, {name} are {output.dtype}{output.shape}, not {expected.dtype}{expected.shape}.")
        difference = np.abs(output.astype(np.float64) - expected)
        allowed = tolerance * np.maximum(1.0, np.abs(expected)) if output.dtype.kind == "f" else 0.0
        if not (difference <= allowed).all():
            raise ConfigError(
                f"The {format} export differs from the policy: {name} differ by up to {difference.max():.3g} in a batch of "
                f"{len(output)}; the tolerance is {tolerance:g} (of the value, where that is above 1)."
            )
        largest = max(largest, float(difference.max()))
    return largest


def _latencies(call: Callable[[Any], object], batches: dict[int, Any], *, calls: int) -> dict[str, Latency]:
    with torch_threads(1):
        return {f"batch_{size}": _latency(call, batch, calls=calls) for size, batch in batches.items()}


def _latency(call: Callable[[Any], object], batch: Any, *, calls: int) -> Latency:
    nanoseconds = np.empty(calls)
    for i in range(-calls // 10, calls):  # the first tenth warms up, and is overwritten
        start = time.perf_counter_ns()
        call(batch)
        nanoseconds[i] = time.perf_counter_ns() - start
    p50, p99 = np.percentile(nanoseconds, [50, 99]) / 1e3
    return Latency(p50_microseconds=round(float(p50), 1), p99_microseconds=round(float(p99), 1))


def _port(name: str, array: np.ndarray) -> Port:
    return Port(name=name, dtype=array.dtype.name, shape=list(array.shape[1:]))


def _put(location: Location, files: dict[str, bytes]) -> None:
    """Delete the old manifest first and write the new one last: a manifest never describes other models."""
    old = set(location.files(recursive=False))
    for name in (EXPORT_FILE, *FILES.values()):
        if name in old and (name == EXPORT_FILE or name not in files):
            location.child(name).delete()
    for name, data in files.items():
        location.child(name).write(data)


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


def write(format: Format, graph: Graph, example: Observations) -> tuple[bytes, Run]:
    """Return the graph in a format, for batches of any size, as the bytes of its file and as these bytes loaded again.

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


def _onnx(graph: Graph, leaves: tuple[Tensor, ...]) -> tuple[bytes, Run]:
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


def _run(data: bytes) -> tuple[bytes, Run]:
    """Load an ONNX model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return data, lambda inputs: tuple(session.run(list(OUTPUTS), inputs))


def _torch_export(graph: Graph, leaves: tuple[Tensor, ...]) -> tuple[bytes, Run]:
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

    return file.getvalue(), run


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
