"""What people are shown of a dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.inspection import print_dataset
from offline_core.pruning.config import PruningConfig
from offline_core.pruning.prune import prune_dataset
from offline_core.quality.check import check_dataset
from offline_core.quality.config import QualityConfig
from tests.storage.factories import episode, write_dataset


def test_columns_of_a_pruned_dataset_are_those_of_its_last_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its episodes were copied unopened."""
    write_dataset(tmp_path / "in", [episode(i) for i in range(6)])
    pruned = prune_dataset(PruningConfig(keep_top_fraction=0.5), dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    print_dataset(pruned.dataset.uri, None)
    assert "Statistics of columns are not known yet; 'offline check' makes them." in capsys.readouterr().out
    check_dataset(QualityConfig(stop_on="never"), dataset=pruned.dataset.uri)
    print_dataset(pruned.dataset.uri, None)
    shown = capsys.readouterr().out
    assert "obs[3]" in shown and "action_logp" in shown
