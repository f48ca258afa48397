"""What a text that names a policy stands for: a checkpoint, or something that can be judged on a log and is never played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["checkpoint", "rule", "function", "column", "onnx"]
"""rule: an expression in SQL. function: Python code. column: of the log, with probabilities. onnx: a file of a model."""
SUFFIX = ".onnx"
WORDS: Mapping[Kind, str] = {
    "checkpoint": "a checkpoint",
    "rule": "a rule",
    "function": "a function",
    "column": "a column of a log",
    "onnx": "an ONNX file",
}


def kind_of(policy: str) -> Kind:
    """rule:price * 0.95, function:package.module:name, column:new_prob, runs/exported/policy.onnx, or else a checkpoint."""
    start, colon, _ = policy.partition(":")
    if colon and start in ("rule", "function", "column"):
        return start  # type: ignore[return-value]
    return "onnx" if policy.endswith(SUFFIX) else "checkpoint"


def is_location(policy: str) -> bool:
    """Whether a text that names a policy is the URI of a file or folder."""
    return kind_of(policy) in ("checkpoint", "onnx")
