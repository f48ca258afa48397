"""Promotions, their refusals, and rollbacks, on the disk of this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pydantic import BaseModel

import offline_core as offline
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.result_cache import store_result
from offline_core.data.datasets.verify import verify
from offline_core.data.inputs.encoding import Encoding
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.data.store.location import Location
from offline_core.errors import CheckpointError, ConfigError, CorruptFileError, PromotionError, StorageError
from offline_core.errors import StorageUnavailableError as Unavailable
from offline_core.keeping.inspection import registry_card
from offline_core.keeping.promotion.promote import commit_move, read_decision
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.policies.registry import History, Move
from tests.keeping.promotion.decisions import decision_at, policy_at


@pytest.fixture
def hvac(tmp_path: Path) -> str:
    """A name in a registry that does not exist yet."""
    return str(tmp_path / "registry" / "hvac")


def fingerprint(uri: str) -> str:
    return read_policy_manifest(uri).fingerprint


def promoted(registry: str, tmp_path: Path, number: int) -> PromotionResult:
    """Policy `number` as the champion, by a decision against the one before."""
    policy = policy_at(tmp_path / f"policy-{number}", number)
    histories = offline.read_registry(registry)
    against = f"{registry}/{histories[0].aliases['champion'].checkpoint}" if histories else "behaviour"
    return offline.promote(decision_at(tmp_path / f"decision-{number}", policy, against=against), registry=registry)


def champion(registry: str) -> str:
    return offline.read_registry(registry)[0].aliases["champion"].fingerprint


def test_a_decision_makes_a_champion_and_is_written_down(hvac: str, tmp_path: Path) -> None:
    policy = policy_at(tmp_path / "policy", 1)
    decision = decision_at(tmp_path / "decision", policy)
    made = offline.promote(decision, registry=hvac, moved_by="nightly")
    [history] = offline.read_registry(tmp_path / "registry")
    assert history.name == "hvac" and history.aliases == {"champion": made.move} and [*history.moves] == [made.move]
    move = made.move
    assert (move.number, move.kind, move.moved_by, move.previous) == (1, "promote", "nightly", None)
    assert (move.source, move.fingerprint) == (policy, fingerprint(policy))
    assert move.evidence is not None and move.evidence.decision == decision and move.evidence.sentence in move.because
    assert fingerprint(made.checkpoint) == fingerprint(policy) and not made.reused
    assert made.address == f"{hvac}@champion"
    assert [each.wrong for each in verify(hvac)] == [(), ()], "the move and the copy have checksums"


def test_the_champion_stays_when_its_training_is_overwritten(hvac: str, tmp_path: Path) -> None:
    """A nightly training writes to the same folder each night."""
    policy = policy_at(tmp_path / "policy", 1)
    offline.promote(decision_at(tmp_path / "decision", policy), registry=hvac)
    acts = offline.load_policy(policy).act(np.eye(4, dtype=np.float32))
    policy_at(policy, 2)
    assert (offline.load_policy(f"{hvac}@champion").act(np.eye(4, dtype=np.float32)) == acts).all()
    shutil.rmtree(policy)
    assert offline.load_policy(f"{hvac}@champion") is not None


def test_the_same_promotion_again_moves_nothing(hvac: str, tmp_path: Path) -> None:
    first, again = promoted(hvac, tmp_path, 1), promoted(hvac, tmp_path, 1)
    assert again.reused and again.move == first.move
    assert len(offline.read_registry(hvac)[0].moves) == 1


def test_a_decision_is_given_as_a_result(hvac: str, tmp_path: Path) -> None:
    policy = policy_at(tmp_path / "policy", 1)
    found = read_decision(decision_at(tmp_path / "decision", policy))
    assert found is not None
    result = offline.promote(found.result, registry=hvac)
    assert offline.evaluate(result, episodes=2).checkpoint == result.checkpoint


@pytest.mark.parametrize("verdict", ["test", "collect", "keep", "refused"])
def test_no_other_verdict_moves_an_alias(hvac: str, tmp_path: Path, verdict: str) -> None:
    policy = policy_at(tmp_path / "policy", 1)
    decision = decision_at(tmp_path / "decision", policy, verdict=verdict, sentence="It is not better.")
    with pytest.raises(PromotionError, match=f"the verdict of .*/decision is {verdict}. It is not better. Promote by"):
        offline.promote(decision, registry=hvac)
    assert not Path(hvac).exists()
    made = offline.promote(decision, registry=hvac, override="the building is empty")
    assert made.move.kind == "assign" and made.move.evidence is not None and made.move.evidence.verdict == verdict
    assert made.move.because == "override: the building is empty"


def test_a_checkpoint_that_has_changed_since_is_not_promoted(hvac: str, tmp_path: Path) -> None:
    policy = policy_at(tmp_path / "policy", 1)
    decision = decision_at(tmp_path / "decision", policy)
    policy_at(policy, 2)
    for override in (None, "all the same"):
        with pytest.raises(PromotionError, match="has changed since the decision"):
            offline.promote(decision, registry=hvac, override=override)
    policy_at(policy, 1)
    [weights] = Path(policy).glob("weights-*")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    with pytest.raises(CheckpointError, match="does not match its SHA-256"):
        offline.promote(decision, registry=hvac)
    assert not offline.read_registry(hvac)


def test_a_decision_against_another_policy_than_the_champion_is_refused(hvac: str, tmp_path: Path) -> None:
    first = promoted(hvac, tmp_path, 1)
    policy = policy_at(tmp_path / "policy", 2)
    stale = decision_at(tmp_path / "stale", policy, against=policy_at(tmp_path / "old", 3))
    with pytest.raises(PromotionError, match=r"with .*/old, and now it names .*/checkpoints/.* Decide against .*@champion"):
        offline.promote(stale, registry=hvac)
    with pytest.raises(PromotionError, match="compared with what the log recorded"):
        offline.promote(decision_at(tmp_path / "logged", policy), registry=hvac)
    assert champion(hvac) == first.move.fingerprint
    copied = decision_at(
        tmp_path / "d", policy, against=str(tmp_path / "moved-away"), against_fingerprint=first.move.fingerprint
    )
    assert offline.promote(copied, registry=hvac).move.previous == first.move.checkpoint


@pytest.mark.parametrize(
    ("made_for", "told"),
    [("registry/lights", r"for .*/registry/lights"), ("other/hvac", "for .*/other/hvac"), (None, "for no")],
)
def test_a_decision_promotes_in_the_registry_it_was_made_for_and_in_no_other(
    hvac: str, tmp_path: Path, made_for: str | None, told: str
) -> None:
    registry = made_for and str(tmp_path / made_for)
    decision = decision_at(tmp_path / "decision", policy_at(tmp_path / "policy", 1), registry=registry)
    with pytest.raises(PromotionError, match=rf"was made {told}.* Decide for this one, .* registry={hvac}, or say"):
        offline.promote(decision, registry=hvac)
    first = promoted(hvac, tmp_path, 2)
    same = decision_at(
        tmp_path / "again",
        str(tmp_path / "policy"),
        against=first.checkpoint,
        against_fingerprint=first.move.fingerprint,
        registry=registry,
    )
    with pytest.raises(PromotionError, match=rf"was made {told}.* against={hvac}@champion, or say"):
        offline.promote(same, registry=hvac)
    assert champion(hvac) == first.move.fingerprint
    if registry:
        assert offline.promote(decision, registry=registry).address == f"{registry}@champion"
    assert offline.promote(decision, registry=hvac, override="it fits here, too").move.kind == "assign"


def test_a_decision_moves_an_alias_once(hvac: str, tmp_path: Path) -> None:
    """A schedule that reuses last night's decision does not undo a rollback."""
    promoted(hvac, tmp_path, 1)
    promoted(hvac, tmp_path, 2)
    offline.rollback(hvac, reason="it froze the third floor")
    with pytest.raises(PromotionError, match=r"moved it before .* Decide again"):
        offline.promote(str(tmp_path / "decision-2"), registry=hvac)
    assert champion(hvac) == fingerprint(str(tmp_path / "policy-1"))


