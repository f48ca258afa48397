"""Expressions of Polars as ONNX nodes: what a policy's export computes is what the import computed, nulls and NaN included."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from offline_core.errors import ConfigError
from offline_core.policies.onnx_nodes import Nodes, Value
from offline_core.runtime.sql import shown, sql_expression

_SAME = {"Floor": "Floor", "Ceil": "Ceil", "Exp": "Exp", "Abs": "Abs"}
_TRIGONOMETRY = {"Sin": "Sin", "Cos": "Cos"}
"""The others onnxruntime has of float32 only."""
_ARITHMETIC = {"Plus": "Add", "Minus": "Sub", "Multiply": "Mul", "Mul": "Mul", "Div": "Div", "TrueDivide": "Div"}
_NEGATED = {"NotEq": "Eq", "Lt": "GtEq", "LtEq": "Gt", "NotEqValidity": "EqValidity"}


class _UntranslatableError(Exception):
    """What has no translation."""


def translate(text: str, columns: Mapping[str, Value], nodes: Nodes) -> Value:
    """The value of an SQL expression; the rows where Polars refuses to compute it are added to the refused ones of the nodes.

    Raises:
        ConfigError: it has a part that ONNX cannot express here; the message names it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the JSON of expressions may change between versions of Polars, and it is not kept
        tree = json.loads(sql_expression(text).meta.serialize(format="json"))
    try:
        return _Translation(columns, nodes).value(tree)
    except _UntranslatableError as error:
        raise ConfigError(
            f"The expression {shown(text)} cannot be exported: {error} has no translation to ONNX. Compute that column before "
            "the data is logged, and give it to the policy as it is."
        ) from None


