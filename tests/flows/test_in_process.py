"""A verb of one stage where no Prefect server is set: what it imports, says, leaves and refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flows.in_process import run_in_process
from offline_core.data.curation.config import PruningConfig
from offline_core.data.quality.config import QualityConfig
from offline_core.errors import EmptyDatasetError, LocationError, QualityError, RayLostError
from offline_core.keeping.homepage.config import ReportConfig
from offline_core.runtime.stage import STAGES, Stage
from tests.data.datasets.factories import episode, write_dataset


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    return write_dataset(tmp_path / "recording", [episode(i) for i in range(8)]).location.uri


def test_its_card_lies_beside_what_it_made_and_no_line_says_the_same(
    dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run_in_process(STAGES["prune"], config=PruningConfig(), dataset=dataset, output=str(tmp_path / "pruned"))
    assert made.dataset.episodes == 8
    assert (tmp_path / "pruned" / "_cards" / "000001.html").is_file()
    assert capsys.readouterr().err == "", "what was made stands on the card"


def test_warnings_say_that_they_are(dataset: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("offline_core.keeping.cards._put", lambda *_, **__: 1 / 0)
    run_in_process(STAGES["check"], config=QualityConfig(), dataset=dataset, version=None)
    assert "\nWARNING: The work is done, but its card could not be kept" in f"\n{capsys.readouterr().err}"


def test_a_dataset_that_does_not_pass_is_an_error_and_has_its_card(tmp_path: Path) -> None:
    bad = write_dataset(tmp_path / "bad", [episode(i, rewards=np.full(7, np.nan)) for i in range(4)]).location.uri
    with pytest.raises(QualityError):
        run_in_process(STAGES["check"], config=QualityConfig(), dataset=bad, version=None)
    assert [*(tmp_path / "bad").rglob("*.html")]


def test_a_report_links_the_runs_of_the_ui_that_is_set(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    linked: list[str] = []
    monkeypatch.setattr(Stage, "__call__", lambda _, config, **__: linked.append(config.runs_url))
    monkeypatch.setattr("offline_core.keeping.perform.keep_stage_card", lambda *_, **__: None)
    monkeypatch.setenv("PREFECT_UI_URL", "http://prefect.example/")
    for given in ("", "http://other.example/runs"):
        run_in_process(STAGES["report"], config=ReportConfig(runs_url=given), root=dataset, output=None)
    assert linked == ["http://prefect.example/runs", "http://other.example/runs"]


@pytest.mark.parametrize(
    ("parameters", "error"),
    [({"output": "/elsewhere"}, LocationError), ({"config": PruningConfig(where="return > 1e9")}, EmptyDatasetError)],
)
def test_what_is_not_allowed_or_comes_to_nothing_is_refused_and_nothing_is_left(
    parameters: dict[str, object], error: type[Exception], dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFLINE_ROOTS", str(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error):
        run_in_process(
            STAGES["prune"],
            **{"config": PruningConfig(), "dataset": dataset, "output": str(tmp_path / "pruned"), "version": None} | parameters,
        )
    assert sorted(path for path in tmp_path.rglob("*") if path.name != ".lock" and path != tmp_path / "pruned") == before


def test_it_has_one_ray_which_ends_with_it(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scopes: list[bool] = []

    def stage(*_: object, **__: object) -> None:
        from offline_core.runtime import ray_session

        scopes.append(ray_session._scope is not None)
        raise RayLostError("gone")

    monkeypatch.setattr(Stage, "__call__", stage)
    with pytest.raises(RayLostError):
        run_in_process(STAGES["check"], config=QualityConfig(), dataset=dataset, version=None)
    assert scopes == [True]


def test_an_error_is_told_once_and_without_secrets(tmp_path: Path) -> None:
    code = """
import sys
from offline_core.errors import StorageError
from offline_core.runtime.stage import Stage
def fail(*_, **__): raise StorageError("s3://key:hidden@lake/x cannot be read")
Stage.__call__ = fail
from flows.cli import main
main()
"""
    data = write_dataset(tmp_path / "recording", [episode(0)]).location.uri
    done = subprocess.run(
        [sys.executable, "-c", code, "check", data], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.strip() == "StorageError: s3://***@lake/x cannot be read", done.stderr
