"""What every stage that makes a dataset of datasets keeps of its sources, and how it is found again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.curation.compact import compact
from offline_core.data.curation.config import CompactionConfig, MergeConfig, PruningConfig
from offline_core.data.curation.converting import convert
from offline_core.data.curation.merge import merge
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.writer import FilesConfig
from offline_core.data.importing.config import ConversionConfig
from offline_core.runtime.config import Config, EnvironmentSpec
from tests.data.datasets.factories import episode, write_files

FILES = FilesConfig(compression="lz4")
STAGES: dict[str, tuple[Callable[..., Any], Config]] = {
    "prune": (prune, PruningConfig(where="length > 0", keep_top_fraction=0.9, columns=[], files=FILES)),
    "compact": (compact, CompactionConfig(files=FILES)),
    "merge": (merge, MergeConfig(files=FILES)),
    "convert": (convert, ConversionConfig(format="table", files=FILES)),
}


@pytest.mark.parametrize("name", STAGES)
def test_lineage_environment_and_spaces(tmp_path: Path, name: str) -> None:
    stage, config = STAGES[name]
    writer = write_files(tmp_path / "in", [episode(i, i + 2) for i in range(3)], "table")
    source = commit(
        str(tmp_path / "in"),
        writer.files,
        format="table",
        operation=Operation(name="record"),
        statistics=writer.statistics,
        environment=EnvironmentSpec(id="CartPole-v1", kwargs={"a": 1}),
        observation_space=episode(0).observation_space,
        action_space=episode(0).action_space,
    )
    uri = str(tmp_path / "in")
    places: dict[str, Any] = {"datasets": [uri]} if name == "merge" else {"dataset": uri}
    made = stage(config, **places, output=str(tmp_path / "out"))
    manifest = open_dataset(str(tmp_path / "out")).manifest
    assert manifest.parents == [source.parent_entry]
    assert manifest.operation.name == name
    assert type(config).model_validate(manifest.operation.config) == config
    for field in ("environment", "observation_space", "action_space", "format"):
        assert getattr(manifest, field) == getattr(source.manifest, field) is not None
    again = stage(config, **places, output=str(tmp_path / "out"))
    assert not made.reused and again == made.model_copy(update={"reused": True})
