"""The first line of cards: the result in a sentence, and a colour that goes with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from offline_core.evaluation.result import EvaluationResult
from offline_core.experts.result import ExpertResult
from offline_core.quality.result import Finding, QualityReport, Verdict
from offline_core.recording.result import RecordingResult
from tasks.headlines import beside_expert, headline_of

METRICS = {"episode_return_mean": 97.25, "episode_return_std": 3.0, "episodes": 30}


def of(kind: type, **values: Any) -> Any:
    return headline_of.dispatch(kind)(SimpleNamespace(**values))


@pytest.mark.parametrize(("target", "word", "tone"), [(475.0, "Target not reached", "bad"), (90.0, "Target reached", "good")])
def test_an_expert_is_held_against_its_target(target: float, word: str, tone: str) -> None:
    found = of(ExpertResult, metrics=METRICS, target_return=target, reached_target=target == 90.0)
    assert (found.word, found.tone) == (word, tone)
    assert found.sentence == f"Return 97.2 ± 3.0 (greedy actions, standard deviation of 30 episodes), of {target:g}."


def test_few_episodes_are_a_warning() -> None:
    found = of(EvaluationResult, metrics=METRICS | {"episodes": 5}, actions="sampled")
    assert found.tone == "warning" and "sampled actions, standard deviation of 5 episodes; so few say little" in found.sentence


@pytest.mark.parametrize(
    ("expert", "word", "tone"), [(99.0, "Worse than the expert", "warning"), (98.0, "As good as the expert", "good")]
)
def test_a_clone_is_held_against_its_expert(expert: float, word: str, tone: str) -> None:
    result = SimpleNamespace(metrics=METRICS, actions="greedy")
    found = beside_expert(result, expert)  # type: ignore[arg-type]
    assert (found.word, found.tone) == (word, tone), "two standard errors are 1.1"
    few = beside_expert(SimpleNamespace(metrics=METRICS | {"episodes": 5}, actions="greedy"), 98.0)  # type: ignore[arg-type]
    assert (few.word, few.tone) == ("Not clearly worse than the expert", "warning")
    assert f"the expert returned {expert:g}.0" in found.sentence


def test_a_return_that_is_nan_is_no_success() -> None:
    metrics = METRICS | {"episode_return_mean": float("nan")}
    assert of(ExpertResult, metrics=metrics, target_return=90.0, reached_target=False).tone == "bad"
    assert beside_expert(SimpleNamespace(metrics=metrics, actions="greedy"), 90.0).tone == "warning"  # type: ignore[arg-type]


def test_a_recording_says_what_its_return_is_of_and_what_greedy_actions_return() -> None:
    statistics = SimpleNamespace(episodes=500, returns=SimpleNamespace(mean=1222.0, std=431.0))
    values = {"statistics": statistics, "actions": "sampled", "greedy_return": 3228.0}
    found = of(RecordingResult, is_below_greedy=True, **values)
    assert found.tone == "warning"
    assert "1,222.0 ± 431.0 (sampled actions" in found.sentence and "greedy actions return 3,228.0" in found.sentence
    assert of(RecordingResult, is_below_greedy=False, **values).tone == "good"


def test_rules_that_could_not_be_checked_are_not_met() -> None:
    def finding(rule: str, verdict: Verdict = "pass", of: int = 3) -> Finding:
        return Finding(rule=rule, verdict=verdict, count=0, of=of, message="")

    found = of(QualityReport, findings=[finding("finite"), finding("bounds", of=0), finding("order", of=0)])
    assert (found.word, found.sentence) == ("Gate passed", "Met: 1 of 3 rules, not applicable: 2.")
    assert of(QualityReport, findings=[finding("finite", "fail"), finding("bounds", "warn")]).word == "Gate failed"
    assert finding("signed", "fail", of=0).outcome == "fail"  # a rule of the user's own that looks at no step
