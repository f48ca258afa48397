"""The behaviour of another dataset as a candidate: what a newer week did, judged on an older one."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

import offline_core as offline
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.store.location import Location
from offline_core.door import candidates_of
from offline_core.errors import ConfigError, DataError, PromotionError
from offline_core.judging.decisions.explain import explain
from offline_core.judging.decisions.result import DecisionResult
from offline_core.judging.estimation.clones import with_clones
from offline_core.judging.estimation.config import EstimateConfig
from offline_core.judging.estimation.contenders import BehaviourClone, contenders_of
from offline_core.judging.estimation.diagnostics import about_clone
from offline_core.judging.estimation.estimate import estimate
from offline_core.judging.estimation.result import ESTIMATES
from offline_core.keeping.promotion.config import PromotionConfig
from offline_core.keeping.promotion.promote import promote
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from tests.judging.decisions.test_candidates import clicks, decided
from tests.judging.estimation import days
from tests.judging.estimation.chains import BEHAVIOUR, GAMMA, SPACES, TARGET, played, policy_of, recorded, true_value
from tests.learning.datasets import dataset_of

BETTER = 0.5 * BEHAVIOUR + 0.5 * TARGET


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two weeks of one process; another policy ran in the second, and no probability is known of it."""
    folder = tmp_path_factory.mktemp("weeks")
    dataset_of(folder / "old", recorded(played(1_500, seed=8)), spaces=SPACES, environment=None)
    newer = recorded(played(600, seed=9, behaviour=BETTER), logp=False, first=1_500)
    dataset_of(folder / "new", newer, spaces=SPACES, environment=None)
    return folder


@pytest.fixture(scope="module")
def decision(weeks: Path, tmp_path_factory: pytest.TempPathFactory) -> DecisionResult:
    output = tmp_path_factory.mktemp("decision")
    return decided(str(weeks / "old"), str(weeks / "new"), output=output, clone_updates=1_000, min_overlap=0.1)


def test_what_ran_in_a_newer_week_is_judged_on_an_older_one(weeks: Path, decision: DecisionResult) -> None:
    [found] = decision.candidates
    assert found.name == f"the behaviour of {weeks.name}/new@1" and found.checkpoint == f"behaviour:{weeks}/new@1"
    assert found.judged is not None and found.reasons == []
    assert found.clone is not None and read_policy_manifest(found.clone).operation.name == "train"
    chances = load_policy(found.clone)(torch.arange(3)).softmax(dim=1).detach().double().numpy()
    assert found.judged.low < true_value(chances) - true_value(BEHAVIOUR) < found.judged.high and found.judged.value > 0
    assert abs(true_value(chances) - true_value(BETTER)) < 0.2, "as many episodes tell it"
    assert found.clone.startswith(f"{decision.uri}/clones/")
    [told] = [each for each in decision.warnings if "is judged by a clone" in each]
    assert found.clone in told and "By its lineage" not in told
    assert re.search(r"calibrated to within \d\.\d %, on average over [\d,]+ held-out steps", told)
    assert not any("is unknown: if it was these episodes" in each for each in decision.warnings)


def test_the_same_weeks_are_decided_once(weeks: Path, decision: DecisionResult) -> None:
    again = decided(
        str(weeks / "old"),
        f"{weeks}/new@1",
        output=Path(decision.uri),
        clone_updates=1_000,
        min_overlap=0.1,
    )
    assert again.reused


def test_what_a_clone_stands_for_is_worth_a_test_at_most(decision: DecisionResult, tmp_path: Path) -> None:
    """How far the clone is from it is in no interval; the clone itself may be promoted."""
    [found] = decision.candidates
    assert found.judged is not None and found.judged.p_value < decision.risk
    assert decision.verdict == "test" and decision.episodes_needed is None
    assert f"sure that the clone of {found.name} is better than what the log recorded, and how far" in decision.sentence
    assert f"decide again with {found.clone} as the candidate" in str(decision.card().advice)
    with pytest.raises(PromotionError, match="It is no checkpoint, so no registry can name it"):
        promote(PromotionConfig(), registry=str(tmp_path / "registry/it"), source=decision.uri)


