"""Stage: write a policy for other programs."""

from __future__ import annotations

from offline_core.policies.export_config import Latency, PolicyExportConfig, PolicyExportResult
from offline_core.reporting.card import Card
from offline_core.storage.location import Location
from tasks.artifacts import publish, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("export-policy")
def export_policy(config: PolicyExportConfig, *, policy: str, output: str) -> PolicyExportResult:
    """Writes each format and holds it against the policy; leaves how far they agree, and how fast each is, as an artifact."""
    from offline_core.policies import export as core

    with progress_shown():
        result = core.export_policy(config, policy=policy, output=output)
    with telling():
        rows: dict[str, object] = {
            "Policy": result.policy,
            "Export": result.output,
            "Compared on": f"{result.observations_compared:,} observations",
        }
        for format, model in result.models.items():
            rows[f"{format}: largest difference"] = f"{model.max_abs_difference:.2g}"
            rows |= {f"{format}: {batch}, µs": _text(latency) for batch, latency in model.latency.items()}
        rows |= {f"policy: {batch}, µs": _text(latency) for batch, latency in result.policy_latency.items()}
        publish(
            Card("Exported policy", rows | {"Seconds": result.seconds}),
            key="policy-export-card",
            operation="export_policy",
            config=config,
            about=(policy, None),
            beside=[Location.of(output).child("card")],
            reused=result.reused,
        )
    return result


def _text(latency: Latency) -> str:
    return f"p50 {latency.p50_microseconds:g}, p99 {latency.p99_microseconds:g}"
