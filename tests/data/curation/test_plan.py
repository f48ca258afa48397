"""Plans: what pruning does afterwards, told without reading the data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.plan import QUANTILES, plan_pruning
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.episodes.codecs import Format
from offline_core.errors import ConfigError, SchemaError
from tests.data.datasets.factories import FORMATS, episode, found, write_dataset, write_items


def noise(count: int, steps: int = 200) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        episode(i, steps, observations=rng.standard_normal((steps + 1, 32)).astype(np.float32), observation_space=None)
        for i in range(count)
    ]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("config", [{"where": "return > 0"}, {"keep_top_fraction": 0.25}, {"where": "length > 9"}, {}])
def test_the_plan_is_what_comes(tmp_path: Path, format: Format, config: dict[str, Any]) -> None:
    some = [episode(i, 5 + i % 7) for i in range(60)]
    write_dataset(tmp_path / "in", some, format, batch=10, max_rows_per_file=90, compression="none")
    parameters = PruningConfig(**config, files=FilesConfig(compression="none"))
    before = found(tmp_path)
    plan = plan_pruning(parameters, dataset=str(tmp_path / "in"))
    assert found(tmp_path) == before, "nothing is written"
    result = prune(parameters, dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    assert (plan.episodes, plan.steps) == (result.after.episodes, result.after.steps)
    assert (plan.source, plan.dropped, plan.unplanned) == (result.source, result.dropped, [])
    assert plan.card().sentence.startswith(f"Would keep {plan.episodes} episode")
    assert plan.after is not None
    assert plan.after.mean == pytest.approx(result.after.returns.mean)
    assert (plan.after.quantiles[0], plan.after.quantiles[-1]) == (result.after.returns.min, result.after.returns.max)
    returns = sorted(float(e.rewards.sum()) for e in some)
    assert plan.before is not None
    assert plan.before.quantiles == [returns[max(0, int(np.ceil(q * 60)) - 1)] for q in QUANTILES]


@pytest.mark.parametrize("format", FORMATS)
def test_bytes_are_estimated(tmp_path: Path, format: Format) -> None:
    write_dataset(tmp_path / "in", noise(40), format, batch=5)
    parameters = PruningConfig(where="return > 0")
    plan = plan_pruning(parameters, dataset=str(tmp_path / "in"))
    result = prune(parameters, dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    assert 0 < result.after.episodes < 40
    assert plan.bytes == pytest.approx(result.dataset.bytes, rel=0.1)


def bytes_read() -> int:
    """By this process so far, through any of its file handles."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="only Linux counts the bytes that a process reads")
@pytest.mark.parametrize("format", FORMATS)
def test_a_plan_reads_no_data(tmp_path: Path, format: Format) -> None:
    source = write_dataset(tmp_path / "in", noise(100), format, batch=20)
    assert source.ref.bytes > 2 * 2**20

    def cost() -> int:
        before = bytes_read()
        plan_pruning(PruningConfig(where="return > 0 and length > 3"), dataset=str(tmp_path / "in"))
        return bytes_read() - before

    cost()  # what is imported on the first call is not counted
    assert cost() < 0.05 * source.ref.bytes


def test_what_a_plan_cannot_tell(tmp_path: Path) -> None:
    for format in FORMATS:
        write_dataset(tmp_path / format, [episode(0), episode(0, eps_id="again")], format)
    everything = PruningConfig(drop_non_finite=True, drop_duplicates=True, where_steps="t > 3")
    plan = plan_pruning(everything, dataset=str(tmp_path / "episodes"))
    assert (plan.unplanned, plan.dropped) == (["drop_non_finite", "where_steps"], {"drop_duplicates": 1})
    plan = plan_pruning(everything, dataset=str(tmp_path / "table"))
    assert (plan.unplanned, plan.dropped) == (["drop_non_finite", "drop_duplicates", "where_steps"], {})


def test_a_plan_may_keep_nothing(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", [episode(0), episode(1)])
    plan = plan_pruning(PruningConfig(), dataset=str(tmp_path / "in"), where=pl.col("length") > 7)
    assert (plan.episodes, plan.steps, plan.bytes, plan.after) == (0, 0, 0, None)
    assert plan.dropped == {"where": 2}


def test_what_cannot_be_planned(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", [episode(0)])
    for wrong, message in (({"where": "retrun > 3"}, "names the column"), ({"where_steps": "t >"}, "cannot be understood")):
        with pytest.raises(ConfigError, match=message):
            plan_pruning(PruningConfig(**wrong), dataset=str(tmp_path / "in"))
    write_items(tmp_path / "theirs" / "x.parquet", [b"x"])
    with pytest.raises(SchemaError, match="has no manifest"):
        plan_pruning(PruningConfig(), dataset=str(tmp_path / "theirs"))
