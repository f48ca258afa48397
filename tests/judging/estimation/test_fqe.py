"""Fitted Q evaluation against values that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.errors import LearningError
from offline_core.judging.estimation import fqe
from offline_core.judging.estimation.config import FQEConfig
from offline_core.judging.estimation.fqe import _batches, fit, say
from offline_core.judging.estimation.logged import LOG_RATIOS, LogReader, cut_to
from offline_core.judging.estimation.trajectories import Model, Trajectories
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from tests.cases import slow_but
from tests.judging.estimation.chains import (
    BEHAVIOUR,
    GAMMA,
    REWARDS,
    SPACES,
    TARGET,
    episode_of,
    moves_of,
    played,
    policy_of,
    recorded,
    trajectories,
    true_q,
)
from tests.learning.datasets import dataset_of

TABLE = NetworkConfig(hidden_sizes=[], normalize_observations=False)
"""One number a state and action, and one for all states."""


def fitted(
    folder: Path,
    episodes: list[Episode],
    policy: Policy,
    *,
    explore: bool = True,
    gamma: float = GAMMA,
    together: np.ndarray | None = None,
    horizon: int | None = None,
    **parameters: Any,
):
    uri = dataset_of(folder / "data", episodes, spaces=(policy.observation_space, policy.action_space), environment=None)
    steps = sum(map(len, episodes))
    *_, seen = LogReader(open_dataset(uri), [policy]).read(steps, np.ones(len(episodes), bool))
    assert seen is not None
    logged = cut_to(seen, horizon)
    of = Trajectories(logged.lengths, logged.of_steps("rewards"), logged.of_steps(LOG_RATIOS)[:, 0], gamma)
    config = FQEConfig(
        **{"network": TABLE, "learning_rate": 0.02, "updates": 1_000, "batch_size": 512, "folds": 1} | parameters
    )
    together = np.arange(len(of)) if together is None else together
    given: dict[str, Any] = {"gamma": gamma, "horizon": horizon, "explore": explore, "returns": of.returns}
    [model] = say(fit(logged, [policy], config, **given, together=together, seed=0), [(np.arange(len(of)), logged)], of.lengths)
    return model, of


@pytest.mark.parametrize("explore", slow_but([True, False], True))
def test_it_finds_the_values_of_a_table(tmp_path: Path, explore: bool) -> None:
    """Those of the process as the data has it; the behaviour's own values are others."""
    data = played(3_000, seed=6)
    target = TARGET if explore else np.eye(2)[TARGET.argmax(axis=1)]
    model, _ = fitted(tmp_path, recorded(data, logp=False), policy_of(TARGET), explore=explore)
    q = true_q(target, moves=moves_of(data))
    values = (target * q).sum(axis=1)
    found = np.array([model.start_values[[s[0] == state for s, _ in data]].mean() for state in range(3)])
    np.testing.assert_allclose(found, values, atol=0.05)
    assert abs(values - (BEHAVIOUR * true_q(BEHAVIOUR)).sum(axis=1)).max() > 0.6
    with np.errstate(divide="ignore"):
        right = trajectories(data, q=q, target=target).model
    assert right is not None
    np.testing.assert_allclose(model.errors, right.errors, atol=0.1)


def test_of_a_fixed_horizon_it_finds_the_values_by_step(tmp_path: Path) -> None:
    """Those of the process as the data has it, by backward recursion in float64 over 4 steps, some of which terminate."""
    data, horizon, gamma = played(3_000, seed=6), 4, GAMMA
    network = NetworkConfig(hidden_sizes=[16], normalize_observations=False)
    model, of = fitted(tmp_path, recorded(data, logp=False), policy_of(TARGET), gamma=gamma, horizon=horizon, network=network)
    moves, v = moves_of(data), [np.zeros(3)]
    q = []
    for _ in range(horizon):
        q.append(REWARDS + gamma * moves @ v[-1])
        v.append((TARGET * q[-1]).sum(axis=1))
    for state in range(3):
        found = model.start_values[[s[0] == state for s, _ in data]]
        np.testing.assert_allclose(found, v[horizon][state], atol=0.12)
    assert abs(v[horizon] - (TARGET * true_q(TARGET, gamma, moves=moves)).sum(axis=1)).max() > 0.5, "not those of all steps"
    errors = []
    for states, actions in data:
        for t, (state, action) in enumerate(zip(states[:horizon], actions[:horizon], strict=True)):
            after = v[horizon - t - 1][states[t + 1]] if t + 1 < len(states) else 0.0
            errors.append(REWARDS[state, action] + gamma * after - q[horizon - t - 1][state, action])
    assert np.sqrt(np.square(model.errors - errors).mean()) < 0.1
    assert (model.end_values == 0).all()
    assert of.lengths.max() == horizon


