"""Point 1: an expert by PPO, its best checkpoint, and its module alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from offline_core.data.store.location import Location
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.metrics import series
from offline_core.learning.result import ExpertResult
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse

TARGET = 60.0


@pytest.fixture(scope="module")
def expert(tmp_path_factory: pytest.TempPathFactory) -> ExpertResult:
    config = parse(
        ExpertConfig, {"environment": {"id": "CartPole-v1"}, "evaluation": {"target_return": TARGET, "episodes": 20}}
    )
    return train_expert(config, output=str(tmp_path_factory.mktemp("expert")))


def test_01_ppo_trains_until_an_evaluation_return_is_reached(expert: ExpertResult) -> None:
    *before, (_, last) = expert.curve
    assert expert.reached_target and last >= TARGET > max((mean for _, mean in before), default=0.0)
    assert expert.env_steps < ExpertConfig().total_steps


def test_01_the_best_checkpoint_is_that_of_the_best_metric(expert: ExpertResult) -> None:
    returns = [mean for _, mean in series(Location.of(expert.checkpoint).parent, "episode_return_mean")]
    best = max(returns)
    assert read_policy_manifest(expert.checkpoint).metrics["episode_return_mean"] == best


def test_01_the_module_alone_is_restored(expert: ExpertResult) -> None:
    policy = load_policy(expert.checkpoint)
    assert isinstance(policy, torch.nn.Module)
    leaning = np.float32([[0, 0, 0.1, 1.0], [0, 0, -0.1, -1.0]])
    assert policy.act(leaning).tolist() == [1, 0], "it pushes towards where the pole falls"
    assert {file.suffix for file in Path(expert.checkpoint).iterdir()} == {".json", ".safetensors"}