def test_a_dataset_with_episodes_of_the_log_is_no_measure_of_them(weeks: Path, tmp_path: Path) -> None:
    _, part = offline.split(weeks / "old", output=tmp_path / "split", held_out_fraction=0.5)
    found = decided(
        str(weeks / "old"), "rule:1", output=tmp_path / "out", against=part.location.uri, clone_updates=50, min_overlap=0.1
    )
    assert found.verdict == "refused"
    assert any("which runs today, it cannot tell the value: " in each and "learned from" in each for each in found.reasons)


def test_a_newer_week_may_be_what_runs_today(weeks: Path, tmp_path: Path) -> None:
    rule = "rule:case when obs = 1 then 0 else 1 end"
    found = decided(str(weeks / "old"), rule, output=tmp_path, against=f"{weeks}/new@1", clone_updates=500, min_overlap=0.1)
    assert found.against == f"behaviour:{weeks}/new@1" and found.registry is None, "a version is no alias of a registry"
    assert found.against_fingerprint == open_dataset(str(weeks / "new")).manifest.fingerprint
    assert found.candidates[0].judged is not None and found.candidates[0].judged.value < 0


def test_an_estimate_of_a_behaviour_is_near_what_it_comes_to(weeks: Path) -> None:
    config = parse(EstimateConfig, {"gamma": GAMMA, "methods": ["wis"], "resamples": 200})
    result = estimate(config, policy=str(weeks / "new"), dataset=str(weeks / "old"))
    assert result.estimates["wis"].low < true_value(BETTER) < result.estimates["wis"].high
    assert result.recording is not None and result.recording.uri == str(weeks / "new")
    assert any("is judged by a clone of it" in each for each in result.warnings)
    assert (weeks / "old" / ESTIMATES / "clones").is_dir()
    assert estimate(config, policy=str(weeks / "new"), dataset=str(weeks / "old")).reused


def test_a_clone_that_is_far_off_is_not_believed(weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offline_core.judging.estimation.contenders.MOST_MISCALIBRATED", -1.0)
    found = decided(str(weeks / "old"), f"{weeks}/new", output=tmp_path, clone_updates=50, min_overlap=0.1)
    assert found.verdict == "refused" and "the clone that stands for it is calibrated to within" in found.sentence
    today = decided(str(weeks / "old"), "rule:1", output=tmp_path / "b", against=f"{weeks}/new", clone_updates=50)
    assert any("runs today, it cannot tell the value: the clone" in each for each in today.reasons)
    config = parse(EstimateConfig, {"gamma": GAMMA, "methods": ["pdis"], "resamples": 100})
    with pytest.raises(
        DataError, match=r"Of the behaviour of .*/new@1 nothing is estimated: the clone that stands for it is calib"
    ):
        estimate(config, policy=f"{weeks}/new", dataset=f"{weeks}/old")


def test_a_clone_of_another_seed_leaves_the_first_where_it_is(weeks: Path, tmp_path: Path) -> None:
    contenders = contenders_of([str(weeks / "new")], open_dataset(str(weeks / "old")))
    cloned = partial(with_clones, contenders, Location.of(str(tmp_path)), by="episodes", stage="estimate")
    fingerprints: dict[str, str] = {}
    for seed, updates in ((0, 1), (1, 1), (0, 2)):
        [one] = cloned(updates=updates, seed=seed)
        assert one.clone is not None
        fingerprints[one.clone.checkpoint] = read_policy_manifest(one.clone.checkpoint).fingerprint
    assert len({*fingerprints.values()}) == 3
    assert {uri: read_policy_manifest(uri).fingerprint for uri in fingerprints} == fingerprints


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (0.031, "It is calibrated to within 3.1 %, on average over 1,200 held-out steps"),
        (None, "Nothing checks how near it is to what acted, for its actions are no list"),
    ],
)
def test_how_far_a_clone_was_checked_is_told(weeks: Path, error: float | None, told: str) -> None:
    [contender] = contenders_of([str(weeks / "new")], open_dataset(str(weeks / "old")))
    [sentence] = about_clone(replace(contender, clone=BehaviourClone("/runs/clone", error, 1_200)))
    assert told in sentence


