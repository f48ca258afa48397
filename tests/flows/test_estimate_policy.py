"""The flow of off-policy estimates under a real Prefect server: its card, its gate."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flows.stages import estimate
from offline_core.errors import PromotionError
from offline_core.judging.estimation.config import EstimateConfig, FQEConfig
from tests.flows.test_data_flows import card_of
from tests.judging.estimation.chains import TARGET, policy_of
from tests.judging.estimation.test_estimate import chain, saved

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.filterwarnings("default")]

QUICK = EstimateConfig(gamma=0.9, resamples=50, fqe=FQEConfig(updates=100, learning_rate=0.02))


def test_a_policy_is_let_through_or_stopped_and_its_card_is_there_in_both_cases(tmp_path: Path) -> None:
    dataset, policy = chain(tmp_path), saved(policy_of(TARGET), tmp_path / "policy")
    result = estimate(policy=policy, dataset=dataset, config=QUICK)
    card = card_of(estimate, "estimate-card")
    assert re.search(r"\| weighted doubly robust \(wdr\) \| \d\.\d+ \(\d\.\d+ to \d\.\d+\) \| \d+\.\d \| \d+\.\d % \|", card)
    assert "| Horizon | until it terminates |" in card
    assert "Gate failed" not in card and "data:image/png;base64," in card
    place = tmp_path / "policy" / "_estimates"
    assert {path.suffix for path in place.iterdir()} == {".json", ".md", ".html", ".png"}

    low = result.estimates["wdr"].low
    passed = estimate(policy=policy, dataset=dataset, config=QUICK.model_copy(update={"require_return": low}))
    assert passed.reused and passed.estimates == result.estimates

    with pytest.raises(PromotionError, match="not shown to reach a discounted return of 50"):
        estimate(policy=policy, dataset=dataset, config=QUICK.model_copy(update={"require_return": 50.0}))
    card = card_of(estimate, "estimate-card")
    assert "[x] Gate failed." in card and "discounted return of 50" in card and "| Reused | yes" in card
