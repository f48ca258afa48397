"""The work of an export: each model is written, loaded again, and held against the policy."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import polars as pl
import torch
from gymnasium.vector.utils import batch_space

from offline_core.data.datasets.result_cache import BegunResult
from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.action_masks import ACTION_MASK, choices
from offline_core.data.inputs.computing import stepped
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.store.json_files import without_secrets
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.export_config import (
    EXPORT_FILE,
    FILES,
    ExportedModel,
    ExportManifest,
    Latency,
    PolicyExportConfig,
    PolicyExportResult,
    Port,
)
from offline_core.policies.export_formats import OUTPUTS, Graph, Observations, write
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.onnx_rows import feeds
from offline_core.policies.policy import Policy, as_tensors
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_settings import torch_threads

COMPARED_BATCHES = (1, 2, 7, 64, 1024)
TIMED_BATCHES = (1, 64)
PLAUSIBLE = 1e6
"""Bounds beyond this count as none, such as 3.4e38."""

MISSING_SHARE = 0.1
"""Share of the values of random rows that are missing, where they may be."""
TRIES = 20
"""Draws of random rows, of which some give no observations."""
_TEXT = re.compile(r"'((?:[^']|'')*)'")


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
        pairs = [_given(loaded, format, batch, seed=config.seed) for batch in batches]
        difference = max(_difference(loaded, format, run(given), seen, config.tolerance) for given, seen in pairs)
        written[format] = data
        models[format] = ExportedModel(
            file=FILES[format],
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            max_abs_difference=difference,
            latency=_latencies(
                run,
                {size: _given(loaded, format, batch, seed=config.seed)[0] for size, batch in timed.items()},
                calls=config.latency_calls,
            ),
        )
    policy_latency = _latencies(lambda batch: _decide(loaded, batch), timed, calls=config.latency_calls)
    actions, inputs = _decide(loaded, batches[1])
    described = ExportManifest(
        inputs=[_port(name, array) for name, array in batches[1].items()],
        outputs=[_port(name, array) for name, array in zip(OUTPUTS, (actions, inputs), strict=True)],
        row_inputs=_row_ports(loaded) if "onnx_rows" in models else [],
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


def _given(policy: Policy, format: str, batch: Observations, *, seed: int) -> tuple[Observations, Observations]:
    """(what a model of the format is given, the observations that the policy is given): as many as in the batch."""
    if format != "onnx_rows":
        return batch, batch
    assert policy.input_columns is not None
    rows = rows_like(policy.input_columns, len(batch[columns.OBS]), seed=derive_seed(seed, "rows", len(batch[columns.OBS])))
    observations = policy.input_columns.observations(rows, policy.observation_space)
    return feeds(policy.input_columns, rows), {columns.OBS: observations}


def _row_ports(policy: Policy) -> list[Port]:
    assert policy.input_columns is not None
    kinds = policy.input_columns.steps.columns
    return [Port(name=name, dtype="str" if kind == "text" else "float64", shape=[]) for name, kind in kinds.items()]


def _difference(
    policy: Policy, format: str, found_outputs: tuple[np.ndarray, np.ndarray], batch: Observations, tolerance: float
) -> float:
    """The largest difference of any output.

    Actions are compared with those that the policy's head takes for the *export's* distribution inputs: between two
    actions of nearly the same probability rounding may decide, and neither is wrong.

    Raises:
        ConfigError: it is too large, or an output has another shape or type.
    """
    actions, inputs = found_outputs
    with torch.inference_mode():
        consistent = policy.head.to_env(policy.head.mode(torch.from_numpy(inputs)))
    largest = 0.0
    for name, found, expected in zip(OUTPUTS[::-1], (inputs, actions), (_decide(policy, batch)[1], consistent), strict=True):
        if (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise ConfigError(f"As {format}, {name} are {found.dtype}{found.shape}, not {expected.dtype}{expected.shape}.")
        difference = np.abs(found.astype(np.float64) - expected)
        allowed = tolerance * np.maximum(1.0, np.abs(expected)) if found.dtype.kind == "f" else 0.0
        if not (difference <= allowed).all():
            raise ConfigError(
                f"The {format} export differs from the policy: {name} differ by up to {difference.max():.3g} in a batch of "
                f"{len(found)}; the tolerance is {tolerance:g} (of the value, where that is above 1)."
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


def rows_like(made_of: InputColumns, size: int, *, seed: int) -> pl.DataFrame:
    """So many random rows that an import would take, to compare exports on.

    They hold numbers of several magnitudes, known categories, texts of expressions, and missing values.

    Raises:
        ConfigError: of random rows hardly one is taken.
    """
    random, steps = np.random.default_rng(seed), made_of.steps
    texts = [text.replace("''", "'") for each in steps.computed.values() for text in _TEXT.findall(each)]
    found: list[pl.DataFrame] = []
    for _ in range(TRIES):
        columns: dict[str, pl.Series] = {}
        for name, kind in steps.columns.items():
            encoding = steps.encode.get(name)
            if kind == "flag":
                values = pl.Series(random.random(size) < 0.5)
            elif encoding is not None:
                values = pl.Series(
                    random.choice(np.array([*encoding.known, *(["?"] if encoding.other and encoding.is_text else [])]), size)
                )
            elif kind == "text":
                values = pl.Series(random.choice(np.array([*texts, "?"]), size))
            else:
                values = pl.Series(
                    random.choice([0.1, 1, 1, 20], size) * (random.normal(size=size) + random.integers(0, 3, size))
                )
            is_missing = random.random(size) < MISSING_SHARE * (name in steps.fill or (encoding is not None and encoding.other))
            columns[name] = values.to_frame("x").select(pl.when(pl.lit(pl.Series(~is_missing))).then(pl.col("x"))).to_series()
        frame = pl.DataFrame(columns)
        _, bad = stepped(steps, frame)
        good = np.ones(size, bool)
        good[[each.row for each in bad]] = False
        made = frame.filter(pl.Series(good))
        found.append(made.filter(_complete(made_of, made)))
        if sum(map(len, found)) >= size:
            return pl.concat(found).head(size)
    raise ConfigError(
        f"Of {TRIES * size:,} random rows only {sum(map(len, found)):,} give observations: values that have no fill are "
        "missing where an expression has no result. Give it one for all values, such as 'coalesce(…, 0)'."
    )


def _complete(made_of: InputColumns, frame: pl.DataFrame) -> pl.Series:
    """Which rows have observations without missing values."""
    made, _ = stepped(made_of.steps, frame)
    missing = np.zeros(len(frame), bool)
    for name in made_of.obs:
        values = made[name]
        missing |= (values.is_null() | values.is_nan() if values.dtype.is_float() else values.is_null()).to_numpy()
    return pl.Series(~missing)
