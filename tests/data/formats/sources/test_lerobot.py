"""LeRobot datasets: what we exported comes back as it was, and those of others in both of their layouts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.formats.exporting import ExportConfig, export
from offline_core.data.formats.exports.lerobot import LeRobotSink
from offline_core.errors import DataError, DatasetNotFoundError, OfflineError
from tests.data.datasets.factories import episode
from tests.data.formats.exports.test_lerobot import composite
from tests.data.formats.sources.factories import imported, imported_episodes


def returned(folder: Path, written: list[Episode]) -> list[Episode]:
    with LeRobotSink(str(folder / "set")) as sink:
        sink.write(written)
    return imported_episodes(folder, folder / "set", mapping={})


def test_both_ends_infos_ids_and_custom_data_come_back(tmp_path: Path) -> None:
    written = [
        episode(0, 3, terminated=True, truncated=False, infos=[{"x": t} for t in range(4)], agent_id="left"),
        episode(1, 5, terminated=False, truncated=True, custom_data={"seed": 3}, module_id="m"),
        episode(2, 1, terminated=True, truncated=True),
    ]
    assert returned(tmp_path, written) == sorted(written, key=lambda one: one.eps_id)


def test_composite_spaces_come_back(tmp_path: Path) -> None:
    space = spaces.Dict({"gas": spaces.Box(0, 1, (1,)), "gear": spaces.Discrete(5)})
    written = [replace(composite(number, steps), action_space=space) for number, steps in enumerate((2, 4))]
    assert returned(tmp_path, written) == sorted(written, key=lambda one: one.eps_id)


def test_rllibs_recordings_come_back_from_an_export(tmp_path: Path, rllib_recordings: Path) -> None:
    """With the episodes that were truncated still truncated."""
    first = imported(tmp_path / "1", rllib_recordings / "pendulum_episodes", mapping={}).dataset
    export(ExportConfig(format="lerobot"), dataset=first.uri, output=str(tmp_path / "set"))
    again = imported(tmp_path / "2", tmp_path / "set", mapping={})
    before, after = ({one.eps_id: one for one in open_dataset(uri).episodes()} for uri in (first.uri, again.dataset.uri))
    assert before == after
    assert not [note for note in again.notes if "Actions have an effect" not in note]
    first_kinds, kinds = (open_dataset(uri).manifest.statistics for uri in (first.uri, again.dataset.uri))
    assert (first_kinds.terminated, first_kinds.truncated) == (kinds.terminated, kinds.truncated)


STATE = np.arange(24, dtype=np.float32).reshape(6, 4)


def others(folder: Path, version: str, *, without: tuple[str, ...] = (), **flags: list[bool]) -> Path:
    """Two episodes of three steps with a camera, as LeRobot's own tools write them; not all that they say of themselves."""
    columns: dict[str, Any] = {
        "observation.state": pa.FixedSizeListArray.from_arrays(STATE.ravel(), 4),
        "action": pa.FixedSizeListArray.from_arrays(np.arange(12, dtype=np.float32), 2),
        "next.reward": np.float32([0, 0, 1, 0, 0, 0]),
        **{f"next.{name}": np.array(values) for name, values in flags.items()},
        "timestamp": np.float32([0, 0.1, 0.2] * 2),
        "frame_index": [0, 1, 2] * 2,
        "episode_index": [0] * 3 + [1] * 3,
        "index": list(range(6)),
        "task_index": [0] * 6,
    }
    rows = pa.table({name: values for name, values in columns.items() if name not in without})
    features: dict[str, Any] = {name: {"dtype": "float32", "shape": [1]} for name in rows.column_names}
    features["observation.images.top"] = {"dtype": "video", "shape": [3, 8, 8]}
    files = {"file-000": rows} if version == "v3.0" else {f"episode_{i:06d}": rows.slice(3 * i, 3) for i in range(2)}
    (folder / "data" / "chunk-000").mkdir(parents=True)
    (folder / "meta").mkdir()
    for name, part in files.items():
        pq.write_table(part, folder / "data" / "chunk-000" / f"{name}.parquet")
    info = {"codebase_version": version, "total_episodes": 2, "total_frames": 6, "fps": 10, "features": features}
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    return folder


