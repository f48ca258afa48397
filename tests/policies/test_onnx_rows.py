"""Raw rows through ONNX Runtime: the same observations and actions as import and `act_on` make, nulls and NaN included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import polars as pl
import pytest
from gymnasium import spaces
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from offline_core.data.datasets.manifest import Operation
from offline_core.data.inputs.bins import Bins
from offline_core.data.inputs.computing import stepped
from offline_core.data.inputs.encoding import Encoding
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.errors import ConfigError, SchemaError
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.export import export_policy
from offline_core.policies.export_config import ExportManifest, PolicyExportConfig
from offline_core.policies.export_work import rows_like
from offline_core.policies.onnx_expression import translate
from offline_core.policies.onnx_nodes import ML, Nodes, Value
from offline_core.policies.onnx_rows import feeds, with_rows
from offline_core.policies.policy import Policy
from tests.cases import examples, slow_but

STEPS = RowSteps(
    columns={"tin": "number", "tout": "number", "mode": "text", "floor": "number", "busy": "flag", "power": "number"},
    fill={"tin": 20.5, "mode": "off", "busy": False},
    computed={
        "away": "abs(tin - 21)",
        "heats": "case when mode = 'heat' and tin < tout then 1 else 0 end",
        "logp": "ln(greatest(tout, 0.5))",
        "free": "not busy",
    },
    encode={
        "mode": Encoding(categories=["heat", "cool", "off"]),
        "floor": Encoding(categories=[1, 2], other=True),  # type: ignore[list-item]
    },
    bins={"power": Bins(edges=[0, 2], values=[-1, 1, 3])},
)
MADE = InputColumns(
    steps=STEPS, obs=["away", "tout", "heats", "mode", "logp", "floor", "free", "power"], action="set", labels=["16", "18", "x"]
)
SIZE = 3 + 3 + 3 + 1 + 1 + 1


def policy(made_of: InputColumns = MADE, size: int = SIZE, **space: Any) -> Policy:
    made = Policy(spaces.Box(-np.inf, np.inf, (size,), **space), spaces.Discrete(3), seed=3)
    made.input_columns = made_of
    return made


def exported(made: Policy, folder: Path) -> onnxruntime.InferenceSession:
    save_policy(made, str(folder / "policy"), operation=Operation(name="made by a test"))
    config = PolicyExportConfig(formats=["onnx_rows"], latency_calls=3)
    export_policy(config, policy=str(folder / "policy"), output=str(folder / "out"))
    return onnxruntime.InferenceSession(str(folder / "out" / "policy_rows.onnx"))


@pytest.mark.parametrize("dtype", slow_but([np.float32, np.float64], np.float32))
def test_the_same_observations_and_actions(tmp_path: Path, dtype: Any) -> None:
    made = policy(dtype=dtype)
    session = exported(made, tmp_path)
    rows = rows_like(MADE, 200, seed=5)
    observations, actions, raw = session.run(["observations", "actions", "raw_actions"], feeds(MADE, rows))
    expected = MADE.observations(rows, made.observation_space)
    np.testing.assert_allclose(observations, expected, rtol=1e-6, atol=1e-6)
    assert observations.dtype == dtype
    assert raw.tolist() == made.act_on(rows).tolist()
    assert raw.tolist() == [MADE.labels[action] for action in actions]  # type: ignore[index]
    manifest = ExportManifest.model_validate_json((tmp_path / "out" / "export.json").read_bytes())
    assert [(port.name, port.dtype) for port in manifest.row_inputs][:3] == [
        ("tin", "float64"),
        ("tout", "float64"),
        ("mode", "str"),
    ]
    assert load_policy(str(tmp_path / "policy")).input_columns == MADE


def test_rows_that_the_import_refuses_give_nan(tmp_path: Path) -> None:
    session = exported(policy(), tmp_path)
    row = {"tin": [np.nan], "tout": [np.nan], "floor": [9.0], "busy": [1.0], "power": [0.0]}
    given = {name: np.array(values) for name, values in row.items()} | {"mode": np.array(["boost"], object)}
    (observations,) = session.run(["observations"], given)
    missing = [False, True, False, True, True, True, False, False, False, False, False, False]
    assert np.isnan(observations[0]).tolist() == missing
    assert observations[0, 7:10].tolist() == [0, 0, 1]


def test_what_has_no_translation_is_named(tmp_path: Path) -> None:
    made_of = InputColumns(steps=RowSteps(columns={"mode": "text"}, computed={"x": "length(mode)"}), obs=["x"])
    with pytest.raises(ConfigError, match=r"The expression 'length\(mode\)' cannot be exported: a text in place"):
        exported(policy(made_of, 1), tmp_path)
    made_of = InputColumns(steps=RowSteps(columns={"tin": "number"}, computed={"x": "atan(tin)"}), obs=["x"])
    with pytest.raises(ConfigError, match="Trigonometry ArcTan has no translation"):
        exported(policy(made_of, 1), tmp_path)
    with pytest.raises(ConfigError, match="does not know of which raw columns"):
        exported(policy(None, 1), tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "a // b",
        "a / b",
        "a / 0",
        "exp(a)",
        "ln(a)",
        "coalesce(ln(a), 1)",
        "a::int",
        "cast(a as tinyint)",
        "try_cast(a as int)",
        "coalesce(try_cast(a as tinyint), 5)",
        "case when b > 0 then cast(a as int) else b end",
        "case when a < 0 then b when cast(a as tinyint) > b then 1 else cast(b as tinyint) end",
        "b > 0 and cast(a as int) > 1",
        "coalesce(b, cast(a as int))",
        "case when 1 / a > 2 then 1 else 0 end",
        "try_cast(a as bigint)",
    ],
)
def test_what_the_import_cannot_compute_is_nan(text: str) -> None:
    numbers = [-7.5, -3.0, -0.5, 0.0, 0.5, 7.5, 127.9, -128.9, 128.0, 1e3, 1e10, -1e10, 2.0**63, -(2.0**63), 1e20, None]
    rows = pl.DataFrame({"a": numbers}).join(pl.DataFrame({"b": numbers}), how="cross")
    steps = RowSteps(columns={"a": "number", "b": "number"}, computed={"y": text, "z": "case when y > 1 then 1 end"})
    made_of = InputColumns(steps=steps.of(["y", "z"]), obs=["y", "z"])
    frame, bad = stepped(made_of.steps, rows)
    expected = frame.select(pl.col("y", "z").cast(pl.Float64)).to_numpy().copy()
    expected[[each.row for each in bad]] = np.nan
    port = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, ["batch", 2]) for name in ("obs", "actions")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["obs"], ["actions"])], "policy", port[:1], port[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    model = with_rows(model, made_of, spaces.Box(-np.inf, np.inf, (2,), np.float64))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_allclose(session.run(["observations"], feeds(made_of, rows))[0], expected, rtol=1e-12)


NUMBERS = ["x", "y", "2.5", "-1", "0"]
TEXTS = [
    "m = 'a'",
    "m <> 'b'",
    "m in ('a', 'c')",
    "m is null",
    "f",
    "x is not null",
    "x > y",
    "x = y",
    "y <= 1.5",
    "x in (1, 2)",
]


def grown(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions of numbers out of others."""
    flags = st.one_of(
        st.sampled_from(TEXTS),
        st.tuples(children, st.sampled_from(["<", "<=", ">", ">=", "=", "<>", "is distinct from"]), children).map(" ".join),
    )
    flags = st.one_of(
        flags,
        flags.map("not ({})".format),
        st.tuples(flags, st.sampled_from(["and", "or"]), flags).map("({0[0]}) {0[1]} ({0[2]})".format),
    )
    return st.one_of(
        st.tuples(children, st.sampled_from("+-*/%"), children).map("({0[0]} {0[1]} {0[2]})".format),
        st.tuples(
            st.sampled_from(["abs", "sign", "floor", "ceil", "exp", "sqrt", "ln", "log10", "log1p", "round", "sin", "cbrt"]),
            children,
        ).map("{0[0]}({0[1]})".format),
        st.tuples(st.sampled_from(["greatest", "least", "coalesce", "nullif"]), children, children).map(
            "{0[0]}({0[1]}, {0[2]})".format
        ),
        st.tuples(flags, children, children).map("case when {0[0]} then {0[1]} else {0[2]} end".format),
        st.tuples(flags, children).map("case when {0[0]} then {0[1]} end".format),
        flags.map("cast(({}) as double)".format),
    )


