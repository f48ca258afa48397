"""What a text that names a policy stands for: a checkpoint, or something that can be judged on a log and is never played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

PolicyKind: TypeAlias = Literal["checkpoint", "rule", "function", "column", "onnx", "behaviour"]
"""rule: an expression in SQL. function: Python code. column: of the log, with probabilities. onnx: a file of a model.
behaviour: what recorded a dataset."""
SUFFIX = ".onnx"
WORDS: Mapping[PolicyKind, str] = {
    "checkpoint": "a checkpoint",
    "rule": "a rule",
    "function": "a function",
    "column": "a column of a log",
    "onnx": "an ONNX file",
    "behaviour": "the behaviour that recorded a dataset",
}


def kind_of(policy: str) -> PolicyKind:
    """rule:price * 0.95, function:package.module:name, column:new_prob, policy.onnx, behaviour:runs/week2@1, a checkpoint."""
    start, colon, _ = policy.partition(":")
    if colon and start in ("rule", "function", "column", "behaviour"):
        return start  # type: ignore[return-value]
    return "onnx" if policy.endswith(SUFFIX) else "checkpoint"


def is_location(policy: str) -> bool:
    """Whether a text that names a policy is the URI of a file or folder."""
    return kind_of(policy) in ("checkpoint", "onnx")


def as_judged(*, explore: bool) -> str:
    """How a policy has to act for a decision to hold of it, as the end of a sentence on it."""
    if explore:
        return (
            "samples its actions, as policy.act(observations, explore=True) does. Its likeliest action alone, which act takes "
            "without that, is another policy, of which nothing is known."
        )
    return "takes its likeliest action, as policy.act(observations) does."
