"""How much of what a candidate does the log has, and where."""

from __future__ import annotations

import numpy as np

from offline_core.data.episodes import EpisodeBatch
from offline_core.data.inputs.encoding import Encoding
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.judging.decisions.overlap import overlap_of, regions, supported
from offline_core.judging.estimation.behaviour import is_deterministic

DAYS = np.full(1_000, 20)
"""Lengths of as many steps as are drawn."""


def drawn(behaviour: np.ndarray, candidate: np.ndarray, steps: int = 20_000) -> np.ndarray:
    """Log-ratios of actions that the behaviour drew."""
    actions = np.random.default_rng(0).choice(len(behaviour), size=steps, p=behaviour)
    return np.log(candidate[actions]) - np.log(behaviour[actions])


def test_overlap_is_the_share_of_its_actions_that_the_behaviour_would_take() -> None:
    behaviour = np.array([0.5, 0.49, 0.01])
    assert overlap_of(drawn(behaviour, np.array([0.1, 0.9, 1e-9])), DAYS) > 0.97
    assert abs(overlap_of(drawn(behaviour, np.array([0.3, 0.1, 0.6])), DAYS) - 0.4) < 0.03, "60 times as likely as it was"
    never = np.array([0.7, 0.3, 0.0])
    with np.errstate(divide="ignore"):
        assert abs(overlap_of(drawn(np.array([0.5, 0.5]), np.array([0.4, 0.1])), DAYS) - 0.5) < 0.03, (
            "half of it was never taken"
        )
    assert overlap_of(np.zeros(10), np.array([10])) == 1.0
    assert never.sum() == 1


def test_of_one_step_an_action_is_plausible_that_leaves_enough_episodes() -> None:
    """Of two hundred items that are shown alike, the candidate nearly always shows one."""
    shown, wanted = np.full(200, 1 / 200), np.append(0.9, np.full(199, 0.1 / 199))
    ratios = drawn(shown, wanted, steps=20_000)
    assert overlap_of(ratios, np.ones(20_000)) > 0.8, "180 times as likely, and 20,000 episodes leave more than a hundred"
    assert overlap_of(ratios, DAYS) < 0.2, "over twenty steps such ratios are multiplied"
    assert overlap_of(ratios[:2_000], np.ones(2_000)) < 0.2, "2,000 do not leave a hundred"


def test_a_behaviour_without_exploration_is_told_from_one_that_explores() -> None:
    rng = np.random.default_rng(0)
    choices = {"actions": rng.integers(0, 2, 1_000)}
    assert is_deterministic(np.full(1_000, -0.001), choices, listed=True)
    assert not is_deterministic(np.log(rng.choice([0.9, 0.1], 1_000, p=[0.9, 0.1])), choices, listed=True)
    seen = rng.normal(size=1_000)
    noise = 0.005 * rng.normal(size=1_000)
    certain = -0.5 * (noise / 0.005) ** 2 - np.log(0.005) - 0.5 * np.log(2 * np.pi)
    assert is_deterministic(certain, {"actions": seen + noise}, listed=False)
    wide = -0.5 * rng.normal(size=1_000) ** 2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)
    assert not is_deterministic(wide, {"actions": seen + 0.5 * rng.normal(size=1_000)}, listed=False)
    assert is_deterministic(np.zeros(1_000), {"actions": seen}, listed=False), "no density is 1 everywhere"


def test_the_region_that_lacks_support_is_named() -> None:
    rng = np.random.default_rng(0)
    seen = rng.uniform(-1, 1, size=(2_000, 2))
    batch = EpisodeBatch(columns={"obs": seen}, offsets=np.array([0, 2_000]))
    ratios = np.where(seen[:, 1] > 0.5, np.log(0.2), 0.05)
    [found] = [
        each for each in regions(batch, supported(ratios, np.array([2_000])), "the log has {share}", seed=0) if "20 %" in each
    ]
    assert found.startswith("obs[1] ≥ 0.5") or "obs[1] ≥ 0.4" in found, "counted from 0, as in the report"
    made_of = InputColumns(steps=RowSteps(), obs=["sensors.tin", "sensors.tout"])
    told = regions(batch, supported(ratios, np.array([2_000])), "the log has {share}", seed=0, made_of=made_of)
    assert [each.replace("sensors.tout", "obs[1]") for each in told] == regions(
        batch, supported(ratios, np.array([2_000])), "the log has {share}", seed=0
    )
    assert "sensors.tout ≥ 0." in " ".join(told)
    assert regions(batch, np.ones(2_000), "{share}", seed=0) == []


def test_regions_are_not_told_of_chance() -> None:
    """Ratios of 0.3 and 1.5, by lot: some twentieth of the steps always has a lower mean."""
    rng = np.random.default_rng(3)
    batch = EpisodeBatch(columns={"obs": rng.uniform(-1, 1, size=(400, 4))}, offsets=np.array([0, 400]))
    assert regions(batch, rng.choice([0.3, 1.5], 400), "{share}", seed=0) == []


def test_regions_are_in_the_words_of_the_log() -> None:
    rng = np.random.default_rng(4)
    phone, age = rng.integers(0, 2, 2_000), rng.uniform(0, 90, 2_000)
    batch = EpisodeBatch(columns={"obs": np.column_stack([phone, 1 - phone, age])}, offsets=np.array([0, 2_000]))
    device = Encoding(form="one_hot", categories=["desktop", "phone"])
    made_of = InputColumns(steps=RowSteps(encode={"device": device}), obs=["device", "age"])
    [found] = regions(batch, np.where(phone == 1, 0.2, 1.0), "{share}", seed=0, made_of=made_of)
    assert found.startswith(("device is not phone: 20 %", "device is desktop: 20 %"))
    between = np.where((age > 30) & (age < 60), 0.2, 1.0)
    told = regions(batch, between, "{share}", seed=0, made_of=made_of)
    assert any(each.startswith("age from ") and " to " in each for each in told), told
