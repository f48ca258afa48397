"""What people are shown of a dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.inspection import print_dataset, print_dataset_or_policy
from offline_core.curation.config import MergeConfig, PruningConfig
from offline_core.curation.merge import merge_datasets
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


def test_an_ancestor_of_several_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From merge to merge there are twice as many ways to the first."""
    whole = write_dataset(tmp_path / "0", [episode(i) for i in range(6)]).location.uri
    for level in ("1", "2"):
        halves = [
            prune_dataset(PruningConfig(where=where), dataset=whole, output=str(tmp_path / f"{level}{side}")).dataset.uri
            for side, where in (("a", "terminated"), ("b", "not terminated"))
        ]
        whole = merge_datasets(MergeConfig(), datasets=halves, output=str(tmp_path / level)).dataset.uri
    print_dataset(whole, None)
    lines = [line.strip("└─├│ \xa0") for line in capsys.readouterr().out.splitlines() if f"{tmp_path.name}/" in line][1:]
    names = [line.partition(" version")[0].rpartition("/")[2] for line in lines]
    assert names == ["2", "2a", "1", "1a", "0", "1b", "0", "2b", "1"]
    assert [name for name, line in zip(names, lines, strict=True) if line.endswith("version 1, see above")] == ["0", "1"]


def _named(name: str, root: Path) -> str:
    return f"{root.name}/{name} version 1"
