"""All flows that are deployed, each once, in the order of prefect.yaml."""

from __future__ import annotations

from deployments.definitions import PREFECT_FILE, Profile, definitions, flow_of, full_name
from flows.short_forms import SHORT_FORMS

FORMS = [flow_of(entrypoint) for entrypoint in dict.fromkeys(each["entrypoint"] for each in definitions())]
"""Short ones, too."""
FLOWS = [flow for flow in FORMS if flow.fn.__module__ != "flows.short_forms"]

_FULL: tuple[Profile, ...] = ("default", "smoke", "nightly")

DEPLOYMENTS = {full_name(flow.name, profile) for flow in FLOWS for profile in _FULL} | {
    "expert-to-policy/expert-to-policy-distributed",
    "logs-to-policy/logs-to-policy-distributed",
    "train/train-smoke-iql",
}
DEPLOYMENTS |= {full_name(name.replace("_", "-"), "short") for name in SHORT_FORMS}
DEPLOYMENTS -= {"rollback/rollback-smoke", "rollback/rollback-nightly"}
"""Flow/deployment. A rollback follows two promotions, and no schedule."""

EXAMPLES = PREFECT_FILE.parents[1] / "examples"
