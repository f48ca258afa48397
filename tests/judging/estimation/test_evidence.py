"""How many steps an estimate counts: found from the data or asked for, in every method, and at the gate."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import EpisodeBatch
from offline_core.errors import ConfigError, PromotionError
from offline_core.judging.estimation import trajectories
from offline_core.judging.estimation.config import EstimateConfig
from offline_core.judging.estimation.estimate import enforce
from offline_core.judging.estimation.estimators import unrecorded_share
from offline_core.judging.estimation.evidence import find_horizon, open_before, unrecorded_steps
from offline_core.judging.estimation.logged import Ends, LogReader, cut_to
from offline_core.judging.estimation.q_function import KNOTS, RemainingSteps
from offline_core.judging.estimation.trajectories import Model, Trajectories
from tests.judging.estimation import days
from tests.judging.estimation.chains import policy_of
from tests.judging.estimation.test_estimate import QUICK, run_estimate, saved
from tests.learning.datasets import dataset_of

FQE: dict[str, Any] = {"updates": 250, "learning_rate": 0.005, "network": {"hidden_sizes": [32]}}


def ended(*steps: int) -> Ends:
    """Episodes of so many steps; those of a negative number did not terminate."""
    return Ends(np.abs(steps), np.array(steps) > 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("days")
    dataset_of(folder / "data", days.logged(300, seed=3), spaces=days.SPACES, environment=None)
    saved(policy_of(days.TARGET, days.SPACES), folder / "policy")
    return folder


def estimated(place: Path, **config: Any):
    return run_estimate(
        str(place / "policy"), str(place / "data"), **{"gamma": days.GAMMA, "resamples": 200, "fqe": FQE} | config
    )


# Which steps count.


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([-24, -24, -24], 24),  # all truncated at one length
        ([24, 24], 24),  # all terminated at one length
        ([-500, 30, 80, -500], 500),  # a time limit
        ([10, 30, 20], None),  # all terminate: nothing limits them
        ([-10, -30, -20], None),  # cut off anywhere
        ([-24, -24, -11], None),
        ([40, -24, -24], None),  # one went on
    ],
)
def test_a_fixed_horizon_is_found_from_where_open_episodes_end(steps: list[int], found: int | None) -> None:
    log = ended(*steps)
    assert find_horizon("auto", log) == found
    assert find_horizon("recorded", log) == max(map(abs, steps))
    assert find_horizon("continuing", log) is None
    assert find_horizon(7, log) == 7


def test_more_steps_than_were_recorded_are_refused() -> None:
    told = (
        r"horizon is 48 steps, but the longest of 2 episodes has 24, and 1 episodes did not terminate.*24 or less, or to cont"
    )
    with pytest.raises(ConfigError, match=told):
        find_horizon(48, ended(-24, 10))
    assert find_horizon(24, ended(-24, 10)) == 24, "all of them were recorded"
    assert find_horizon(48, ended(24, 10)) == 48, "where all terminate, nothing would have followed"


def test_steps_after_the_horizon_are_left_out() -> None:
    ends = ended(2, -5, 3, 4)
    terminateds = np.zeros(14, bool)
    terminateds[np.cumsum(ends.lengths) - 1] = ends.terminated
    log = EpisodeBatch.from_steps({"rewards": np.arange(14) + 1.0, "terminateds": terminateds}, ends.lengths)
    cut = cut_to(log, 3)
    assert cut.lengths.tolist() == [2, 3, 3, 3]
    assert cut["rewards"].tolist() == [1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]
    assert cut.at_end("terminateds").tolist() == [True, False, True, False]
    assert (ends.cut_to(3).lengths == cut.lengths).all() and (ends.cut_to(3).terminated == cut.at_end("terminateds")).all()
    assert not open_before(ends.cut_to(3), 3).any(), "none ends before the horizon unless it terminates"
    assert open_before(ends, None).tolist() == open_before(ends, 6).tolist() == [False, True, False, False]
    assert cut_to(log, None) is log and ends.cut_to(None) is ends


def test_what_is_seen_is_left_out_with_its_step(place: Path) -> None:
    opened, policy = open_dataset(str(place / "data")), policy_of(days.TARGET, days.SPACES)
    *_, log = LogReader(opened, [policy]).read(300 * 24, np.ones(300, bool))
    assert log is not None
    cut = cut_to(log, 10)
    assert (cut.of_steps("actions").reshape(300, 10) == log.of_steps("actions").reshape(300, 24)[:, :10]).all()
    assert (cut["obs"].reshape(300, 11, -1) == log["obs"].reshape(300, 25, -1)[:, :11]).all()


def test_what_is_kept_by_step_is_cut_and_paid_as_it_is_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectories, "MOST_IN_MEMORY", 10)
    opened, policy = open_dataset(str(place / "data")), policy_of(days.TARGET, days.SPACES)
    paid = np.arange(300 * 24.0)
    reader = LogReader(opened, [policy, policy], horizon=10, rewards=paid)
    rewards, log_ratios, seen = reader.read(3_000, np.arange(300) % 2 == 0)
    expected = paid.reshape(300, 24)[:, :10]
    np.testing.assert_array_equal(rewards, expected.ravel())
    assert [len(each) for each in log_ratios] == [3_000, 3_000] and not np.asarray(log_ratios[1]).any()
    assert seen is not None and (seen.of_steps("rewards").reshape(150, 10) == expected[::2]).all()
    assert [*(seen.eps_ids or ())] == opened.index(["eps_id"])["eps_id"].to_list()[::2]


def test_a_clock_tells_steps_apart_and_ends_at_nothing() -> None:
    few, many = RemainingSteps(5, 0.9), RemainingSteps(1_000, 1.0)
    features = few(torch.tensor([5, 4, 3, 2, 1, 0]))
    assert torch.equal(features[:5, :-1], torch.eye(5).flip(0))
    np.testing.assert_allclose(features[:, -1], [sum(0.9**t for t in range(h)) / 4.0951 for h in (5, 4, 3, 2, 1, 0)], rtol=1e-6)
    features = many(torch.arange(1, 1_001))
    assert features.shape == (1_000, KNOTS + 1)
    np.testing.assert_allclose(features[:, :-1].sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(features[:, -1], np.arange(1, 1_001) / 1_000, rtol=1e-6)


# Estimates.


def test_all_methods_say_what_the_recorded_steps_come_to(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A policy that would come to -18.6 in the 24 steps of a day, and to -88.3 if it went on for ever."""
    truth = days.true_value(days.TARGET)
    assert truth > -18.6 and days.true_value(days.TARGET, 5_000) < -88
    with caplog.at_level(logging.INFO):
        result = estimated(place, confidence=0.99)
    assert result.horizon == 24 and result.warnings == [] and result.open_episodes == 0 and result.unrecorded_share == 0
    assert ", horizon 24 steps: is -" in caplog.text
    for name, found in result.estimates.items():
        if name != "fqe":
            assert found.low < truth < found.high, name
    assert result.estimates["fqe"].value == pytest.approx(truth, abs=0.3)
    wdr, wpdis = result.estimates["wdr"], result.estimates["wpdis"]
    assert wdr.high - wdr.low < 0.8 * (wpdis.high - wpdis.low)
    enforce(result, EstimateConfig(require_return=-20.0))


