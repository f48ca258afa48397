"""Decisions as they lie in their folders, and small policies to decide on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gymnasium import spaces

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.result_cache import RESULT_FILE, store_result
from offline_core.data.store.location import Location
from offline_core.judging.decisions.result import DecisionResult
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.runtime.config import EnvironmentSpec

CARTPOLE = EnvironmentSpec(id="CartPole-v1")
LOG = DatasetRef(uri="/log", version=1, fingerprint="0" * 16, episodes=10, steps=100, bytes=1000)


def policy_at(uri: str | Path, seed: int) -> str:
    """A policy for CartPole, another one for each seed."""
    box, network = spaces.Box(-10, 10, (4,)), NetworkConfig(hidden_sizes=[4])
    policy = Policy(box, spaces.Discrete(2), network, seed=seed)
    save_policy(policy, str(uri), operation=Operation(name="test"), environment=CARTPOLE)
    return str(uri)


def decision_at(uri: str | Path, checkpoint: str, *, identity: str | None = None, **changes: Any) -> str:
    """A decision that promotes `checkpoint` against the behaviour, as it is stored; `changes` are other fields of its result.

    It is for the name `hvac` in the registry beside it, and signed if a key is set.
    """
    folder = Location.of(str(uri))
    fingerprint = read_policy_manifest(checkpoint).fingerprint
    values = {
        "uri": folder.uri,
        "verdict": "promote",
        "sentence": f"{fingerprint} is better.",
        "checkpoint": checkpoint,
        "fingerprint": fingerprint,
        "against": "behaviour",
        "registry": folder.parent.child("registry/hvac").uri,
        "worth_testing": [],
        "episodes_needed": None,
        "recorded": 1.0,
        "candidates": [],
        "dataset": LOG,
        "selecting": LOG,
        "judging": LOG,
        "behaviour": None,
        "risk": 0.05,
        "confidence": 0.95,
        "gamma": 0.99,
        "horizon": None,
        "reasons": [],
        "warnings": [],
        "seconds": 1.0,
    }
    result = DecisionResult.model_validate(values | changes).signed()
    store_result(folder.child(RESULT_FILE), identity or folder.uri, result, fingerprints={checkpoint: fingerprint})
    return folder.uri
