"""Decisions from logs of a process whose values are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.episodes import Episode
from offline_core.data.store.json_files import with_checksum
from offline_core.errors import ConfigError, EmptyDatasetError
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.decide import decide
from offline_core.judging.decisions.diagnosis import about_choosing
from offline_core.judging.decisions.result import MODEL, DecisionResult
from offline_core.judging.estimation.contenders import names_of
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train
from offline_core.policies.checkpoint import save_policy
from offline_core.runtime.config import parse
from offline_core.runtime.signing import KEY
from offline_core.runtime.stage import STAGES
from tests.cases import slow_but
from tests.judging.estimation.chains import BEHAVIOUR, GAMMA, REWARDS, SPACES, played, policy_of, recorded, true_value
from tests.learning.datasets import dataset_of

TARGET = np.array([[0.65, 0.35], [0.55, 0.45], [0.5, 0.5]])
BETTER = np.array([[0.56, 0.44], [0.64, 0.36], [0.44, 0.56]])
WORSE = np.array([[0.4, 0.6], [0.8, 0.2], [0.3, 0.7]])
EPISODES = 1_500
FEW = 300
FQE: dict[str, Any] = {"updates": 80, "learning_rate": 0.02, "network": {"hidden_sizes": [8]}}
SETTINGS: dict[str, Any] = {
    "estimate": {"gamma": GAMMA, "resamples": 200, "fqe": FQE},
    "examine_updates": 100,
    "clone_updates": 1_000,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs with and without probabilities, and policies."""
    folder = tmp_path_factory.mktemp("decisions")
    for name, chances in (("target", TARGET), ("better", BETTER), ("worse", WORSE), ("same", BEHAVIOUR)):
        save_policy(policy_of(chances), str(folder / name), operation=Operation(name="test"))
    for name, count, logp in (("known", EPISODES, True), ("unknown", EPISODES, False), ("few", FEW, True)):
        dataset_of(folder / name, recorded(played(count, seed=8), logp=logp), spaces=SPACES, environment=None)
    return folder


def decided(place: Path, log: str, *names: str, output: Path, **config: Any) -> DecisionResult:
    values = SETTINGS | config
    candidates = [str(place / name) for name in names]
    return decide(parse(DecisionConfig, values), dataset=str(place / log), candidates=candidates, output=str(output))


def test_the_best_of_several_is_promoted_and_the_rest_is_ranked(place: Path, tmp_path: Path) -> None:
    found = decided(place, "known", "worse", "target", "same", "better", output=tmp_path)
    assert found.verdict == "promote"
    assert found.promoted in (str(place / "target"), str(place / "better"))
    assert [each.name for each in found.candidates] == ["target", "better", "same", "worse"]
    assert sum(each.judged is not None for each in found.candidates) == 3
    target = found.candidates[0]
    assert target.judged is not None
    assert target.judged.low < true_value(TARGET) - true_value(BEHAVIOUR) < target.judged.high
    assert target.overlap > 0.95
    assert len(target.carried_by) == 10
    assert (found.behaviour, found.calibration_error) == (None, None)
    assert found.selecting.episodes + found.judging.episodes == EPISODES


def test_the_same_question_is_answered_from_what_is_there_unless_nobody_with_the_key_gave_the_answer(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "k" * 32)
    first = decided(place, "few", "worse", "same", output=tmp_path)
    assert decided(place, "few", "worse", "same", output=tmp_path) == first.model_copy(update={"reused": True})
    places = {"dataset": str(place / "few"), "candidates": [str(place / name) for name in ("worse", "same")]}
    for changed in ({}, {"seed": 1}):
        known = STAGES["decide"].known(parse(DecisionConfig, SETTINGS | changed), **places, output=str(tmp_path))
        assert (known is None) is bool(changed)
    file = tmp_path / "result.json"
    values = {name: value for name, value in json.loads(file.read_text()).items() if name != "checksum"}
    values["result"]["verdict"] = "promote"
    file.write_bytes(with_checksum(json.dumps(values)))
    again = decided(place, "few", "worse", "same", output=tmp_path)
    assert (again.reused, again.verdict, again.wrong_signature) == (False, first.verdict, None) and first.verdict != "promote"


