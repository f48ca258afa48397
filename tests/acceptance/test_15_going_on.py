"""Point 15: pretrain, then go on."""

from __future__ import annotations

from pathlib import Path

from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from tests.acceptance.forms import run_train
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes


def test_15_a_cloned_policy_continues_in_online_training(tmp_path: Path) -> None:
    """From where the clone is, and not from nothing; it becomes better, and it is known where it comes from."""
    data = dataset_of(tmp_path / "data", balancing_episodes(4, 50))
    clone = run_train(data, tmp_path / "clone", optimizer={"max_epochs": 2}, evaluation={"episodes": 20})
    config = parse(
        ExpertConfig,
        {
            "initial_policy": clone.checkpoint,
            "total_steps": 100_000,
            "rollouts_per_iteration": 1,
            "evaluation": {"target_return": 300, "episodes": 20},
        },
    )
    expert = train_expert(config, output=str(tmp_path / "expert"))
    (steps, start), *later = expert.curve
    assert steps == 0 and 40 < start < 300, "an untrained policy falls after 9 or 10 steps"
    assert later and expert.reached_target and expert.metrics["episode_return_mean"] >= 300
    [parent] = read_policy_manifest(expert.checkpoint).parents
    assert parent.fingerprint == read_policy_manifest(clone.checkpoint).fingerprint
