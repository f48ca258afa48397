"""Estimators against numbers by hand, against naive definitions in fractions, and against values that are known."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.judging.estimation import bootstrap, estimators
from offline_core.judging.estimation import trajectories as trajectories_module
from offline_core.judging.estimation.bootstrap import Groups
from offline_core.judging.estimation.estimators import METHODS, size_by_time, size_of_episodes, unrecorded_share
from offline_core.judging.estimation.influence import influence
from offline_core.judging.estimation.trajectories import Model, Trajectories, sums_within
from tests.cases import examples
from tests.judging.estimation.chains import BEHAVIOUR, played, trajectories

F = Fraction
ALL = [name for name in METHODS if name not in ("cis", "drs")]
"""Those whose weights are not made smaller: see test_shrinkage.py for the others."""
WEIGHTED_BY_TIME = ["wpdis", "wdr"]


def one(name: str, episodes: Trajectories) -> float:
    [found] = METHODS[name].estimate(episodes, np.ones((1, episodes.groups.number)))
    return float(found)


def episodes_of(rewards: list[list[Any]], ratios: list[list[Any]], gamma: Any, **model: Any) -> Trajectories:
    with np.errstate(divide="ignore"):
        logs = np.log(np.array([float(each) for ratio in ratios for each in ratio]))
    flat = np.array([float(each) for reward in rewards for each in reward])
    lengths = np.array([len(each) for each in rewards])
    known = Model(np.array(model["start"], float), np.array(model["errors"], float), np.zeros(len(lengths))) if model else None
    return Trajectories(lengths, flat, logs, float(gamma), known)


def test_two_steps_by_hand() -> None:
    """Ratios 2·½ = 1, and 3; the second episode ends at once, so that its weight stays 3 at the second time."""
    episodes = episodes_of([[1, 4], [2]], [[2, F(1, 2)], [3]], F(1, 2))
    assert one("is", episodes) == pytest.approx((1 * 3 + 3 * 2) / 2)
    assert one("wis", episodes) == pytest.approx((1 * 3 + 3 * 2) / (1 + 3))
    assert one("pdis", episodes) == pytest.approx((2 * 1 + 1 / 2 * 1 * 4 + 3 * 2) / 2)
    assert one("wpdis", episodes) == pytest.approx((2 * 1 + 3 * 2) / 5 + 1 / 2 * (1 * 4) / (1 + 3))
    model = episodes_of([[1, 4], [2]], [[2, F(1, 2)], [3]], F(1, 2), start=[5, 7], errors=[F(1, 4), -1, 2])
    assert one("fqe", model) == 6
    assert one("dr", model) == pytest.approx(6 + (2 / 4 + 1 / 2 * 1 * -1 + 3 * 2) / 2)
    assert one("wdr", model) == pytest.approx(6 + (2 / 4 + 3 * 2) / 5 + 1 / 2 * (1 * -1) / (1 + 3))
    assert size_of_episodes(episodes) == pytest.approx((4**2 / 10, 3 / 4))
    harmonic = 2.5 / (2 * 13 / 25 + 1 / 2 * 10 / 16)  # two steps at first, and half of one later
    assert size_by_time(episodes) == pytest.approx((harmonic, (2 * 3 / 5 + 1 / 2 * 3 / 4) / 2.5))


def test_late_steps_that_one_episode_carries_leave_nothing_of_many_early_ones() -> None:
    """Four episodes of 100 steps; ratios are 1 but for the second step, after which one weighs 10⁶ and the others 1."""
    ratios = [[1, 10**6] + [1] * 98] + [[1] * 100] * 3
    size, largest = size_by_time(episodes_of([[1] * 100] * 4, ratios, 1))
    assert size == pytest.approx(100 / (1 / 4 + 99 / 1), rel=1e-4)
    assert largest == pytest.approx((1 / 4 + 99) / 100, rel=1e-4)


def test_over_a_long_horizon_a_few_episodes_are_effective() -> None:
    """E[ρ²] = 3/2 a step: of 2,000 episodes (2/3)^t are left at step t, which is one at 19."""
    rng = np.random.default_rng(0)
    ratios = rng.choice([1 - 0.5**0.5, 1 + 0.5**0.5], size=2_000 * 500)
    episodes = Trajectories(np.full(2_000, 500), np.ones(len(ratios)), np.log(ratios), 1.0)
    weights = np.cumprod(ratios.reshape(2_000, 500)[:, :8], axis=1)
    assert (weights.sum(axis=0) ** 2 / (weights**2).sum(axis=0) / 2_000)[3] == pytest.approx((2 / 3) ** 4, rel=0.2)
    size, largest = size_by_time(episodes)
    assert 1 < size < 2 and largest > 0.6


# What the papers say, for numbers that are exact: (reward, ratio, V(s), Q(s, a)) a step, V after the last step of each.
Step = tuple[F, F, F, F]


def as_defined(name: str, data: list[tuple[list[Step], F]], gamma: F, counts: list[int]) -> F:
    n, last = sum(counts), max(len(steps) for steps, _ in data)

    def weight(steps: list[Step], t: int) -> F:
        product = F(1)
        for _, ratio, _, _ in steps[: t + 1]:
            product *= ratio
        return product

    def share(i: int, t: int) -> F:
        """Of episode i at time t, by the method; before the first step all have the same."""
        if not name.startswith("w"):
            return counts[i] * weight(data[i][0], t) / n
        return counts[i] * weight(data[i][0], t) / sum(c * weight(s, t) for c, (s, _) in zip(counts, data, strict=True))

    total = F(0)
    for i, (steps, after) in enumerate(data):
        if name in ("is", "wis"):
            total += share(i, last) * sum(gamma**t * step[0] for t, step in enumerate(steps))
        elif name in ("pdis", "wpdis"):
            total += sum(share(i, t) * gamma**t * step[0] for t, step in enumerate(steps))
        elif name == "dr":  # backwards: V = v + ρ (r + γ V' - q), Jiang & Li's (10)
            value = after
            for r, ratio, v, q in reversed(steps):
                value = v + ratio * (r + gamma * value - q)
            total += F(counts[i], n) * value
        elif name == "wdr":  # Thomas & Brunskill's (3)
            for t, (r, _, v, q) in enumerate(steps):
                before = F(counts[i], n) if t == 0 else share(i, t - 1)
                total += gamma**t * (share(i, t) * (r - q) + before * v)
            total += gamma ** len(steps) * share(i, len(steps) - 1) * after
    return total


small = st.fractions(min_value=-4, max_value=4, max_denominator=8)
ratio = st.fractions(min_value=F(1, 8), max_value=8, max_denominator=8)
episode = st.tuples(st.lists(st.tuples(small, ratio, small, small), min_size=1, max_size=4), small | st.just(F(0)))
counted = st.lists(st.tuples(episode, st.integers(0, 3)), min_size=1, max_size=4).filter(lambda all_: any(c for _, c in all_))


@given(data=counted, gamma=st.sampled_from([F(0), F(1, 2), F(9, 10), F(1)]))
@settings(max_examples=examples(60))
def test_each_is_what_its_paper_defines(data: list[tuple[tuple[list[Step], F], int]], gamma: F) -> None:
    steps, counts = [each for each, _ in data], [count for _, count in data]
    errors = []
    for own, after in steps:
        following = [v for _, _, v, _ in own[1:]] + [after]
        errors += [r + gamma * v - q for (r, _, _, q), v in zip(own, following, strict=True)]
    episodes = episodes_of(
        [[step[0] for step in own] for own, _ in steps],
        [[step[1] for step in own] for own, _ in steps],
        gamma,
        start=[own[0][2] for own, _ in steps],
        errors=errors,
    )
    for name in ("is", "wis", "pdis", "wpdis", "dr", "wdr"):
        [found] = METHODS[name].estimate(episodes, np.array([counts], float))
        assert found == pytest.approx(float(as_defined(name, steps, gamma, counts)), rel=1e-9, abs=1e-9), name


@pytest.mark.parametrize("name", ["is", "wis", "pdis", "wpdis"])
def test_of_the_behaviour_itself_it_is_the_mean_return(name: str) -> None:
    episodes = trajectories(played(300, seed=0), target=BEHAVIOUR)
    assert (episodes.log_ratios == 0).all()
    assert one(name, episodes) == pytest.approx(episodes.returns.mean(), rel=1e-13)
    size = METHODS[name].size
    assert size is not None and size(episodes) == pytest.approx((300, 1 / 300))


WRONG = np.array([[3.0, -1.0], [0.0, 5.0], [2.0, 2.0]])


@pytest.mark.parametrize("name", ALL)
def test_weights_beyond_every_number_are_weighed_all_the_same(name: str) -> None:
    """One episode counts for everything where weights are relative; is and pdis are as large as they have to be."""
    logs = np.array([1e4, 1e4, -1e4, 0.0])
    model = Model(np.array([2.0, 2.0]), np.array([1.0, 1.0, 1.0, 1.0]), np.zeros(2))
    episodes = Trajectories(np.array([2, 2]), np.array([1.0, 2.0, 5.0, 5.0]), logs, 1.0, model)
    found = METHODS[name].estimate(episodes, np.array([[1.0, 1.0], [0.0, 1.0]]))
    assert not np.isnan(found).any()
    expected = {"wis": 3.0, "wpdis": 3.0, "fqe": 2.0, "wdr": 4.0}.get(name, np.inf)
    assert found[0] == expected
    if name in ("wis", "wpdis"):
        assert found[1] == 10.0, "a resample without the heavy one has a mean, too"
    size = METHODS[name].size
    assert size is None or size(episodes) == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize("name", ["is", "pdis", "dr"])
def test_tiny_weights_are_not_lost(name: str) -> None:
    model = Model(np.zeros(1), np.array([3.0]), np.zeros(1))
    episodes = Trajectories(np.array([1]), np.array([3.0]), np.array([-700.0]), 1.0, model)
    assert one(name, episodes) == pytest.approx(3 * np.exp(-700.0))


def test_a_policy_that_does_nothing_of_what_was_recorded_has_no_weighted_mean() -> None:
    episodes = episodes_of([[1, 1], [1]], [[0, 1], [0]], 1, start=[2, 2], errors=[1, 1, 1])
    assert one("is", episodes) == one("pdis", episodes) == 0 and one("dr", episodes) == 2
    assert all(np.isnan(one(name, episodes)) for name in ("wis", "wpdis"))
    assert one("wdr", episodes) == one("fqe", episodes) == 2, "nothing puts the Q function right"
    assert size_of_episodes(episodes) == size_by_time(episodes) == (0, 0)


def test_a_time_that_no_weight_reaches() -> None:
    """At the second step nobody has done what the policy does: of what it is paid from there on the Q function alone speaks."""
    episodes = episodes_of([[1, 8], [3, 8]], [[1, 0], [3, 0]], F(1, 2), start=[5, 7], errors=[1, 100, 2, 100])
    assert one("pdis", episodes) == pytest.approx((1 * 1 + 3 * 3) / 2)
    assert np.isnan(one("wpdis", episodes))
    assert one("dr", episodes) == pytest.approx(6 + (1 * 1 + 3 * 2) / 2)
    assert one("wdr", episodes) == pytest.approx(6 + (1 * 1 + 3 * 2) / 4)
    assert size_by_time(episodes).episodes == 0
    assert episodes.lost_at == 1 and episodes_of([[1, 8], [3]], [[1, 0], [3]], 1).lost_at is None


@pytest.mark.parametrize("name", WEIGHTED_BY_TIME)
def test_a_time_that_counts_for_nothing_has_no_say(name: str) -> None:
    """γ^t is 0 in float64 from the second step on, where all weights are 0."""
    episodes = episodes_of([[2, 8]], [[1, 0]], 0, start=[2], errors=[0, 100])
    assert one(name, episodes) == 2 and size_by_time(episodes) == (1, 1)
    never = np.append(np.zeros(1_999), -np.inf)
    far = Trajectories(np.array([2_000]), np.ones(2_000), never, 0.5, Model(np.zeros(1), np.ones(2_000), np.zeros(1)))
    assert 0.5**1_999 == 0 and one(name, far) == pytest.approx(2)


def test_what_one_episode_never_does_others_may() -> None:
    episodes = episodes_of([[1, 1], [2]], [[0, 1], [1]], 1)
    assert one("wis", episodes) == one("wpdis", episodes) == 2


@pytest.mark.parametrize("name", ALL)
def test_a_row_counts_as_often_as_the_episodes_it_names(name: str) -> None:
    """A resample is what the estimate would be of these episodes alone, as often as they were drawn."""
    data = played(6, seed=4)
    counts = np.array([2, 0, 1, 3, 0, 0])
    drawn = [each for each, count in zip(data, counts, strict=True) for _ in range(count)]
    [found] = METHODS[name].estimate(trajectories(data, q=WRONG), counts[None].astype(float))
    assert found == pytest.approx(one(name, trajectories(drawn, q=WRONG)))


@pytest.mark.parametrize("name", WEIGHTED_BY_TIME)
def test_how_many_numbers_are_looked_at_together_does_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = trajectories(played(50, seed=5), q=WRONG)
    whole, size = one(name, episodes), size_by_time(episodes)
    monkeypatch.setattr(estimators, "NUMBERS_AT_A_TIME", 1)
    assert one(name, episodes) == pytest.approx(whole, rel=1e-12) and size_by_time(episodes) == pytest.approx(size)


def everything(episodes: Trajectories) -> dict[str, Any]:
    """All that is derived from trajectories."""
    counts = np.random.default_rng(0).integers(0, 3, size=(4, episodes.groups.number)).astype(float)
    found: dict[str, Any] = {name: METHODS[name].estimate(episodes, counts) for name in ALL}
    found |= {"by time": size_by_time(episodes), "of episodes": size_of_episodes(episodes), "influence": influence(episodes)}
    return found | {"lost": episodes.lost_at or -1, "unrecorded": unrecorded_share(episodes)}


@pytest.mark.parametrize("steps", [1, 30])
@pytest.mark.parametrize("longest", [1, 9])
def test_how_many_steps_are_looked_at_together_does_not_matter(
    steps: int, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, longest + 1, size=60)
    ends, logs = rng.normal(size=60), rng.normal(size=lengths.sum())
    logs[rng.random(len(logs)) < 0.1] = -np.inf
    model = Model(rng.normal(size=60), rng.normal(size=len(logs)), ends)
    episodes = Trajectories(lengths, rng.normal(size=len(logs)), logs, 0.9, model, np.abs(ends))
    whole = everything(episodes)
    monkeypatch.setattr(trajectories_module, "STEPS_AT_A_TIME", steps)
    monkeypatch.setattr(estimators, "NUMBERS_KEPT", 60 * 4)
    assert sum(1 for _ in episodes.parts()) > 1
    for name, found in everything(Trajectories(lengths, episodes.rewards, logs, 0.9, model, np.abs(ends))).items():
        np.testing.assert_allclose(found, whole[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_of_many_episodes_a_group_counts_as_all_that_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "MOST_GROUPS", 7)
    data = played(60, seed=5)
    episodes, counts = trajectories(data, q=WRONG), np.array([[2.0, 0, 1, 3, 0, 0, 1], np.ones(7)])
    alone = trajectories(data, q=WRONG)
    object.__setattr__(alone, "groups", Groups(np.arange(60), 60))
    for name in ALL:
        expected = METHODS[name].estimate(alone, counts[:, episodes.groups.of])
        np.testing.assert_allclose(METHODS[name].estimate(episodes, counts), expected, rtol=1e-12, err_msg=name)


def test_sums_begin_anew_with_each_episode() -> None:
    rng = np.random.default_rng(1)
    lengths = np.append(rng.integers(1, 40, size=50), [700, 1])
    values = rng.normal(size=lengths.sum()) * 10.0 ** rng.integers(-9, 9, size=lengths.sum())
    alone = np.concatenate([np.cumsum(part) for part in np.split(values, np.cumsum(lengths)[:-1])])
    np.testing.assert_array_equal(sums_within(values, lengths), alone)


@pytest.mark.parametrize("name", WEIGHTED_BY_TIME)
def test_many_resamples_of_few_long_episodes_take_little_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "NUMBERS_AT_A_TIME", 2**15)
    steps = np.ones(4 * 5_000)
    episodes = Trajectories(np.full(4, 5_000), steps, 0 * steps, 0.99, Model(np.ones(4), steps, np.zeros(4)))
    METHODS[name].estimate(episodes, np.ones((1, 4)))  # what is computed once
    tracemalloc.start()
    METHODS[name].estimate(episodes, np.ones((1_000, 4)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 8 * 2**15 < 8 * 1_000 * 5_000


def test_everything_is_computed_in_float64() -> None:
    episodes = Trajectories(np.full(3, 1), np.ones(3), np.array([np.log(1e-12), 0.0, 0.0]), 1.0)
    assert METHODS["is"].estimate(episodes, np.ones((1, 3))).dtype == np.float64
    assert one("is", episodes) == (2 + 1e-12) / 3