@pytest.mark.slow
def test_another_question_is_another_decision(place: Path, tmp_path: Path) -> None:
    """The same two policies: both as candidates, and one as what runs today."""
    both = decided(place, "known", "worse", "target", output=tmp_path)
    against = decided(place, "known", "worse", output=tmp_path, against=str(place / "target"))
    assert (both.verdict, against.verdict, against.reused) == ("promote", "keep", False)


@pytest.mark.slow
def test_methods_that_are_shown_do_not_change_what_is_judged(place: Path, tmp_path: Path) -> None:
    known = {"gamma": GAMMA, "resamples": 200, "fqe": FQE}
    default = decided(place, "few", "target", output=tmp_path / "default")
    shown = decided(place, "few", "target", output=tmp_path / "shown", estimate=known | {"methods": ["wis"]})
    assert shown.candidates[0].judged == default.candidates[0].judged
    assert set(shown.candidates[0].estimates) == {"fqe", "wdr", "wis"}


def test_both_sides_are_like_the_log_where_episodes_are_equal(tmp_path: Path, place: Path) -> None:
    """Most episodes of one step are equal, and those of a kind are on both sides."""
    states = np.random.default_rng(1).integers(0, 3, size=(2_000, 1))
    actions = (np.random.default_rng(2).random((2_000, 1)) >= BEHAVIOUR[states, 0]).astype(int)
    log = recorded([*zip(states, actions, strict=True)])
    dataset_of(tmp_path / "log", log, spaces=SPACES, environment=None)
    values = {"estimate": {"gamma": GAMMA, "resamples": 200, "fqe": FQE}, "examine_updates": 200}
    config = parse(DecisionConfig, values)
    found = decide(config, dataset=str(tmp_path / "log"), candidates=[str(place / "target")], output=str(tmp_path / "out"))
    truth = (np.array([TARGET - BEHAVIOUR]) * REWARDS).sum(axis=(0, 2)).mean()
    judged, selected = found.candidates[0].judged, found.candidates[0].selected
    assert judged is not None and selected is not None
    assert judged.value == pytest.approx(truth, abs=0.12) and selected.value == pytest.approx(truth, abs=0.12)
    assert (found.selecting.episodes, found.judging.episodes) == (1_000, 1_000)


def test_a_worse_candidate_leaves_what_runs_today(place: Path, tmp_path: Path) -> None:
    found = decided(place, "known", "worse", output=tmp_path)
    assert (found.verdict, found.promoted, found.worth_testing) == ("keep", None, [])
    assert "Keep what the log recorded" in found.sentence


def test_a_policy_that_runs_today_takes_the_place_of_the_log(place: Path, tmp_path: Path) -> None:
    found = decided(place, "known", "better", "same", output=tmp_path, against=str(place / "target"))
    assert found.verdict == "keep"
    judged = found.candidates[0].judged
    assert judged is not None and judged.low < true_value(BETTER) - true_value(TARGET) < judged.high


def test_what_runs_today_is_told_where_it_is_a_candidate(place: Path, tmp_path: Path) -> None:
    today = str(place / "target")
    found = decided(place, "few", "target", output=tmp_path, against=today, examine_updates=0)
    assert f"{found.first.name} is {today} itself, which runs today, so it cannot be better." in found.warnings


def test_without_probabilities_a_model_of_the_behaviour_is_fitted_and_examined(
    place: Path,
    tmp_path: Path,
) -> None:
    found = decided(place, "unknown", "target", "worse", output=tmp_path)
    assert found.verdict == "promote"
    assert found.behaviour is not None and Path(found.behaviour).is_dir()
    assert found.calibration_error is not None and found.calibration_error < 0.05
    assert sum(count for _, _, count in found.calibration) > 1_000


