"""Vacuum and forget beside runs that write: no file of a version is lost, however young a leftover may be deleted."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import offline_core as offline
from offline_core.data.curation.compact import compact
from offline_core.data.curation.config import CompactionConfig, MergeConfig, PruningConfig
from offline_core.data.curation.merge import merge
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.data_file import DataFile
from offline_core.data.datasets.dataset import VERSIONS, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.tags import read_tags, write_tag
from offline_core.data.datasets.verify import verify
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.store import holds
from offline_core.data.store import lease as lease_module
from offline_core.data.store.holds import alone, writing
from offline_core.data.store.lease import LeasingStore
from offline_core.data.store.location import Location
from offline_core.data.store.stores import WRITER, LocalStore
from offline_core.errors import BusyError, StorageError, VersionNotFoundError
from offline_core.keeping.retention.config import ForgetConfig, VacuumConfig
from offline_core.keeping.retention.forget import forget
from offline_core.keeping.retention.vacuum import vacuum
from offline_core.runtime.config import parse
from tests.data.datasets.factories import episode, found, write_dataset, write_files
from tests.waiting import PATIENCE_SECONDS

AT_ONCE = VacuumConfig(keep_versions=1, older_than_days=0, leftovers_older_than_days=0, delete=True)
FIRST = ForgetConfig(where="eps_id = 'log-0-0'", delete=True)
MAPPING = {"eps_id": "run", "t": "step", "obs": ["x"], "actions": "action", "rewards": "reward", "terminateds": "end"}
IMPORT = {"mapping": MAPPING, "episodes": {"last_new_obs": "repeat"}}
APPEND = parse(ImportConfig, IMPORT | {"append": True})

Write = Callable[[str, str], Any]


def log_file(folder: str | Path, number: int) -> None:
    """Two short episodes of one number."""
    rows = pl.DataFrame(
        {
            "run": np.repeat([f"log-{number}-0", f"log-{number}-1"], 3),
            "step": np.tile(np.arange(3), 2),
            "x": np.arange(6.0) + number,
            "action": np.arange(6) % 2,
            "reward": np.ones(6),
            "end": np.tile([False, False, True], 2),
        }
    )
    Path(folder).mkdir(exist_ok=True)
    rows.write_parquet(f"{folder}/{number}.parquet")


def append(logs: str, data: str) -> None:
    import_data(APPEND, source=logs, output=data)


WRITES: dict[str, Write] = {
    "append": append,
    "import": lambda logs, data: import_data(parse(ImportConfig, IMPORT), source=logs, output=data),
    "prune": lambda _, data: prune(PruningConfig(), dataset=data, output=data),
    "merge": lambda _, data: merge(MergeConfig(), datasets=[data], output=data),
    "compact": lambda _, data: compact(CompactionConfig(), dataset=data, output=data),
}


class Paused:
    """Writers stop when a data file of theirs has its name, which no manifest lists yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there, self.go_on = threading.Event(), threading.Event()
        finish = DataFile.finish

        def paused(file: DataFile) -> Any:
            entry = finish(file)
            self.there.set()
            assert self.go_on.wait(PATIENCE_SECONDS)
            return entry

        monkeypatch.setattr(DataFile, "finish", paused)


@pytest.mark.parametrize("name", WRITES)
def test_files_of_a_writer_stay_though_no_manifest_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    beside_a_writer(str(tmp_path / "logs"), str(tmp_path / "root/data"), monkeypatch, WRITES[name])


def beside_a_writer(logs: str, data: str, monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    for number in (0, 1):
        log_file(logs, number)
        append(logs, data)
    log_file(logs, 2)
    paused = Paused(monkeypatch)
    root = Location.of(data).parent.uri
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write, logs, data)
        assert paused.there.wait(PATIENCE_SECONDS)
        try:
            result = vacuum(AT_ONCE, root=root)
            assert (result.busy, result.leftovers, result.freed_bytes) == ([Location.of(data).uri], {}, 0)
            with pytest.raises(BusyError, match=r"Other runs are writing to .*data, so nothing was forgotten"):
                forget(FIRST, root=root)
        finally:
            paused.go_on.set()
        writer.result()
    assert versions(data) == [1, 2, 3] and not any(each.wrong for each in verify(data))
    assert [each.version for each in vacuum(AT_ONCE, root=root).removed] == [1, 2]
    forget(FIRST, root=root)
    assert not any(each.wrong for each in verify(data))
    assert "log-0-0" not in offline.open_dataset(data).table()["eps_id"]


def test_a_first_version_holds_forget_up_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be made of what is to be forgotten, and has no manifest by which it would be found."""
    log_file(tmp_path / "logs", 0)
    append(str(tmp_path / "logs"), f"{tmp_path}/root/data")
    paused = Paused(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        pruned = f"{tmp_path}/root/new"
        writer = pool.submit(prune, PruningConfig(), dataset=f"{tmp_path}/root/data", output=pruned)
        assert paused.there.wait(PATIENCE_SECONDS)
        with pytest.raises(BusyError, match=r"writing to .*root/new"):
            forget(FIRST, root=f"{tmp_path}/root")
        paused.go_on.set()
        writer.result()


def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set when somebody waits until nobody is alone in a folder."""
    waiting, sleep = threading.Event(), holds.time.sleep

    def slept(seconds: float) -> None:
        waiting.set()
        sleep(0.001)

    monkeypatch.setattr(holds.time, "sleep", slept)
    return waiting


