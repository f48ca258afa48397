"""`offline verify`: what is at a place, compared with the hashes that were written with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import offline_core as offline
from flows.cli import app
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.verify import verify
from offline_core.data.store.json_files import without_checksum
from offline_core.errors import DatasetNotFoundError, VersionNotFoundError
from tests.data.datasets.factories import cut_in_half, episode, flip_bit, write_dataset
from tests.keeping.promotion.decisions import policy_at

EPISODES = [episode(i) for i in range(4)]


def wrong(root: Path) -> dict[str, tuple[str, ...]]:
    """By the name below `root`."""
    return {each.name.removeprefix(f"{root}/"): each.wrong for each in verify(str(root))}


@pytest.fixture
def root(tmp_path: Path, cartpole_policy: str) -> Path:
    """Three versions of a dataset, of one file each, and a policy."""
    shutil.copytree(cartpole_policy, tmp_path / "policy", ignore=shutil.ignore_patterns("_evaluations", "_estimates"))
    for count in (1, 2, 3):
        write_dataset(tmp_path / "data", EPISODES[:count])
    return tmp_path


def files_of(root: Path, version: int) -> list[Path]:
    """Those that the version before has not."""
    before = open_dataset(str(root / "data"), version - 1).paths if version > 1 else []
    return [Path(path) for path in open_dataset(str(root / "data"), version).paths if path not in before]


def test_all_is_what_was_written(root: Path) -> None:
    names = ["data version 1", "data version 2", "data version 3", "policy/policy.json"]
    assert wrong(root) == dict.fromkeys(names, ())
    shown = CliRunner().invoke(app, ["verify", str(root)])
    assert shown.exit_code == 0 and shown.stdout.startswith("[ok] Compared 1 checkpoint, 3 versions: all as written.\n")


def test_each_version_says_what_is_wrong(root: Path) -> None:
    [damaged], [missing], manifest = files_of(root, 1), files_of(root, 2), root / "data" / "_versions" / "000003.json"
    flip_bit(damaged, 8 * 5)
    missing.unlink()
    cut_in_half(manifest)
    found = wrong(root)
    assert found["data version 1"] == (f"{damaged.name} is damaged: its SHA-256 differs from the manifest",)
    assert found["data version 2"] == (f"{missing.name} is missing",)
    assert "Manifest 000003.json" in found["data version 3"][0]
    shown = CliRunner().invoke(app, ["verify", str(root)])
    assert shown.exit_code == 1 and shown.stdout.startswith("[x] Compared 1 checkpoint, 3 versions: 3 damaged.\n")
    assert CliRunner().invoke(app, ["verify", str(root / "data"), "--version", "1"]).exit_code == 1


def test_a_policy_and_a_state(root: Path) -> None:
    [weights] = (root / "policy").glob("weights-*")
    flip_bit(weights, 8 * 100)
    assert "is damaged" in wrong(root)["policy/policy.json"][0]
    flip_bit(weights, 8 * 100)
    flip_bit(root / "policy" / "policy.json", 8 * 60)
    assert "is not what was written" in wrong(root)["policy/policy.json"][0]
    flip_bit(root / "policy" / "policy.json", 8 * 60)
    place = root / "policy" / "policy.json"
    place.write_bytes(without_checksum(place.read_bytes(), ""))
    assert wrong(root)["policy/policy.json"] == (), "of an earlier version, without a checksum"


def test_where_there_is_nothing_to_compare(tmp_path: Path) -> None:
    (tmp_path / "theirs.json").write_text("{}")
    with pytest.raises(DatasetNotFoundError, match="nothing to verify at"):
        list(verify(str(tmp_path)))
    write_dataset(tmp_path / "data", EPISODES)
    with pytest.raises(VersionNotFoundError, match="no version 2"):
        list(verify(str(tmp_path / "data"), 2))


def test_files_of_other_programs_are_left_alone(root: Path) -> None:
    (root / "policy" / "tracker.json").write_text('{"weights_file": "x", "checksum": "1"}')
    (root / "policy" / "output-1.json").write_text('{"type": "SampleBatch"}\n{"type": "SampleBatch"}\n')
    (root / "result.json").write_text('{"score": 3}\n{"score": 4}\n')
    names = ["data version 1", "data version 2", "data version 3", "policy/policy.json"]
    assert wrong(root) == dict.fromkeys(names, ())


def test_tags_moves_metrics_scores_and_networks_are_compared(root: Path) -> None:
    """Each is found damaged when one bit of it is flipped."""
    offline.tag(root / "data", "good", version=1)
    offline.promote(root / "policy", registry=root / "registry" / "hvac", override="a test")
    offline.outliers(root / "data", output=root / "outliers")
    offline.train(root / "data", algorithm="bc", optimizer={"max_epochs": 1}, output=root / "run")
    whole = wrong(root)
    assert not any(whole.values())
    told = CliRunner().invoke(app, ["verify", str(root)]).stdout.partition("\n")[0]
    assert "1 metrics file, 1 move log, " in told and "1 tag log, 3 versions: all as written" in told
    files = {
        "data/_versions/tags": "data/_versions/tags/000001.json",
        "registry/hvac/history": "registry/hvac/history/000001.json",
        "outliers/result.json": "outliers/scores.parquet",
        "run/result.json": "run/networks.safetensors",
        "run/metrics.jsonl": "run/metrics.jsonl",
    }
    for name, file in files.items():
        flip_bit(root / file, 8 * 40)
        assert {each for each, problems in wrong(root).items() if problems} == {name}
        flip_bit(root / file, 8 * 40)
    (root / "outliers" / "scores.parquet").unlink()
    assert "outliers/scores.parquet" in wrong(root)["outliers/result.json"][0]


def test_an_alias_has_to_name_the_checkpoint_of_its_move(root: Path) -> None:
    """Whether its folder is gone, or holds another policy, whose own hashes are right."""
    hvac = root / "registry" / "hvac"
    offline.promote(root / "policy", registry=hvac, override="a test")
    offline.promote(root / "policy", registry=hvac, alias="challenger", override="a test")
    [copy] = (hvac / "checkpoints").iterdir()
    whole = wrong(root)["registry/hvac/history"]
    policy_at(copy, 9)
    replaced = wrong(root)["registry/hvac/history"]
    assert whole == () and replaced[0].startswith(f"challenger names {copy}, which holds the policy ")
    shutil.rmtree(copy)
    assert wrong(root)["registry/hvac/history"][1] == f"champion names {copy}, which is gone"
    shown = CliRunner().invoke(app, ["verify", str(root)])
    assert shown.exit_code == 1 and f"  ! {hvac}/history: challenger names" in shown.stdout.splitlines()[1]
    assert "as written" not in shown.stdout.lower(), "the others are listed by -v alone"


def test_a_version_is_verified_by_its_tag(root: Path) -> None:
    offline.tag(root / "data", "good", version=2)
    assert [each.name for each in verify(f"{root}/data@good")] == [f"{root}/data version 2"]
