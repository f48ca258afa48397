"""A decision in plain sentences."""

from __future__ import annotations

import pytest

from offline_core.judging.decisions.result import in_words
from tests.judging.decisions.made_up import candidate, difference, guardrail, made_up


def test_the_gain_the_evidence_the_guardrails_and_the_next_step_are_said() -> None:
    first = candidate("a", judged=difference(2.0, effective_episodes=24.8), guardrails=[])
    other = candidate("b", judged=difference(1.8, effective_episodes=300.0))
    said = in_words(
        made_up("promote", candidates=[first, other], checkpoint=first.checkpoint, recorded=4.0, against="behaviour")
    )
    assert said[0].startswith("The log returned 4 an episode; a is +50 % from that")
    assert said[1].startswith("Of ") and "about 25 count for a, as the others did little of what it does" in said[1]
    assert said[2].startswith("No guardrail was set")
    assert said[3] == "b gains 1.8, and more episodes count for it (about 300)."
    assert said[-1].startswith("Let it run on a part first")


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (24.8, "so few that its interval may be too narrow."),
        (120.0, "so few that its interval is to be taken with care."),
        (300.0, "enough to take its interval as it is."),
    ],
)
def test_how_many_episodes_count_says_how_far_the_interval_holds_and_not_how_sure_the_gain_is(count: float, told: str) -> None:
    judged = difference(2.0, effective_episodes=count).model_copy(update={"at_least": -0.5, "carrying_episodes": count})
    first = candidate("a", judged=judged)
    said = in_words(made_up("test", candidates=[first], checkpoint=first.checkpoint, recorded=4.0, against="behaviour"))
    assert said[0].endswith("a is +50 % from that, -12 % at the worst, so a gain is not shown.")
    assert said[1].endswith(told) and not {"thin", "fair", "strong", "evidence"} & {*said[1].split()}


@pytest.mark.parametrize(("explore", "act"), [(True, "explore=True"), (False, "takes its likeliest action")])
def test_how_the_policy_has_to_act_is_said(explore: bool, act: str) -> None:
    (said,) = [each for each in in_words(made_up("promote", explore=explore)) if each.startswith("What was judged of")]
    assert act in said
    assert not any("What was judged" in each for each in in_words(made_up("keep", explore=explore)))


def test_a_guardrail_that_is_not_shown_is_named() -> None:
    held, broken = guardrail("cost", 0.5, max_fall=0.1, passed=True), guardrail("comfort", -0.5, max_fall=0.1, passed=False)
    first = candidate("a", judged=difference(2.0), guardrails=[held, broken])
    said = in_words(made_up("test", candidates=[first], checkpoint=first.checkpoint))
    assert said[2:4] == [
        "comfort falls: it changes by -0.5, and a fall of 0.1 is allowed.",
        "cost is shown to hold: it changes by +0.5, by +0.3 at the worst, and a fall of 0.1 is allowed.",
    ]


def test_a_guardrail_is_told_in_its_unit() -> None:
    found = guardrail("cost", -0.05, max_fall=0.1, passed=False).model_copy(update={"unit": "kWh"})
    assert str(found) == (
        "cost is not shown to hold: it changes by -0.05 kWh, by -0.25 kWh at the worst, and a fall of 0.1 kWh is allowed."
    )


def test_of_a_log_that_cannot_tell_nothing_is_said_but_what_to_do() -> None:
    assert in_words(made_up("refused")) == []