class _Translation:
    def __init__(self, columns: Mapping[str, Value], nodes: Nodes) -> None:
        self.columns = columns
        self.nodes = nodes

    def value(self, tree: Any) -> Value:
        kind, content = next(iter(tree.items()))
        match kind:
            case "Column":
                return self.columns[content]
            case "Literal":
                return self._literal(content)
            case "Ternary":
                return self._choice(self.value(content["predicate"]), content["truthy"], content["falsy"])
            case "BinaryExpr":
                return self._binary(str(content["op"]), self.value(content["left"]), self.value(content["right"]))
            case "Cast":
                is_strict = content["options"] == "Strict"
                return self._cast(self.value(content["expr"]), str(content["dtype"].get("Literal")), is_strict)
            case "Function":
                return self._function(content["function"], content["input"])
        raise _UntranslatableError(kind)

    def _literal(self, content: Mapping[str, Any]) -> Value:
        (kind, value) = next(iter(content.items()))
        if kind in ("Dyn", "Scalar"):
            kind, value = next(iter(value.items()))
        if kind == "Null":
            return Value(self.nodes.constant(math.nan), "number", self.nodes.constant(True, bool))
        if kind == "String":
            return Value(self.nodes.constant(value, str), "text")
        if kind == "Boolean":
            return Value(self.nodes.constant(value, bool), "flag")
        if not isinstance(value, int | float):
            raise _UntranslatableError(f"a constant of type {kind}")
        return Value(self.nodes.constant(value), "number")

    def _function(self, function: Any, given: Sequence[Any]) -> Value:
        name, detail = (function, None) if isinstance(function, str) else next(iter(function.items()))
        if isinstance(detail, dict):
            detail, more = next(iter(detail.items()))
        else:
            more = None
        if detail == "IsIn":
            return self._is_in(self.value(given[0]), given[1])
        values = [self.value(each) for each in given]
        match (name, detail):
            case ("Boolean", "IsNull" | "IsNotNull" | "IsNan" | "IsNotNan"):
                return self._is_missing(values[0], str(detail))
            case ("Boolean", "Not"):
                flag = self._flag(values[0])
                return Value(self.nodes.op("Not", flag.tensor), "flag", flag.missing)
            case ("Coalesce", _):
                found = values[-1]
                for each in reversed(values[:-1]):
                    found = self._or_else(each, found)
                return found
            case ("MaxHorizontal" | "MinHorizontal", _):
                return self._extreme([self._number(each) for each in values], "Greater" if name.startswith("Max") else "Less")
            case ("Sql", "Binary"):
                return self._binary(str(more), *values)
        numbers = [self._number(each) for each in values]
        missing = self.nodes.either(*(each.missing for each in numbers))
        return Value(self._computed(name, detail, more, [each.tensor for each in numbers]), "number", missing)

    def _computed(self, name: str, detail: Any, more: Any, given: Sequence[str]) -> str:
        """A function of numbers that is missing where one of them is."""
        op, constant = self.nodes.op, self.nodes.constant
        match (name, detail):
            case ("Sql", "ToFloat"):
                return given[0]
            case ("Sql", "Round"):
                factor = constant(10.0 ** int(more["decimals"]))
                return op("Div", op("Round", op("Mul", given[0], factor)), factor)
            case ("Sign", _):
                return op("Where", op("IsNaN", given[0]), given[0], op("Sign", given[0]))
            case ("Log", _):
                return op("Div", op("Log", given[0]), op("Log", given[1]))
            case ("Log1p", _):
                return op("Log", op("Add", given[0], constant(1)))
            case ("Pow", "Generic"):
                return op("Pow", given[0], given[1])
            case ("Pow", "Sqrt"):
                return op("Sqrt", given[0])
            case ("Pow", "Cbrt"):
                return op("Mul", op("Sign", given[0]), op("Pow", op("Abs", given[0]), constant(1 / 3)))
            case ("Trigonometry", "Degrees" | "Radians"):
                return op("Mul", given[0], constant(math.degrees(1) if detail == "Degrees" else math.radians(1)))
            case ("Trigonometry", _) if detail in _TRIGONOMETRY:
                return op(_TRIGONOMETRY[detail], given[0])
        if name in _SAME:
            return op(_SAME[name], given[0])
        raise _UntranslatableError(name if detail is None else f"{name} {detail}")

    def _binary(self, name: str, left: Value, right: Value) -> Value:
        nodes = self.nodes
        missing = nodes.either(left.missing, right.missing)
        if name in ("And", "Or") and "number" not in (left.kind, right.kind):
            return self._logic(name, left, right)
        if name in _NEGATED:
            found = self._binary(_NEGATED[name], left, right)
            return Value(nodes.op("Not", found.tensor), "flag", found.missing)
        if name == "EqValidity":
            same = self._equal(left, right)
            none = constant = nodes.constant(False, bool)
            one, other = left.missing or none, right.missing or constant
            both = nodes.op("And", one, other)
            return Value(nodes.op("Or", both, nodes.op("And", same, nodes.op("Not", nodes.op("Or", one, other)))), "flag")
        if name == "Eq":
            return Value(self._equal(left, right), "flag", missing)
        a, b = self._number(left).tensor, self._number(right).tensor
        if name in ("Gt", "GtEq"):
            return Value(self._greater(a, b, or_equal=name == "GtEq"), "flag", missing)
        if name in _ARITHMETIC:
            return Value(nodes.op(_ARITHMETIC[name], a, b), "number", missing)
        if name in ("Rem", "Modulus"):
            return Value(nodes.op("Mod", a, b, fmod=1), "number", missing)
        if name in ("IntDiv", "FloorDivide"):
            return self._whole(Value(nodes.op("Div", a, b), "number", missing), 64, is_strict=True)
        raise _UntranslatableError(f"the operator {name}")

    def _greater(self, a: str, b: str, *, or_equal: bool) -> str:
        """NaN is larger than all numbers, and equal to itself."""
        op = self.nodes.op
        no_a, no_b = op("IsNaN", a), op("IsNaN", b)
        if or_equal:
            return op("Or", op("GreaterOrEqual", a, b), no_a)
        return op("Or", op("Greater", a, b), op("And", no_a, op("Not", no_b)))

    def _equal(self, left: Value, right: Value) -> str:
        op = self.nodes.op
        if "text" in (left.kind, right.kind):
            return self._same_text(left, right)
        a, b = self._number(left).tensor, self._number(right).tensor
        return op("Or", op("Equal", a, b), op("And", op("IsNaN", a), op("IsNaN", b)))

    def _same_text(self, left: Value, right: Value) -> str:
        if left.kind == right.kind == "text":
            for one, other in ((left, right), (right, left)):
                if (constant := self._constant_text(one)) is not None:
                    return self.nodes.is_text(other.tensor, [constant])
        raise _UntranslatableError("the comparison of a text with something else than a constant")

    def _constant_text(self, value: Value) -> str | None:
        found = next((each for each in self.nodes.constants if each.name == value.tensor), None)
        return None if found is None else bytes(found.string_data[0]).decode()

    def _logic(self, name: str, left: Value, right: Value) -> Value:
        """Of three values (Kleene): what is missing does not matter where the other one decides."""
        nodes = self.nodes
        one, other = self._flag(left), self._flag(right)
        found = nodes.op(name, one.tensor, other.tensor)
        missing = nodes.either(one.missing, other.missing)
        if missing is None:
            return Value(found, "flag")
        decides = nodes.op("Not", one.tensor), nodes.op("Not", other.tensor)
        if name == "Or":
            decides = one.tensor, other.tensor
        known = [flag if each.missing is None else nodes.op("And", flag, nodes.op("Not", each.missing))
                 for flag, each in zip(decides, (one, other), strict=True)]  # fmt: skip
        decided = nodes.op("Or", *known)
        value = nodes.op("And", found, nodes.op("Not", decided)) if name == "And" else nodes.op("Or", found, decided)
        return Value(value, "flag", nodes.op("And", missing, nodes.op("Not", decided)))

    def _choice(self, predicate: Value, truthy: Any, falsy: Any) -> Value:
        nodes = self.nodes
        flag = self._flag(predicate)
        is_true = flag.tensor if flag.missing is None else nodes.op("And", flag.tensor, nodes.op("Not", flag.missing))
        yes, no, kind = self._alike(self._where(is_true, truthy), self._where(nodes.op("Not", is_true), falsy))
        missing = None
        if yes.missing or no.missing:
            never = nodes.constant(False, bool)
            missing = nodes.where(is_true, yes.missing or never, no.missing or never, "flag")
        return Value(nodes.where(is_true, yes.tensor, no.tensor, kind), kind, missing)

    def _where(self, condition: str, tree: Any) -> Value:
        """A branch: Polars computes, and so refuses, only the rows that take it."""
        refused, self.nodes.refused = self.nodes.refused, []
        value = self.value(tree)
        self.nodes.refused = [*refused, *(self.nodes.op("And", condition, each) for each in self.nodes.refused)]
        return value

    def _or_else(self, first: Value, second: Value) -> Value:
        if first.missing is None:
            return first
        is_missing = first.missing
        first, second, kind = self._alike(first, second)
        missing = None if second.missing is None else self.nodes.op("And", is_missing, second.missing)
        return Value(self.nodes.where(is_missing, second.tensor, first.tensor, kind), kind, missing)

    def _extreme(self, values: Sequence[Value], better: str) -> Value:
        """The largest or smallest of those that are neither missing nor NaN."""
        op, found = self.nodes.op, values[0]
        for each in values[1:]:
            lacks = self.nodes.either(found.missing, op("IsNaN", found.tensor))
            there = op("Not", self.nodes.either(each.missing, op("IsNaN", each.tensor)) or "")
            taken = op("And", there, op("Or", lacks or "", op(better, each.tensor, found.tensor)))
            missing = None if found.missing is None or each.missing is None else op("And", found.missing, each.missing)
            found = Value(op("Where", taken, each.tensor, found.tensor), "number", missing)
        return found

    def _is_missing(self, value: Value, what: str) -> Value:
        if what in ("IsNull", "IsNotNull"):
            found = value.missing or self.nodes.constant(False, bool)
            return Value(found if what == "IsNull" else self.nodes.op("Not", found), "flag")
        found = self.nodes.op("IsNaN", self._number(value).tensor)
        return Value(found if what == "IsNan" else self.nodes.op("Not", found), "flag", value.missing)

    def _is_in(self, value: Value, given: Mapping[str, Any]) -> Value:
        series = pl.read_ipc_stream(io.BytesIO(bytes(given.get("Literal", {}).get("Series") or ()))).to_series()
        known = series[0].to_list() if isinstance(series[0], pl.Series) else series.to_list()
        if None in known:
            raise _UntranslatableError("null in a list")
        if value.kind == "text":
            return Value(self.nodes.is_text(value.tensor, known), "flag", value.missing)
        equal = [self._equal(value, Value(self.nodes.constant(each), "number")) for each in known]
        return Value(self.nodes.either(*equal) or "", "flag", value.missing)

    def _cast(self, value: Value, dtype: str, is_strict: bool) -> Value:
        if dtype == "Boolean":
            return self._flag(value)
        if dtype == "String" and value.kind == "text":
            return value
        number = self._number(value)
        if dtype == "Float64":
            return number
        if dtype.startswith("Int") and value.kind != "flag":
            return self._whole(number, int(dtype.removeprefix("Int")), is_strict)
        if dtype.startswith("Int"):
            return number
        raise _UntranslatableError(f"a cast to {dtype}")

    def _whole(self, number: Value, bits: int, is_strict: bool) -> Value:
        """Without what comes after the point; what such an integer cannot hold is refused if strict, else missing."""
        nodes, op, limit = self.nodes, self.nodes.op, self.nodes.constant(2.0 ** (bits - 1))
        whole = op("Mul", op("Sign", number.tensor), op("Floor", op("Abs", number.tensor)))
        fits = op("And", op("GreaterOrEqual", whole, op("Neg", limit)), op("Less", whole, limit))
        wrong = op("Not", fits)
        if not is_strict:
            return Value(whole, "number", nodes.either(number.missing, wrong))
        nodes.refused.append(wrong if number.missing is None else op("And", wrong, op("Not", number.missing)))
        return Value(whole, "number", number.missing)

    def _alike(self, one: Value, other: Value) -> tuple[Value, Value, Literal["number", "flag", "text"]]:
        if one.kind == other.kind:
            return one, other, one.kind
        if "text" in (one.kind, other.kind):
            raise _UntranslatableError("a choice between a text and something else")
        return self._number(one), self._number(other), "number"

    def _number(self, value: Value) -> Value:
        if value.kind == "text":
            raise _UntranslatableError("a text in place of a number")
        return value if value.kind == "number" else Value(self.nodes.number(value.tensor), "number", value.missing)

    def _flag(self, value: Value) -> Value:
        if value.kind == "text":
            raise _UntranslatableError("a text in place of true or false")
        if value.kind == "flag":
            return value
        zero = self.nodes.op("Equal", value.tensor, self.nodes.constant(0))
        return Value(self.nodes.op("Not", zero), "flag", value.missing)