def test_a_dataset_that_was_opened_names_its_version(weeks: Path) -> None:
    assert candidates_of([open_dataset(str(weeks / "new")), "rule:1"]) == [f"{weeks}/new@1", "rule:1"]


def test_the_log_is_no_candidate_of_itself(weeks: Path) -> None:
    with pytest.raises(ConfigError, match=r"old is the log itself, and what recorded it is what candidates are held against"):
        contenders_of([str(weeks / "old")], open_dataset(str(weeks / "old")))


def test_a_dataset_of_other_spaces_or_columns_is_refused_before_a_clone_is_fitted(
    weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offline_core.judging.estimation.clones.model_of_behaviour", lambda *_, **__: pytest.fail("fitted"))
    other = spaces.Discrete(4), spaces.Discrete(2)
    dataset_of(tmp_path / "other", days.logged(20, seed=0), spaces=other, environment=None)
    with pytest.raises(ConfigError, match=r"The policy has the observation space Discrete\(4\)"):
        decided(str(weeks / "old"), str(tmp_path / "other"), output=tmp_path / "out")
    hour, age = np.arange(40) % 24, np.arange(40) % 7
    own, swapped = clicks(tmp_path / "own", hour=hour, age=age), clicks(tmp_path / "swapped", age=age, hour=hour)
    with pytest.raises(ConfigError, match="learned from other columns or labels"):
        decided(own, swapped, output=tmp_path / "out")


def test_nothing_is_fitted_to_explain(weeks: Path) -> None:
    with pytest.raises(ConfigError, match="which fit a clone of it; explain fits nothing"):
        explain(str(weeks / "old"), [str(weeks / "new")])


def test_the_policy_that_recorded_a_dataset_is_told_by_its_lineage(weeks: Path, tmp_path: Path) -> None:
    """If there is one alone, and it is still there."""
    log, place = open_dataset(str(weeks / "old")), str(tmp_path / "policy")
    save_policy(policy_of(BETTER), place, operation=Operation(name="test"))
    acted = read_policy_manifest(place).parent_entry(place)
    episodes = recorded(played(20, seed=3))
    known = dataset_of(
        tmp_path / "known", episodes, spaces=SPACES, environment=None, operation=Operation(name="record"), parents=[acted]
    )
    [one] = contenders_of([known], log)
    assert one.recorder == place
    other = str(tmp_path / "other")
    save_policy(policy_of(BEHAVIOUR), other, operation=Operation(name="test"))
    for number, (player, recorder) in enumerate([(other, None), (place, place)]):
        parents = [open_dataset(known).parent_entry, read_policy_manifest(player).parent_entry(player)]
        uri, operation = tmp_path / f"mixed-{number}", Operation(name="mix")
        mixed = dataset_of(uri, episodes, spaces=SPACES, environment=None, operation=operation, parents=parents)
        [contender] = contenders_of([mixed], log)
        assert contender.recorder == recorder, "of a mixture a dataset's recorder and the policy that played count alike"
    save_policy(policy_of(TARGET), place, operation=Operation(name="test"))
    assert one.recorder is None, "another policy is there by now"
    shutil.rmtree(place)
    assert one.recorder is None
    [unknown] = contenders_of([str(weeks / "new")], log)
    assert unknown.recorder is None and unknown.lineage is not None and len(unknown.lineage.nodes) == 2
