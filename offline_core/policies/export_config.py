"""Parameters and result of an export."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from offline_core.runtime.config import Config
from offline_core.runtime.result import Result

Format = Literal["onnx", "torch_export", "onnx_rows"]


class PolicyExportConfig(Config):
    """The formats of an export, and how exactly it has to match the policy."""

    formats: list[Format] = Field(
        ["onnx"],
        min_length=1,
        description="onnx: for any ONNX runtime. torch_export: for Torch 2, in Python or C++. onnx_rows: ONNX with an input "
        "for each raw column of the import, which fills, computes and encodes them. Each is a file of its own.",
    )
    tolerance: float = Field(
        1e-4,
        gt=0,
        le=1,
        description="An output of the export may differ from the policy's by this much, or by this share where it is above 1.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of the observations that policy and export are compared on.")
    latency_calls: int = Field(300, ge=1, le=1_000_000, description="Calls for each measured latency.")


class _Outcome(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Latency(_Outcome):
    """Latency of one call on one thread, observations in and actions out."""

    p50_microseconds: float
    p99_microseconds: float


class ExportedModel(_Outcome):
    """One exported file, its difference from the policy, and its latency."""

    file: str
    bytes: int
    sha256: str
    max_abs_difference: float
    """Largest of all outputs on all observations compared; discrete actions are equal except in ties."""
    latency: dict[str, Latency]
    """By batch size: `batch_1`, `batch_64`."""


class PolicyExportResult(Result):
    """An export, and the comparison of each model with the policy."""

    output: str
    policy: str
    observations_compared: int
    models: dict[str, ExportedModel]
    """By format."""
    policy_latency: dict[str, Latency]
    seconds: float