DONE = [False, False, True] * 2
SUCCESS = [False, False, True, False, False, False]


@pytest.mark.parametrize("version", ["v2.0", "v2.1", "v3.0"])
def test_both_layouts(tmp_path: Path, version: str) -> None:
    source = others(tmp_path / "in", version, done=DONE, success=SUCCESS)
    result = imported(tmp_path, source, mapping={}, episodes={"last_new_obs": "repeat"})
    found = sorted(open_dataset(result.dataset.uri).episodes(), key=lambda one: one.eps_id)
    assert [(one.eps_id, one.terminated, one.truncated) for one in found] == [("0", True, False), ("1", False, True)]
    np.testing.assert_array_equal(found[1].observations, STATE[[3, 4, 5, 5]])
    np.testing.assert_array_equal(found[0].actions, np.arange(6, dtype=np.float32).reshape(3, 2))
    assert found[0].rewards.tolist() == [0, 0, 1] and found[0].extras.keys() == {"next.success"}
    assert f"Cameras of {source} are left out: observation.images.top." in result.notes


@pytest.mark.parametrize(
    ("flags", "ends", "note"),
    [
        ({}, (False, True), "does not say how its episodes end"),
        ({"done": DONE}, (True, False), None),
        ({"done": DONE, "truncated": DONE}, (False, True), None),
        ({"done": DONE, "terminated": DONE, "truncated": [False] * 6}, (True, False), None),
    ],
)
def test_what_tells_how_episodes_end(tmp_path: Path, flags: dict[str, Any], ends: tuple[bool, bool], note: str | None) -> None:
    source = others(tmp_path / "in", "v3.0", **flags)
    result = imported(tmp_path, source, mapping={}, episodes={"last_new_obs": "repeat"})
    assert {(one.terminated, one.truncated) for one in open_dataset(result.dataset.uri).episodes()} == {ends}
    assert any((note or "how episodes end") in each for each in result.notes) == (note is not None)


def test_without_rewards_they_are_zero_and_that_is_said(tmp_path: Path) -> None:
    source = others(tmp_path / "in", "v3.0", without=("next.reward",), done=DONE)
    result = imported(tmp_path, source, mapping={}, episodes={"last_new_obs": "repeat"})
    assert open_dataset(result.dataset.uri).manifest.statistics.returns.max == 0
    assert f"{source} has no next.reward: all rewards are 0." in result.notes


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"codebase_version": "v1.6"}, DataError, r"version v1\.6 of LeRobot's format; versions 2\.0 to 3\.0 are read"),
        ({"total_frames": 7}, DataError, r"has 6 frames, and meta/info\.json says 7"),
        ({"features": None}, DataError, "does not list the features"),
        ({"features": {"index": {"dtype": "int64"}}}, DataError, "has no feature action; it has index"),
        (None, DataError, r"info\.json is not a JSON object"),
        ("data", DatasetNotFoundError, "There are no Parquet files in .*/data: fetch the dataset with its data"),
        ("frame_index", DataError, "has no column frame_index"),
    ],
)
def test_what_is_not_whole_is_refused(tmp_path: Path, change: Any, error: type[OfflineError], message: str) -> None:
    source = others(tmp_path / "in", "v2.1", done=DONE)
    info = source / "meta" / "info.json"
    if isinstance(change, dict):
        info.write_text(json.dumps(json.loads(info.read_text()) | change))
    elif change is None:
        info.write_text("[1]")
    else:
        for file in (source / "data").rglob("*.parquet"):
            rows = pq.read_table(file)
            file.unlink()
            if change != "data":
                pq.write_table(rows.drop_columns([change]), file)
    with pytest.raises(error, match=message):
        imported(tmp_path, source, mapping={}, episodes={"last_new_obs": "repeat"})
    assert not (tmp_path / "imported").exists()
