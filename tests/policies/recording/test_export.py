"""A recording that is also written by something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import offline_core as offline
from offline_core.errors import ConfigError, LocationError, StorageError
from offline_core.policies.recording.config import RecordingConfig, RecordingExport
from offline_core.policies.recording.record import record
from offline_core.policies.recording.result import RecordingResult
from offline_core.runtime.config import parse
from tests.acceptance.forms import by_id, run_import


class FullDisk:
    """A writer that fails at its work."""

    def __init__(self, output: str) -> None:
        self.output = output

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, episodes: Any) -> None:
        raise OSError("no space")


def run_record(policy: str, place: Path | str, /, **export: Any) -> RecordingResult:
    config = RecordingConfig(episodes=3, envs_per_recorder=2)
    return record(config, policy=policy, output=str(place), export=parse(RecordingExport, export))


def test_a_writer_of_ones_own_gets_what_is_recorded(cartpole_policy: str, tmp_path: Path) -> None:
    """The recording itself is made once, whatever is exported."""
    database = str(tmp_path / "steps.sqlite")
    export = {"format": "examples.writer:Sqlite", "arguments": {"table": "steps"}, "output": database}
    result = run_record(cartpole_policy, tmp_path / "recording", **export)
    assert result.export is not None and (result.export.output, result.export.episodes) == (database, 3)
    source = {"format": "examples.reader:Sqlite"}
    found = run_import(database, tmp_path / "back", source=source, environment={"id": "CartPole-v1"})[1]
    assert found.keys() == by_id(result.dataset.uri).keys()
    again = run_record(cartpole_policy, tmp_path / "recording", format="sample_batch", output=str(tmp_path / "json"))
    assert again.reused and again.dataset == result.dataset and list((tmp_path / "json" / "batches").iterdir())


def test_a_recording_from_python_is_exported_as_one_of_the_command_line(cartpole_policy: str, tmp_path: Path) -> None:
    export = {"format": "lerobot", "output": str(tmp_path / "lerobot")}
    data = offline.record(cartpole_policy, output=tmp_path / "out", export=export, episodes=2, envs_per_recorder=2)
    assert data.result.export.output == export["output"] and (tmp_path / "lerobot/meta/info.json").is_file()
    with pytest.raises(ConfigError, match="export_data"):
        offline.record(cartpole_policy, output=tmp_path / "out", export=export, export_data=True)


def test_the_export_may_be_in_a_filesystem_of_pyarrows(
    cartpole_policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLlib's `output_filesystem`, by a name that an installation gives it."""
    lake = {"filesystem": "pyarrow.fs:LocalFileSystem", "path": str(tmp_path / "lake"), "one_writer": True}
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", json.dumps({"lake": lake}))
    result = run_record(cartpole_policy, tmp_path / "recording", format="lerobot", output="lake://lerobot")
    assert result.export is not None and result.export.output == "lake://lerobot"
    assert (tmp_path / "lake" / "lerobot" / "meta" / "info.json").is_file()


def test_a_look_for_a_recording_exports_nothing(cartpole_policy: str, tmp_path: Path) -> None:
    first = run_record(cartpole_policy, tmp_path / "recording", format="lerobot", output=str(tmp_path / "first"))
    known = record.known(
        RecordingConfig(episodes=3, envs_per_recorder=2),
        policy=cartpole_policy,
        output=str(tmp_path / "recording"),
        export=RecordingExport(format="lerobot", output=str(tmp_path / "second")),
    )
    assert known is not None and known.reused and known.dataset == first.dataset and not (tmp_path / "second").exists()


@pytest.mark.parametrize(
    ("export", "error", "message"),
    [
        ({"format": "avro", "output": "o"}, ConfigError, "There is no format 'avro' to export to"),
        ({"format": "no_such:Writer", "output": "o"}, ConfigError, "cannot be imported"),
        ({"format": "examples.writer:Sqlite", "arguments": {"tabel": "x"}, "output": "o"}, ConfigError, "tabel"),
        ({"format": "sample_batch", "arguments": {"fps": 1}, "output": "o"}, ConfigError, "sample_batch cannot be made"),
        ({"format": "lerobot", "output": "recording"}, ConfigError, "recorded to and exported to"),
        ({"format": "lerobot", "output": "/a,/b"}, LocationError, "Give one location, as a path or a URI"),
        ({"format": "lerobot"}, ConfigError, "output"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_played(
    cartpole_policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export: dict[str, Any], error: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("offline_core.policies.recording.work._play_all", lambda *_: pytest.fail("it plays"))
    with pytest.raises(error, match=message):
        run_record(cartpole_policy, "recording", **export)
    assert not list(tmp_path.iterdir())


def test_a_writer_that_fails_leaves_the_recording(cartpole_policy: str, tmp_path: Path) -> None:
    failing = {"format": "tests.policies.recording.test_export:FullDisk", "output": str(tmp_path / "out")}
    with pytest.raises(StorageError, match=r"writer tests\.policies\.recording\.test_export:FullDisk"):
        run_record(cartpole_policy, tmp_path / "recording", **failing)
    assert len(by_id(str(tmp_path / "recording"))) == 3
