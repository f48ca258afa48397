"""What a stage that was killed left goes when it runs again, wherever it wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import offline_core as offline
from offline_core.data.datasets.commit import prepared
from tests.data.datasets.factories import episode, write_dataset
from tests.keeping.promotion.decisions import policy_at


@pytest.fixture(scope="module")
def dead() -> str:
    """A temporary name of a process that is gone."""
    code = "from offline_core.data.store.temporary_names import temporary_name; print(temporary_name())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def left(dead: str, *folders: Path) -> list[Path]:
    """A file and a folder of a dead process in each folder."""
    files = []
    for number, folder in enumerate(folders):
        file, below = (folder / f"{dead[:-3]}{number:02x}{kind}" for kind in "ab")
        below.mkdir(parents=True)
        (below / "part").write_bytes(b"rows")
        file.write_bytes(b"half a file")
        files += [file, below]
    return files


def there(files: list[Path]) -> list[Path]:
    return [file for file in files if os.path.lexists(file)]


def test_of_promotions_and_rollbacks(tmp_path: Path, dead: str) -> None:
    hvac = tmp_path / "registry" / "hvac"
    places = [hvac / "history", hvac / "checkpoints" / "0123456789abcdef"]
    files = left(dead, *places)
    for number in (1, 2):
        offline.promote(policy_at(tmp_path / str(number), number), registry=hvac, override="a test")
        assert not there(files)
    files = left(dead, *places)
    offline.rollback(hvac)
    assert not there(files)


def test_of_stages_that_write_versions(tmp_path: Path, dead: str) -> None:
    write_dataset(tmp_path / "data", [episode(number) for number in range(4)])
    files = left(dead, tmp_path / "pruned", tmp_path / "pruned" / "_versions", tmp_path / "pruned" / "_append")
    offline.prune(str(tmp_path / "data"), output=str(tmp_path / "pruned"), keep_top_fraction=0.5)
    assert not there(files)


def test_of_stages_that_leave_a_result(tmp_path: Path, dead: str) -> None:
    policy = policy_at(tmp_path / "policy", 1)
    files = left(dead, tmp_path / "exported", tmp_path / "exported" / "deeper")
    offline.export_policy(policy, output=str(tmp_path / "exported"), formats=["torch_export"], latency_calls=2)
    assert not there(files)


def test_of_results_and_cards_beside_what_was_looked_at(tmp_path: Path, dead: str) -> None:
    write_dataset(tmp_path / "data", [episode(number) for number in range(4)])
    report = offline.check(str(tmp_path / "data"))
    [place] = {Path(each).parent for each in report.card().places}
    files = left(dead, place)
    offline.check(str(tmp_path / "data"), max_saturated_fraction=0.9)
    assert not there(files)


def test_of_workers_that_ended_with_a_run_that_failed(tmp_path: Path, dead: str) -> None:
    output, ended = tmp_path / "out", list[Path]()
    with pytest.raises(RuntimeError), prepared(str(output)) as folder:
        ended += left(dead, Path(folder.path), Path(folder.path) / "part")
        raise RuntimeError("a worker was killed")
    assert len(ended) == 4 and there(ended) == []
