"""Datasets for other people's programs, written into a bucket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.formats.exporting import ExportConfig, ExportResult, export
from offline_core.data.formats.exports import folder as folders
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.store.location import Location
from offline_core.errors import BusyError, StorageError
from tests.cases import slow_but
from tests.data.datasets.factories import episode, write_dataset

ID = "some/thing-v0"
FORMATS = {"minari": {"dataset_id": ID}, "lerobot": {"fps": 5}}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "dataset", [episode(number) for number in range(4)])


def run_export(dataset: Dataset, output: str, format: str, **arguments: Any) -> ExportResult:
    config = ExportConfig(format=format, arguments=FORMATS[format] | arguments)
    return export(config, dataset=dataset.location.uri, output=output)


def place_of(output: str, format: str) -> Location:
    return Location.of(output).child(ID) if format == "minari" else Location.of(output)


def visible(place: Location) -> dict[str, int]:
    return {name: size for name, size in place.sizes().items() if not name.startswith(".") and name != "result.json"}


@pytest.mark.parametrize("format", slow_but(FORMATS, "lerobot"))
def test_the_files_are_those_of_a_local_export(format: str, dataset: Dataset, bucket: str, tmp_path: Path) -> None:
    run_export(dataset, str(tmp_path / "out"), format)
    result = run_export(dataset, f"{bucket}/out", format)
    here, there = place_of(str(tmp_path / "out"), format), place_of(f"{bucket}/out", format)
    assert visible(there) == visible(here) != {}
    assert result.output == f"{bucket}/out"
    assert run_export(dataset, f"{bucket}/out", format).reused


def test_a_bucket_gives_back_what_it_was_given(dataset: Dataset, bucket: str) -> None:
    run_export(dataset, f"{bucket}/out", "minari")
    found = import_data(ImportConfig(), source=f"{bucket}/out/{ID}", output=f"{bucket}/back").dataset
    back = list(open_dataset(found.uri).episodes())
    for one, other in zip(dataset.episodes(), back, strict=True):
        assert (one.eps_id, one.terminated, one.rewards.tolist()) == (other.eps_id, other.terminated, other.rewards.tolist())
        assert one.observations.tobytes() == other.observations.tobytes()


def test_an_older_export_is_replaced_and_nothing_else_is(dataset: Dataset, bucket: str) -> None:
    place = Location.of(f"{bucket}/out")
    run_export(dataset, place.uri, "lerobot")
    run_export(dataset, place.uri, "lerobot", task="another")
    assert b"another" in place.child("meta/tasks.parquet").read()
    place.child("notes.txt").write(b"mine")
    with pytest.raises(StorageError, match=r"holds notes\.txt, which the export did not write"):
        run_export(dataset, place.uri, "lerobot")
    Location.of(f"{bucket}/other/thing.txt").write(b"mine")
    with pytest.raises(StorageError, match="is not an export of a dataset"):
        run_export(dataset, f"{bucket}/other", "lerobot")
    assert Location.of(f"{bucket}/other").files() == ["thing.txt"]


@pytest.mark.slow
def test_an_upload_that_was_broken_off_is_done_again(dataset: Dataset, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Location.of(f"{bucket}/out")
    store, uploaded = type(place.store), []
    put_file = store.put_file

    def broken(self: Any, file: Any, path: str) -> None:
        if len(uploaded) == 2:
            raise ConnectionResetError("gone")
        uploaded.append(path)
        put_file(self, file, path)

    with monkeypatch.context() as patch:
        patch.setattr(store, "put_file", broken)
        with pytest.raises(StorageError, match=r"Cannot write s3://.*gone"):
            run_export(dataset, place.uri, "lerobot")
    made = json.loads(place.child("result.json").read())["made"]
    assert not made.keys() <= set(place.files())
    assert not run_export(dataset, place.uri, "lerobot").reused
    assert made.keys() <= set(place.files())
    assert run_export(dataset, place.uri, "lerobot").reused


def test_two_runs_do_not_mix(dataset: Dataset, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Location.of(f"{bucket}/out")
    upload = folders._upload

    def meanwhile(folder: Location, location: Location) -> None:
        monkeypatch.setattr(folders, "_upload", upload)
        monkeypatch.setattr("offline_core.data.store.lease.HEARTBEAT_SECONDS", 0.2)
        with pytest.raises(BusyError, match="Another run is writing to"):
            run_export(dataset, place.uri, "lerobot", task="another")
        upload(folder, location)

    monkeypatch.setattr("offline_core.data.store.lease.HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(folders, "_upload", meanwhile)
    run_export(dataset, place.uri, "lerobot")
    assert run_export(dataset, place.uri, "lerobot").reused
