"""The flow that publishes a report, under a real Prefect server: it links the runs that made what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.settings import PREFECT_UI_URL, temporary_settings

from flows.stages import prune, report
from offline_core.data.curation.config import PruningConfig
from offline_core.keeping.homepage.config import ReportConfig
from tests.data.datasets.factories import episode, write_dataset
from tests.flows.test_flows import latest_run
from tests.keeping.homepage.test_report import data_of

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.filterwarnings("default")]


def test_a_dataset_links_the_run_that_made_it(tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "pruned"
    write_dataset(source, [episode(i) for i in range(8)])
    with temporary_settings({PREFECT_UI_URL: "https://prefect.example/v2/"}):
        prune(dataset=str(source), output=str(output), config=PruningConfig(keep_top_fraction=0.5))
        run = latest_run()
        report(root=str(tmp_path))
    data = data_of(tmp_path / "report.html")
    assert data["overview"]["runs_url"] == "https://prefect.example/v2/runs"
    made = {name: each["versions"][0]["run"] for name, each in data["dataset"].items()}
    assert made == {"pruned": str(run.id), "source": ""}


def test_the_address_that_is_given_comes_first(tmp_path: Path) -> None:
    with temporary_settings({PREFECT_UI_URL: "https://prefect.example"}):
        report(root=str(tmp_path), config=ReportConfig(runs_url="https://other.example/runs/"))
    assert data_of(tmp_path / "report.html")["overview"]["runs_url"] == "https://other.example/runs"
