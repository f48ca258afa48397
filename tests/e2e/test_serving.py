"""`python -m deployments.serve`: the same deployments from one process, and neither pool nor worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.definitions import definitions, profile_of
from offline_core.policies.manifest import read_policy_manifest
from tests.e2e.orchestra import Orchestra, checkout, end
from tests.waiting import wait_until

SMOKE = sum(profile_of(each) == "smoke" for each in definitions())
pytestmark = pytest.mark.slow


def test_what_is_served_runs(tmp_path: Path) -> None:
    with Orchestra.with_server(home=tmp_path / "prefect", root=checkout(tmp_path / "checkout")) as orchestra:
        serving = orchestra.start("serve", "deployments.serve", "--profile", "smoke")
        try:
            wait_until(
                lambda: orchestra.ask("POST", "/deployments/count", {}) == SMOKE,
                what="all smoke deployments to be served",
            )
            orchestra.wait_for(orchestra.submit("train-expert/train-expert-smoke"), "COMPLETED")
        finally:
            end(serving)
        assert read_policy_manifest(str(orchestra.root / "runs" / "smoke" / "expert" / "best")).operation.name == "train_expert"
