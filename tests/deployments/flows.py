"""All flows that are deployed, each once, in the order of prefect.yaml."""

from __future__ import annotations

from deployments.definitions import PREFECT_FILE, definitions, flow_of

FLOWS = [flow_of(entrypoint) for entrypoint in dict.fromkeys(each["entrypoint"] for each in definitions())]

DEPLOYMENTS = {f"{flow.name}/{profile}" for flow in FLOWS for profile in ("smoke", "default", "nightly")} | {
    "expert-to-policy/distributed",
    "logs-to-policy/distributed",
}
DEPLOYMENTS -= {"rollback-policy/smoke", "rollback-policy/nightly"}
"""Flow/profile. A rollback follows two promotions, and no schedule."""

EXAMPLES = PREFECT_FILE.parents[1] / "examples"
