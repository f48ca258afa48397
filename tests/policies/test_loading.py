"""A policy in three lines of a program of its own, without what made it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from gymnasium import spaces

from offline_core.datasets.manifest import Operation
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy

PROGRAM = """
import json, sys, time
import numpy as np
observations = np.array(json.loads(sys.argv[2]), np.float32)
start = time.perf_counter()

from offline_core.policies.checkpoint import load_policy
policy = load_policy(sys.argv[1])
actions = policy.act(observations)

seconds = time.perf_counter() - start
print(json.dumps({"actions": actions.tolist(), "seconds": seconds, "modules": sorted(sys.modules)}))
"""


def test_three_lines_load_and_act_without_ray_or_prefect(tmp_path: Path) -> None:
    policy = Policy(spaces.Box(-1, 1, (4,)), spaces.Box(-2, 2, (3,)), seed=7).eval()
    save_policy(policy, str(tmp_path), operation=Operation(name="made by a test"))
    observations = np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(observations.tolist())]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    np.testing.assert_allclose(said["actions"], policy.act(observations), atol=1e-6)
    assert not {"ray", "prefect", "onnx", "matplotlib", "polars"} & set(said["modules"])
    assert said["seconds"] < 20, "importing, loading and acting take about 2 s, nearly all of it Torch"
