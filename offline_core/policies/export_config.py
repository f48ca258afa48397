"""Parameters, manifest and result of an export."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from offline_core.data.datasets.manifest import Parent
from offline_core.policies.manifest import PolicyManifest
from offline_core.runtime.config import Config
from offline_core.runtime.provenance import provenance
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Result, StoredModel
from offline_core.runtime.units import duration_text

Format = Literal["onnx", "torch_export"]
EXPORT_FILE = "export.json"
FILES = {"onnx": "policy.onnx", "torch_export": "policy.pt2"}


class PolicyExportConfig(Config):
    """The formats of an export, and how exactly it has to match the policy."""

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
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of the observations that policy and export are compared on.")
    latency_calls: int = Field(300, ge=1, le=1_000_000, description="Calls for each measured latency.")


class Latency(StoredModel):
    """Latency of one call on one thread, observations in and actions out."""

    p50_microseconds: float
    p99_microseconds: float

    def __str__(self) -> str:
        return f"half of the calls in {self.p50_microseconds:g} µs, 99 % in {self.p99_microseconds:g} µs"


class ExportedModel(StoredModel):
    """One exported file, its difference from the policy, and its latency."""

    file: str
    bytes: int
    sha256: str
    max_abs_difference: float
    """Largest of all outputs on all observations compared; discrete actions are equal except in ties."""
    latency: dict[str, Latency]
    """By batch size: `batch_1`, `batch_64`."""


class Port(StoredModel):
    """An input or output of the graph; the batch is the first axis, and not in `shape`."""

    name: str
    dtype: str
    shape: list[int]


class MadeOf(StoredModel):
    """What a graph's observations are made of, and what its actions stand for; in the metadata of ONNX models, too."""

    numbers: list[str]
    """What each number of the input `obs` is called, in C order."""
    labels: list[str] | list[float] | None
    """What the log calls each action, by its number; None: actions are as in the log."""
    raw_rows: str = (
        "The graph begins after the encoding: policy.observations_of(rows) of offline_core makes its input obs of raw rows. "
        "Its actions are places in labels, if there are labels. policy.act_on(rows) is all of this in one call."
    )


class ExportManifest(StoredModel):
    """The inputs and outputs of the models, and their lineage."""

    export_version: Literal[1] = 1
    inputs: list[Port]
    outputs: list[Port]
    made_of: MadeOf | None = None
    """None: the policy does not know, or raw rows alone make no observations for it, as they have no action mask."""
    models: dict[str, ExportedModel]
    policy_latency: dict[str, Latency]
    config: PolicyExportConfig
    checkpoint: Parent
    policy: PolicyManifest
    """The checkpoint's manifest: spaces, network, environment, metrics, parents."""
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    provenance: dict[str, str] = Field(default_factory=provenance)


class PolicyExportResult(Result):
    """An export, and the comparison of each model with the policy."""

    output: str
    policy: str
    observations_compared: int
    models: dict[str, ExportedModel]
    """By format."""
    policy_latency: dict[str, Latency]
    seconds: float

    def card(self) -> Card:
        largest = max((model.max_abs_difference for model in self.models.values()), default=0.0)
        latencies: dict[str, object] = {f"policy, {batch}": latency for batch, latency in self.policy_latency.items()}
        for format, model in self.models.items():
            latencies |= {f"{format}, {batch}": latency for batch, latency in model.latency.items()}
        onnx = [f"{self.output}/{model.file}" for format, model in self.models.items() if format != "torch_export"]
        torch = [f"{self.output}/{model.file}" for format, model in self.models.items() if format == "torch_export"]
        return Card(
            "Exported policy",
            verdict="good",
            word="Exported",
            sentence=f"{', '.join(self.models)}; on {self.observations_compared:,} observations the outputs differ by "
            f"{largest:.2g} at most.",
            facts={"Policy": self.policy, "Export": self.output, "Time": duration_text(self.seconds)},
            details=latencies,
            next=f"onnxruntime.InferenceSession({onnx[0]!r})" if onnx else f"torch.export.load({torch[0]!r})" if torch else "",
            about=(self.policy, None),
            places=[f"{self.output}/card"],
        )
