"""Publishing as a flow and from the command line."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import offline_core as offline
from flows.cli import app
from flows.publish_dataset import publish_dataset
from tests.datasets.factories import episode, write_dataset
from tests.flows.test_data_flows import card_of

pytest.importorskip("deltalake")


def test_a_dataset_is_published_three_ways(tmp_path: Path) -> None:
    data = f"{tmp_path}/data"
    write_dataset(data, [episode(number) for number in range(3)])
    assert not publish_dataset(dataset=data).reused
    assert "delta" in card_of(publish_dataset, "publication-card")
    assert offline.publish(data).reused
    write_dataset(data, [episode(7)])
    found = CliRunner().invoke(app, ["publish", data], catch_exceptions=False)
    assert found.exit_code == 0 and pl.scan_delta(data).collect()["eps_id"].to_list() == ["episode-0007"]
