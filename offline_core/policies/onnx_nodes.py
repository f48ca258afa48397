"""Nodes of an ONNX graph, and values that may be missing, as Polars has them and ONNX has not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

ML = "ai.onnx.ml"
"""The domain of operators on texts."""


class Value(NamedTuple):
    """A tensor (B,) or a scalar, and where it is missing."""

    tensor: str
    """Its name in the graph: float64, bool or text."""
    kind: Literal["number", "flag", "text"]
    missing: str | None = None
    """A tensor of bools; None: nowhere. There the value itself is of no meaning."""


@dataclass
class Nodes:
    """Collects nodes and constants; each method adds one and returns the name of its output."""

    prefix: str
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Tensors of bools: rows that the import refuses, whatever becomes of the values."""

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """The output of an operator."""
        import onnx

        name = f"{self.prefix}{len(self.nodes)}_{kind}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """A constant of numbers, bools or texts."""
        import onnx

        name = f"{self.prefix}constant{len(self.constants)}"
        if dtype is str:
            texts = [value] if isinstance(value, str) else list(value)
            shape = [] if isinstance(value, str) else [len(texts)]
            tensor = onnx.helper.make_tensor(name, onnx.TensorProto.STRING, shape, [text.encode() for text in texts])
        else:
            tensor = onnx.numpy_helper.from_array(np.asarray(value, dtype), name)
        self.constants.append(tensor)
        return name

    def number(self, tensor: str) -> str:
        """A tensor as float64."""
        import onnx

        return self.op("Cast", tensor, to=onnx.TensorProto.DOUBLE)

    def codes(self, texts: str, known: Sequence[str]) -> str:
        """The place of each text in a list, -1 if it is not in it, as int64."""
        return self.op(
            "LabelEncoder",
            texts,
            domain=ML,
            keys_strings=list(known),
            values_int64s=list(range(len(known))),
            default_int64=-1,
        )

    def is_text(self, texts: str, known: Sequence[str]) -> str:
        """Whether each text is one of a list."""
        return self.op("GreaterOrEqual", self.codes(texts, known), self.constant(0, np.int64))

    def either(self, *flags: str | None) -> str | None:
        """Whether one is true; None stands for never."""
        there = [flag for flag in dict.fromkeys(flags) if flag is not None]
        while len(there) > 1:
            there = [self.op("Or", there[0], there[1]), *there[2:]]
        return there[0] if there else None

    def where(self, condition: str, yes: str, no: str, kind: str) -> str:
        """One or the other, also of bools, which runtimes cannot choose between."""
        if kind != "flag":
            return self.op("Where", condition, yes, no)
        return self.op("Or", self.op("And", condition, yes), self.op("And", self.op("Not", condition), no))