def test_a_checkpoint_needs_words_and_an_address_is_one(hvac: str, tmp_path: Path) -> None:
    policy = policy_at(tmp_path / "policy", 1)
    with pytest.raises(PromotionError, match=r"There is no decision in .*/policy\. An alias moves by"):
        offline.promote(policy, registry=hvac)
    with pytest.raises(ConfigError, match="override"):
        offline.promote(policy, registry=hvac, override="  ")
    tried = offline.promote(policy, registry=hvac, alias="challenger", override="for the A/B test")
    made = offline.promote(tried.address, registry=hvac, override="it won the A/B test")
    assert made.checkpoint == tried.checkpoint and made.move.kind == "assign" and made.move.evidence is None
    assert {*offline.read_registry(hvac)[0].aliases} == {"challenger", "champion"}


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda text: text.replace('"verdict": "keep"', '"verdict": "promote"'), CorruptFileError, "damaged, or was edited"),
        (lambda text: json.dumps(json.loads(text) | {"checksum": ""}), CorruptFileError, "is missing or differs"),
        (lambda _: "{}", CorruptFileError, "is missing or differs"),
    ],
)
def test_a_verdict_that_was_written_by_hand_is_not_believed(
    hvac: str, tmp_path: Path, damage: Callable[[str], str], error: type[Exception], message: str
) -> None:
    decision = decision_at(tmp_path / "decision", policy_at(tmp_path / "policy", 1), verdict="keep")
    file = Path(decision) / "result.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(error, match=message):
        offline.promote(decision, registry=hvac)
    assert not Path(hvac).exists()


