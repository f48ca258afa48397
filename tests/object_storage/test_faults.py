"""A network that fails now and then: no episode is lost and none is there twice, whatever happened to which request."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.commit import commit, find_version, prepare_dataset
from offline_core.data.datasets.damage import missing_files
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import DatasetRef, open_dataset, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode
from offline_core.data.store.location import Location
from offline_core.errors import OfflineError, StorageError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.record import record
from offline_core.runtime.config import parse
from offline_core.runtime.ray_session import ray_session
from tests.cases import slow_but
from tests.data.datasets.factories import episode
from tests.object_storage.faults import FAULTS, Fault, Proxy, no_faults, refusal, seeded

WRITERS = 3
EPISODES = [episode(i, 20) for i in range(24)]
OPERATION = Operation(name="test")
TRIES = 4
RUNS = 20

Result = TypeVar("Result")


def write_part(uri: str, part: int) -> EpisodeWriter:
    """As a recorder does, in a folder of its own."""
    root, config = Location.of(uri), FilesConfig(max_rows_per_file=3)
    with EpisodeWriter(root, f"part-{part}/run", format="episodes", config=config) as writer:
        for each in EPISODES[part::WRITERS]:
            writer.write([each])
    return writer


def run_record(uri: str) -> DatasetRef:
    """Prepared, looked up, locked, written by several, committed: as operations do it."""
    prepare_dataset(uri)
    with Location.of(uri).locked():
        if found := find_version(uri, OPERATION, []):
            return found.ref
        with ThreadPoolExecutor(WRITERS) as pool:
            writers = list(pool.map(lambda part: write_part(uri, part), range(WRITERS)))
        files = [file for writer in writers for file in writer.files]
        statistics = Statistics.of([rows for writer in writers for rows in writer.summaries])
        return commit(uri, files, format="episodes", operation=OPERATION, statistics=statistics).ref


def tried(do: Callable[[], Result]) -> Result:
    """As an orchestrator tries: again if it may pass; all else is an error of the test."""
    for _ in range(TRIES - 1):
        try:
            return do()
        except OfflineError as error:
            if not error.may_pass:
                raise
    return do()


def until_it_succeeds(uri: str) -> DatasetRef:
    return tried(lambda: run_record(uri))


def read_back(uri: str) -> list[Episode]:
    return tried(lambda: list(open_dataset(uri).episodes()))


def by_id(some: list[Episode]) -> list[Episode]:
    return sorted(some, key=lambda each: each.eps_id)


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_is_there_twice(bucket: str, proxied: Proxy) -> None:
    """At once, for they mostly wait; each meets faults of its own."""
    proxied.plan = seeded(0, rate=0.08)
    uris = [f"{bucket}/run-{number}" for number in range(RUNS)]
    with ThreadPoolExecutor(10) as pool:
        made = list(pool.map(until_it_succeeds, uris))
        for found in pool.map(read_back, uris):
            assert by_id(found) == EPISODES
    assert len(proxied.faults) > 3 * RUNS and {type(fault) for fault in proxied.faults} == {type(fault) for fault in FAULTS}
    proxied.plan = no_faults
    for uri, ref in zip(uris, made, strict=True):
        assert versions(uri) == [1] and until_it_succeeds(uri) == ref
        dataset = open_dataset(uri)
        assert missing_files(dataset) == {}
        there = {name for name in Location.of(uri).files() if name.endswith(".parquet")}
        assert there == {file.path for file in dataset.manifest.files}, "what was put twice is the same file"


@pytest.mark.parametrize("fault", slow_but(FAULTS[1:5], *FAULTS[3:5]), ids=lambda fault: type(fault).__name__)
def test_every_request_fails_once(bucket: str, proxied: Proxy, fault: Fault) -> None:
    """Whichever it is, from the first look to the last byte."""
    uri = f"{bucket}/runs/x"
    small = EPISODES[:3]
    proxied.plan = lambda request: fault if request.nth == 1 and request.method != "GET" else None

    prepare_dataset(uri)
    with EpisodeWriter(Location.of(uri), "part", format="episodes") as writer:
        writer.write(small)
    made = commit(uri, writer.files, format="episodes", operation=OPERATION, statistics=writer.statistics)
    assert made.ref.version == 1 and proxied.faults
    proxied.plan = lambda request: fault if request.nth == 1 else None
    assert list(open_dataset(uri).episodes()) == small
    assert versions(uri) == [1]


@pytest.mark.slow
def test_a_server_that_is_away_too_long_fails_the_try_and_not_the_next(bucket: str, proxied: Proxy) -> None:
    """In the middle: some files are there, their names are of what is in them, and the next try puts the same."""
    uri = f"{bucket}/runs/x"
    down = refusal(500, "InternalError")
    proxied.plan = lambda request: down if request.method == "PUT" and "/part-2/" in request.path else None
    with pytest.raises(StorageError, match=r"Try again when the storage answers") as caught:
        run_record(uri)
    assert caught.value.may_pass
    proxied.plan = no_faults
    assert versions(uri) == []
    left = {name for name in Location.of(uri).files() if name.endswith(".parquet")}
    assert left and not any(name.startswith("part-2") for name in left)
    ref = run_record(uri)
    assert by_id(read_back(uri)) == EPISODES
    assert left < {file.path for file in open_dataset(uri, ref.version).manifest.files}


@pytest.mark.slow
def test_recording_pruning_and_training_get_through(bucket: str, proxied: Proxy, cartpole_policy: str) -> None:
    """With Ray's actors, whose requests go the same way: a Ray of its own, which is started where the bucket is known."""
    raw, pruned = f"{bucket}/raw", f"{bucket}/pruned"
    recording = RecordingConfig(episodes=30, num_recorders=2, cpus_per_recorder=0.5, envs_per_recorder=4)
    pruning = PruningConfig(keep_top_fraction=0.5)
    training = parse(TrainingConfig, {"optimizer": {"batch_size": 64, "max_epochs": 2}, "evaluation": {"episodes": 2}})
    with ray_session():
        calm = record(recording, policy=cartpole_policy, output=f"{bucket}/calm").dataset
        proxied.plan = seeded(7, rate=0.12)
        made = tried(lambda: record(recording, policy=cartpole_policy, output=raw).dataset)
        best = tried(lambda: prune(pruning, dataset=raw, output=pruned).dataset)
        policy = tried(lambda: train(training, dataset=pruned, output=f"{bucket}/policy"))
    assert len(proxied.faults) >= 5
    proxied.plan = no_faults
    assert made.fingerprint == calm.fingerprint
    found = list(open_dataset(raw).episodes())
    assert len({each.eps_id for each in found}) == len(found) == 30
    assert found == list(open_dataset(f"{bucket}/calm").episodes())
    assert best.episodes == len(list(open_dataset(pruned).episodes())) == 15
    assert load_policy(policy.checkpoint) is not None
