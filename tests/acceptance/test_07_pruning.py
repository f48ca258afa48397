"""Point 7: pruning and compaction."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offline_core.data.curation.compact import compact
from offline_core.data.curation.config import CompactionConfig, PruningConfig
from offline_core.data.curation.converting import convert
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.formats.sources import scans
from offline_core.data.importing.config import ConversionConfig
from offline_core.runtime.config import parse
from tests.acceptance.forms import by_id, run_import
from tests.data.datasets.factories import episode, write_dataset
from tests.data.formats.sources.factories import steps, write_steps


def pruned(dataset: str, output: Path, **rules: Any) -> dict[str, Any]:
    return by_id(prune(parse(PruningConfig, rules), dataset=dataset, output=str(output)).dataset.uri)


def test_07_columns_and_rows_are_chosen_while_parquet_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader itself gives no more than was asked for."""
    read: list[tuple[int, set[str]]] = []
    batches = scans.ScannedFile.batches

    def watched(self: scans.ScannedFile) -> Any:
        for table in batches(self):
            read.append((table.num_rows, {*table.column_names}))
            yield table

    monkeypatch.setattr(scans.ScannedFile, "batches", watched)
    names = {"eps_id": "eps_id", "t": "t", "obs": "o_t", "actions": "a_t", "rewards": "r_t", "new_obs": "o_tp1", "dones": "d_t"}
    write_steps(tmp_path / "in" / "x.parquet", steps(huge=["x" * 1000] * 5))
    source = {"columns": [*names.values()], "where": "eps_id = 'b'"}
    _, found = run_import(tmp_path / "in", tmp_path / "out", source=source, mapping=names)
    assert found.keys() == {"b"} and found["b"].rewards.tolist() == [2.0, 2.5] and not found["b"].extras
    assert read and {rows for rows, _ in read} == {2}, "whenever it reads"
    assert not any("huge" in columns for _, columns in read)


def test_07_columns_of_a_table_are_projected(recording: str, tmp_path: Path) -> None:
    table = convert(ConversionConfig(format="table"), dataset=recording, output=str(tmp_path / "table")).dataset
    assert "action_logp" in open_dataset(table.uri).schema.names
    found = pruned(table.uri, tmp_path / "out", columns=["actions"])
    assert len(found) == 20 and not any(e.extras for e in found.values())


def test_07_by_return_and_length(recording: str, tmp_path: Path) -> None:
    own = by_id(recording)
    limit = float(np.median([e.return_ for e in own.values()]))
    wanted = {eps_id for eps_id, e in own.items() if e.return_ >= limit and len(e) < 500}
    assert pruned(recording, tmp_path, where=f"return >= {limit} and length < 500").keys() == wanted
    assert 0 < len(wanted) < len(own)


@pytest.mark.parametrize("fraction", [0.1, 0.33])
def test_07_by_quantile(recording: str, tmp_path: Path, fraction: float) -> None:
    returns = sorted((e.return_ for e in by_id(recording).values()), reverse=True)
    kept = pruned(recording, tmp_path, keep_top_fraction=fraction)
    assert sorted((e.return_ for e in kept.values()), reverse=True) == returns[: math.ceil(fraction * len(returns))]


def test_07_by_success(tmp_path: Path) -> None:
    some = [episode(i, infos=[{}] * 7 + [{"is_success": i < 2}]) for i in range(5)]
    write_dataset(tmp_path / "in", some)
    assert list(pruned(str(tmp_path / "in"), tmp_path / "out", where="success").values()) == some[:2]


def test_07_by_step(recording: str, tmp_path: Path) -> None:
    own, kept = by_id(recording), pruned(recording, tmp_path, where_steps="t < 5")
    assert len(kept) == len(own) and {len(e) for e in kept.values()} == {5}
    for eps_id, e in kept.items():
        np.testing.assert_array_equal(e.observations, own[eps_id].observations[:6])


def test_07_compaction_makes_few_files_of_64_to_256_mib(recording: str, tmp_path: Path) -> None:
    aim = CompactionConfig().files.max_bytes_per_file
    assert 64 * 2**20 <= aim <= 256 * 2**20
    result = compact(CompactionConfig(), dataset=recording, output=str(tmp_path))
    assert result.files_before > 4 and result.files_after == 1
    assert by_id(result.dataset.uri) == by_id(recording)


def test_07_compaction_goes_by_bytes(tmp_path: Path) -> None:
    """The same at a smaller scale: files just below the limit."""
    limit = 2**17
    write_dataset(tmp_path / "in", [episode(i, 100) for i in range(200)], max_rows_per_file=3)
    config = parse(CompactionConfig, {"files": {"max_bytes_per_file": limit, "compression": "none"}})
    result = compact(config, dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    sizes = [file.bytes for file in open_dataset(result.dataset.uri).manifest.files]
    assert result.files_before > 60 and max(sizes) <= limit and min(sizes[:-1]) > limit / 2