def test_what_is_said_of_an_episode_is_not_learned_from_it(tmp_path: Path) -> None:
    """Two episodes that pay 0 and 100: each is valued by the other."""
    episodes = [one_step(2 * number, reward, terminated=True) for number, reward in enumerate([0.0, 100.0])]
    always_that = policy_of(np.array([[1, 1e-9]] * 3))
    model, _ = fitted(tmp_path, episodes, always_that, folds=2, updates=300)
    np.testing.assert_allclose(model.start_values, [100, 0], atol=3)
    np.testing.assert_allclose(model.errors, [-100, 100], atol=3)


def test_what_is_said_of_a_part_is_not_learned_from_the_other_parts(tmp_path: Path) -> None:
    """Two pairs that pay 0 and 100: each is valued by the other pair."""
    episodes = [one_step(2 * number, reward, terminated=True) for number, reward in enumerate([0.0, 100.0, 0.0, 100.0])]
    always_that = policy_of(np.array([[1, 1e-9]] * 3))
    for together, values in (([0, 1, 0, 1], [100, 0, 100, 0]), ([0, 0, 2, 2], [50, 50, 50, 50])):
        place = tmp_path / str(values[0])
        model, _ = fitted(place, episodes, always_that, folds=2, updates=300, together=np.array(together))
        np.testing.assert_allclose(model.start_values, values, atol=3)


@pytest.mark.parametrize(("terminated", "value"), [(True, 1.0), (False, 2.0)])
def test_a_truncation_is_no_end(tmp_path: Path, terminated: bool, value: float) -> None:
    """One state that pays 1 a step, for ever: 1 / (1 - ½) = 2. Where it ends after the first step, it pays 1."""
    episodes = [one_step(number, 1.0, terminated=terminated) for number in range(20)]
    model, _ = fitted(tmp_path, episodes, policy_of(np.ones((3, 2)) / 2), gamma=0.5)
    assert model.start_values == pytest.approx(np.full(20, value), abs=0.03)
    assert model.errors == pytest.approx(np.zeros(20), abs=0.03)


def one_step(number: int, reward: float, *, terminated: bool) -> Episode:
    return episode_of(number, np.zeros(2, np.int64), [number % 2], [reward], terminated=terminated)


BOX = spaces.Box(-4, 4, (1,), np.float32)
SEES = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(("explore", "value"), slow_but([(True, -0.25 - 0.25), (False, -0.25)], (False, -0.25)))
def test_other_actions_than_listed_ones_are_sampled(tmp_path: Path, explore: bool, value: float) -> None:
    """Paid -a² for a ~ N(½, ½²): the mean is -(½² + ½²) of the policy that samples, and -½² of the one that does not."""
    policy = Policy(SEES, BOX, NetworkConfig(hidden_sizes=[]))
    with torch.no_grad():
        head: Any = policy.head
        head.mean.weight.zero_()
        head.mean.bias.fill_(0.5 / 4)  # in units of half the range
        head.log_std.fill_(np.log(0.5 / 4))
    rng = np.random.default_rng(0)
    actions = rng.uniform(-2, 2, size=(400, 1)).astype(np.float32)
    seen = rng.uniform(-1, 1, size=(400, 2, 2)).astype(np.float32)
    episodes = [
        episode_of(number, seen[number], action[None], [-(float(action[0]) ** 2)], of=(SEES, BOX))
        for number, action in enumerate(actions)
    ]
    network = NetworkConfig(hidden_sizes=[32], activation="relu", normalize_observations=True)
    model, _ = fitted(tmp_path, episodes, policy.eval(), explore=explore, network=network, learning_rate=0.01, updates=800)
    assert model.start_values.mean() == pytest.approx(value, abs=0.1)
    assert model.start_values.std() < 0.25