def test_the_result_of_another_stage_is_no_decision(hvac: str, tmp_path: Path) -> None:
    made = offline.promote(policy_at(tmp_path / "policy", 1), registry=hvac, override="first")
    store_result(Location.of(str(tmp_path / "other" / "result.json")), "x", made, fingerprints={})
    with pytest.raises(PromotionError, match="is no decision"):
        offline.promote(str(tmp_path / "other"), registry=hvac, override="why not")


class Trained(BaseModel):
    """What tells the result of a training."""

    losses: dict[str, float] = {}
    epochs: float = 1.0


def test_the_folder_of_a_training_stands_for_its_best_policy(hvac: str, tmp_path: Path) -> None:
    training = tmp_path / "training"
    policy = policy_at(training / "best", 1)
    store_result(Location.of(str(training / "result.json")), "x", Trained(), fingerprints={})
    with pytest.raises(PromotionError, match=r"There is no decision in .*/training\. An alias moves by"):
        offline.promote(training, registry=hvac)
    assert offline.promote(training, registry=hvac, override="a test").move.source == policy


def another(uri: Path, numbers: int = 4, actions: int = 2, *, names: str = "abcd", bound: float = 10) -> str:
    """A policy that sees these columns."""
    policy = Policy(spaces.Box(-bound, bound, (numbers,)), spaces.Discrete(actions), seed=numbers * actions + int(bound))
    policy.input_columns = InputColumns(steps=RowSteps(), obs=[*names])
    save_policy(policy, str(uri), operation=Operation(name="test"))
    return str(uri)


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "seen": ({"numbers": 5}, r"the observation space Box.* in place of Box"),
    "done": ({"actions": 3}, r"the action space Discrete\(3\) in place of Discrete\(2\)"),
    "columns": (
        {"names": "abdc", "bound": 7},
        r"other columns: obs is \['a', 'b', 'd', 'c'\] and \['a'",
    ),
}


@pytest.mark.parametrize("alias", ["champion", "challenger"])
@pytest.mark.parametrize("kind", OTHERS)
def test_a_policy_that_sees_or_does_other_things_goes_under_another_name(
    hvac: str, tmp_path: Path, kind: str, alias: str
) -> None:
    """Whatever is said for it; bounds may differ, as they are guessed at an import."""
    offline.promote(another(tmp_path / "present"), registry=hvac, override="the first")
    values, told = OTHERS[kind]
    other = another(tmp_path / "other", **values)
    with pytest.raises(PromotionError, match=rf"{alias} of {hvac} is not moved: .*{told}.* under another name, as {hvac}-2"):
        offline.promote(other, registry=hvac, alias=alias, override="oops")
    alike = offline.promote(another(tmp_path / "alike", bound=9), registry=hvac, override="alike")
    shutil.rmtree(alike.checkpoint)
    assert offline.promote(other, registry=hvac, override="that one is gone").move.kind == "assign"


