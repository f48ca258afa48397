"""The export of a policy, as a flow and as a verb."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces

from flows.stages import export_policy
from offline_core.data.datasets.manifest import Operation
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy
from tests.flows.test_cli import run
from tests.flows.test_data_flows import card_of


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
@pytest.mark.filterwarnings("default")
def test_the_verb_writes_what_onnx_runtime_runs_and_a_card(tmp_path: Path) -> None:
    policy = Policy(spaces.Box(-1, 1, (4,)), spaces.Box(-2, 2, (1,))).eval()
    save_policy(policy, str(tmp_path / "policy"), operation=Operation(name="made by a test"))
    code, shown = run("export-policy", f"{tmp_path}/policy", f"{tmp_path}/out", "-s", "latency_calls=5", "--server")
    assert code == 0 and "Exported: onnx; on " in shown
    said = json.loads((tmp_path / "out" / "export.json").read_text())
    session = onnxruntime.InferenceSession(tmp_path / "out" / said["models"]["onnx"]["file"])
    observations = np.full((3, 4), 0.5, np.float32)
    actions, _ = session.run(None, {said["inputs"][0]["name"]: observations})
    np.testing.assert_allclose(actions, policy.act(observations), atol=1e-6)
    card = card_of(export_policy, "export-policy-card")
    assert "observations the outputs differ by" in card and "| half of the calls in" in card
    assert "no policy at" in run("export-policy", f"{tmp_path}/none", f"{tmp_path}/out")[1]
