"""The first line of cards: the result in a sentence, and a colour that goes with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from tasks.headlines import beside_expert, headline_of, stage_headline

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.importing.report import ImportResult
from offline_core.data.quality.result import Finding, QualityReport, Verdict
from offline_core.judging.decisions.result import DecisionResult
from offline_core.judging.estimation.result import Estimate, Interval, OffPolicyResult
from offline_core.learning.experts.result import ExpertResult
from offline_core.learning.fine_tuning.result import FineTuneResult
from offline_core.learning.result import TrainingResult
from offline_core.policies.evaluation.result import EvaluationResult
from offline_core.policies.recording.result import RecordingResult
from offline_core.runtime.reporting.card import Headline
from tasks import headlines

STAGES_THAT_WARN = [DecisionResult, ImportResult, OffPolicyResult, TrainingResult]
METRICS = {"episode_return_mean": 97.25, "episode_return_std": 3.0, "episodes": 30}


def of(kind: type, **values: Any) -> Any:
    return stage_headline.dispatch(kind)(SimpleNamespace(**values))


@pytest.mark.parametrize(("target", "word", "tone"), [(475.0, "Target not reached", "bad"), (90.0, "Target reached", "good")])
def test_an_expert_is_held_against_its_target(target: float, word: str, tone: str) -> None:
    found = of(ExpertResult, metrics=METRICS, target_return=target, reached_target=target == 90.0)
    assert (found.word, found.tone) == (word, tone)
    assert found.sentence == f"Return 97.2 ± 3.0 (greedy actions, standard deviation of 30 episodes), of {target:g}."


def test_few_episodes_are_a_warning() -> None:
    found = of(EvaluationResult, metrics=METRICS | {"episodes": 5}, actions="sampled")
    assert found.tone == "warning" and "sampled actions, standard deviation of 5 episodes; so few say little" in found.sentence


def cloned(expert: float, *, target: float | None = None, expert_std: float = 0.0, **metrics: float) -> Headline:
    played = {"episode_return_mean": expert, "episode_return_std": expert_std, "episodes": 100}
    result = SimpleNamespace(metrics=METRICS | metrics, actions="greedy")
    return beside_expert(result, SimpleNamespace(metrics=played, target_return=target))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expert", "word", "tone"), [(99.0, "Worse than the expert", "warning"), (98.0, "As good as the expert", "good")]
)
def test_a_clone_is_held_against_its_expert(expert: float, word: str, tone: str) -> None:
    found = cloned(expert)
    assert (found.word, found.tone) == (word, tone), "two standard errors are 1.1"
    few = cloned(98.0, episodes=5)
    assert (few.word, few.tone) == ("Not clearly worse than the expert", "warning")
    assert f"the expert returned {expert:g}.0" in found.sentence
    assert cloned(99.0, expert_std=10.0).word == "As good as the expert", "what the expert returned has an error, too"


def test_a_clone_below_its_expert_that_reaches_the_experts_target_is_no_failure() -> None:
    found = cloned(500.0, target=475.0, episode_return_mean=486.0, episode_return_std=20.0, episodes=100)
    assert (found.word, found.tone) == ("Target reached", "good")
    assert found.sentence.endswith("the expert returned 500.0, its target was 475.")
    assert cloned(500.0, target=490.0, episode_return_mean=486.0, episode_return_std=20.0).word == "Worse than the expert"


def test_a_return_that_is_nan_is_no_success() -> None:
    metrics = METRICS | {"episode_return_mean": float("nan")}
    assert of(ExpertResult, metrics=metrics, target_return=90.0, reached_target=False).tone == "bad"
    assert cloned(90.0, target=80.0, episode_return_mean=float("nan")).tone == "warning"


def test_a_target_reached_by_few_episodes_is_a_warning() -> None:
    found = of(ExpertResult, metrics=METRICS | {"episodes": 5}, target_return=90.0, reached_target=True)
    assert (found.word, found.tone) == ("Target reached", "warning")


@pytest.mark.parametrize(
    ("start", "word", "tone"),
    [(97.3, "Not better", "warning"), (97.0, "Not clearly better", "warning"), (96.0, "Better", "good")],
)
def test_fine_tuning_is_better_by_two_standard_errors(start: float, word: str, tone: str) -> None:
    found = of(FineTuneResult, metrics=METRICS, start_return=start)
    assert (found.word, found.tone) == (word, tone)


BETTER, UNSURE = (12.0, 11.0, 13.0), (12.0, 9.0, 13.0)


def estimated(estimates: dict[str, tuple[float, float, float]], *, unrecorded: float = 0.0, warnings: int = 0) -> Headline:
    each = {"effective_episodes": 50.0, "largest_weight": 0.1}
    return headline_of(
        OffPolicyResult(
            uri="runs/policy/_estimates/a.json",
            checkpoint="runs/policy",
            dataset=DatasetRef(uri="runs/log", version=1, episodes=100, steps=1000, bytes=1, fingerprint="f"),
            behaviour=None,
            explore=True,
            gamma=0.99,
            horizon=None,
            confidence=0.95,
            recorded=Interval(value=10.0, low=9.0, high=11.0),
            estimates={
                name: Estimate(value=value, low=low, high=high, **each) for name, (value, low, high) in estimates.items()
            },
            warnings=["These estimates mean nothing."] * warnings,
            open_episodes=0,
            unrecorded_share=unrecorded,
            seconds=1.0,
        )
    )


@pytest.mark.parametrize(
    ("values", "word", "tone"),
    [
        ({"estimates": {"wis": BETTER, "wdr": BETTER}}, "Likely better", "good"),
        ({"estimates": {"wis": UNSURE, "wdr": BETTER}}, "Methods disagree on better", "warning"),
        ({"estimates": {"wdr": BETTER}, "unrecorded": 0.44}, "Perhaps better", "warning"),
        ({"estimates": {"wdr": BETTER}, "warnings": 1}, "Perhaps better", "warning"),
        ({"estimates": {"wdr": UNSURE}, "warnings": 1}, "Not told apart", "neutral"),
        ({"estimates": {"wdr": (8.0, 7.0, 9.0)}}, "Likely worse", "bad"),
        ({"estimates": {"wdr": (8.0, 7.0, 9.0)}, "warnings": 1}, "Perhaps worse", "warning"),
    ],
)
def test_an_estimate_is_green_only_if_all_methods_say_so_and_nothing_speaks_against_it(
    values: dict[str, Any], word: str, tone: str
) -> None:
    found = estimated(**values)
    assert (found.word, found.tone) == (word, tone)
    if "unrecorded" in values:
        assert found.sentence.endswith("44 % of the return was not recorded.")


@pytest.mark.parametrize("kind", STAGES_THAT_WARN)
def test_no_headline_is_green_if_its_stage_warns(kind: type[BaseModel], monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(*warnings: str) -> Headline:
        values: dict[str, Any] = {"notes" if kind is ImportResult else "warnings": list(warnings), "appended": None}
        return headline_of(kind.model_construct(None, **values))

    green = Headline("Done", "All of it.", "good")
    monkeypatch.setattr(headlines, "stage_headline", lambda result: green)
    assert warned() == green
    assert warned("Look at this.") == Headline("Done", "All of it. There is a warning below.", "warning")
    assert warned("a", "b").sentence.endswith("There are 2 warnings below.")


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