def test_what_learned_from_the_log_is_refused_before_anything_is_fitted(place: Path, tmp_path: Path) -> None:
    few = {"max_updates": 1}
    trained = train(parse(TrainingConfig, {"optimizer": few}), dataset=str(place / "unknown"), output=str(tmp_path / "policy"))
    alone = decided(place, "unknown", trained.checkpoint, output=tmp_path / "alone")
    assert alone.verdict == "refused" and alone.sentence.count("has learned from episodes of this log") == 1
    assert not (tmp_path / "alone" / MODEL).exists()
    assert "What acted" not in alone.card().details
    beside = decided(place, "unknown", trained.checkpoint, "better", output=tmp_path / "beside", clone_updates=200)
    better, taught = beside.candidates
    assert better.judged is not None and not any("learned" in reason for reason in better.reasons)
    assert taught.selected is None and taught.score is None and len(taught.reasons) == 1


@pytest.mark.parametrize(
    "uri", ["s3://bucket/best", "s3://bucket/runs/policy/best", "runs/best", "s3://bucket/runs/seeds/0/best"]
)
def test_a_checkpoint_of_no_sweep_was_chosen_by_nothing(uri: str, place: Path) -> None:
    """However few folders it is in: there is no sweep above the name of a bucket."""
    assert [*about_choosing(uri, open_dataset(str(place / "few")))] == []


def test_probabilities_that_cannot_be_are_refused(place: Path, tmp_path: Path) -> None:
    """Actions are the most likely ones, and said to have been drawn."""
    rng = np.random.default_rng(0)
    states = [rng.integers(0, 3, size=4) for _ in range(300)]
    greedy = recorded([(each, BEHAVIOUR[each].argmax(axis=1)) for each in states])
    dataset_of(tmp_path / "log", greedy, spaces=SPACES, environment=None)
    values = {"estimate": {"gamma": GAMMA, "resamples": 200, "fqe": FQE}, "examine_updates": 200}
    found = decide(
        parse(DecisionConfig, values),
        dataset=str(tmp_path / "log"),
        candidates=[str(place / "target")],
        output=str(tmp_path / "o"),
    )
    assert found.verdict == "refused"
    assert "did the same in the same state" in found.sentence or "cannot be how probable" in found.sentence


@pytest.mark.parametrize("updates", [0, 20])
def test_a_clone_that_examines_what_was_recorded_has_the_bound_that_is_asked(place: Path, tmp_path: Path, updates: int) -> None:
    found = decided(place, "few", "target", output=tmp_path, examine_updates=updates)
    assert (found.behaviour, found.calibration) == (None, [])
    trained = [*tmp_path.glob(f"{MODEL}/**/policy.json")]
    assert bool(trained) == bool(updates) == (tmp_path / MODEL).exists()
    if updates:
        [result] = tmp_path.glob(f"{MODEL}/result.json")
        assert json.loads(result.read_text())["result"]["updates"] == updates


@pytest.mark.parametrize("updates", slow_but([0, 20], 20))
def test_a_log_that_says_it_always_did_the_same_is_refused(place: Path, tmp_path: Path, updates: int) -> None:
    """Without a clone, and with one that has not learned it."""
    states = [np.random.default_rng(seed).integers(0, 3, size=4) for seed in range(60)]
    log = recorded([(each, BEHAVIOUR[each].argmax(axis=1)) for each in states])
    log = [replace(e, extras={"action_logp": np.zeros(4, np.float32)}) for e in log]
    dataset_of(tmp_path / "log", log, spaces=SPACES, environment=None)
    config = parse(DecisionConfig, {"estimate": {"gamma": GAMMA, "resamples": 200, "fqe": FQE}, "examine_updates": updates})
    found = decide(config, dataset=str(tmp_path / "log"), candidates=[str(place / "target")], output=str(tmp_path / "o"))
    assert found.verdict == "refused" and "did the same in the same state" in found.sentence


def test_guardrails_are_judged_with_the_same_risk(place: Path, tmp_path: Path) -> None:
    held = {"name": "second action", "expression": "case when actions = 1 then 0 else -0.01 end", "max_fall": 1.0}
    broken = {"name": "steps", "expression": "rewards", "max_fall": 0.0}
    untouched = {"name": "never", "expression": "0 * rewards"}
    found = decided(place, "known", "target", output=tmp_path / "held", guardrails=[held, broken, untouched])
    assert [guardrail.passed for guardrail in found.candidates[0].guardrails] == [True, True, True]
    assert found.verdict == "promote"
    against = {"name": "first action", "expression": "case when actions = 0 then -1 else 0 end"}
    found = decided(place, "few", "target", output=tmp_path / "broken", guardrails=[against])
    assert not found.candidates[0].guardrails[0].passed
    assert found.verdict != "promote"


