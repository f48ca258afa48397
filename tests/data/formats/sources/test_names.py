"""What the names of columns say of outcomes."""

from __future__ import annotations

import pytest

from offline_core.data.formats.sources.names import REWARD_WORDS, has_word, is_minimised, is_outcome


@pytest.mark.parametrize(
    "name", ["energy_cost", "Cost EUR", "Coût", "delayMinutes", "kwh", "energy_kwh", "revenue_loss", "died"]
)
def test_what_is_named_like_a_cost_is_minimised(name: str) -> None:
    assert is_minimised(name) and is_outcome(name)


@pytest.mark.parametrize("name", ["revenue", "cost_savings", "energy_savings_kwh", "episode_return", "profit_eur", "clicks"])
def test_what_is_named_like_a_gain_is_not(name: str) -> None:
    assert not is_minimised(name) and is_outcome(name) and has_word(name, REWARD_WORDS)


@pytest.mark.parametrize("name", ["return_temp", "return water temp", "water_return", "returnPressure", "outdoor_temp", "hour"])
def test_what_flows_back_is_no_outcome(name: str) -> None:
    assert not is_minimised(name) and not is_outcome(name) and not has_word(name, REWARD_WORDS)


@pytest.mark.parametrize("name", ["energy_saved_kwh", "cost_reduction", "losses_avoided"])
def test_a_cost_that_is_saved_is_not_minimised(name: str) -> None:
    assert not is_minimised(name)


def test_a_word_of_an_outcome_before_another_names_no_outcome() -> None:
    assert not is_outcome("last_click_age") and not is_outcome("cost_center")
