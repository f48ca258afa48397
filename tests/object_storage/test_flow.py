"""The whole chain on s3://, with real Prefect and Ray: the same bytes as on disk, written by those that make them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.client.schemas.sorting import FlowRunSort

from flows.expert_to_policy import ExpertToPolicyResult, expert_to_policy
from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.store import lease
from offline_core.data.store.location import Location
from offline_core.data.store.s3 import S3Store
from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.metrics import read_metrics
from offline_core.learning.train import train
from offline_core.policies.evaluation import EvaluationConfig
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.recording.config import RecordingConfig
from offline_core.runtime.config import parse
from tests.e2e.orchestra import Orchestra, checkout
from tests.learning.test_resume import ALONE, killed
from tests.learning.test_train import balancing_episodes, dataset_of
from tests.object_storage.conftest import SETTINGS
from tests.object_storage.contract import write_dataset
from tests.object_storage.faults import Proxy
from tests.object_storage.test_presigned import links_in

pytestmark = pytest.mark.filterwarnings("default")

CHAIN: dict[str, Any] = {
    "seed": 3,
    "expert": parse(ExpertConfig, {"total_steps": 8_000, "num_envs": 16, "evaluation": {"target_return": 30, "episodes": 3}}),
    "recording": RecordingConfig(episodes=20, num_recorders=2, cpus_per_recorder=0.5, envs_per_recorder=4),
    "pruning": PruningConfig(keep_top_fraction=0.5),
    "training": parse(TrainingConfig, {"optimizer": {"batch_size": 64, "max_epochs": 2}, "evaluation": {"episodes": 3}}),
    "evaluation": EvaluationConfig(episodes=3),
}


def fingerprints(result: ExpertToPolicyResult) -> list[str]:
    policies = [read_policy_manifest(uri).fingerprint for uri in (result.expert.checkpoint, result.training.checkpoint)]
    return [*policies, result.recording.fingerprint, result.pruning.dataset.fingerprint]


def latest_cards() -> dict[str, str]:
    """The cards of the run that began last, by their keys."""
    with get_client(sync_client=True) as client:
        run = client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)[0]
        wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
        return {card.key: str(card.data) for card in client.read_artifacts(artifact_filter=wanted) if card.key}


def test_a_short_chain_in_a_bucket_is_the_chain_on_disk(bucket: str, tmp_path: Path) -> None:
    """Without Prefect and Ray, whose chain is below: the same bytes over the wire, and nothing but them."""
    config = parse(TrainingConfig, {"optimizer": {"batch_size": 8, "max_epochs": 2}})
    found: list[list[str]] = []
    for root in (bucket, str(tmp_path)):
        write_dataset(f"{root}/raw", 12)
        for reused in (False, True):
            pruned = prune(CHAIN["pruning"], dataset=f"{root}/raw", output=f"{root}/pruned")
            trained = train(config, dataset=pruned.dataset.uri, output=f"{root}/policy")
            assert pruned.reused is trained.reused is reused
        place = Location.of(root)
        lines = [json.loads(line) for line in place.child("policy/metrics.jsonl").read().splitlines()]
        assert lines[-1]["updates"] == trained.updates
        assert not [name for name in place.files() if ".tmp-" in name]
        assert not [name for name in place.files() if SETTINGS["AWS_SECRET_ACCESS_KEY"].encode() in place.child(name).read()]
        found.append([pruned.dataset.fingerprint, read_policy_manifest(trained.checkpoint).fingerprint])
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_the_chain_in_a_bucket_is_the_chain_on_disk(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: list[str] = []
    put_file = S3Store.put_file
    monkeypatch.setattr(S3Store, "put_file", lambda self, file, path: uploaded.append(path) or put_file(self, file, path))

    root = f"{bucket}/runs/demo"
    result = expert_to_policy(root=root, **CHAIN)
    cards = latest_cards()
    assert fingerprints(result) == fingerprints(expert_to_policy(root=str(tmp_path / "demo"), **CHAIN))

    recorded = open_dataset(result.recording.uri)
    assert result.recording.uri == f"{root}/recording" and len(recorded.manifest.files) == 2
    assert uploaded and not [path for path in uploaded if "/recording/" in path], "recorders write to the bucket themselves"
    assert len({episode.eps_id for episode in recorded.episodes()}) == 20

    place = Location.of(root)
    for name in ("card.md", "card.png", "policy/card.png", "recording/_cards/000001.md", "pruned/_cards/000001.png"):
        assert place.child(name).is_file(), name
    lines = [json.loads(line) for line in place.child("policy/metrics.jsonl").read().splitlines()]
    assert lines[-1]["updates"] == result.training.updates
    assert drawn(place.child("policy/tensorboard"), tmp_path)["loss"] == [line["loss"] for line in lines if "loss" in line]
    assert not [name for name in place.files() if ".tmp-" in name or name.endswith((".lock", "/"))]
    assert {f"{root}/policy/best/policy.json", f"{root}/card.png"} <= links_in(cards["expert-to-policy-card"]).keys()
    assert f"{root}/recording/_versions/000001.json" in links_in(cards["record-card"])

    secret = SETTINGS["AWS_SECRET_ACCESS_KEY"].encode()
    assert not [name for name in place.files() if secret in place.child(name).read()]

    before = {name: size for name, size in place.sizes().items() if "/" in name and ".lock-" not in name}
    again = expert_to_policy(root=root, **CHAIN)
    assert again.expert.reused and again.pruning.reused and again.quality.reused and again.training.reused
    assert again.evaluation.reused and fingerprints(again) == fingerprints(result)
    assert "| Reused | yes" in latest_cards()["record-card"]
    after = place.sizes()
    assert {name: after.get(name) for name in before} == before


def drawn(board: Location, scratch: Path) -> dict[str, list[float]]:
    """What TensorBoard shows, by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for name in board.files():
        (scratch / "board").mkdir(exist_ok=True)
        (scratch / "board" / name).write_bytes(board.child(name).read())
    found = EventAccumulator(str(scratch / "board")).Reload()
    return {name: [pytest.approx(event.value) for event in found.Scalars(name)] for name in found.Tags()["scalars"]}


