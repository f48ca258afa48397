"""examples/metric.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from offline_core.evaluation.config import EvaluationConfig
from offline_core.evaluation.evaluate import evaluate_policy
from offline_core.own_code import OwnCode


def config(limit: float) -> EvaluationConfig:
    metric = OwnCode(path="examples.metric:Centred", arguments={"limit": limit})
    return EvaluationConfig(episodes=40, seed=5, explore=True, metrics=[metric])


def test_the_wider_the_middle_the_more_episodes_stay_in_it(cartpole_policy: str) -> None:
    shares = [evaluate_policy(config(limit), policy=cartpole_policy).metrics["centred"] for limit in (0.0, 0.1, 0.3, 2.4)]
    assert shares == sorted(shares) and len(set(shares)) == 4
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert all((share * 40).is_integer() for share in shares)


@pytest.mark.usefixtures("prefect_server")
def test_the_card_shows_it(cartpole_policy: str, tmp_path: Path) -> None:
    from flows.evaluate_policy import evaluate_policy as flow

    shutil.copytree(cartpole_policy, tmp_path / "policy", ignore=shutil.ignore_patterns("_evaluations"))
    result = flow(policy=f"{tmp_path}/policy", config=config(2.4))
    assert "| Metric centred | 1" in Path(result.uri).with_suffix(".md").read_text()