def priced(uri: Path, labels: list[Any] | None, *, seen: int = 1, known: tuple[str, ...] = (), box: bool = False) -> str:
    space = spaces.Box(-1, 1, (2,)) if box else spaces.Discrete(3 if labels is None else len(labels))
    policy = Policy(spaces.Box(-1, 1, (seen,)), space, seed=1)
    encode = {"tariff": Encoding(categories=list(known))} if known else {}
    policy.input_columns = InputColumns(steps=RowSteps(encode=encode), obs=["demand"], action="price", labels=labels)
    save_policy(policy, str(uri), operation=Operation(name="test"))
    return str(uri)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"labels": [0.2, 0.3]}, {"labels": [0.2, 0.3, 0.4]}, None),  # a tariff that is new on the list
        ({"labels": [7.5, 9.2]}, {"labels": [7.6, 9.5]}, None),  # quantiles of other months
        ({"labels": None, "known": ("a", "b")}, {"labels": None, "known": ("a", "b", "c"), "seen": 2}, None),
        ({"labels": [0.2, 0.3, 0.4]}, {"labels": [20, 30, 40, 50]}, "other labels"),
        ({"labels": ["off", "on"]}, {"labels": None}, "other labels"),
        ({"labels": None, "known": ("a",)}, {"labels": None, "known": ("a", "b"), "box": True}, "action space Box"),
        ({"labels": None}, {"labels": None, "seen": 2}, "observation space Box"),
    ],
)
def test_a_policy_of_the_same_columns_may_know_and_choose_other_values(
    hvac: str, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], told: str | None
) -> None:
    offline.promote(priced(tmp_path / "before", **before), registry=hvac, override="the first")
    other = priced(tmp_path / "after", **after)
    if told is None:
        assert offline.promote(other, registry=hvac, override="of this month").move.kind == "assign"
        return
    with pytest.raises(PromotionError, match=told):
        offline.promote(other, registry=hvac, override="oops")


def test_a_registry_is_no_name_and_below_a_name_is_none(hvac: str, tmp_path: Path) -> None:
    promoted(hvac, tmp_path, 1)
    registry = str(Path(hvac).parent)
    for wrong, told in (
        (registry, rf"{registry} is a registry with the names hvac, and no name itself. Give one of them, as {hvac}, or"),
        (f"{hvac}/new", rf"{hvac} is a name in a registry, and has no names below it. Give it, or .* as {registry}/new\."),
    ):
        with pytest.raises(ConfigError, match=told):
            offline.promote(str(tmp_path / "policy-1"), registry=wrong, override="a test")
        with pytest.raises(ConfigError, match=told):
            offline.rollback(wrong)
    assert [history.name for history in offline.read_registry(registry)] == ["hvac"]


def test_how_the_policy_was_judged_is_told_after_a_rollback_too(hvac: str, tmp_path: Path) -> None:
    for number, explore in ((1, False), (2, True)):
        against = {} if number == 1 else {"against": f"{hvac}/{offline.read_registry(hvac)[0].aliases['champion'].checkpoint}"}
        policy = policy_at(tmp_path / f"policy-{number}", number)
        decision = decision_at(tmp_path / f"decision-{number}", policy, explore=explore, **against)
        assert offline.promote(decision, registry=hvac).explore is explore
    back = offline.rollback(hvac)
    assert back.explore is False and "takes its likeliest action" in str(back.card().facts["Judged"])
    assert "it takes its likeliest action" in registry_card(hvac).terminal(verbose=True)


def test_rollbacks_go_back_one_by_one_and_never_forth(hvac: str, tmp_path: Path) -> None:
    made = [promoted(hvac, tmp_path, number) for number in (1, 2, 3)]
    back = [offline.rollback(hvac, reason="too cold"), offline.rollback(hvac)]
    assert [each.move.restores for each in back] == [2, 1]
    assert [each.checkpoint for each in back] == [made[1].checkpoint, made[0].checkpoint]
    assert [each.move.because for each in back] == ["back to move 2: too cold", "back to move 1"]
    with pytest.raises(PromotionError, match="it named no policy before the one"):
        offline.rollback(hvac)
    promoted(hvac, tmp_path, 4)
    assert offline.rollback(hvac).checkpoint == made[0].checkpoint
    [history] = offline.read_registry(hvac)
    assert [move.kind for move in history.moves] == ["promote"] * 3 + ["rollback"] * 2 + ["promote", "rollback"]


