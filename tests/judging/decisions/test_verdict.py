"""What follows from what was judged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.diagnosis import about_groups
from offline_core.judging.decisions.result import Candidate, Difference, GroupFinding, GuardrailFinding
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


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_what_a_later_step_of_holm_shows_is_above_the_margin(margin: float) -> None:
    """And not below it, as the bound of its own is at the first step's share of the risk."""
    later, first = candidate("a", difference(3, 2, 0.03)), candidate("b", difference(0.9, 0.2, 0.001))
    found = ruled(later, first, margin=margin)
    assert (found.verdict, found.first.name) == ("promote", "a")
    assert f"(at least {margin:g}, at a risk of 5 %" in found.sentence
    assert [each.judged.at_least for each in found.candidates if each.judged] == [margin, pytest.approx(0.572)]


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
    assert found.episodes_needed == pytest.approx(200 * ((1.64 * 1.5) ** 2 - 1), rel=0.01)


def test_episodes_needed_are_those_that_move_the_bound_that_is_told() -> None:
    """Of few episodes it is farther below than the standard error says."""
    few = difference(0.2232, 0.111, 0.1)
    found = ruled(candidate("a", few.model_copy(update={"at_least": -0.125})))
    assert found.episodes_needed == pytest.approx(200 * ((0.3482 / 0.2232) ** 2 - 1), rel=0.01)
    assert ruled(candidate("a", few.model_copy(update={"at_least": 0.1}))).episodes_needed is None
    assert ruled(candidate("a", few.model_copy(update={"at_least": -math.inf}))).episodes_needed is None


def test_what_a_clone_is_on_either_side_of_is_worth_a_test_at_most() -> None:
    """Alike policies have differences of nearly no error, and the clone's own error is in none of them."""
    shown = candidate("a", difference(1, 0.2, 0.001))
    assert ruled(shown).verdict == "promote"
    own = ruled(shown.model_copy(update={"clone": "runs/clone"}))
    assert own.verdict == "test" and "sure that the clone of a is better than what the log recorded, and how" in own.sentence
    today = rule([shown], DecisionConfig(), episodes=200, refusals=[], against_clone=True)
    assert today.verdict == "test" and "that a is better than the clone of what the log recorded, and how" in today.sentence
    assert ruled(shown.model_copy(update={"clone": "runs/clone"}), candidate("b", difference(2, 0.2, 0.001))).first.name == "b"


def test_a_better_one_that_a_guardrail_holds_back_is_told_beside_the_promoted_one() -> None:
    margin = GuardrailFinding(name="margin", difference=difference(-1, 0.5, 0.4), max_fall=0.5, passed=False)
    found = ruled(candidate("a", difference(1, 0.2, 0.001)), candidate("b", difference(3, 0.2, 0.001), guardrails=[margin]))
    assert (found.verdict, found.first.name) == ("promote", "a")
    assert found.sentence.endswith("b may be better still, by 3, and margin may fall by more than allowed.")


def test_the_margin_is_told_with_how_sure_the_log_is() -> None:
    found = ruled(candidate("a", difference(1, 0.8, 0.1)), margin=0.5)
    assert "is better than what the log recorded by more than 0.5, not 95 %" in found.sentence


def test_who_could_not_be_judged_is_told_where_nothing_changes() -> None:
    judged, far = candidate("a", difference(0, 0.1, 1.0)), candidate("b", None, reasons=["too little of it.", "and more"])
    found = ruled(judged, far)
    assert found.verdict == "keep"
    told = "1 candidate could not be judged. Of b: too little of it. The card's table of candidates has 1 more reason."
    assert found.sentence.endswith(f"by 0). {told}")
    assert "could not be judged" not in ruled(judged).sentence


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
        assert ("comfort may fall by more than allowed" in found.sentence) == (verdict in ("collect", "keep"))
        assert ("85 % sure that comfort falls by no more than allowed, not 95 %." in found.sentence) == (verdict == "test")
        assert ("the log is 99.9 % sure that a is better than what the log recorded, and" in found.sentence) == (
            verdict == "test"
        )


