"""Damage is noticed: when data is read, before it is used instead of making it again, and when somebody asks."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from offline_core.data.datasets import damage as verified
from offline_core.data.datasets.commit import find_version
from offline_core.data.datasets.damage import damaged_files, unusable_files
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.row_group import read_together
from offline_core.data.episodes.codecs import Format
from offline_core.errors import CorruptFileError
from tests.data.datasets.factories import FORMATS, edit_json, episode, flip_bit, write_dataset

EPISODES = [episode(i) for i in range(10)]
OPERATION = Operation(name="test")


def footer_bytes(path: str) -> int:
    return int.from_bytes(Path(path).read_bytes()[-8:-4], "little") + 8


def flip_in_data(dataset: Dataset) -> None:
    """Of the first page of the first column."""
    flip_bit(dataset.paths[0], 8 * 200)


def flip_in_footer(dataset: Dataset) -> None:
    """In text that any reader would take as it is."""
    place = Path(dataset.paths[0]).read_bytes().rindex(b"eps_id")
    flip_bit(dataset.paths[0], 8 * place)


@pytest.mark.parametrize("format", FORMATS)
def test_no_flipped_bit_of_a_data_file_gives_other_data(tmp_path: Path, format: Format) -> None:
    dataset = write_dataset(tmp_path, EPISODES, format)
    [path] = dataset.paths
    whole, rng = list(dataset.tables()), random.Random(0)
    size, noticed = Path(path).stat().st_size, 0
    for bit in [rng.randrange(8 * size) for _ in range(100)]:
        flip_bit(path, bit)
        try:
            assert all(read.equals(before) for read, before in zip(dataset.tables(), whole, strict=True)), bit
        except CorruptFileError as error:
            assert str(path) in str(error)
            noticed += 1
        flip_bit(path, bit)
    assert noticed > 80


@pytest.mark.parametrize("flip", [flip_in_data, flip_in_footer])
def test_readers_in_any_process_notice_it(tmp_path: Path, flip: object) -> None:
    dataset = write_dataset(tmp_path, EPISODES, "table")
    names = dataset.schema.names
    flip(dataset)  # type: ignore[operator]
    with pytest.raises(CorruptFileError, match="truncated or damaged"):
        read_together(list(dataset.row_groups(names)), names)


def test_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    """Neither pages nor footers have checksums; the manifest has the hashes."""
    dataset = write_dataset(tmp_path, EPISODES, "table")
    [path] = dataset.paths
    before = pq.read_table(path)
    pq.write_table(before, path, compression="none", use_dictionary=False)
    manifest = tmp_path / "_versions" / "000001.json"
    [entry] = json.loads(manifest.read_text())["files"]
    size, sha256 = Path(path).stat().st_size, verified.size_and_hash(dataset.location.child(entry["path"]))[1]
    old = {name: value for name, value in entry.items() if name != "footer_sha256"} | {"bytes": size, "sha256": sha256}
    edit_json(manifest, files=[old])
    again = open_dataset(str(tmp_path))
    assert next(again.tables()).equals(before) and damaged_files(again) == {}
    flip_in_data(again)
    assert list(damaged_files(again)) == [entry["path"]]


def test_what_is_reused_is_there_with_whole_footers(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, EPISODES)
    assert find_version(str(tmp_path), OPERATION, []) == dataset
    flip_in_footer(dataset)
    assert "footer" in next(iter(unusable_files(dataset).values()))
    assert find_version(str(tmp_path), OPERATION, []) is None
    assert write_dataset(tmp_path, EPISODES).ref == dataset.ref, "made again, and the same"
    assert find_version(str(tmp_path), OPERATION, []) == dataset


def test_what_is_reused_is_hashed_when_that_was_long_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = write_dataset(tmp_path, EPISODES)
    flip_in_data(dataset)
    assert unusable_files(dataset) == {}, "it was written just now"
    monkeypatch.setattr(verified, "VERIFY_AFTER", timedelta(0))
    [wrong] = unusable_files(dataset).values()
    assert "SHA-256" in wrong and find_version(str(tmp_path), OPERATION, []) is None
    write_dataset(tmp_path, EPISODES)
    assert find_version(str(tmp_path), OPERATION, []) == dataset
    assert (tmp_path / "_versions" / "000001.verified").is_file(), "so that it is not hashed at each reuse"


def test_a_note_of_the_last_look_is_not_believed_if_it_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = write_dataset(tmp_path, EPISODES)
    created = dataset.manifest.model_copy(update={"created_at": dataset.manifest.created_at - timedelta(days=31)})
    dataset = Dataset(dataset.location, created)
    assert unusable_files(dataset) == {}
    flip_in_data(dataset)
    assert unusable_files(dataset) == {}, "it was hashed just now"
    flip_bit(tmp_path / "_versions" / "000001.verified", 8 * 20)
    assert len(unusable_files(dataset)) == 1