ROWS = pl.DataFrame(
    {
        "x": [1.0, -2.0, 0.0, None, 0.5, 3.0, 1.5, None],
        "y": [1.0, 2.5, None, -1.0, 0.0, -3.0, 2.0, 0.5],
        "m": ["a", "b", None, "c", "a", "b", "c", "a"],
        "f": [True, False, None, True, False, True, None, False],
    }
)


def run_expression(text: str) -> list[float | None]:
    """By ONNX Runtime, with None where it is missing."""
    nodes = Nodes("n")
    numbers = {name: Value(name, "number", nodes.op("IsNaN", name)) for name in ("x", "y")}
    flag = Value(nodes.op("Not", nodes.op("Equal", "f", nodes.constant(0))), "flag", nodes.op("IsNaN", "f"))
    value = translate(text, {**numbers, "m": Value("m", "text", nodes.is_text("m", [""])), "f": flag}, nodes)
    shape = nodes.op("Shape", "x")
    outputs = [nodes.op("Expand", nodes.number(value.tensor), shape)]
    outputs.append(nodes.op("Expand", nodes.number(value.missing or nodes.constant(False, bool)), shape))
    kinds = {
        "x": onnx.TensorProto.DOUBLE,
        "y": onnx.TensorProto.DOUBLE,
        "f": onnx.TensorProto.DOUBLE,
        "m": onnx.TensorProto.STRING,
    }
    inputs = [onnx.helper.make_tensor_value_info(name, kind, ["batch"]) for name, kind in kinds.items()]
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, ["batch"]) for name in outputs]
    graph = onnx.helper.make_graph(nodes.nodes, "g", inputs, infos, nodes.constants)
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid(ML, 4)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    found, missing = session.run(None, feeds(InputColumns(steps=RowSteps(columns=COLUMNS), obs=[]), ROWS))
    return [None if lost else number for number, lost in zip(found.tolist(), missing.tolist(), strict=True)]


COLUMNS: Any = {"x": "number", "y": "number", "m": "text", "f": "flag"}


@settings(max_examples=examples(60), deadline=None)
@given(st.recursive(st.sampled_from(NUMBERS), grown, max_leaves=6))
def test_expressions_are_what_polars_computes(text: str) -> None:
    steps = RowSteps(columns=COLUMNS, computed={"z": text})
    try:
        expected = stepped(steps, ROWS)[0]["z"].cast(pl.Float64).to_list()
    except SchemaError:  # such as a whole number out of null
        assume(False)
    found = run_expression(text)
    assert [each is None for each in found] == [each is None for each in expected], (text, found, expected)
    np.testing.assert_allclose(np.array(found, float), np.array(expected, float), rtol=1e-9, atol=1e-12, err_msg=text)
