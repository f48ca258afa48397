"""What follows from what was judged."""

from __future__ import annotations

from typing import Any

import pytest

from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.result import Candidate, Difference, GuardrailFinding
from offline_core.judging.decisions.verdict import Ruling, rule


def difference(value: float, error: float, p_value: float) -> Difference:
    low, high = value - 2 * error, value + 2 * error
    known = {"effective_episodes": 80.0, "carrying_episodes": 80.0, "largest_share": 0.05, "at_least": value - 1.64 * error}
    return Difference(value=value, low=low, high=high, standard_error=error, p_value=p_value, **known)


def candidate(name: str, judged: Difference | None, **more: Any) -> Candidate:
    score = judged.value if judged else 0.0
    known = {"checkpoint": f"runs/{name}", "fingerprint": name, "name": name, "score": score, "overlap": 0.9, "selected": None}
    return Candidate.model_validate(known | {"judged": judged} | more)


def ruled(*candidates: Candidate, refusals: list[str] | None = None, **config: Any) -> Ruling:
    return rule(candidates, DecisionConfig(**config), episodes=200, refusals=refusals or [])


def test_what_is_shown_to_be_better_is_promoted() -> None:
    found = ruled(candidate("a", difference(1, 0.5, 0.03)), candidate("b", difference(2, 0.5, 0.001)))
    assert (found.verdict, found.first.name) == ("promote", "b")
    assert found.sentence.startswith(
        "Promote b: its discounted return is 2 above that of what the log recorded (at least 1.18,"
    )


def test_the_risk_is_shared_by_all_that_are_judged() -> None:
    three = [candidate(name, difference(1, 0.5, 0.03)) for name in "abc"]
    assert ruled(*three).verdict == "test"
    assert ruled(three[0]).verdict == "promote"


def test_what_is_promising_is_worth_a_test() -> None:
    found = ruled(candidate("a", difference(1, 0.8, 0.1)), candidate("b", difference(-1, 0.8, 0.9)))
    assert (found.verdict, found.worth_testing) == ("test", ["runs/a"])
    assert "90 % sure" in found.sentence
    found = ruled(candidate("a", difference(-0.1, 0.01, 0.6)), candidate("b", difference(1, 0.8, 0.1)))
    assert (found.first.name, found.worth_testing) == ("b", ["runs/b"]), "whatever is ranked first"


def test_what_is_possible_needs_more_episodes() -> None:
    found = ruled(candidate("a", difference(1, 1.5, 0.25)))
    assert found.verdict == "collect"
    assert found.episodes_needed == pytest.approx(200 * ((1.645 * 1.5) ** 2 - 1), rel=0.01)


def test_what_is_no_better_is_not_collected_for() -> None:
    assert ruled(candidate("a", difference(-1, 1.5, 0.7))).verdict == "keep"
    assert ruled(candidate("a", difference(0.01, 1.5, 0.49))).verdict == "keep", "half a million episodes would be needed"


def test_a_margin_has_to_be_cleared() -> None:
    assert ruled(candidate("a", difference(1, 0.2, 0.3)), margin=0.9).verdict in ("collect", "keep")


def test_a_guardrail_that_is_not_shown_to_hold_stops_a_promotion() -> None:
    better = difference(2, 0.4, 0.001)
    for value, p_value, verdict in ((0.5, 0.001, "promote"), (-0.1, 0.15, "test"), (-0.3, 0.3, "collect"), (-0.9, 0.9, "keep")):
        held = GuardrailFinding(name="comfort", difference=difference(value, 0.4, p_value), max_fall=0.5, passed=p_value < 0.05)
        found = ruled(candidate("a", better, guardrails=[held]))
        assert found.verdict == verdict
        assert ("comfort may fall by more than allowed" in found.sentence) == (verdict != "promote")


def test_what_cannot_be_judged_is_refused_with_its_reason() -> None:
    found = ruled(candidate("a", difference(5, 0.1, 0.001), reasons=["its overlap is small"]))
    assert (found.verdict, found.sentence) == ("refused", "This log cannot tell. Of a: its overlap is small.")
    found = ruled(candidate("a", difference(5, 0.1, 0.001)), refusals=["The behaviour is deterministic."])
    assert (found.verdict, found.sentence) == ("refused", "This log cannot tell. The behaviour is deterministic.")


def test_others_are_judged_beside_one_that_cannot_be() -> None:
    found = ruled(candidate("a", None, reasons=["its overlap is small"]), candidate("b", difference(2, 0.5, 0.001)))
    assert (found.verdict, found.first.name) == ("promote", "b")
