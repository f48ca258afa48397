"""Vacuum: users outside of a dataset, shared files, numbers that are not used again, and what a kill leaves."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.dataset import VERSIONS, open_dataset, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.result_cache import RESULT_FILE, store_result
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.verify import verify
from offline_core.data.store.location import Location
from offline_core.errors import StorageError
from offline_core.keeping.retention.config import VacuumConfig
from offline_core.keeping.retention.vacuum import VacuumResult, vacuum
from tests.data.datasets.factories import episode, write_dataset, write_files

LATEST = VacuumConfig(keep_versions=1, older_than_days=0, delete=True)


def three_versions(folder: Path) -> str:
    for count in (2, 3, 4):
        write_dataset(folder / "data", [episode(number) for number in range(count)])
    return f"{folder}/data"


def gone(result: VacuumResult) -> list[int]:
    return [each.version for each in result.removed]


def test_what_was_made_from_a_version_keeps_it_also_from_outside_of_the_dataset(tmp_path: Path) -> None:
    data = three_versions(tmp_path)
    prune(PruningConfig(), dataset=data, version=2, output=f"{tmp_path}/pruned")
    result = open_dataset(data, 1)
    place = Location.of(f"{tmp_path}/decision").make_folder().child(RESULT_FILE)
    store_result(place, "an identity", result.ref, fingerprints={})
    found = vacuum(LATEST, root=data)
    assert gone(found) == []
    assert {each.version: each.reason for each in found.kept} == {
        1: f"{tmp_path}/decision/{RESULT_FILE} names it",
        2: f"{tmp_path}/pruned version 1 was made from it",
        3: "the latest version",
    }
    assert gone(vacuum(LATEST.model_copy(update={"keep_needed": False}), root=data)) == [1, 2]


def test_files_that_a_later_version_names_stay(tmp_path: Path) -> None:
    data = f"{tmp_path}/data"
    before = write_dataset(data, [episode(0)]).manifest
    operation = Operation(name="append")
    commit(data, before.files, format=before.format, operation=operation, statistics=before.statistics)
    assert gone(vacuum(LATEST, root=data)) == [1]
    assert not any(each.wrong for each in verify(data))


def test_a_check_goes_with_its_version_and_the_number_is_not_used_again(tmp_path: Path) -> None:
    data = three_versions(tmp_path)
    for name in ("_checks/000001.json", "_checks/000003.json"):
        Location.of(data).child("_checks").make_folder()
        Location.of(data).child(name).write(b"{}")
    (tmp_path / f"data/{VERSIONS}/last-000003").unlink()  # its writer has died
    vacuum(LATEST, root=str(tmp_path))
    assert [path.name for path in (tmp_path / "data/_checks").iterdir()] == ["000003.json"]
    (tmp_path / f"data/{VERSIONS}/000003.json").unlink()
    assert write_dataset(data, [episode(9)]).manifest.version == 4


def test_a_kill_at_any_deletion_leaves_whole_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, delete = three_versions(tmp_path), Location.delete
    for allowed in range(5):
        left = allowed

        def dying(self: Location) -> None:
            nonlocal left
            if left == 0:
                raise StorageError("killed")
            left -= 1
            delete(self)

        with monkeypatch.context() as patched, contextlib.suppress(StorageError):
            patched.setattr(Location, "delete", dying)
            vacuum(LATEST, root=data)
        assert not any(each.wrong for each in verify(data)) and versions(data)[-1] == 3
    assert versions(data) == [3]


def test_only_files_named_as_ours_are_leftovers(tmp_path: Path) -> None:
    data = Path(write_dataset(tmp_path / "data", [episode(0)]).location.uri)
    ours = [
        "part-000000-0123456789ab.parquet",
        "cartpole-v1/run-000001-00001/part-000000-0123456789ab.parquet",
        "_late/cuts-part-0123456789ab.parquet",
        "_late/rows-part-00000-0123456789ab.parquet",
        "_late/rows-00000-0123456789ab.parquet",
    ]
    foreign = ["raw/mine.parquet", "mine.parquet", "raw/part-000000-0123456789ab.parquet", "_late/mine.parquet"]
    for name in (*ours, *foreign):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(b"old")
        os.utime(data / name, (1e9, 1e9))
    result = vacuum(LATEST, root=str(tmp_path))
    assert sorted(result.leftovers) == sorted(f"{data}/{name}" for name in ours)
    assert result.others == sorted(f"{data}/{name}" for name in foreign)
    assert [name for name in (*ours, *foreign) if (data / name).exists()] == foreign


def test_a_list_of_rows_that_a_version_that_stays_names_stays(tmp_path: Path) -> None:
    data, lists = tmp_path / "data", {1: "a.ndjson", 2: "b.ndjson", 3: "b.ndjson"}
    (data / "_quarantine").mkdir(parents=True)
    for number, name in lists.items():
        files = write_files(data, [episode(number)], "episodes")
        place = data / "_quarantine" / name
        place.write_text("{}")
        commit(
            str(data),
            files.files,
            format="episodes",
            operation=Operation(name="test"),
            statistics=Statistics.of(files.summaries),
            report={"quarantine": str(place)},
        )
    assert gone(vacuum(LATEST, root=str(tmp_path))) == [1, 2]
    assert [path.name for path in (data / "_quarantine").iterdir()] == ["b.ndjson"]