def test_what_is_likely_better_and_breaks_a_guardrail_is_told_with_it() -> None:
    """Whatever is ranked first."""
    falls = GuardrailFinding(name="sold", difference=difference(-1.1, 0.3, 0.97), max_fall=0.5, passed=False)
    found = ruled(candidate("a", difference(1, 0.8, 0.12), guardrails=[falls]), candidate("b", difference(-0.1, 0.01, 0.9)))
    assert (found.verdict, found.first.name) == ("keep", "a")
    assert found.sentence.endswith(": a is likely better by 1, and sold may fall by more than allowed.")


def test_what_a_log_is_not_sure_enough_of_is_told_by_the_share_of_the_risk() -> None:
    found = ruled(*[candidate(name, difference(1, 0.5, 0.03)) for name in "abc"])
    assert "the log is 97 % sure" in found.sentence and "not the 98.3 % that the first of 3 candidates needs" in found.sentence


def test_guardrails_that_are_shown_by_a_later_step_of_holm_hold() -> None:
    """At 0.05 of two the first step asks for 0.025, the second for 0.05."""
    held = GuardrailFinding(name="cost", difference=difference(0.5, 0.4, 0.04), max_fall=0.5, passed=False)
    first, second = candidate("a", difference(1, 0.1, 0.001)), candidate("b", difference(9, 0.1, 0.001), guardrails=[held])
    found = ruled(first, second)
    assert (found.verdict, found.first.name) == ("promote", "b") and found.first.guardrails[0].passed


@pytest.mark.parametrize(("finalists", "guardrails"), [(1, 0), (1, 6), (3, 2)])
def test_the_risk_holds_however_many_guardrails_there_are(finalists: int, guardrails: int) -> None:
    """One test of each finalist is at its limit, by turns the improvement and a guardrail; the others are passed for certain.

    That is the worst case: p-values at a limit are uniform, and a promotion is wrong.
    """
    rng, wrong, logs = np.random.default_rng(guardrails), 0, 600
    for number in range(logs):
        candidates = []
        for finalist in range(finalists):
            p_values = np.full(1 + guardrails, 1e-6)
            p_values[(number + finalist) % (1 + guardrails)] = rng.random()
            found = [
                GuardrailFinding(name=str(i), difference=difference(0, 1, p), max_fall=0, passed=p <= 0.1 / finalists)
                for i, p in enumerate(p_values[1:].tolist())
            ]
            candidates.append(candidate(str(finalist), difference(1, 0.5, float(p_values[0])), guardrails=found))
        wrong += ruled(*candidates, risk=0.1).verdict == "promote"
    assert wrong / logs <= 0.1 + 3 * (0.1 * 0.9 / logs) ** 0.5
    assert wrong / logs >= 0.05, "and it is used"


def test_a_group_that_is_shown_to_be_worse_is_told_in_the_sentence() -> None:
    worse = [GroupFinding(group=f"zone = {n}", episodes=90, difference=difference(-1, 0.2, 1), shown="worse") for n in range(5)]
    fine = GroupFinding(group="zone = north", episodes=90, difference=difference(1, 0.2, 0.0), shown="better")
    found = ruled(candidate("a", difference(1, 0.5, 0.001), groups=[fine, *worse]))
    assert found.verdict == "promote" and found.sentence.startswith("Promote a:")
    assert found.sentence.endswith("zone = 1 (-1 (-1.4 to -0.6)), zone = 2 (-1 (-1.4 to -0.6)) and in 2 more groups.")
    assert "north" not in found.sentence
    assert next(about_groups(found.first, "promote")).startswith("Where zone = 0 or zone = 1")
    assert not [*about_groups(found.first, "keep")]


def test_what_cannot_be_judged_is_refused_with_its_reason() -> None:
    found = ruled(candidate("a", difference(5, 0.1, 0.001), reasons=["its overlap is small"]))
    assert (found.verdict, found.sentence) == ("refused", "This log cannot tell. Of a: its overlap is small.")
    found = ruled(candidate("a", difference(5, 0.1, 0.001)), refusals=["The behaviour is deterministic."])
    assert (found.verdict, found.sentence) == ("refused", "This log cannot tell. The behaviour is deterministic.")


def test_others_are_judged_beside_one_that_cannot_be() -> None:
    found = ruled(candidate("a", None, reasons=["its overlap is small"]), candidate("b", difference(2, 0.5, 0.001)))
    assert (found.verdict, found.first.name) == ("promote", "b")
