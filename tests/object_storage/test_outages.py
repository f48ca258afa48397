"""An object store that does not answer while something is read to decide: nothing is taken for absent, or for damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.datasets.result_cache import RESULT_FILE
from offline_core.data.formats.exports.folder import strange_files
from offline_core.data.store import lease, object_store
from offline_core.data.store.location import Location
from offline_core.errors import StorageUnavailableError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.learning.train import train
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.manifest import fingerprint_of, read_policy_manifest
from offline_core.runtime.config import parse
from tests.learning.test_resume import ALONE
from tests.learning.test_train import balancing_episodes, dataset_of
from tests.object_storage.faults import Fault, Plan, Proxy, Request, no_faults, refusal


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One refusal is an outage."""
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)  # for which a folder is held that could not be given back


def away(part: str) -> Plan:
    """What has that in its name cannot be read; but it can be found, and deleted."""
    down = refusal(503, "ServiceUnavailable")

    def plan(request: Request) -> Fault | None:
        is_meant = request.method == "GET" and part in request.path.partition("?")[0]
        return down if is_meant else None

    return plan


@pytest.fixture
def policy(bucket: str, proxied: Proxy, cartpole_policy: str) -> str:
    """In the bucket."""
    for file in Path(cartpole_policy).glob("*.*"):
        Location.of(f"{bucket}/policy/{file.name}").write(file.read_bytes())
    return f"{bucket}/policy"


READS: dict[str, Callable[[str], object]] = {"manifest": read_policy_manifest, "load": load_policy, "look": fingerprint_of}


@pytest.mark.parametrize(
    ("read", "part"), [("manifest", "policy.json"), ("load", "weights-"), ("look", ""), ("look", "weights-")]
)
def test_a_policy_that_is_away_is_not_one_that_is_not_there(policy: str, proxied: Proxy, read: str, part: str) -> None:
    proxied.plan = away(f"/policy/{part}")
    with pytest.raises(StorageUnavailableError, match=r"Try again when the storage answers"):
        READS[read](policy)
    proxied.plan = no_faults
    assert READS[read](policy)


def test_an_export_that_is_away_is_not_taken_for_something_else(bucket: str, proxied: Proxy) -> None:
    place = Location.of(f"{bucket}/export")
    place.child(RESULT_FILE).write(b'{"place": "", "identity": "", "made": {"a": "1"}, "result": {}}')
    place.child("a").write(b"1")
    proxied.plan = away(RESULT_FILE)
    with pytest.raises(StorageUnavailableError):
        strange_files(place)
    proxied.plan = no_faults
    assert strange_files(place) == []


@pytest.mark.slow
def test_a_training_whose_state_is_away_goes_on_when_it_is_back(
    bucket: str, proxied: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse(TrainingConfig, ALONE)
    data, output = dataset_of(tmp_path / "data", balancing_episodes(), rows=5, environment=None), f"{bucket}/run"
    update = Learner.update

    def until_ended(learner: Learner, *batch: Any) -> bool:
        if learner.updates == 24:
            raise KeyboardInterrupt
        return update(learner, *batch)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Learner, "update", until_ended)
        train(config, dataset=data, output=output)
    states = Location.of(f"{output}/checkpoints")
    before = states.sizes()
    assert len([name for name in before if name.endswith(".json")]) == 2

    proxied.plan = away("/checkpoints/0")
    with pytest.raises(StorageUnavailableError):
        train(config, dataset=data, output=output)
    proxied.plan = no_faults
    assert states.sizes() == before
    learned: list[int] = []
    monkeypatch.setattr(Learner, "update", lambda learner, *batch: learned.append(learner.updates) or update(learner, *batch))
    again = train(config, dataset=data, output=output)
    assert learned[0] == 21, "from the newest state"
    assert again.losses == train(config, dataset=data, output=str(tmp_path / "whole")).losses
