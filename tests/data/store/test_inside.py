"""Names that manifests and checkpoints give lead to files below their folder, or nowhere."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import gymnasium as gym
import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.result_cache import load_result
from offline_core.data.store.location import Location
from offline_core.errors import CheckpointError, CorruptFileError, LocationError
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.evaluation import EvaluationConfig, EvaluationResult, evaluate
from offline_core.policies.manifest import POLICY_FILE, fingerprint_of
from offline_core.policies.policy import Policy
from offline_core.runtime.config import EnvironmentSpec
from tests.data.datasets.factories import edit_json, episode, write_dataset

OUTSIDE = [
    "../canary",
    "/etc/passwd",
    "part/../../canary",
    "./part",
    "part//x",
    "",
    "..",
    "http://127.0.0.1:9/x",
    "s3://b/x",
    "a\0b",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(LocationError, match="which is no file below it"):
        Location.of(str(tmp_path)).inside(name)


def test_links(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "real").mkdir(parents=True)
    (tmp_path / "canary").write_text("SECRET")
    (folder / "real" / "file").write_text("fine")
    (folder / "within").symlink_to(folder / "real")
    (folder / "out").symlink_to(tmp_path)
    (folder / "file").symlink_to("../canary")
    (tmp_path / "named").symlink_to(folder)  # the caller may name the folder by a link
    (folder / "loop").symlink_to("..")
    for root in (folder, tmp_path / "named"):
        place = Location.of(str(root))
        assert place.inside("within/file").read() == b"fine"
        assert place.inside("not/there").path.endswith("not/there")
        for name in ("out/canary", "file", "loop"):
            with pytest.raises(LocationError, match="is a link, or lies behind one, that leaves"):
                place.inside(name)


def test_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "policy.json")
    with pytest.raises(CheckpointError, match="is a pipe or a device"):
        load_policy(str(tmp_path))


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Of a dataset in the folder `data`."""
    write_dataset(tmp_path / "data", [episode(1)])
    return tmp_path / "data" / "_versions" / "000001.json"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The JSON of a policy in the folder `policy`."""
    spaces = (gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2))
    save_policy(Policy(*spaces), str(tmp_path / "policy"), operation=Operation(name="test"))
    return tmp_path / "policy" / POLICY_FILE


def test_files_of_a_manifest(tmp_path: Path, manifest: Path) -> None:
    [file] = json.loads(manifest.read_text())["files"]
    whole = open_dataset(str(tmp_path / "data")).paths[0]
    (tmp_path / "other.parquet").write_bytes(Path(whole).read_bytes())
    for name in ("../other.parquet", str(tmp_path / "other.parquet")):
        edit_json(manifest, files=[file | {"path": name}])
        with pytest.raises(LocationError, match="which is no file below it"):
            open_dataset(str(tmp_path / "data"))
    edit_json(manifest, files=[file])
    os.replace(whole, tmp_path / "moved")
    Path(whole).symlink_to(tmp_path / "moved")
    with pytest.raises(LocationError, match="is a link"):
        open_dataset(str(tmp_path / "data"))


def test_weights_of_a_policy(tmp_path: Path, policy: Path) -> None:
    folder, name = policy.parent, json.loads(policy.read_text())["weights_file"]
    os.replace(folder / name, tmp_path / name)
    for wrong in (f"../{name}", str(tmp_path / name)):
        edit_json(policy, weights_file=wrong)
        with pytest.raises(CheckpointError, match=r"are not read: .* which is no file below it"):
            load_policy(str(folder))
        assert fingerprint_of(str(folder)) is None
    edit_json(policy, weights_file=name)
    (folder / name).symlink_to(tmp_path / name)
    with pytest.raises(CheckpointError, match=r"are not read: .* is a link"):
        load_policy(str(folder))


def test_errors_do_not_repeat_what_a_file_says(tmp_path: Path, manifest: Path, policy: Path) -> None:
    for path, kind, read in ((manifest, CorruptFileError, open_dataset), (policy, CheckpointError, load_policy)):
        path.write_text("SECRET=1")
        with pytest.raises(kind) as caught:
            read(str(tmp_path / ("data" if path == manifest else "policy")))
        assert "SECRET" not in str(caught.value)
        path.unlink()
        (tmp_path / "canary").write_text("SECRET=1")
        path.symlink_to(tmp_path / "canary")
        with pytest.raises((LocationError, CheckpointError), match="is a link"):
            read(str(tmp_path / ("data" if path == manifest else "policy")))


def test_a_kept_result_leads_to_no_other_bucket(tmp_path: Path, policy: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = EvaluationConfig(episodes=1, environment=EnvironmentSpec(id="CartPole-v1"))
    result = evaluate(config, policy=str(policy.parent))
    place = Path(result.uri)
    edit_json(place, made={"s3://elsewhere/policy": "0" * 16})
    identity = json.loads(place.read_text())["identity"]
    asked: list[str] = []
    with caplog.at_level(logging.WARNING):
        found = load_result(Location.of(str(place)), identity, EvaluationResult, fingerprint=asked.append)
        assert found is None
    assert not asked
    assert "another bucket" in caplog.text


def test_a_result_at_a_file_uri_is_found_again(policy: Path) -> None:
    config = EvaluationConfig(episodes=1, environment=EnvironmentSpec(id="CartPole-v1"))
    assert [evaluate(config, policy=f"file://{policy.parent}").reused for _ in range(2)] == [False, True]


def test_a_version_that_leads_elsewhere_does_not_stop_the_next_one(tmp_path: Path, manifest: Path) -> None:
    [path] = open_dataset(str(tmp_path / "data")).paths
    os.replace(path, tmp_path / "moved")
    Path(path).symlink_to(tmp_path / "moved")
    assert write_dataset(tmp_path / "data", [episode(2)]).manifest.version == 2