def recorded(place: Location) -> list[int]:
    """The updates of the metrics that are there."""
    return [record["updates"] for record in read_metrics(place)]


@pytest.mark.slow
def test_a_training_that_is_killed_goes_on_from_the_bucket(
    bucket: str, proxied: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its last state there, to the same bits; no record is lost or there twice, though few are put at once."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 2.0)  # for which the dead run still holds the folder
    data = dataset_of(tmp_path / "data", balancing_episodes(), rows=5, environment=None)
    config = parse(TrainingConfig, ALONE)
    whole = train(config, dataset=data, output=str(tmp_path / "whole"))
    output = f"{bucket}/killed"
    killed(data, output, ALONE, at=24)
    place = Location.of(output)
    assert [name for name in place.files() if name.startswith("checkpoints/")]
    assert recorded(place) == [*range(1, 8)], "of the first 7 of 21: the others are in the state"
    again = train(config, dataset=data, output=output)
    assert (again.losses, again.updates) == (whole.losses, whole.updates)
    one, other = (read_policy_manifest(uri) for uri in (whole.last_checkpoint, again.last_checkpoint))
    assert one.weights_sha256 == other.weights_sha256
    assert recorded(place) == [updates for updates, _ in whole.losses] == recorded(Location.of(str(tmp_path / "whole")))
    puts = [each for each in proxied.seen if each.request.method == "PUT" and each.request.path.endswith("/metrics.jsonl")]
    assert len(puts) == 3, "the first record of each, and the end"
    assert not [name for name in place.files() if name.startswith("checkpoints/")]


LONG: dict[str, Any] = {
    "expert": {"total_steps": 8_000, "num_envs": 16, "evaluation": {"target_return": 30, "episodes": 3}},
    "recording": {"episodes": 1000, "num_recorders": 1},
    "pruning": {"keep_top_fraction": 0.5},
    "training": {"optimizer": {"max_epochs": 2}, "evaluation": {"episodes": 3}},
    "evaluation": {"episodes": 3},
}
"""The recording takes some seconds, so that it can be met."""


@pytest.mark.slow
def test_a_flow_that_is_killed_while_it_records_goes_on_in_the_bucket(bucket: str, tmp_path: Path) -> None:
    """By a worker, and retried as Prefect's users do; it ends as if nothing had been, with nothing made or kept twice."""
    with Orchestra.started(
        home=tmp_path / "prefect", root=checkout(tmp_path / "checkout"), deployments=["expert-to-policy-smoke"]
    ) as orchestra:
        run = orchestra.submit("expert-to-policy/expert-to-policy-smoke", LONG | {"root": f"{bucket}/killed"})
        orchestra.wait_for_task(run, "record")
        os.kill(orchestra.pid_of(run), signal.SIGKILL)
        orchestra.wait_for(run, "CRASHED")
        orchestra.wait_for_no_ray()
        orchestra.wait_for_worker(run)
        made = Location.of(f"{bucket}/killed/expert/result.json").read()
        assert versions(f"{bucket}/killed/recording") == []
        orchestra.prefect("flow-run", "retry", run)
        orchestra.wait_for(run, "COMPLETED")
        assert Location.of(f"{bucket}/killed/expert/result.json").read() == made, "what was done is not done again"
        undisturbed = orchestra.submit("expert-to-policy/expert-to-policy-smoke", LONG | {"root": f"{bucket}/undisturbed"})
        orchestra.wait_for(undisturbed, "COMPLETED")
    one, other = (Location.of(f"{bucket}/{name}/recording") for name in ("killed", "undisturbed"))
    assert open_dataset(one.uri).ref.fingerprint == open_dataset(other.uri).ref.fingerprint
    assert versions(one.uri) == [1]
    files = [sorted(name for name in place.files() if name.endswith(".parquet")) for place in (one, other)]
    assert files[0] == files[1], "a part that was written twice has one name"
    policies = [read_policy_manifest(f"{bucket}/{name}/policy/best").fingerprint for name in ("killed", "undisturbed")]
    assert policies[0] == policies[1]
