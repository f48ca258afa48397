"""One row an episode, the same for both formats."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offline_core.data.datasets import row_group, writer
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.codecs import Format
from offline_core.data.episodes.index import content_of, first_parts
from offline_core.data.store.parquet_files import open_parquet
from offline_core.errors import SchemaError
from tests.cases import examples
from tests.data.datasets.factories import FORMATS, edit_json, episode, write_dataset, write_items
from tests.data.episodes.strategies import episode_lists

NAMES = ["eps_id", "t_started", "length", "return", "terminated", "truncated"]


@pytest.mark.parametrize("format", FORMATS)
def test_index(tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_BYTES", 2000)
    lengths = [1, 30, 2, 17, 5, 9, 1, 44]
    ids = ["z", "a", "m", "ü", "0", "B", "b", "y"]  # neither sorted nor numbers
    some = [
        episode(i, length, eps_id=eps_id, t_started=i * 3, terminated=i % 2 == 0, truncated=i % 3 == 0)
        for i, (eps_id, length) in enumerate(zip(ids, lengths, strict=True))
    ]
    dataset = write_dataset(tmp_path, some, format, max_rows_per_file=3 if format == "episodes" else 50)
    assert len(dataset.manifest.files) > 1
    index = dataset.index()
    assert index.columns == NAMES
    assert index["eps_id"].to_list() == ids
    assert index["t_started"].to_list() == [0, 3, 6, 9, 12, 15, 18, 21]
    assert index["length"].to_list() == lengths
    assert index["return"].to_list() == [float(np.sum(e.rewards)) for e in some]
    assert index["terminated"].to_list() == [True, False, True, False, True, False, True, False]
    assert index["truncated"].to_list() == [True, False, False, True, False, False, True, False]


@pytest.mark.parametrize("format", FORMATS)
def test_row_groups_of_an_episode_each_are_read_together(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a file and making a table for each of them took seconds."""
    monkeypatch.setattr(writer, "ROW_GROUP_BYTES", 1)
    some = [episode(i, 5, eps_id=f"twice-{i // 2}", t_started=5 * (i % 2)) for i in range(20)]
    dataset = write_dataset(tmp_path, some, format)
    assert sum(1 for _ in dataset.row_groups()) == 20
    opened: list[str] = []
    monkeypatch.setattr(row_group, "open_parquet", lambda file, *how: (opened.append(file.uri), open_parquet(file, *how))[1])
    index = dataset.index()
    assert len(opened) == 1
    assert list(index.select("eps_id", "t_started").iter_rows()) == [(each.eps_id, each.t_started) for each in some]
    assert index["return"].to_list() == [each.return_ for each in some]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_])
def test_returns_are_summed_up_in_double_precision(tmp_path: Path, format: Format, dtype: type) -> None:
    rewards = np.where(np.arange(10_000) == 0, 100, 0.1).astype(dtype)
    dataset = write_dataset(tmp_path, [episode(0, 10_000, rewards=rewards)], format)
    expected = float(rewards.astype(np.float64).sum())
    assert dataset.index()["return"].to_list() == pytest.approx([expected], rel=1e-12)


def test_returns_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    """A condition such as `return >= 10` has to choose the same episodes in both formats."""
    some = [episode(i, steps, rewards=np.full(steps, 0.1)) for i, steps in enumerate([100, 3, 77, 20_000])]
    indices = [write_dataset(tmp_path / format, some, format).index()["return"].to_list() for format in FORMATS]
    assert indices == [[e.return_ for e in some]] * 2


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(episode_lists(count=st.integers(1, 4), steps=st.integers(1, 4), lookback=st.just(0)))
def test_both_formats_say_the_same_of_any_episode(some: list[Episode]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, other = (write_dataset(Path(folder) / format, some, format).index(columns.EPISODE_METADATA) for format in FORMATS)
    assert one.columns == list(columns.EPISODE_METADATA)
    assert one.schema == other.schema
    assert one.equals(other)
    assert one["content"].to_list() == [content_of(e) for e in some]


@pytest.mark.parametrize("format", FORMATS)
def test_success_and_policy(tmp_path: Path, format: Format) -> None:
    some = [
        episode(0, 2, infos=[{}, {"is_success": True}, {"is_success": False}], custom_data={"policy_id": "p"}),
        episode(1, 2),
        episode(2, 1, infos=[{}, {"success": 1}], custom_data={"else": 2}),
    ]
    index = write_dataset(tmp_path, some, format).index(["policy_id", "success"])
    assert index.columns == ["policy_id", "success"]
    assert index["success"].to_list() == [False, None, True]
    assert index["policy_id"].to_list() == ["p", None, None]


def test_files_from_before_some_metadata(tmp_path: Path) -> None:
    """Their content is computed, what nobody noted is null."""
    some = [episode(i, infos=[{"success": True}] * 8) for i in range(4)]
    dataset = write_dataset(tmp_path, some, max_rows_per_file=2)
    manifest = tmp_path / "_versions" / "000001.json"
    for path in dataset.paths[:1]:
        pq.write_table(pq.read_table(path).drop_columns(["success", "policy_id", "content"]), path)
    edit_json(manifest, files=[entry | {"footer_sha256": None} for entry in json.loads(manifest.read_text())["files"]])
    index = open_dataset(str(tmp_path)).index(["eps_id", "success", "content"])
    assert index["success"].to_list() == [None, None, True, True]
    assert index["content"].to_list() == [content_of(e) for e in some]


def test_a_foreign_folder_has_no_index(tmp_path: Path) -> None:
    write_items(tmp_path / "x.parquet", [b"x"])
    with pytest.raises(SchemaError, match=f"{tmp_path} has no manifest.*Import it first"):
        open_dataset(str(tmp_path)).index()


def test_parts_with_one_id_are_one_episode_until_it_terminates() -> None:
    names = ["a@5", "a", "a@5@7", "a@20-00000000", "a@9", "b@home", "c@home", "b@00112233aabbccdd", "d@3", "d@8"]
    terminated = [False, False, True, False, False, False, False, False, True, False]
    index = pl.DataFrame({"eps_id": names, "t_started": [0] * 10, "terminated": terminated})
    assert first_parts(index).tolist() == [1, 1, 1, 4, 4, 5, 6, 7, 8, 9]


def test_parts_with_equal_ids_are_ordered_by_first_step() -> None:
    index = pl.DataFrame({"eps_id": ["a", "b", "a"], "t_started": [4, 0, 0], "terminated": [True, True, False]})
    assert first_parts(index).tolist() == [2, 1, 2]


@pytest.mark.parametrize("format", FORMATS)
def test_first_parts_of_a_dataset(tmp_path: Path, format: Format) -> None:
    some = [episode(i, 8) for i in range(3)]
    parts = [some[1].slice(0, 3), replace(some[1].slice(5, 8), eps_id=f"{some[1].eps_id}@5")]
    dataset = write_dataset(tmp_path, [some[0], *parts[::-1], some[2]], format)
    assert first_parts(dataset.index()).tolist() == [0, 2, 2, 3]
