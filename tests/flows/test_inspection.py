"""What people are shown of a dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.inspection import print_dataset, print_dataset_or_policy
from offline_core.curation.config import PruningConfig
from offline_core.curation.prune import prune_dataset
from offline_core.learning.train import train_policy
from offline_core.quality.check import check_dataset
from offline_core.quality.config import QualityConfig
from tests.datasets.factories import episode, write_dataset
from tests.learning.test_train import balancing_episodes, config, dataset_of


def test_columns_of_a_pruned_dataset_are_those_of_its_last_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its episodes were copied unopened."""
    write_dataset(tmp_path / "in", [episode(i) for i in range(6)])
    pruned = prune_dataset(PruningConfig(keep_top_fraction=0.5), dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    print_dataset(pruned.dataset.uri, None)
    assert "Statistics of columns are not known yet; 'offline check' computes them." in capsys.readouterr().out
    check_dataset(QualityConfig(stop_on="never"), dataset=pruned.dataset.uri)
    print_dataset(pruned.dataset.uri, None)
    shown = capsys.readouterr().out
    assert "obs[3]" in shown and "action_logp" in shown


def test_a_policy_is_shown_with_all_its_ancestors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(10, 20), environment=None)
    pruned = prune_dataset(PruningConfig(keep_top_fraction=0.5), dataset=data, output=str(tmp_path / "pruned")).dataset
    trained = train_policy(config(), dataset=pruned.uri, output=str(tmp_path / "policy"))
    print_dataset_or_policy(trained.checkpoint, None)
    shown = capsys.readouterr().out
    assert "train_policy" in shown and "Discrete(2)" in shown
    lines = [line.strip("└─ │") for line in shown.splitlines()[-3:]]
    assert [line.partition(",")[0] for line in lines] == ["policy/best", _named("pruned", tmp_path), _named("data", tmp_path)]


def _named(name: str, root: Path) -> str:
    return f"{root.name}/{name} version 1"
