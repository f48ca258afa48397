"""What is said against an estimate, and what is not: most of it would be said of every one if it were said too easily."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from gymnasium import spaces

from offline_core.data.curation.compact import compact
from offline_core.data.curation.config import CompactionConfig, PruningConfig, SplitConfig
from offline_core.data.curation.prune import prune
from offline_core.data.curation.split import split
from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.episodes import Episode, space_to_json
from offline_core.judging.estimation import diagnostics
from offline_core.judging.estimation.config import EstimateConfig
from offline_core.judging.estimation.contenders import Contender
from offline_core.judging.estimation.diagnostics import (
    about_convergence,
    about_origin,
    about_q,
    about_sampling,
    about_weights,
    copies_learned,
    shared_episodes,
)
from offline_core.judging.estimation.trajectories import Model, Trajectories
from offline_core.policies import lineage as lineage_module
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.lineage import lineage
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.runtime.config import parse
from tests.judging.estimation.chains import BEHAVIOUR, SPACES, TARGET, episode_of, played, policy_of, recorded
from tests.judging.estimation.test_estimate import QUICK, chain, run_estimate, saved
from tests.learning.datasets import dataset_of


def doubts(policy: str, dataset: str, **config: object) -> str:
    return "\n".join(run_estimate(policy, dataset, **{"methods": ["is"], "min_effective_episodes": 1} | config).warnings)


def trained_on(place: Path, *uris: str) -> str:
    parents = [open_dataset(uri).parent_entry for uri in uris]
    save_policy(policy_of(TARGET), str(place), operation=Operation(name="train"), parents=parents)
    return str(place)


def again(uri: str, operation: Operation, parents: list[Parent]) -> None:
    """The next version of a dataset, of the same episodes, made otherwise."""
    dataset = open_dataset(uri)
    commit(
        uri,
        dataset.manifest.files,
        format=dataset.manifest.format,
        operation=operation,
        statistics=dataset.manifest.statistics,
        observation_space=dataset.observation_space,
        action_space=dataset.action_space,
        parents=parents,
    )


# What was learned from.


def test_a_policy_is_not_estimated_on_what_it_was_learned_from_without_a_word(tmp_path: Path) -> None:
    data = chain(tmp_path, 600)
    split(SplitConfig(held_out_fraction=0.3), dataset=data, output=str(tmp_path))
    train, held_out = (str(tmp_path / side) for side in ("train", "held_out"))
    policy = trained_on(tmp_path / "policy", train)
    compact(CompactionConfig(), dataset=train, output=str(tmp_path / "compacted"))
    shutil.copytree(train, tmp_path / "copied")
    for seed, own in enumerate([train, data, str(tmp_path / "compacted"), str(tmp_path / "copied")]):
        assert f"policy has learned from episodes that are, or may be, in {own}, and on those" in doubts(policy, own, seed=seed)
    assert doubts(policy, held_out) == ""
    prune(PruningConfig(where="length > 1"), dataset=data, output=str(tmp_path / "pruned"))
    pruned = trained_on(tmp_path / "of pruned", str(tmp_path / "pruned"))
    assert "may be, in" in doubts(pruned, held_out), "which was split from what the other was pruned from"
    split(SplitConfig(held_out_fraction=0.5), dataset=train, output=str(tmp_path / "within"))
    assert "may be, in" in doubts(policy, str(tmp_path / "within" / "held_out"))
    assert doubts(trained_on(tmp_path / "stopped", train, held_out), held_out) == "", "its loss there told when to stop"
    others = recorded(played(60, seed=12), first=600)
    elsewhere = dataset_of(tmp_path / "elsewhere", others, spaces=SPACES, environment=None)
    assert doubts(trained_on(tmp_path / "other", elsewhere), data) == ""
    shutil.rmtree(tmp_path / "elsewhere")
    assert "learned from" not in doubts(str(tmp_path / "other"), data, seed=1)


def test_copies_are_known_by_their_contents_whatever_their_ids(tmp_path: Path) -> None:
    """A log that was imported again from another folder, beside one whose equal episodes are of few states."""
    rng = np.random.default_rng(0)
    seen = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    offers = [
        episode_of(number, rng.normal(size=(2, 1)).astype(np.float32), np.zeros(1, np.int64), [1.0], of=(seen, SPACES[1]))
        for number in range(90)
    ]
    again = [replace(offer, eps_id=f"again-{offer.eps_id}") for offer in offers[60:]]
    learned = dataset_of(tmp_path / "learned", offers, spaces=(seen, SPACES[1]), environment=None)
    copied = open_dataset(dataset_of(tmp_path / "again", again, spaces=(seen, SPACES[1]), environment=None))
    policy = trained_on(tmp_path / "policy", learned)
    assert [*copies_learned(copied, lineage(policy))] == [(30, learned)]
    own = Contender(policy, "it", "0" * 16, copied, read_policy_manifest(policy))
    [said] = about_origin(own, lineage(copied.location.uri), copied)
    assert said.startswith(f"30 of the 30 episodes of {copied.location.uri} are also in {learned}, which it has learned from")
    chains = [
        dataset_of(tmp_path / str(seed), recorded(played(300, seed=seed), first=300 * seed), spaces=SPACES, environment=None)
        for seed in (1, 2)
    ]
    assert shared_episodes(open_dataset(chains[0]), chains[1], None) == 0, "but for chance"


# Where the episodes come from.


def test_a_history_is_followed_from_dataset_to_dataset_and_no_further(tmp_path: Path) -> None:
    """A greedy recording, pruned; what was learned from it has recorded again, and that is another matter."""
    first, second = chain(tmp_path / "first"), chain(tmp_path / "second")
    again(first, Operation(name="record", config={"explore": False}), [])
    prune(PruningConfig(where="length > 0"), dataset=first, output=str(tmp_path / "pruned"))
    learned = trained_on(tmp_path / "learned", str(tmp_path / "pruned"))
    recorder = read_policy_manifest(learned).parent_entry(learned)
    again(second, Operation(name="record", config={"explore": True}), [recorder])
    evaluated = saved(policy_of(TARGET), tmp_path / "evaluated")
    assert doubts(evaluated, second) == ""
    shutil.rmtree(tmp_path / "learned")
    assert doubts(evaluated, second, seed=1) == "", "nor does it matter where that policy is now"
    of_first = doubts(evaluated, str(tmp_path / "pruned"))
    assert "first/data was recorded without exploration" in of_first and "were selected (prune)" in of_first


def test_an_unknown_history_is_doubted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, evaluated = chain(tmp_path), saved(policy_of(TARGET), tmp_path / "policy")
    compact(CompactionConfig(), dataset=data, output=str(tmp_path / "compacted"))
    assert doubts(evaluated, str(tmp_path / "compacted")) == ""
    monkeypatch.setattr(lineage_module, "MAX_NODES", 1)
    assert "compacted is unknown: its episodes may" in doubts(evaluated, str(tmp_path / "compacted"), seed=1)
    monkeypatch.undo()
    shutil.rmtree(data)
    found = doubts(evaluated, str(tmp_path / "compacted"), seed=2)
    assert f"compacted is unknown, as {data} has changed or is gone: its episodes may" in found


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_parts_of_episodes_are_not_taken_for_whole_ones_without_a_word(tmp_path: Path, format: str) -> None:
    whole = recorded(played(60, seed=2))
    parts: list[Episode] = []
    for each in whole:
        parts.append(each if len(each) < 4 else each.slice(0, 2))
        if len(each) >= 4:
            parts.append(replace(each.slice(2, len(each)), eps_id=f"{each.eps_id}@2-0a1b2c3d", t_started=0))
    parts += [replace(whole[0], eps_id="begins later", t_started=7)]
    late = len(parts) - len(whole)
    assert late > 3
    evaluated = saved(policy_of(TARGET), tmp_path / "policy")
    cut = dataset_of(tmp_path / "cut", parts, spaces=SPACES, environment=None, format=format)
    assert f"{late} of {len(parts)} episodes begin after their first step, or go on with another" in doubts(evaluated, cut)
    assert doubts(evaluated, dataset_of(tmp_path / "whole", whole, spaces=SPACES, environment=None, format=format)) == ""


# How probable actions are said to be.


def test_probabilities_that_cannot_be_are_told_from_others(tmp_path: Path) -> None:
    """Densities in other units than the actions; a behaviour that is another policy than the one that acted."""
    made = recorded(played(200, seed=11))
    halved = [replace(each, extras={"action_logp": each.extras["action_logp"] - np.log(np.float32(2))}) for each in made]
    evaluated, acted = (saved(policy_of(p), tmp_path / name) for p, name in ((TARGET, "policy"), (BEHAVIOUR, "acted")))
    right = dataset_of(tmp_path / "right", made, spaces=SPACES, environment=None)
    wrong = dataset_of(tmp_path / "wrong", halved, spaces=SPACES, environment=None)
    assert doubts(evaluated, right) == doubts(evaluated, right, behaviour=acted) == ""
    assert doubts(evaluated, right, explore=False) == ""
    found = doubts(evaluated, wrong)
    assert "times as likely to this policy as it was, on average" in found and "So action_logp is not how probable" in found
    lying = saved(policy_of(np.array([[0.9, 0.1]] * 3)), tmp_path / "lying")
    assert f"So {lying} is not how probable" in doubts(evaluated, right, behaviour=lying)


def test_few_steps_and_rounding_are_no_proof() -> None:
    def of(ratios: list[float]) -> list[str]:
        return list(about_weights(Trajectories(np.ones(len(ratios), int), np.zeros(len(ratios)), np.log(ratios), 1.0), by="it"))

    assert of([3.0] * 29) == [] and len(of([3.0] * 31)) == 1
    assert of([1.005] * 1_000) == [] and len(of([1.02] * 1_000)) == 1
    spread = [0.5, 1.5] * 450  # a standard error of 1/60
    assert of([ratio + 0.06 for ratio in spread]) == [] and len(of([ratio + 0.07 for ratio in spread])) == 1
    assert len(of([1e300] * 100)) == 1, "whose squares are beyond every number"


def test_a_behaviour_in_place_of_what_was_recorded_is_what_is_doubted(tmp_path: Path) -> None:
    """A greedy recording is doubted with it, too, and in words that hold for both."""
    data, acted = chain(tmp_path), saved(policy_of(BEHAVIOUR), tmp_path / "acted")
    again(data, Operation(name="record", config={"explore": False}), [])
    found = doubts(saved(policy_of(TARGET), tmp_path / "policy"), data, behaviour=acted)
    assert "recorded without exploration" in found and "action_logp" not in found


# What the policy is.


@pytest.mark.parametrize(("algorithm", "doubted"), [("dqn", True), ("cql", True), ("bc", False), ("iql", False)])
def test_sampling_by_values_is_doubted(tmp_path: Path, algorithm: str, doubted: bool) -> None:
    place, data = str(tmp_path / "policy"), chain(tmp_path)
    save_policy(policy_of(TARGET), place, operation=Operation(name="train", config={"algorithm": algorithm}))
    assert (f"What {algorithm} learns of Discrete actions are their values" in doubts(place, data)) == doubted
    assert doubts(place, data, explore=False) == "", "which is what it means"


def test_cql_in_a_box_has_a_distribution(tmp_path: Path) -> None:
    policy = Policy(spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,)), NetworkConfig(squash=True))
    made = Operation(name="train", config={"algorithm": "cql"})
    manifest = save_policy(policy, str(tmp_path), operation=made)
    assert manifest.action_space == space_to_json(policy.action_space)
    assert list(about_sampling(manifest)) == []


# What the Q function has come to.


def test_open_episodes_need_a_q_function_that_looks_far_enough() -> None:
    def of(open_episodes: int = 5, **config: object) -> list[str]:
        return list(about_convergence(parse(EstimateConfig, config), open_episodes))

    assert of() == [], "the defaults are enough"
    [warning] = of(gamma=0.999)
    assert warning.startswith("5 episodes are open") and "fqe, dr, wdr know too little" in warning
    assert "still has 61 % of what it began with" in warning and "until their product is 4,000" in warning
    assert len(of(fqe={"updates": 3_000})) == len(of(fqe={"target_rate": 0.05})) == 1
    assert of(0, gamma=0.999) == of(gamma=0.999, methods=QUICK, gate_method="wis") == []


# What the Q function says.


@pytest.mark.parametrize(("start", "says"), [(50.0, "expects 950 less"), (990.0, ""), (2000.0, "expects 1,000 more")])
def test_a_q_function_on_another_scale_than_what_was_recorded_is_told(start: float, says: str) -> None:
    """Two episodes of one step that is paid 1000, whose Q is what it says of the start."""
    model = Model(np.full(2, start), np.full(2, 1000.0 - start), np.zeros(2))
    episodes = Trajectories(np.ones(2, int), np.full(2, 1000.0), np.zeros(2), 0.99, model)
    told = "".join(about_q(episodes))
    assert bool(told) == bool(says) and says in told
    assert not [*about_q(replace(episodes, model=None))]


def test_copies_are_told_from_what_comes_again() -> None:
    """Of one log all episodes come again, once or twice; of customers who do the same each month some do, as chance has it."""
    rng = np.random.default_rng(0)

    def counted(contents: Iterable[object]) -> pl.DataFrame:
        return pl.Series("content", map(str, contents), dtype=pl.String).value_counts(name="times")

    log = counted(range(1000))
    for copies in (counted([*range(400), *["more"] * 5]), counted([*range(1000)] * 2), counted(range(5000))):
        assert diagnostics._are_copies(log, copies) or diagnostics._are_copies(copies, log)
    months = (counted(f"{customer} {rng.integers(2)}" for customer in range(1000)) for _ in "ab")
    few = (counted(rng.integers(0, 800, size)) for size in (500, 50_000))
    rare = (counted(rng.zipf(1.5, size)) for size in (5000, 5000))
    for one, other in (months, few, rare):
        assert not diagnostics._are_copies(one, other) and not diagnostics._are_copies(other, one)
