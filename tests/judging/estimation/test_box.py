"""Boxes: one-step bandits that pay what is played, between -1 and 1, by Gaussians that are clipped or squashed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.datasets.manifest import Operation
from offline_core.errors import ConfigError
from offline_core.judging.estimation.result import EstimateResult
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.policy import Policy
from tests.judging.estimation.chains import episode_of
from tests.judging.estimation.test_diagnostics import again
from tests.judging.estimation.test_estimate import QUICK, run_estimate, saved
from tests.learning.datasets import dataset_of

BOX = spaces.Box(-1, 1, (1,), np.float32)
SEES = spaces.Box(-1, 1, (2,), np.float32)


def gaussian(mean: float, std: float, *, squash: bool) -> Policy:
    """Draws from N(mean, std²), whatever it sees, and plays that clipped or squashed."""
    policy = Policy(SEES, BOX, NetworkConfig(hidden_sizes=[], squash=squash))
    head = policy.head
    with torch.no_grad():
        head.mean.weight.zero_()  # type: ignore[attr-defined]
        head.mean.bias.fill_(mean)  # type: ignore[attr-defined]
        if squash:
            head.log_std.weight.zero_()  # type: ignore[attr-defined]
        (head.log_std.bias if squash else head.log_std).fill_(np.log(std))  # type: ignore[attr-defined]
    return policy.eval()


def value(mean: float, std: float, *, squash: bool) -> float:
    """What it is paid on average, by a fine grid."""
    z = np.linspace(-8, 8, 100_001)
    played = np.tanh(mean + std * z) if squash else np.clip(mean + std * z, -1, 1)
    return float(np.average(played, weights=np.exp(-(z**2) / 2)))


def bandit(place: Path, policy: Policy, episodes: int) -> str:
    """Recorded by that policy."""
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, (episodes, 2, 2)).astype(np.float32)
    chosen = policy.choose(observations[:, 0], explore=True, generator=torch.Generator().manual_seed(0))
    logp = chosen.extras["action_logp"][:, None]
    made = [
        episode_of(number, seen, action[None], action, logp=logp[number], of=(SEES, BOX))
        for number, (seen, action) in enumerate(zip(observations, chosen.actions, strict=True))
    ]
    return dataset_of(place, made, spaces=(SEES, BOX), environment=None)


@pytest.mark.parametrize(
    ("acts_squashed", "squash", "behaviour"),
    [(False, False, False), (True, True, True), (False, True, False), (False, True, True)],
)
def test_of_another_policy_it_is_what_that_is_paid(tmp_path: Path, acts_squashed: bool, squash: bool, behaviour: bool) -> None:
    """A third of what is clipped lies at a bound, and weighs by how probable that is; a squashed policy is never there."""
    acted, evaluated = gaussian(0, 1, squash=acts_squashed), gaussian(0.5, 0.8, squash=squash)
    data, policy = bandit(tmp_path / "data", acted, 3_000), saved(evaluated, tmp_path / "policy")
    by = saved(acted, tmp_path / "acted") if behaviour else None
    result = run_estimate(policy, data, methods=QUICK, behaviour=by, resamples=200, confidence=0.99)
    truth = value(0.5, 0.8, squash=squash)
    assert result.warnings == [] and abs(value(0, 1, squash=acts_squashed)) < 1e-9
    for name, found in result.estimates.items():
        assert found.low < truth < found.high < 2 * truth and found.low > truth / 2, name


def test_the_greedy_policy_of_a_box_is_told_by_fqe_alone(tmp_path: Path) -> None:
    data, policy = bandit(tmp_path / "data", gaussian(0, 1, squash=False), 50), gaussian(0.5, 0.8, squash=False)
    place = saved(policy, tmp_path / "policy")
    with pytest.raises(ConfigError, match=r"is: no recorded action is ever the most likely one of Box.* or methods to \[fqe\]"):
        run_estimate(place, data, methods=["is", "fqe"], explore=False)
    assert np.isfinite(run_estimate(place, data, methods=["fqe"], explore=False).estimates["fqe"].value)
    assert np.isfinite(run_estimate(place, data, methods=["wdr"]).estimates["wdr"].value)


def test_who_clips_cannot_be_weighed_by_who_squashes(tmp_path: Path) -> None:
    """What a clipped Gaussian does at a bound was never done."""
    acted = gaussian(0, 1, squash=True)
    data, policy = bandit(tmp_path / "data", acted, 50), saved(gaussian(0.5, 0.8, squash=False), tmp_path / "policy")
    behaviour = saved(acted, tmp_path / "acted")
    with pytest.raises(ConfigError, match=r"The behaviour squashes its actions.* whose network.squash is that of this one"):
        run_estimate(policy, data, methods=["is", "fqe"], behaviour=behaviour)
    assert run_estimate(policy, data, methods=["fqe"], behaviour=behaviour).estimates.keys() == {"fqe"}


def test_a_bound_that_float32_has_reached_weighs_as_much_if_it_is_known_who_acted(tmp_path: Path) -> None:
    """tanh(12) is 1 in float32. Nobody else who squashes is to be found there, but who clips is."""
    acted = gaussian(12, 0.1, squash=True)
    data, policy = bandit(tmp_path / "data", acted, 50), saved(acted, tmp_path / "policy")

    def weights(result: EstimateResult) -> float | None:
        return result.estimates["is"].effective_episodes

    assert weights(run_estimate(policy, data, methods=["is"])) == 0
    assert weights(run_estimate(policy, data, methods=["is"], behaviour=policy)) == pytest.approx(50)
    recorder = read_policy_manifest(policy).parent_entry(policy)
    again(data, Operation(name="record", config={"explore": True}), [recorder])
    assert weights(run_estimate(policy, data, methods=["is"])) == pytest.approx(50)
