"""Sweeps whose runs are compared by what a log says of their policies, as a decision ranks its candidates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import offline_core as offline
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.store.location import Location
from offline_core.door import candidates_of
from offline_core.errors import ConfigError
from offline_core.judging.decisions import judging
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.decide import decide
from offline_core.judging.decisions.result import MODEL
from offline_core.judging.sweeps import scoring, settings
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.result import SweepResult, SweptRun
from offline_core.judging.sweeps.scoring import LogEstimates
from offline_core.judging.sweeps.sweep import sweep
from offline_core.policies.checkpoint import save_policy
from offline_core.runtime.config import parse
from tests.judging.estimation.chains import BEHAVIOUR, GAMMA, SPACES, TARGET, played, policy_of, recorded
from tests.learning.datasets import dataset_of

ESTIMATE: dict[str, Any] = {
    "gamma": GAMMA,
    "fqe": {"updates": 80, "learning_rate": 0.02, "network": {"hidden_sizes": [8]}},
}
GREEDY = "marwil"
"""What follows the rewards so far that fewer episodes count than of a clone; and it is better."""
SWEEP: dict[str, Any] = {
    "training": {
        "network": {"hidden_sizes": [16]},
        "optimizer": {"batch_size": 256, "max_updates": 60, "learning_rate": 0.02, "updates_per_iteration": 60},
        "marwil": {"gamma": GAMMA, "beta": 3.0},
    },
    "grid": {"algorithm": ["bc", GREEDY]},
    "seeds": 2,
    "parallel": 1,
    "resamples": 20,
    "estimate": ESTIMATE,
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes to learn from, and others with and without the probabilities of their actions."""
    folder = tmp_path_factory.mktemp("logs")
    for name, episodes, seed, logp in (
        ("train", 400, 1, True),
        ("known", 600, 2, True),
        ("unknown", 600, 2, False),
        ("other", 300, 3, True),
    ):
        dataset_of(
            folder / name, recorded(played(episodes, seed=seed), logp=logp, first=1_000 * seed), spaces=SPACES, environment=None
        )
    return folder


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for most tests, so that nothing is trained twice."""
    return tmp_path_factory.mktemp("swept")


def config(**values: Any) -> SweepConfig:
    return parse(SweepConfig, SWEEP | values)


def swept(logs: Path, output: Path, log: str = "known", **values: Any) -> SweepResult:
    given = {"estimate_on": str(logs / log)} | values
    return sweep(config(**given), dataset=str(logs / "train"), output=str(output))


def runs_of(result: SweepResult) -> dict[str, SweptRun]:
    return {run.checkpoint: run for setting in result.settings for run in setting.runs}


def recorded_return(log: Dataset) -> float:
    """Mean discounted return of what a log recorded."""
    returns = [sum(GAMMA**t * reward for t, reward in enumerate(each.get_rewards())) for each in log.episodes()]
    return float(sum(returns) / len(returns))


def test_runs_are_scored_as_a_decision_ranks_them(logs: Path, output: Path, tmp_path: Path) -> None:
    checkpoints = [*runs_of(swept(logs, output, "other"))]
    asked = parse(DecisionConfig, {"estimate": ESTIMATE, "examine_updates": 0, "finalists": 1})
    decision = decide(asked, dataset=str(logs / "known"), candidates=checkpoints, output=str(tmp_path))
    result = swept(logs, output, estimate_on=decision.selecting.uri)
    runs, ranked = runs_of(result), {each.checkpoint: each for each in decision.candidates}
    differences = {uri: run.score - runs[checkpoints[0]].score for uri, run in runs.items()}
    assert differences == pytest.approx({uri: each.score - ranked[checkpoints[0]].score for uri, each in ranked.items()})
    log = open_dataset(decision.selecting.uri)
    assert runs[result.best].score == pytest.approx(recorded_return(log) + ranked[result.best].score)
    assert result.score == "estimate" and result.best == max(runs.values(), key=lambda run: run.score).checkpoint


def test_a_score_is_what_the_log_recorded_and_the_difference_to_it(logs: Path, tmp_path: Path) -> None:
    save_policy(policy_of(BEHAVIOUR), str(tmp_path / "same"), operation=Operation(name="test"))
    save_policy(policy_of(TARGET), str(tmp_path / "target"), operation=Operation(name="test"))
    log = open_dataset(str(logs / "known"))
    found = LogEstimates.of(config(), log, Location.of(str(tmp_path)))
    same, target = found.scored([str(tmp_path / "same"), str(tmp_path / "target")])
    assert found.recorded == pytest.approx(recorded_return(log))
    assert same.selected is not None and target.score is not None
    assert same.selected.value == 0 and same.score is not None and abs(same.score) < 0.2 < target.score


def test_what_the_log_says_of_a_policy_is_found_once_and_in_groups(
    logs: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints, read = [*runs_of(swept(logs, output))], []
    held_against = judging.held_against
    monkeypatch.setattr(judging, "held_against", lambda side, some: read.append(len(some)) or held_against(side, some))
    together, apart = (
        LogEstimates.of(config(), open_dataset(str(logs / "known")), Location.of(str(tmp_path))) for _ in range(2)
    )
    whole = together.scored(checkpoints)
    assert read == [4]
    monkeypatch.setattr(scoring, "MOST", 3)
    in_groups = apart.scored(checkpoints)
    assert read == [4, 3, 1]
    assert [each.score for each in in_groups] == pytest.approx([each.score for each in whole], abs=1e-4)
    assert [each.score for each in apart.scored([*checkpoints, checkpoints[0]])[:4]] == [each.score for each in in_groups]
    assert read == [4, 3, 1], "nothing is new"


def test_runs_that_a_decision_would_refuse_are_told_and_ranked_all_the_same(logs: Path, output: Path) -> None:
    """The better policies leave fewer effective episodes, and at this bound they are too few."""
    both = swept(logs, output)
    assert both.settings[0].algorithm == GREEDY and both.warnings == []
    assert {run.reason for run in runs_of(both).values()} == {None}
    found = swept(logs, output, estimate=ESTIMATE | {"min_effective_episodes": 300})
    greedy = found.settings[0]
    assert greedy.algorithm == GREEDY and found.best == both.best
    assert "a few episodes carry the estimate" in str(greedy.runs[0].reason)
    assert found.table()["judged"].to_list() == [0, 2] and str(greedy).endswith("2 runs, 2 cannot be judged")
    assert str(greedy.runs[0].reason) in found._repr_html_()
    (warning,) = found.warnings
    assert "would refuse the best one" in warning and found.best in warning and warning in found.card().warnings


def test_a_log_without_probabilities_is_read_by_a_clone_that_is_kept(logs: Path, output: Path) -> None:
    known, found = swept(logs, output), swept(logs, output, "unknown")
    assert (output / MODEL).is_dir() and found.settings[0].algorithm == GREEDY
    scores = {uri: run.score for uri, run in runs_of(found).items()}
    assert scores == pytest.approx({uri: run.score for uri, run in runs_of(known).items()}, abs=0.3)
    again = swept(logs, output, "unknown", resamples=21)
    assert not again.reused and {uri: run.score for uri, run in runs_of(again).items()} == scores
    assert swept(logs, output, "unknown", resamples=21).reused


def test_what_changes_scores_makes_another_sweep(logs: Path, output: Path, tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in ("acted", "moved", "other")]
    for place, chances in zip(places, (BEHAVIOUR, BEHAVIOUR, TARGET), strict=True):
        save_policy(policy_of(chances), place, operation=Operation(name="test"))
    acted, moved, other = (ESTIMATE | {"behaviour": place} for place in places)
    swept(logs, output)
    changes: list[dict[str, Any]] = [
        {"estimate": ESTIMATE | {"gamma": 0.8}},
        {"min_overlap": 0.5},
        {"estimate": acted},
        {"estimate": other},
        {"log": "unknown"},
    ]
    for values in changes:
        assert not swept(logs, output, **values).reused
        assert swept(logs, output, **values).reused
    swept(logs, output, estimate=acted)
    assert swept(logs, output, estimate=moved).reused, "the same policy"


def test_a_search_learns_from_estimates_round_by_round(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "FIRST_SAMPLES", 2)
    read: list[int] = []
    held_against = judging.held_against
    monkeypatch.setattr(judging, "held_against", lambda side, some: read.append(len(some)) or held_against(side, some))
    values: dict[str, Any] = {
        "grid": {"algorithm": [GREEDY]},
        "search": "optuna",
        "random": {"marwil.beta": {"low": 0.1, "high": 10.0, "log": True}},
        "samples": 4,
        "seeds": 1,
    }
    result = swept(logs, tmp_path, **values)
    assert read == [2, 1, 1] and len(result.settings) == 4
    (tmp_path / "result.json").unlink()
    again = swept(logs, tmp_path, **values)
    assert not again.reused and again.settings == result.settings


def test_a_decision_on_the_episodes_that_a_sweep_chose_by_is_refused(logs: Path, output: Path, tmp_path: Path) -> None:
    result = swept(logs, output)
    decision = offline.decide(logs / "known", result, output=tmp_path, estimate=ESTIMATE, examine_updates=0, finalists=1)
    assert decision.verdict == "refused" and f"{output} chose it by {logs}/known" in decision.sentence
    assert all("judging episodes, and it seems better on them" in each.reasons[0] for each in decision.candidates)


def test_a_decision_is_made_among_the_policies_of_a_sweep(logs: Path, output: Path, tmp_path: Path) -> None:
    result = swept(logs, output, "other")
    decision = offline.decide(
        logs / "known", result, output=tmp_path, estimate=ESTIMATE, examine_updates=0, finalists=1, seed=1
    )
    assert sorted(each.checkpoint for each in decision.candidates) == sorted(map(str, candidates_of(result)))


@pytest.mark.parametrize(
    ("estimate", "message"),
    [
        ({"gate_method": "fqe"}, "estimate.gate_method has no effect: runs are ranked by wdr and fqe together"),
        ({"methods": ["wis"]}, "estimate.methods has no effect"),
        ({"require_return": 3.0}, "estimate.require_return has no effect"),
        ({"resamples": 100}, "estimate.resamples has no effect: .* and not by an interval"),
        ({"confidence": 0.5}, "estimate.confidence has no effect"),
        ({"seed": 3}, "estimate.seed has no effect: set seed"),
    ],
)
def test_parameters_of_an_estimate_that_rank_nothing_are_refused(estimate: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(estimate=estimate)


def test_policies_that_no_decision_can_judge_are_refused_before_anything_is_trained(logs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"network\.recurrent=gru remembers earlier steps"):
        swept(logs, tmp_path, grid={"network.recurrent": [None, "gru"]})
    assert not list(tmp_path.rglob("*.json"))
