"""Deploying again, as containers do at each start."""

from __future__ import annotations

from typing import Any

import yaml

from deployments.definitions import PREFECT_FILE
from deployments.deploy import with_switches


def schedules(document: dict[str, Any]) -> dict[str, bool]:
    return {each["name"]: of["active"] for each in document["deployments"] for of in each.get("schedules", ())}


def test_a_schedule_stays_as_it_was_switched() -> None:
    document = yaml.safe_load(PREFECT_FILE.read_text())
    before = schedules(document)
    after = with_switches(document, {("train-nightly", "nightly"): True, ("of-another-project", "nightly"): True})
    assert schedules(after) == before | {"train-nightly": True}
    assert schedules(document) == before, "what several deployments share is not changed"
    assert schedules(with_switches(after, {("train-nightly", "nightly"): False})) == before
