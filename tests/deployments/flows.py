"""All flows that are deployed, each once, in the order of prefect.yaml."""

from __future__ import annotations

from deployments.definitions import PREFECT_FILE, Profile, definitions, flow_of, full_name
from flows.short_forms import short_forms
from flows.stages import flow_of as flow_of_name

FORMS = [flow_of(entrypoint) for entrypoint in dict.fromkeys(each["entrypoint"] for each in definitions())]
"""Short ones, too."""
FLOWS = [flow for flow in FORMS if flow.fn.__module__ != "flows.short_forms"]

_FULL: tuple[Profile, ...] = ("default", "smoke", "nightly")

DEPLOYMENTS = {full_name(flow.name, profile) for flow in FLOWS for profile in _FULL} | {
    "expert-to-policy/expert-to-policy-distributed",
    "logs-to-policy/logs-to-policy-distributed",
    "train/train-smoke-iql",
}
DEPLOYMENTS |= {full_name(flow_of_name(name).name, "short") for name in short_forms()}
DEPLOYMENTS -= {"rollback/rollback-smoke", "rollback/rollback-nightly"}
"""Flow/deployment. A rollback follows two promotions, and no schedule."""

EXAMPLES = PREFECT_FILE.parents[1] / "examples"
