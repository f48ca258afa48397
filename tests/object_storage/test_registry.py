"""A registry in a bucket: a promotion, promoters at the same time, a rollback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import offline_core as offline
from offline_core.errors import CheckpointError, PromotionError, StorageError
from offline_core.keeping.promotion import promote
from offline_core.policies.manifest import read_policy_manifest
from tests.keeping.promotion.decisions import decision_at, policy_at
from tests.object_storage.processes import answers, talking

PROMOTERS = 3

PROMOTER = """
import sys
from offline_core.keeping.promotion import promote
from tests.object_storage.test_registry import promoted, waiting

def wait():  # all have read the history before any writes
    print("read", flush=True)
    sys.stdin.readline()
promote.commit_move = waiting(wait)
print("ready", flush=True)
for line in sys.stdin:
    print(promoted(*line.split(), who=sys.argv[1]), flush=True)
"""


def waiting(wait: Callable[[], object]) -> Callable[..., Any]:
    """What commits a move, after a wait."""
    chosen = promote.commit_move

    def commit(history: Any, move: Any) -> Any:
        wait()
        return chosen(history, move)

    return commit


def promoted(registry: str, policy: str, *, who: str) -> str:
    """What a promoter says of its turn."""
    try:
        made = offline.promote(f"{policy}-{who}", registry=registry, override="a race", moved_by=who)
        return f"won {made.move.number}"
    except PromotionError as error:
        told = " ".join(str(error).split())
        assert "moved meanwhile" in told and f"offline registry {registry}" in told, told
        return f"lost to {told.partition(', by ')[2].partition(')')[0]}"


@pytest.fixture(params=["bucket", "disk"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("bucket")) if request.param == "bucket" else str(tmp_path)


def race(root: str, rounds: int, turn: Callable[[str, str, int], list[str]]) -> None:
    """Rounds in which all promote a policy of their own, by `turn`, with its registry, the policies' place and its number."""
    registry = f"{root}/registry/hvac"
    for number in range(1, rounds + 1):
        made = [policy_at(f"{root}/{number}-{who}", 10 * number + who) for who in range(PROMOTERS)]
        told = turn(registry, f"{root}/{number}", number)
        [winner] = [who for who, said in enumerate(told) if said == f"won {number}"]
        assert [said for said in told if said != f"won {number}"] == [f"lost to {winner}"] * (PROMOTERS - 1)
        [history] = offline.read_registry(registry)
        champion = history.aliases["champion"]
        assert champion.fingerprint == read_policy_manifest(made[winner]).fingerprint
        assert (len(history.moves), champion.moved_by) == (number, str(winner))


def test_of_promoters_at_the_same_time_one_wins(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promote, "commit_move", waiting(threading.Barrier(PROMOTERS).wait))
    with ThreadPoolExecutor(PROMOTERS) as pool:

        def turn(registry: str, place: str, number: int) -> list[str]:
            return [*pool.map(lambda who: promoted(registry, place, who=str(who)), range(PROMOTERS))]

        race(root, 2, turn)


@pytest.mark.slow
def test_of_processes_that_promote_at_the_same_time_one_wins(root: str) -> None:
    with talking(PROMOTER, *((who,) for who in range(PROMOTERS))) as promoters:

        def turn(registry: str, place: str, number: int) -> list[str]:
            assert answers(promoters, f"{registry} {place}") == ["read"] * PROMOTERS
            return answers(promoters, first=number)

        race(root, 5, turn)


def test_promoted_loaded_and_rolled_back_in_a_bucket(bucket: str) -> None:
    registry, address = f"{bucket}/registry/hvac", f"{bucket}/registry/hvac@champion"
    first = policy_at(f"{bucket}/first", 1)
    offline.promote(decision_at(f"{bucket}/decision-1", first), registry=registry)
    copy = offline.evaluate(address, episodes=2).checkpoint
    assert copy.startswith(f"{registry}/checkpoints/")
    second = decision_at(f"{bucket}/decision-2", policy_at(f"{bucket}/second", 2), against=copy)
    assert offline.promote(second, registry=registry).checkpoint != copy
    assert offline.rollback(registry, reason="too warm").checkpoint == copy
    assert offline.evaluate(address, episodes=2).reused
    assert offline.load_policy(address) is not None
    assert [history.name for history in offline.read_registry(f"{bucket}/registry")] == ["hvac"]
    with pytest.raises(CheckpointError, match="has the names hvac"):
        offline.load_policy(f"{bucket}/registry/lights@champion")


def test_a_missing_bucket_is_no_missing_registry(bucket: str) -> None:
    with pytest.raises(StorageError, match="the bucket does not exist"):
        offline.load_policy("s3://nowhere-at-all/registry/hvac@champion")
