"""Folders of Hugging Face's `save_to_disk`, in the layout of datasets 2 and 3."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import offline_core as offline
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.errors import ConfigError, CorruptFileError
from tests.data.formats.sources.factories import format_of

TABLE = pa.table({"episode": [0, 0, 1, 1], "x": [[0.5, 1.0]] * 4, "is": [True, False] * 2, "a": ["l", "r"] * 2})


def save(folder: Path, *parts: pa.Table) -> None:
    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{len(parts):05d}.arrow" for number in range(len(parts))]
    for name, rows in zip(names, parts, strict=True):
        with pa.ipc.new_stream(str(folder / name), rows.schema) as stream:
            stream.write_table(rows, max_chunksize=1)
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names], "_split": "train"}))


@pytest.mark.parametrize("split", ["", "train"])
def test_a_dataset_is_its_files(tmp_path: Path, split: str) -> None:
    save(tmp_path / "x" / split, TABLE.slice(0, 2), TABLE.slice(2))
    if split:
        (tmp_path / "x/dataset_dict.json").write_text(json.dumps({"splits": [split]}))
    assert format_of(f"{tmp_path}/x") == "huggingface"
    readers = open_source([f"{tmp_path}/x"])
    rows = pa.concat_tables([batch for reader in readers for batch in reader.batches() if isinstance(batch, pa.Table)])
    assert [reader.uri for reader in readers] == [f"{tmp_path}/x/{split}".rstrip("/")]
    assert rows.drop_columns(["_source_row"]).to_pylist() == TABLE.to_pylist() and rows["_source_row"].to_pylist() == [
        *range(4)
    ]
    assert [table.num_rows for table in FirstRows.of(readers[0]).tables] == [2, 2]
    [chosen] = open_source([f"{tmp_path}/x"], SourceConfig(columns=["a"], where="a = 'r'"))
    assert [batch["a"].to_pylist() for batch in chosen.batches() if isinstance(batch, pa.Table)] == [["r"], ["r"]]


def test_files_that_are_not_listed_are_left_out(tmp_path: Path) -> None:
    save(tmp_path / "x", TABLE)
    (tmp_path / "x/cache-123.arrow").write_bytes(b"of a map")
    for is_listed in (True, False):
        [reader] = open_source([f"{tmp_path}/x"])
        assert sum(batch.num_rows for batch in reader.batches() if isinstance(batch, pa.Table)) == TABLE.num_rows
        if is_listed:
            (tmp_path / "x/state.json").unlink()
    for state in ("{}", '{"_data_files": []}'):
        (tmp_path / "x/state.json").write_text(state)
        with pytest.raises(CorruptFileError, match=r"state\.json does not list the files"):
            [*reader.batches()]


def test_an_episode_goes_on_in_the_next_file(tmp_path: Path) -> None:
    steps = pa.table({"obs": [0.5] * 5, "action": [0, 1] * 2 + [0], "reward": [1.0] * 5, "done": [False] * 4 + [True]})
    save(tmp_path / "x", steps.slice(0, 2), steps.slice(2))
    assert [len(episode) for episode in offline.import_data(tmp_path / "x", output=tmp_path / "out").episodes()] == [5]


def test_a_split_has_to_be_named(tmp_path: Path) -> None:
    for split in ("test", "train"):
        save(tmp_path / "x" / split, TABLE)
    (tmp_path / "x/dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with pytest.raises(ConfigError, match=rf"has the splits test, train, .*: {tmp_path}/x/test, {tmp_path}/x/train"):
        open_source([f"{tmp_path}/x"])
    assert len(open_source([f"{tmp_path}/x/train", f"{tmp_path}/x/test"])) == 2
