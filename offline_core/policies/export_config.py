"""Parameters and outcome of an export."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from offline_core.config import Config

Format = Literal["onnx", "torch_export"]


class PolicyExportConfig(Config):
    """In which formats a policy leaves the house, and how exactly it has to be the same there."""

    formats: list[Format] = Field(
        ["onnx"],
        min_length=1,
        description="onnx: for any ONNX runtime. torch_export: for Torch 2, in Python or C++. Each is a file of its own.",
    )
    tolerance: float = Field(
        1e-4,
        gt=0,
        le=1,
        description="An output of the export may differ from the policy's by this much, or by this share where it is above 1.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Draws the observations that both are compared on.")
    latency_calls: int = Field(300, ge=1, le=1_000_000, description="Calls that each latency is measured over.")


class _Outcome(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Latency(_Outcome):
    """Of one call on one thread, observations in and actions out."""

    p50_microseconds: float
    p99_microseconds: float


class ExportedModel(_Outcome):
    """One file, and how it compares with the policy."""

    file: str
    bytes: int
    sha256: str
    max_abs_difference: float
    """Largest of all outputs on all observations compared; whole-numbered actions are equal wherever they are not a tie."""
    latency: dict[str, Latency]
    """By batch size: `batch_1`, `batch_64`."""


class PolicyExportResult(_Outcome):
    """Where the export is, and what its manifest says of each model."""

    output: str
    policy: str
    observations_compared: int
    models: dict[str, ExportedModel]
    """By format."""
    policy_latency: dict[str, Latency]
    seconds: float
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")