def zoned(count: int, *, seed: int) -> list[Episode]:
    """Episodes in two zones and a small one; in the south each reward is its opposite, so that what is better is worse."""
    found = recorded(played(count, seed=seed), logp=True)
    zones = np.random.default_rng(seed).choice(["north", "south", "attic"], count, p=[0.66, 0.33, 0.01])
    return [
        replace(
            each, rewards=each.rewards * (-1 if zone == "south" else 1), extras=each.extras | {"zone": np.full(len(each), zone)}
        )
        for each, zone in zip(found, zones.tolist(), strict=True)
    ]


def test_a_group_in_which_the_candidate_is_worse_is_told(place: Path, tmp_path: Path) -> None:
    dataset_of(tmp_path / "log", zoned(2_000, seed=4), spaces=SPACES, environment=None)
    values = {"estimate": {"gamma": GAMMA, "resamples": 200, "fqe": FQE}, "examine_updates": 0, "group": "zone"}
    config = parse(DecisionConfig, values)
    found = decide(config, dataset=str(tmp_path / "log"), candidates=[str(place / "target")], output=str(tmp_path / "out"))
    [only] = found.candidates
    shown = {each.group: each.shown for each in only.groups}
    assert shown == {"zone = attic": None, "zone = north": "better", "zone = south": "worse"}
    sizes = {each.group: each.episodes for each in only.groups}
    assert sum(sizes.values()) == found.judging.episodes and only.groups[0].difference is None
    assert "target is shown to be worse where zone = south (-" in found.sentence
    for names, message in (
        (
            ["zones"],
            rf"^{tmp_path}/log version 1 .* cannot be grouped by 'zones': no column is called so \(did you mean zone\?\)",
        ),
        (["eps_id"], "has 1,000 values"),
    ):
        with pytest.raises(ConfigError, match=message):
            wrong = parse(DecisionConfig, values | {"group": names})
            decide(wrong, dataset=str(tmp_path / "log"), candidates=[str(place / "target")], output=str(tmp_path / "out"))


def test_of_a_log_that_is_cut_off_no_clone_is_promoted_and_no_guardrail_holds(place: Path, tmp_path: Path) -> None:
    save_policy(policy_of(BEHAVIOUR + 0.01 * np.array([[1, -1]] * 3)), str(place / "near"), operation=Operation(name="test"))
    cut = [
        replace(
            one,
            observations=one.observations[:3],
            actions=one.actions[:2],
            rewards=one.rewards[:2],
            extras={name: values[:2] for name, values in one.extras.items()},
            terminated=False,
            truncated=True,
        )
        if len(one) > 2
        else one
        for one in recorded(played(FEW, seed=9))
    ]
    dataset_of(place / "cut", cut, spaces=SPACES, environment=None)
    estimate = SETTINGS["estimate"] | {"horizon": "continuing"}
    rails = [{"name": "pay", "expression": "rewards", "max_fall": 100.0}]
    found = decided(place, "cut", "near", output=tmp_path, estimate=estimate, guardrails=rails)
    assert found.verdict != "promote"
    [candidate] = found.candidates
    assert candidate.judged is not None
    assert candidate.judged.low < 0 < candidate.judged.high, "without all that follows the cuts"
    [pay] = candidate.guardrails
    assert pay.unrecorded_share > 0.1 and not pay.passed and "% of it was not recorded" in str(pay)


