"""A registry in a bucket: a promotion, promoters at the same time, a rollback."""

from __future__ import annotations

from pathlib import Path

import pytest

import offline_core as offline
from offline_core.errors import CheckpointError, StorageError
from offline_core.policies.manifest import read_policy_manifest
from tests.object_storage.processes import answers, talking
from tests.promotion.decisions import decision_at, policy_at

ROUNDS = 5
PROMOTERS = 3

PROMOTER = """
import sys
import offline_core as offline
from offline_core.errors import PromotionError
from offline_core.promotion import promote

chosen = promote.commit_move
def commit(history, move):  # all have read the history before any writes
    print("read", flush=True)
    sys.stdin.readline()
    return chosen(history, move)
promote.commit_move = commit
print("ready", flush=True)
for line in sys.stdin:
    registry, policy = line.split()
    try:
        made = offline.promote(f"{policy}-{sys.argv[1]}", registry=registry, override="a race", moved_by=sys.argv[1])
        print("won", made.move.number, flush=True)
    except PromotionError as error:
        told = " ".join(str(error).split())
        assert "moved meanwhile" in told and "offline registry " + registry in told, told
        print("lost to", told.partition(", by ")[2].partition(")")[0], flush=True)
"""


@pytest.fixture(params=["bucket", "disk"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("bucket")) if request.param == "bucket" else str(tmp_path)


def test_of_promoters_at_the_same_time_one_wins(root: str) -> None:
    registry = f"{root}/registry/hvac"
    policies = [[policy_at(f"{root}/{n}-{who}", 10 * n + who) for who in range(PROMOTERS)] for n in range(1, ROUNDS + 1)]
    with talking(PROMOTER, *((who,) for who in range(PROMOTERS))) as promoters:
        for number, made in enumerate(policies, 1):
            assert answers(promoters, f"{registry} {root}/{number}") == ["read"] * PROMOTERS
            told = answers(promoters, first=number)
            [winner] = [who for who, said in enumerate(told) if said == f"won {number}"]
            assert [said for said in told if said != f"won {number}"] == [f"lost to {winner}"] * (PROMOTERS - 1)
            [history] = offline.read_registry(registry)
            champion = history.aliases["champion"]
            assert champion.fingerprint == read_policy_manifest(made[winner]).fingerprint
            assert (len(history.moves), champion.moved_by) == (number, str(winner))


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
