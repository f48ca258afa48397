"""examples/metric.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import offline_core as offline
from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import spaces_of
from offline_core.policies.checkpoint import save_policy
from tasks.stages import evaluate

STEPS = 500
TRACK = 2.4
"""A cart that is further from the middle has left the track, which ends the episode."""


@pytest.fixture(scope="module")
def balancing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A policy that never lets the pole fall and ignores the cart: episodes end off the track, or in time."""
    environment = offline.EnvironmentSpec(id="CartPole-v1")
    policy = offline.Policy(*spaces_of(environment), offline.NetworkConfig(hidden_sizes=[]))
    with torch.no_grad():
        weight, _ = policy.parameters()
        weight.copy_(torch.tensor([[0.0, 0, 0, 0], [0, 0, 1, 1]]))
    uri = str(tmp_path_factory.mktemp("balancing"))
    save_policy(policy, uri, operation=Operation(name="by hand"), environment=environment)
    return uri


def config(limit: float) -> offline.EvaluationConfig:
    metric = offline.UserCode(path="examples.metric:Centred", arguments={"limit": limit})
    return offline.EvaluationConfig(episodes=40, seed=5, metrics=[metric])


def test_a_cart_that_leaves_the_track_is_not_centred(balancing: str) -> None:
    """It is off the track in the last observation alone."""
    result = offline.evaluate(balancing, config=config(TRACK))
    stayed = np.array(result.lengths) == STEPS
    assert 0 < stayed.mean() < 1
    assert result.metrics["centred"] == stayed.mean()


def test_the_wider_the_middle_the_more_episodes_stay_in_it(balancing: str) -> None:
    shares = [offline.evaluate(balancing, config=config(limit)).metrics["centred"] for limit in (0.0, 0.5, 1.0, TRACK, 3.0)]
    assert shares == sorted(shares) and len(set(shares)) == 5
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert all((share * 40).is_integer() for share in shares)


@pytest.mark.usefixtures("unpublished")
def test_the_card_shows_it(balancing: str, tmp_path: Path) -> None:
    shutil.copytree(balancing, tmp_path / "policy", ignore=shutil.ignore_patterns("_evaluations"))
    result = evaluate.fn(config(3.0), policy=f"{tmp_path}/policy")
    assert "| Metric centred | 1" in Path(result.uri).with_suffix(".md").read_text()