def test_what_was_not_recorded_is_told_and_passes_no_gate(place: Path) -> None:
    result = estimated(place, horizon="continuing", methods=[*QUICK, "wdr"])
    assert result.horizon is None and result.open_episodes == 300
    assert result.unrecorded_share == pytest.approx(0.99**24, abs=0.03)
    told, early = result.warnings
    assert re.search(
        r"79 % of the return was not recorded: 300 of 300 episodes did not terminate.*300 of them after 24 st", told
    )
    assert "wdr have the Q function's word for it alone; is, wis, pdis, wpdis leave it out" in told
    assert "horizon to recorded" in told and "300 episodes are open" in early
    for name in ("wdr", "wpdis"):
        with pytest.raises(PromotionError, match=r"until it terminates, of which 7.* % were not recorded.* nothing shows what"):
            enforce(result, EstimateConfig(require_return=-200.0, gate_method=name))


def test_a_number_of_steps_counts_these_alone(place: Path) -> None:
    """Without a discount, too: what is asked for has an end."""
    gamma = 1.0
    truth = days.true_value(days.TARGET, 10, gamma)
    result = estimated(place, horizon=10, gamma=gamma, confidence=0.99)
    assert result.horizon == 10 and result.warnings == []
    assert result.recorded.value == pytest.approx(days.true_value(days.BEHAVIOUR, 10, gamma), abs=0.2)
    for name, found in result.estimates.items():
        assert name == "fqe" or found.low < truth < found.high, name
    assert result.estimates["fqe"].value == pytest.approx(truth, abs=0.2)


# How much of it was not recorded.


def logs_of(gamma: float, rewards: list[list[float]], ratios: list[list[float]], unrecorded: list[float], ends: list[float]):
    flat = np.concatenate(rewards)
    model = Model(np.zeros(len(rewards)), np.zeros(len(flat)), np.array(ends))
    lengths = np.array([len(each) for each in rewards])
    return Trajectories(lengths, flat, np.log(np.concatenate(ratios)), gamma, model, np.array(unrecorded))


def test_the_share_that_was_not_recorded_by_hand() -> None:
    """Two episodes with weights 3 and 1: the first is cut off after a step, of which 2 more would count."""
    logs = logs_of(0.5, [[-4.0], [-4.0, -4.0]], [[3], [1, 1]], [0.5 + 0.25, 0], [0.0, 0.0])
    recorded, beyond = (3 + 1) / 4 + 0.5 * 1 / 4, 3 * (0.5 + 0.25) / 4
    assert unrecorded_share(logs) == pytest.approx(beyond / (recorded + beyond))
    assert unrecorded_share(logs_of(1.0, [[1.0], [1.0]], [[1], [1]], [np.inf, 0], [0.0, 0.0])) == 1, "there is no limit to it"
    assert unrecorded_share(logs_of(1.0, [[1.0], [1.0]], [[1], [1]], [0, 0], [0.0, 0.0])) == 0


def test_what_would_have_followed_terminates_as_often_as_what_was_recorded() -> None:
    """At 1 of 8 steps."""
    log = ended(2, -3, -3)
    np.testing.assert_allclose(unrecorded_steps(log, None, 0.8), [0, 0.8 / 0.3, 0.8 / 0.3])  # 0.8 · (1 - 1/8) = 0.7
    np.testing.assert_allclose(unrecorded_steps(log, 5, 0.8), [0, 0.8 * 1.7, 0.8 * 1.7])
    np.testing.assert_allclose(unrecorded_steps(log, None, 1.0), [0, 8, 8])
    assert unrecorded_steps(ended(-3), None, 1.0) == np.inf and unrecorded_steps(ended(-3), 5, 1.0) == 2
    assert (unrecorded_steps(log, 3, 0.8) == 0).all()


def test_the_share_is_that_of_the_value_where_that_is_more() -> None:
    """Nothing but costs of 1 was recorded, and the Q function expects a reward of 100 at the end."""
    logs = logs_of(0.5, [[-1.0, -1.0]], [[1, 1]], [0.5], [100.0])
    assert unrecorded_share(logs) == pytest.approx(0.25 * 100 / (1 + 0.5 + 0.25 * 100))