def paid_by_lot(folder: Path, **parameters: Any) -> Model:
    """What is said of 300 actions of a Box, each of one step and paid N(3, 1) whatever was seen and done."""
    rng = np.random.default_rng(0)
    seen, done = rng.uniform(-1, 1, (300, 2, 2)).astype(np.float32), rng.uniform(-2, 2, (300, 1, 1)).astype(np.float32)
    paid = rng.normal(3, 1, 300)
    episodes = [episode_of(number, seen[number], done[number], [paid[number]], of=(SEES, BOX)) for number in range(300)]
    network = NetworkConfig(hidden_sizes=[64, 64], activation="relu", normalize_observations=True)
    policy = Policy(SEES, BOX, NetworkConfig(hidden_sizes=[]), seed=0).eval()
    model, _ = fitted(folder, episodes, policy, network=network, folds=2, batch_size=64, **parameters)
    return model


def test_noise_of_single_steps_is_not_memorised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right function is 3 everywhere, and what is held out says so; after all updates it is far from that."""
    model = paid_by_lot(tmp_path / "held out", learning_rate=0.005)
    assert model.start_values.std() < 0.4 and model.start_values.mean() == pytest.approx(3, abs=0.2)
    monkeypatch.setattr(fqe, "held_out_of", lambda *_, **__: None)
    assert paid_by_lot(tmp_path / "all", learning_rate=0.005).start_values.std() > 2 * model.start_values.std()


@pytest.mark.parametrize(("gamma", "horizon", "is_held_out"), [(0.9, None, False), (0.0, None, True), (0.9, 1, True)])
def test_episodes_are_held_out_only_where_no_value_follows(
    gamma: float, horizon: int | None, is_held_out: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[np.ndarray] = []
    monkeypatch.setattr(fqe, "held_out_of", lambda together, *_, **__: asked.append(together))
    policy = Policy(SEES, BOX, NetworkConfig(hidden_sizes=[])).eval()
    episode = episode_of(0, np.zeros((3, 2), np.float32), np.zeros((2, 1), np.float32), [0.0, 1.0], of=(SEES, BOX))
    fitted(tmp_path, [episode], policy, gamma=gamma, horizon=horizon, updates=1)
    assert bool(asked) == is_held_out


def test_policies_of_single_steps_share_a_function(tmp_path: Path) -> None:
    """So that what is said for one does not depend, to the bit, on how many are judged beside it."""
    rng = np.random.default_rng(0)
    episodes = [
        episode_of(number, rng.uniform(-1, 1, (2, 2)).astype(np.float32), rng.uniform(-2, 2, (1, 1)), [1.0], of=(SEES, BOX))
        for number in range(120)
    ]
    uri = dataset_of(tmp_path / "data", episodes, spaces=(SEES, BOX), environment=None)
    policies = [Policy(SEES, BOX, NetworkConfig(hidden_sizes=[]), seed=seed).eval() for seed in range(3)]
    given: dict[str, Any] = {"gamma": 1.0, "explore": True, "returns": np.ones(120), "together": np.arange(120), "seed": 0}

    def models(some: list[Policy]) -> list[Model]:
        *_, seen = LogReader(open_dataset(uri), some).read(120, np.ones(120, bool))
        assert seen is not None
        fit_to = fit(seen, some, FQEConfig(updates=50), **given)
        assert isinstance(fit_to, fqe.Fitted) and len({id(member.function) for member in fit_to.members}) == 2
        return say(fit_to, [(np.arange(120), seen)], seen.lengths)

    for model, policy in zip(models(policies), policies, strict=True):
        [alone] = models([policy])
        assert (model.start_values == alone.start_values).all() and (model.errors == alone.errors).all()


def test_the_same_arguments_give_the_same_numbers(tmp_path: Path) -> None:
    def once(place: str) -> Model:
        return fitted(tmp_path / place, recorded(played(20, seed=7)), policy_of(TARGET), updates=50)[0]

    one, other = once("one"), once("other")
    assert (one.start_values == other.start_values).all() and (one.errors == other.errors).all()


def test_it_sees_as_many_frames_as_the_policy(tmp_path: Path) -> None:
    """What the first observation was decides what the second action is worth."""
    policy = Policy(*SPACES, NetworkConfig(hidden_sizes=[], frames=2)).eval()
    episodes = [
        episode_of(number, [number % 2, 2, 0], [number // 2 % 2, number // 4 % 2], [0, 10 * (number % 2)])
        for number in range(40)
    ]
    model, of = fitted(tmp_path, episodes, policy, gamma=1.0)
    second = model.errors[of.starts + 1]
    assert abs(second).max() < 0.5, "two states that look the same alone are told apart"
    np.testing.assert_allclose(model.start_values, [0, 10] * 20, atol=1)


def test_numbers_that_run_away_are_an_error(tmp_path: Path) -> None:
    episodes = [episode_of(number, [0, 1, 0], [0, 0], [1e39, 1e39]) for number in range(4)]  # no float32
    with pytest.raises(LearningError, match="Q function of fqe is NaN or infinite at update"):
        fitted(tmp_path, episodes, policy_of(TARGET), updates=5)


@pytest.mark.slow
def test_rewards_far_larger_than_returns_are_no_trouble(tmp_path: Path) -> None:
    """1,000 and then -1,000, or the other way round: each comes to 0, and the second step is worth what it pays."""
    episodes = [
        episode_of(number, [0, 1 if sign > 0 else 2, 0], [0, 0], [1_000 * sign, -1_000 * sign])
        for number, sign in enumerate([1, -1] * 10)
    ]
    model, of = fitted(tmp_path, episodes, policy_of(np.array([[1, 1e-9]] * 3)), gamma=1.0)
    np.testing.assert_allclose(model.start_values, 0, atol=10)
    np.testing.assert_allclose(model.errors[of.starts + 1], 0, atol=10)
    np.testing.assert_allclose(model.errors[of.starts], 0, atol=10)


class Normed(nn.Module):
    """A network of a user's that behaves otherwise in training."""

    def __init__(self, inputs: int, network: NetworkConfig) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(inputs)

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.norm(inputs)
        return features


