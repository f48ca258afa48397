"""An ONNX model of raw rows: an input for each raw column, the steps of the import, the policy, and actions as logs say them.

    raw columns ─→ fill, compute, encode ─→ observations ─→ policy ─→ actions ─→ raw_actions

Missing values are NaN of numbers and flags, and the empty text. Rows that the import refuses (an unknown category, a value
that is missing and has no fill) get NaN there, and NaN everywhere if it cannot compute a column that the policy needs: a number
is infinite, NaN, or too large for the integer that it is cast to.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import polars as pl

from offline_core.data.inputs.bins import Bins
from offline_core.data.inputs.encoding import Encoding
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.errors import ConfigError
from offline_core.policies.onnx_expression import translate
from offline_core.policies.onnx_nodes import ML, Nodes, Value

OBSERVATIONS, RAW_ACTIONS = "observations", "raw_actions"
_PREFIX = "columns/"


def with_rows(model: Any, made_of: InputColumns, observation_space: gym.Space[Any]) -> Any:
    """The policy's model with raw columns as inputs in place of `obs`.

    Its outputs are those of the policy, `observations`, and `raw_actions` if actions have labels.

    Raises:
        ConfigError: a step has no translation to ONNX.
    """
    import onnx
    import onnx.compose

    nodes = Nodes(_PREFIX)
    (obs,) = [each for each in model.graph.input if each.name == "obs"]
    joined = _vector(made_of, nodes)
    shape = nodes.constant([-1, *(observation_space.shape or ())], np.int64)
    cast = nodes.op("Cast", joined, to=obs.type.tensor_type.elem_type)
    nodes.nodes.append(onnx.helper.make_node("Reshape", [cast, shape], [OBSERVATIONS]))
    nodes.nodes.append(onnx.helper.make_node("Identity", [OBSERVATIONS], [f"{_PREFIX}obs"]))
    observed = onnx.helper.make_tensor_value_info(OBSERVATIONS, obs.type.tensor_type.elem_type, None)
    observed.type.CopyFrom(obs.type)
    handed = onnx.ValueInfoProto(name=f"{_PREFIX}obs", type=obs.type)
    graph = onnx.helper.make_graph(nodes.nodes, "columns", _inputs(made_of.steps), [observed, handed], nodes.constants)
    opsets = [*model.opset_import, *([] if any(each.domain == ML for each in model.opset_import) else [_opset(ML, 4)])]
    rows = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)
    outputs = [OBSERVATIONS, *(each.name for each in model.graph.output)]
    merged = onnx.compose.merge_models(rows, model, io_map=[(f"{_PREFIX}obs", "obs")], outputs=outputs)
    if made_of.labels is not None:
        _add_labels(merged.graph, made_of.labels)
    return merged


def feeds(made_of: InputColumns, frame: pl.DataFrame) -> dict[str, np.ndarray]:
    """Raw rows as the inputs of such a model."""
    found = {}
    for name, kind in made_of.steps.columns.items():
        if kind == "text":
            found[name] = frame[name].fill_null("").to_numpy().astype(object)
        else:
            found[name] = frame[name].cast(pl.Float64).fill_null(math.nan).to_numpy()
    return found


def _opset(domain: str, version: int) -> Any:
    import onnx

    return onnx.helper.make_opsetid(domain, version)


def _inputs(steps: RowSteps) -> list[Any]:
    import onnx

    types = {"text": onnx.TensorProto.STRING, "number": onnx.TensorProto.DOUBLE, "flag": onnx.TensorProto.DOUBLE}
    if unknown := [name for name, kind in steps.columns.items() if kind not in types]:
        raise ConfigError(
            f"Column {unknown[0]!r} is neither a number nor a text nor true or false, so it cannot be an input of ONNX. "
            "Compute what is needed of it, such as the hour of a time, before the data is logged."
        )
    return [onnx.helper.make_tensor_value_info(name, types[kind], ["batch"]) for name, kind in steps.columns.items()]


def _vector(made_of: InputColumns, nodes: Nodes) -> str:
    """The name of the observations (B, size), float64."""
    steps, values = made_of.steps, dict[str, Value]()
    first = next(iter(steps.columns), None)
    if first is None:
        raise ConfigError("The observations are made of constants only, so there is no input to export.")
    for name, kind in steps.columns.items():
        if kind == "text":
            value = Value(name, "text", nodes.is_text(name, [""]))
        else:
            missing = nodes.op("IsNaN", name)
            flag = nodes.op("Not", nodes.op("Equal", name, nodes.constant(0)))
            value = Value(name, "number", missing) if kind == "number" else Value(flag, "flag", missing)
        values[name] = _filled(value, steps.fill.get(name), nodes)
    for name, text in steps.computed.items():
        value = translate(text, values, nodes)
        if name in steps.fill and value.kind == "number":
            value = value._replace(missing=nodes.either(value.missing, nodes.op("IsNaN", value.tensor)))
        values[name] = value = _filled(value, steps.fill.get(name), nodes)
        if value.kind == "number":
            nodes.refused.append(_not_finite(value, nodes))
    axis, rows = nodes.constant([1], np.int64), nodes.op("Shape", first)
    parts = []
    for name in made_of.obs:
        value = values[name]
        if name in steps.encode:
            parts.append(_encoded(value, steps.encode[name], nodes, rows))
            continue
        number = value.tensor if value.kind == "number" else nodes.number(value.tensor)
        if value.missing is not None:
            number = nodes.op("Where", value.missing, nodes.constant(math.nan), number)
        if name in steps.bins:
            number = _binned(number, steps.bins[name], nodes)
        parts.append(nodes.op("Unsqueeze", nodes.op("Expand", number, rows), axis))
    joined = nodes.op("Concat", *parts, axis=1)
    if (refused := nodes.either(*nodes.refused)) is None:
        return joined
    refused = nodes.op("Unsqueeze", nodes.op("Expand", refused, rows), axis)
    return nodes.op("Where", refused, nodes.constant(math.nan), joined)


def _not_finite(value: Value, nodes: Nodes) -> str:
    wrong = nodes.op("Or", nodes.op("IsNaN", value.tensor), nodes.op("IsInf", value.tensor))
    return wrong if value.missing is None else nodes.op("And", wrong, nodes.op("Not", value.missing))


def _filled(value: Value, fill: bool | float | str | None, nodes: Nodes) -> Value:
    if fill is None or value.missing is None:
        return value
    if value.kind == "text":
        constant = nodes.constant(str(fill), str)
    else:
        constant = nodes.constant(fill, bool if value.kind == "flag" else np.float64)
    return Value(nodes.where(value.missing, constant, value.tensor, value.kind), value.kind)


def _encoded(value: Value, encoding: Encoding, nodes: Nodes, rows: str) -> str:
    """One-hot vectors (B, size) or indices (B, 1), NaN where a value is none of the categories and there is no other."""
    axis, known = nodes.constant([1], np.int64), encoding.known
    if value.kind == "text":
        codes, choices = (
            nodes.codes(value.tensor, [str(each) for each in known]),
            nodes.constant([[*range(len(known))]], np.int64),
        )
    else:
        codes = value.tensor if value.kind == "number" else nodes.number(value.tensor)
        if value.missing is not None:
            codes = nodes.op("Where", value.missing, nodes.constant(math.nan), codes)
        choices = nodes.constant([known])
    vectors = nodes.number(nodes.op("Equal", nodes.op("Unsqueeze", nodes.op("Expand", codes, rows), axis), choices))
    found = nodes.op("ReduceSum", vectors, axis, keepdims=1)
    if encoding.other:
        vectors = nodes.op("Concat", vectors, nodes.op("Sub", nodes.constant(1), found), axis=1)
    if encoding.form == "index":
        vectors = nodes.op("MatMul", vectors, nodes.constant([[float(i)] for i in range(encoding.size)]))
    if encoding.other:
        return vectors
    there = nodes.op("Greater", found, nodes.constant(0))
    return nodes.op("Where", there, vectors, nodes.constant(math.nan))


def _binned(number: str, bins: Bins, nodes: Nodes) -> str:
    """The number of the bin (B,), NaN out of bounds."""
    axis = nodes.constant([1], np.int64)
    above = nodes.op("GreaterOrEqual", nodes.op("Unsqueeze", number, axis), nodes.constant([bins.edges]))
    code = nodes.op("ReduceSum", nodes.number(above), axis, keepdims=0)
    low, high = bins.bounds or (-math.inf, math.inf)
    inside = nodes.op(
        "And", nodes.op("GreaterOrEqual", number, nodes.constant(low)), nodes.op("LessOrEqual", number, nodes.constant(high))
    )
    return nodes.op("Where", inside, code, nodes.constant(math.nan))


def _add_labels(graph: Any, labels: list[str] | list[float]) -> None:
    import onnx

    nodes = Nodes("labels/")
    is_text = isinstance(labels[0], str)
    table = nodes.constant(labels, str if is_text else np.float64)
    graph.node.append(onnx.helper.make_node("Gather", [table, "actions"], [RAW_ACTIONS]))
    graph.initializer.extend(nodes.constants)
    kind = onnx.TensorProto.STRING if is_text else onnx.TensorProto.DOUBLE
    graph.output.append(onnx.helper.make_tensor_value_info(RAW_ACTIONS, kind, ["batch"]))
