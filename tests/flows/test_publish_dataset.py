"""Publishing as a flow and from Python."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import offline_core as offline
from flows.stages import publish
from tests.data.datasets.factories import episode, write_dataset
from tests.flows.test_data_flows import card_of

pytest.importorskip("deltalake")


@pytest.mark.usefixtures("prefect_server")
def test_a_dataset_is_published_by_flow_and_from_python(tmp_path: Path) -> None:
    data = f"{tmp_path}/data"
    write_dataset(data, [episode(number) for number in range(3)])
    assert not publish(dataset=data).reused
    assert "delta" in card_of(publish, "publish-card")
    assert offline.publish(data).reused
    write_dataset(data, [episode(7)])
    publish(dataset=data)
    assert pl.scan_delta(data).collect()["eps_id"].to_list() == ["episode-0007"]
