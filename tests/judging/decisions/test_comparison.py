"""Differences on the same episodes, their bounds, and several at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offline_core.judging.decisions.comparison import combined, compare, holm
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.diagnosis import HEAVY_TAIL, about_difference, about_tail
from offline_core.judging.decisions.result import Difference
from offline_core.judging.estimation import bootstrap
from offline_core.judging.estimation.bootstrap import resampled_counts
from offline_core.judging.estimation.estimators import METHODS
from offline_core.judging.estimation.influence import carrying, influence, tail_of, varying
from offline_core.judging.estimation.trajectories import Model, Trajectories
from tests.cases import examples, slow_but
from tests.judging.decisions.made_up import candidate
from tests.judging.estimation.chains import BEHAVIOUR, GAMMA, REWARDS, TARGET, played, trajectories, true_q, true_value

SETTINGS = {"beyond": 0.0, "risk": 0.05, "confidence": 0.95, "resamples": 400, "seed": 0}


def test_influences_are_the_derivatives_of_the_estimate() -> None:
    episodes = trajectories(played(40, seed=3), q=true_q(TARGET))
    found = influence(episodes)
    step, ones = 1e-5, np.ones((40, 40))
    up, down = (METHODS["wdr"].estimate(episodes, ones + sign * step * np.eye(40)) for sign in (1, -1))
    np.testing.assert_allclose(found / 40, (up - down) / (2 * step), atol=1e-6)
    without = replace(episodes, model=None)
    up, down = (METHODS["wpdis"].estimate(without, ones + sign * step * np.eye(40)) for sign in (1, -1))
    np.testing.assert_allclose(influence(without) / 40, (up - down) / (2 * step), atol=1e-6)


def test_their_standard_error_is_that_of_the_bootstrap() -> None:
    episodes = trajectories(played(2_000, seed=4), q=true_q(TARGET))
    resampled = np.concatenate([METHODS["wdr"].estimate(episodes, c) for c in resampled_counts(2_000, resamples=400, seed=1)])
    assert influence(episodes).std() / 2_000**0.5 == pytest.approx(resampled.std(), rel=0.15)


@pytest.mark.parametrize("rounding", [0.0, 1e-6])
def test_what_does_as_runs_today_differs_by_nothing_for_certain(rounding: float) -> None:
    """Whatever its Q function says of actions by chance; probabilities may be those of another computation."""
    target, behaved = (trajectories(played(500, seed=5), q=true_q(each), target=each) for each in (TARGET, BEHAVIOUR))
    apart = rounding * np.random.default_rng(0).normal(size=len(target.rewards)).clip(-3, 3)
    for own, today in ((target, target), (behaved, None)):
        found = compare(replace(own, log_ratios=own.log_ratios + apart), today, **SETTINGS)
        assert (found.value, found.low, found.high, found.p_value, found.standard_error) == (0, 0, 0, 1, 0)


def test_what_neither_would_ever_do_is_no_difference() -> None:
    episodes = trajectories(played(50, seed=5), q=true_q(TARGET))
    never = replace(episodes, log_ratios=np.where(np.arange(len(episodes.rewards)) == 7, -np.inf, episodes.log_ratios))
    found = compare(never, never, **SETTINGS)
    assert (found.value, found.standard_error) == (0, 0)


def test_recordings_that_end_before_their_episodes_speak_for_nobody() -> None:
    """What follows was credited to the candidate alone, so that a clone of what acted was promoted."""
    likely = BEHAVIOUR + 0.01 * np.array([[1, -1]] * 3)
    q, lengths, model = true_q(likely), [], []
    for states, actions in played(2_000, seed=6):
        steps = min(2, len(states))
        following = np.append((likely * q).sum(axis=1)[states], 0.0)[1 : steps + 1]
        errors = REWARDS[states, actions][:steps] + GAMMA * following - q[states, actions][:steps]
        lengths.append(steps)
        model.append((float((likely * q).sum(axis=1)[states[0]]), errors, following[-1], states[:steps], actions[:steps]))
    starts, errors, ends, states, actions = zip(*model, strict=True)
    at = np.concatenate(states), np.concatenate(actions)
    said = Model(np.array(starts), np.concatenate(errors), np.array(ends))
    cut = Trajectories(np.array(lengths), REWARDS[at], np.log(likely[at]) - np.log(BEHAVIOUR[at]), GAMMA, said)
    assert cut.continued.mean() > cut.returns.mean() + 0.5
    found = compare(cut, None, **SETTINGS)
    assert abs(found.value) < 0.05 and found.low < 0.05


def test_a_better_policy_is_shown_to_be_better_by_what_it_is() -> None:
    episodes = trajectories(played(1_000, seed=6), q=true_q(TARGET))
    found, truth = compare(episodes, None, **SETTINGS), true_value(TARGET) - true_value(BEHAVIOUR)
    assert found.low < truth < found.high
    assert found.p_value < 0.01
    assert compare(episodes, None, **SETTINGS | {"beyond": 2 * truth}).p_value > 0.5


@pytest.mark.slow  # 15 s: a hundred logs
def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    truth = true_value(TARGET) - true_value(BEHAVIOUR)
    found = [compare(trajectories(played(60, seed=s), q=true_q(TARGET)), None, **SETTINGS) for s in range(100)]
    assert sum(each.low <= truth <= each.high for each in found) >= 90


def test_of_several_each_is_held_against_what_is_left_of_the_risk() -> None:
    assert holm([0.01, 0.2, 0.02], 0.05) == [True, False, True]
    assert holm([0.02, 0.2, 0.03], 0.05) == [False, False, False], "0.02 is above a third of the risk"
    assert holm([0.04], 0.05) == [True]


def test_few_episodes_that_carry_an_estimate_are_counted() -> None:
    assert carrying(np.array([1.0, -1.0, 1.0, -1.0])) == (4, 0.25)
    assert carrying(np.array([1.0, 1.0, 0.0, -2.0])) == (pytest.approx(16 / 6), 0.5)
    assert carrying(np.zeros(5)) == (5, 0.2)
    clicks = np.zeros(10_000)
    clicks[:30] = 1.0
    found = carrying(clicks - clicks.mean())
    assert found.episodes == pytest.approx(4 * 30, rel=0.01) and found.largest == pytest.approx(1 / 60, rel=0.01)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("shape", [0.1, 0.8])
def test_the_heavier_tail_of_influences_has_its_shape(shape: float, sign: float) -> None:
    drawn = np.random.default_rng(2).pareto(1 / shape, 20_000)
    found = tail_of(sign * (drawn - drawn.mean()))
    assert found is not None and abs(found.shape - shape) < 3 * found.error < 0.3


def test_a_tail_is_told_of_continuous_influences_alone() -> None:
    assert tail_of(np.random.default_rng(2).normal(size=90)) is None, "too few"
    clicks = (np.arange(10_000) < 30) * 1.0
    assert tail_of(clicks - clicks.mean()) is None, "of clicks the number tells, and not the size"
    few_weigh = np.where(np.arange(600) < 30, 8.0, 0.1) + np.random.default_rng(2).normal(0, 0.02, 600)
    found = tail_of(few_weigh - few_weigh.mean())
    assert found is None or found.at_least < 0, "two kinds of episodes are no heavy tail"


@pytest.mark.parametrize("episodes", slow_but([150, 300, 1_000], 300))
def test_skewed_influences_that_have_a_variance_are_not_refused(episodes: int) -> None:
    heavy = 0
    for seed in range(examples(60)):
        drawn = np.random.default_rng(seed).lognormal(size=episodes)
        tail = tail_of(drawn - drawn.mean())
        heavy += tail is not None and tail.at_least > HEAVY_TAIL
    assert heavy <= 1


def test_rare_rewards_leave_fewer_degrees_of_freedom_the_fewer_weigh_much() -> None:
    rng = np.random.default_rng(0)
    assert varying(rng.normal(size=1_000), 400.0) == pytest.approx(400, rel=0.2)
    assert varying(rng.integers(0, 2, size=1_000) * 1.0, 400.0) == 400
    assert varying(np.ones(100), 40.0) == 40
    clicks = (np.arange(10_000) < 30) * 1.0
    assert varying(clicks, 1_000.0) == pytest.approx(2 * 3, rel=0.02), "three of them are among those that weigh"


def of_one_step(rewards: np.ndarray, weights: np.ndarray) -> Trajectories:
    model = Model(np.zeros(len(rewards)), rewards, np.zeros(len(rewards)))
    return Trajectories(np.ones(len(rewards), np.int64), rewards, np.log(weights), gamma=1.0, model=model)


@pytest.mark.parametrize("rate", [0.003, 0.03])
def test_more_of_the_same_never_makes_the_evidence_look_worse(rate: float) -> None:
    """Clicks, five items shown alike, and a candidate that mostly shows the best one: 58 % better."""
    chances = np.array([0.025, 0.025, 0.025, 0.025, 0.9])
    before: Difference | None = None
    for episodes in (500, 5_000, 50_000):
        rng = np.random.default_rng(41)
        items = rng.integers(0, 5, size=episodes)
        clicked = rng.random(episodes) < rate * (items + 1) / 3
        found = compare(of_one_step(clicked * 1.0, chances[items] / 0.2), None, **SETTINGS)
        assert before is None or found.carrying_episodes > before.carrying_episodes
        assert before is None or found.largest_share < before.largest_share
        before = found
    assert not [*about_difference(found, DecisionConfig(), overlap=1.0)]
    assert found.low < rate * (0.9 * 5 + 0.025 * 10 - 3) / 3 < found.high
    assert found.p_value < 0.05


@pytest.mark.parametrize("kind", ["clicks", "heavy tails"])
def test_intervals_of_groups_are_those_of_single_episodes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    items = rng.integers(0, 5, size=4_000)
    rewards = (rng.random(4_000) < 0.02) * 1.0 if kind == "clicks" else rng.lognormal(0.0, 1.5, size=4_000)
    given = rewards, np.array([0.025, 0.025, 0.025, 0.025, 0.9])[items] / 0.2
    alone = compare(of_one_step(*given), None, **SETTINGS)
    monkeypatch.setattr(bootstrap, "MOST_GROUPS", 800)
    grouped = compare(of_one_step(*given), None, **SETTINGS)
    assert grouped.value == pytest.approx(alone.value) and grouped.standard_error == pytest.approx(alone.standard_error)
    for end in ("low", "high", "at_least"):
        assert getattr(grouped, end) == pytest.approx(getattr(alone, end), abs=0.25 * alone.standard_error), end


def weighed(weights: np.ndarray) -> Trajectories:
    """Episodes of one step, whose returns are 1 in the mean."""
    returns = np.random.default_rng(0).normal(1.0, 0.5, size=len(weights))
    return of_one_step(returns, weights / weights.mean())


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        (np.append(np.full(999, 0.7 / 999), 0.3), "one episode carries"),
        (np.append(np.full(9_999, 0.7 / 9_999), 0.3), "one episode carries"),
        (np.append(np.full(996, 0.1 / 996), np.full(3, 0.9 / 3)), "one episode carries"),
        (np.append(np.full(992, 0.1 / 992), np.full(8, 0.9 / 8)), "effective episodes are left"),
        (np.random.default_rng(3).pareto(1.0, 2_000) + 1e-3, "one episode carries"),
    ],
    ids=["30 % in one", "30 % in one of many", "few have 90 %", "eight have 90 %", "no mean"],
)
def test_few_episodes_that_carry_everything_are_refused(weights: np.ndarray, told: str) -> None:
    reasons = [*about_difference(compare(weighed(weights), None, **SETTINGS), DecisionConfig(), overlap=1.0)]
    assert any(told in reason for reason in reasons), reasons


def test_a_difference_of_influences_without_a_variance_is_told() -> None:
    heavy = compare(weighed(np.random.default_rng(5).pareto(1.25, 20_000) + 1.0), None, **SETTINGS, with_tail=True)
    [told] = about_tail(candidate("a", judged=heavy))
    assert "influences on the difference of a are far apart" in told
    light = compare(weighed(np.random.default_rng(5).lognormal(size=20_000)), None, **SETTINGS, with_tail=True)
    assert light.tail is not None and not [*about_tail(candidate("a", judged=light))]
    clicks = of_one_step((np.arange(20_000) % 97 == 0) * 1.0, np.random.default_rng(5).pareto(1.25, 20_000) + 1.0)
    assert compare(clicks, None, **SETTINGS, with_tail=True).tail is None, "bounds of clicks go by how many there are"


@pytest.mark.parametrize("clicks", [1, 2])
def test_one_or_two_clicks_show_nothing(clicks: int) -> None:
    rewards = np.zeros(5_000)
    rewards[:clicks] = 1.0
    weights = np.tile([4.5, 0.125, 0.125, 0.125, 0.125], 1_000)
    assert [*about_difference(compare(of_one_step(rewards, weights), None, **SETTINGS), DecisionConfig(), overlap=1.0)]


def test_q_functions_count_where_they_were_right_and_the_weights_know_little() -> None:
    def difference(value: float, error: float) -> Difference:
        known = {
            "effective_episodes": 50.0,
            "carrying_episodes": 50.0,
            "largest_share": 0.1,
            "p_value": 0.5,
            "at_least": value - 2 * error,
        }
        return Difference(value=value, low=value - 2 * error, high=value + 2 * error, standard_error=error, **known)

    known = [difference(1.0, 0.1), difference(2.0, 0.1), difference(3.0, 0.1), difference(-5.0, 20.0)]
    right = combined(known, [1.05, 1.95, 3.02, 4.0])
    assert right[3] == pytest.approx(4.0, abs=0.1)
    wrong = combined(known, [6.0, -4.0, 9.0, 4.0])
    np.testing.assert_allclose(wrong[:3], [1, 2, 3], atol=0.1)