@pytest.mark.parametrize("by", ["episodes", "time"])
def test_a_decision_on_a_log_that_drifts_says_on_which_part_it_stands(by: str, place: Path, tmp_path: Path) -> None:
    """Later all steps are paid 2 more, and the first action is taken alone; episodes of either kind judge."""
    early, late = (recorded(played(300, seed=seed), logp=True) for seed in (2, 3))
    late = [replace(each, rewards=each.rewards + 2) for each in late]
    renamed = [replace(each, eps_id=f"late {each.eps_id}") for each in late]
    dataset_of(tmp_path / "log", [*early, *renamed], spaces=SPACES, environment=None)
    values = {"estimate": {"gamma": GAMMA, "resamples": 200, "fqe": FQE}, "examine_updates": 0, "by": by}
    candidates = [str(place / "target")]
    found = decide(
        parse(DecisionConfig, values), dataset=str(tmp_path / "log"), candidates=candidates, output=str(tmp_path / "o")
    )
    first, last = found.parts
    assert (first.name, first.episodes, last.episodes) == ("first third", 200, 200)
    assert first.mean_return == pytest.approx(np.mean([each.rewards.sum() for each in early[:200]]), rel=1e-6)
    assert last.mean_return == pytest.approx(np.mean([each.rewards.sum() for each in late[100:]]), rel=1e-6)
    taken = np.concatenate([each.actions for each in early[:200]])
    assert first.actions == pytest.approx({"0": (taken == 0).mean(), "1": (taken == 1).mean()})
    told = next(each for each in found.warnings if each.startswith("This decision stands on"))
    [begin, end] = found.candidates[0].parts
    if by == "time":
        assert (begin.episodes, begin.difference, end.episodes) == (0, None, 200)
        assert "the last 50 % of the log" in told and "decide again on a newer log" in told
    else:
        assert begin.episodes > 50 and end.episodes > 50 and begin.difference and end.difference
        assert "episodes from all over the log" in told and "decide with by=time" in told
        assert f"{end.difference} in the last third (" in told


def test_wrong_guardrails_and_candidates_are_named(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names the column 'cost'"):
        decided(place, "known", "target", output=tmp_path, guardrails=[{"name": "cost", "expression": "-cost"}])
    with pytest.raises(ConfigError, match="is named twice"):
        decided(place, "known", "target", "target", output=tmp_path)
    with pytest.raises(ConfigError, match="There is no candidate"):
        decided(place, "known", output=tmp_path)
    with pytest.raises(ConfigError, match="cannot be shown by 50 resamples"):
        decided(place, "known", "target", output=tmp_path, estimate={"resamples": 50})
    with pytest.raises(ConfigError, match=r"set margin"):
        decided(place, "known", "target", output=tmp_path, estimate={"require_return": 1.0})


def test_a_log_of_one_episode_has_no_two_sides(place: Path, tmp_path: Path) -> None:
    dataset_of(tmp_path / "one", recorded(played(1, seed=0)), spaces=SPACES, environment=None)
    values = {"estimate": {"gamma": GAMMA, "fqe": FQE}}
    with pytest.raises(EmptyDatasetError, match="each side needs an episode that is not on the other, and it is one"):
        config = parse(DecisionConfig, values)
        decide(config, dataset=str(tmp_path / "one"), candidates=[str(place / "target")], output=str(tmp_path / "out"))


def test_a_log_in_which_all_returns_are_equal_cannot_tell(place: Path, tmp_path: Path) -> None:
    """Though the candidate does other things than the log: of no click nobody knows whose it would have been."""
    unpaid = [replace(each, rewards=np.zeros(len(each.rewards))) for each in recorded(played(FEW, seed=8))]
    dataset_of(tmp_path / "unpaid", unpaid, spaces=SPACES, environment=None)
    found = decided(tmp_path, "unpaid", str(place / "target"), output=tmp_path / "out")
    assert found.verdict == "refused"
    assert "This log cannot tell. All " in found.sentence and "judging episodes return 0, so nothing tells" in found.sentence


def test_names_are_the_parts_in_which_paths_differ() -> None:
    assert names_of(["runs/a/best", "runs/b/best"]) == ["a", "b"]
    assert names_of(["runs/a/iterations/100", "runs/a/iterations/200"]) == ["100", "200"]
    assert names_of(["runs/a/best"]) == ["a/best"]
    assert names_of(["x/a", "x/a/best"]) == ["a", "a/best"] or len({*names_of(["x/a", "x/a/best"])}) == 2