def test_a_rollback_touches_its_alias_alone(hvac: str, tmp_path: Path) -> None:
    policies = [policy_at(tmp_path / str(number), number) for number in (1, 2)]
    for alias in ("champion", "challenger"):
        for policy in policies:
            offline.promote(policy, registry=hvac, alias=alias, override="a test")
    offline.rollback(hvac, alias="challenger")
    named = {alias: move.fingerprint for alias, move in offline.read_registry(hvac)[0].aliases.items()}
    assert named == {"challenger": fingerprint(policies[0]), "champion": fingerprint(policies[1])}


def test_there_is_nothing_to_roll_back(hvac: str, tmp_path: Path) -> None:
    with pytest.raises(PromotionError, match="no such alias; nothing was promoted there yet"):
        offline.rollback(hvac)
    first = promoted(hvac, tmp_path, 1)
    with pytest.raises(PromotionError, match="no such alias; there are champion"):
        offline.rollback(hvac, alias="challenger")
    promoted(hvac, tmp_path, 2)
    shutil.rmtree(first.checkpoint)
    with pytest.raises(PromotionError, match=r"is missing or damaged, and was .*Restore the folder from a copy, or promote"):
        offline.rollback(hvac)


@pytest.mark.parametrize("name", ["..", "a@champion", "", "a b", "@", ".hidden", "x" * 200])
def test_hostile_names_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    policy = policy_at(tmp_path / "policy", 1)
    with pytest.raises(ConfigError, match="no name of a policy"):
        offline.promote(policy, registry=f"{tmp_path}/registry:/{name}", override="a test")
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


@pytest.mark.parametrize("alias", ["", "..", "a/b", "a@b", "7", "x" * 64, "a\nb"])
def test_hostile_aliases_are_refused(hvac: str, tmp_path: Path, alias: str) -> None:
    with pytest.raises(ConfigError, match="alias"):
        offline.promote(str(tmp_path), registry=hvac, alias=alias, override="a test")


def moved_between(monkeypatch: pytest.MonkeyPatch, module: str, act: Callable[[], object]) -> None:
    """Acts once, between what a promotion or rollback reads and what it writes."""

    def commit(history: History, move: Move) -> Move:
        monkeypatch.undo()
        act()
        return commit_move(history, move)

    monkeypatch.setattr(f"offline_core.keeping.promotion.{module}.commit_move", commit)


def test_of_two_promoters_one_wins_and_the_other_is_told_by_whom(
    hvac: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promoted(hvac, tmp_path, 1)
    other = policy_at(tmp_path / "other", 9)
    act: Any = lambda: offline.promote(other, registry=hvac, override="it is urgent", moved_by="eve@plant")  # noqa: E731
    moved_between(monkeypatch, "promote", act)
    with pytest.raises(
        PromotionError, match=rf"moved meanwhile, .* {fingerprint(other)} .*by eve@plant.*it is urgent.*offline registry {hvac}"
    ):
        promoted(hvac, tmp_path, 2)
    assert champion(hvac) == fingerprint(other) and len(offline.read_registry(hvac)[0].moves) == 2


def test_a_move_of_another_alias_is_no_conflict(hvac: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    promoted(hvac, tmp_path, 1)
    other = policy_at(tmp_path / "other", 9)
    act: Any = lambda: offline.promote(other, registry=hvac, alias="challenger", override="try it")  # noqa: E731
    moved_between(monkeypatch, "promote", act)
    assert promoted(hvac, tmp_path, 2).move.number == 3


def test_a_rollback_loses_to_a_promotion(hvac: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    promoted(hvac, tmp_path, 1)
    promoted(hvac, tmp_path, 2)
    moved_between(monkeypatch, "rollback", lambda: promoted(hvac, tmp_path, 3))
    with pytest.raises(PromotionError, match="moved meanwhile"):
        offline.rollback(hvac)
    assert champion(hvac) == fingerprint(str(tmp_path / "policy-3"))


def test_a_rollback_whose_answer_is_lost_is_not_tried_again(hvac: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2, 3):
        promoted(hvac, tmp_path, number)

    def lost(history: History, move: Move) -> Move:
        commit_move(history, move)
        raise Unavailable("no answer.")

    monkeypatch.setattr("offline_core.keeping.promotion.rollback.commit_move", lost)
    with pytest.raises(StorageError, match=r"may have been rolled back, or not: no answer. Look with") as caught:
        offline.rollback(hvac)
    assert not caught.value.may_pass


def test_whom_is_known_without_a_name(hvac: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert promoted(hvac, tmp_path, 1).move.moved_by.startswith("unknown@")
