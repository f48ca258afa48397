"""Stage: write a policy for other programs."""

from __future__ import annotations

from prefect import task

from offline_core.policies.export_config import Latency, PolicyExportConfig, PolicyExportResult
from offline_core.reporting.card import Card
from tasks.artifacts import publish


@task(name="export-policy", persist_result=True, result_serializer="json")
def export_policy(config: PolicyExportConfig, *, policy: str, output: str) -> PolicyExportResult:
    """Writes each format and holds it against the policy; leaves how far they agree, and how fast each is, as an artifact."""
    from offline_core.policies import export as core

    result = core.export_policy(config, policy=policy, output=output)
    rows: dict[str, object] = {
        "Policy": result.policy,
        "Export": result.output,
        "Compared on": f"{result.observations_compared:,} observations",
    }
    for format, model in result.models.items():
        rows[f"{format}: largest difference"] = f"{model.max_abs_difference:.2g}"
        rows |= {f"{format}: {batch}, µs": _text(latency) for batch, latency in model.latency.items()}
    rows |= {f"policy: {batch}, µs": _text(latency) for batch, latency in result.policy_latency.items()}
    publish(Card("Exported policy", rows | {"Seconds": result.seconds}), key="policy-export-card")
    return result


def _text(latency: Latency) -> str:
    return f"p50 {latency.p50_microseconds:g}, p99 {latency.p99_microseconds:g}"