@pytest.mark.parametrize("kind", ["write", "tag"])
def test_who_begins_while_one_is_alone_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    data = f"{tmp_path}/data"
    write_dataset(data, [episode(0)])
    done: dict[str, Callable[[], Any]] = {
        "write": lambda: prune(PruningConfig(), dataset=data, output=data),
        "tag": lambda: write_tag(Location.of(data), "good", 1),
    }
    waiting = waits(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        with alone(Location.of(data).child("_versions")):
            writer: Future[Any] = pool.submit(done[kind])
            assert waiting.wait(PATIENCE_SECONDS)
            assert versions(data) == [1] and not read_tags(Location.of(data))
        writer.result()
    assert versions(data) == [1, 2] or read_tags(Location.of(data)) == {"good": 1}
    assert not [name for name in found(tmp_path) if WRITER in name]


def test_a_tag_does_not_name_a_version_that_went(tmp_path: Path) -> None:
    write_dataset(tmp_path, [episode(0)])
    with pytest.raises(VersionNotFoundError, match=r"has no version 2, so 'good' cannot stand for it"):
        write_tag(Location.of(str(tmp_path)), "good", 2)


def test_a_version_without_its_files_is_not_committed(tmp_path: Path) -> None:
    """As after a sleep in which others took this run for dead."""
    files = write_files(tmp_path, [episode(0)], "episodes").files
    Path(tmp_path, files[0].path).unlink()
    with pytest.raises(StorageError, match=r"1 of the 1 files for the next version .* another run deleted them"):
        commit(str(tmp_path), files, format="episodes", operation=Operation(name="test"), statistics=Statistics())
    assert versions(str(tmp_path)) == []


class LeasesOnDisk(LocalStore):
    """Holds folders as object stores do."""

    lock, share, has_writers, is_locked = (
        LeasingStore.lock,
        LeasingStore.share,
        LeasingStore.has_writers,
        LeasingStore.is_locked,
    )


@pytest.mark.parametrize("store", [LocalStore(), LeasesOnDisk()], ids=lambda store: type(store).__name__)
def test_writers_do_not_hold_each_other_up_and_the_dead_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: LocalStore
) -> None:
    for name, seconds in (("LEASE_SECONDS", 60), ("HEARTBEAT_SECONDS", 0.02), ("POLL_SECONDS", 0.01)):
        monkeypatch.setattr(lease_module, name, seconds)
    folder = str(tmp_path)
    with store.share(folder), store.share(folder):
        assert store.has_writers(folder) and not store.is_locked(folder)
    assert not store.has_writers(folder)
    with store.lock(folder):
        assert store.is_locked(folder)
        with store.share(folder):
            assert store.has_writers(folder)
    assert not store.is_locked(folder)
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 0.05)
    (tmp_path / f"{WRITER}killed").write_bytes(b"somebody 17")
    (tmp_path / ".lock-000009").write_bytes(b"somebody 17")
    assert not store.has_writers(folder) and not store.is_locked(folder)
    assert not [name for name in found(tmp_path) if WRITER in name]


@pytest.mark.slow
def test_append_vacuum_and_forget_at_once(tmp_path: Path) -> None:
    for number in range(10):
        shutil.rmtree(tmp_path / "root", ignore_errors=True)
        logs, data = f"{tmp_path}/logs-{number}", f"{tmp_path}/root/data"
        log_file(logs, 0)
        append(logs, data)
        stop = threading.Event()

        def again_and_again(do: Callable[[], Any], stop: threading.Event = stop) -> int:
            done = 0
            while not (stop.is_set() and done):
                with suppress(BusyError):
                    do()
                    done += 1
            return done

        with ThreadPoolExecutor(3) as pool:
            others = [
                pool.submit(again_and_again, lambda: vacuum(AT_ONCE, root=f"{tmp_path}/root")),
                pool.submit(again_and_again, lambda: forget(FIRST, root=f"{tmp_path}/root")),
            ]
            try:
                for file in range(1, 6):
                    log_file(logs, file)
                    append(logs, data)
                    with writing(Location.of(data).child(VERSIONS)):  # else versions are deleted while they are looked at
                        assert not [each.wrong for each in verify(data) if each.wrong]
            finally:
                stop.set()
            assert all(other.result() for other in others)
        forget(FIRST, root=f"{tmp_path}/root")
        assert not any(each.wrong for each in verify(data))
        ids = set(offline.open_dataset(data).table()["eps_id"])
        assert ids == {f"log-{file}-{part}" for file in range(6) for part in range(2)} - {"log-0-0"}