@pytest.mark.slow
def test_a_network_of_ones_own_may_normalise_batches(tmp_path: Path) -> None:
    """No step is left alone in a batch; values are by the statistics of all, not by those asked about."""
    network = NetworkConfig(module=f"{__name__}:Normed", normalize_observations=False)
    data = played(60, seed=6)
    steps = sum(len(states) for states, _ in data)
    config = {"network": network, "batch_size": steps - 1, "updates": 1_500, "learning_rate": 0.05}
    model, _ = fitted(tmp_path, recorded(data, logp=False), policy_of(TARGET), **config)
    values = (TARGET * true_q(TARGET, moves=moves_of(data))).sum(axis=1)
    found = np.array([model.start_values[[s[0] == state for s, _ in data]].mean() for state in range(3)])
    np.testing.assert_allclose(found, values, atol=0.3)


def test_each_step_comes_once_before_any_comes_again() -> None:
    steps = torch.arange(10) + 5
    batches = _batches(steps, 4, seed=0)
    drawn = torch.cat([next(batches) for _ in range(5)])
    assert all(torch.equal(part.sort().values, steps) for part in drawn.split(10))


def test_several_policies_at_once_are_valued_as_each_alone(tmp_path: Path) -> None:
    episodes = recorded(played(60, seed=6), logp=False)
    policies = [policy_of(TARGET), policy_of(BEHAVIOUR)]
    uri = dataset_of(tmp_path / "data", episodes, spaces=SPACES, environment=None)
    config = FQEConfig(network=TABLE, learning_rate=0.02, updates=50, folds=2, ensemble=2)
    given: dict[str, Any] = {"gamma": GAMMA, "explore": True, "returns": np.ones(60), "together": np.arange(60), "seed": 0}

    def models(some: list[Policy]) -> list[Model]:
        *_, seen = LogReader(open_dataset(uri), some).read(sum(map(len, episodes)), np.ones(60, bool))
        assert seen is not None
        return say(fit(seen, some, config, **given), [(np.arange(60), seen)], seen.lengths)

    for model, policy in zip(models(policies), policies, strict=True):
        [alone] = models([policy])
        np.testing.assert_allclose(model.start_values, alone.start_values, rtol=1e-4)
        np.testing.assert_allclose(model.errors, alone.errors, rtol=1e-3, atol=1e-4)
