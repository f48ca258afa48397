"""The page on formats names what is on disk, no less and no more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import gymnasium as gym
import msgpack
import numpy as np
import pyarrow.parquet as pq
import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import FileEntry, Manifest
from offline_core.data.episodes import Episode, columns, encode
from offline_core.learning.state import TrainingState
from offline_core.policies.export_config import ExportManifest
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.registry import Move
from tests.data.datasets.factories import write_dataset

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(title: str) -> list[str]:
    cells = re.findall(r"^\| (`.+?) \|", section(title), re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


@pytest.fixture
def episode() -> Episode:
    spaces = (gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(3))
    return Episode(
        eps_id="a",
        observations=np.zeros((3, 2), np.float32),
        actions=np.zeros(2, np.int64),
        rewards=np.ones(2, np.float32),
        terminated=True,
        observation_space=spaces[0],
        action_space=spaces[1],
    )


def test_the_manifest(tmp_path: Path) -> None:
    assert set(first_cells("A dataset")) == {field.alias or name for name, field in Manifest.model_fields.items()}
    assert all(f"`{name}`" in section("A dataset") for name in FileEntry.model_fields if name not in ("path",))


def test_the_columns_of_episodes(tmp_path: Path, episode: Episode) -> None:
    write_dataset(tmp_path, [episode], format="episodes")
    [path] = open_dataset(str(tmp_path)).paths
    assert set(first_cells("Episode format")) == set(pq.read_schema(path).names)


def test_the_keys_of_an_item(episode: Episode) -> None:
    keys = msgpack.unpackb(encode(episode), strict_map_key=False).keys()
    told = re.search(r"all of RLlib's keys are there: (.+?)\. Buffers", section("Episode format"), re.DOTALL)
    assert told is not None
    assert set(re.findall(r"`(\w+)`", told[1])) == set(keys)


def test_the_columns_of_a_table(tmp_path: Path, episode: Episode) -> None:
    told = set(first_cells("Table format"))
    assert told == set(columns.STEP_COLUMNS)
    write_dataset(tmp_path, [episode], format="table")
    [path] = open_dataset(str(tmp_path)).paths
    schema = pq.read_schema(path)
    assert set(schema.names) <= told
    assert {b"offline.observation_space", b"offline.action_space"} <= set(schema.metadata)
    assert json.loads(schema.metadata[b"offline.action_space"])["space"] == "discrete"


def test_the_policy() -> None:
    assert {f"`{name}`" for name in PolicyManifest.model_fields} <= set(re.findall(r"`\w+`", section("A policy")))


def test_the_formats_that_an_upgrade_reads() -> None:
    """docs/operations.md says them."""
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    told = dict(re.findall(r"^\| [^|]+ \| `(\w+_version)` ([\d, ]+?) \|", text, re.MULTILINE))
    models = (Manifest, PolicyManifest, Move, ExportManifest, TrainingState)
    read = {
        name: ", ".join(map(str, get_args(field.annotation)))
        for model in models
        for name, field in model.model_fields.items()
        if name in told
    }
    assert told == read
