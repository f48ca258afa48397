"""What people are shown of what is in a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from offline_core.data.curation.config import MergeConfig, PruningConfig
from offline_core.data.curation.merge import merge
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.result_cache import store_result
from offline_core.data.quality.check import check
from offline_core.data.quality.config import QualityConfig
from offline_core.data.store.location import Location
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.sweep import sweep
from offline_core.keeping.inspection import card_at
from offline_core.learning.train import train
from offline_core.runtime.config import parse
from offline_core.runtime.reporting.card import Card
from tests.data.datasets.factories import episode, write_dataset
from tests.learning.test_train import balancing_episodes, config, dataset_of
from tests.made_up_results import policy_results


def test_columns_of_a_pruned_dataset_are_those_of_its_last_check(tmp_path: Path) -> None:
    """Its episodes were copied unopened."""
    write_dataset(tmp_path / "in", [episode(i) for i in range(6)])
    pruned = prune(PruningConfig(keep_top_fraction=0.5), dataset=str(tmp_path / "in"), output=str(tmp_path / "out"))
    assert "They are not known yet; 'offline check' computes them." in card_at(pruned.dataset.uri).terminal(verbose=True)
    check(QualityConfig(stop_on="never"), dataset=pruned.dataset.uri)
    card = card_at(pruned.dataset.uri)
    shown = card.terminal(verbose=True)
    assert "obs[3]" in shown and "action_logp" in shown and card.word.startswith("Gate passed")


def test_a_policy_is_shown_with_all_its_ancestors(tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(10, 20), environment=None)
    pruned = prune(PruningConfig(keep_top_fraction=0.5), dataset=data, output=str(tmp_path / "pruned")).dataset
    trained = train(config(), dataset=pruned.uri, output=str(tmp_path / "policy"))
    card = card_at(trained.checkpoint)
    shown = card.terminal(verbose=True)
    assert "train" in shown and "Discrete(2)" in shown and "Algorithm  " in shown and card.headline == trained.card().headline
    assert card.places == [] != trained.card().places  # no page is kept of a call in Python
    names = [line.partition(",")[0] for _, line in card.ancestors]
    assert names == [
        "policy/best",
        _named("pruned", tmp_path),
        _named("data", tmp_path),
    ]


def _listed(card: Card) -> list[list[str]]:
    """The rows of the table of policies."""
    return [
        [str(cell) for cell in row] for each in card.sections if each.title == "Policies to choose from" for row in each.rows
    ]


def test_a_training_lists_its_series_also_while_it_goes_on(tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(), environment=None)
    run = tmp_path / "run"
    evaluation = {"play": False, "held_out": data}
    trained = train(config(keep={"every_iterations": 1}, evaluation=evaluation), dataset=data, output=str(run))
    losses = dict(trained.held_out_losses)
    kept = [[str(n), str(u), f"{losses[u]:,.6g}"] for n, u in enumerate((10, 16), start=1)]
    ends = [[name, "16", f"{losses[16]:,.6g}"] for name in ("best", "last")]
    for place in (run, run / "best"):
        card = card_at(str(place))
        shown = card.terminal(verbose=True)
        assert "train" in shown and "Discrete(2)" in shown
        rows = _listed(card)
        assert [[number, updates, loss] for number, updates, _, loss, _ in rows] == [*kept, *ends]
        assert {returns for _, _, returns, _, _ in rows} == {"–"}
    assert not _listed(card_at(trained.kept[0].checkpoint)), "one of many is itself"
    for name in ("best", "last"):
        shutil.rmtree(run / name)
    (run / "result.json").unlink()
    card = card_at(str(run))
    assert card.word == "Not finished" and [row[1] for row in _listed(card)] == ["10", "16"]


def test_a_sweep_lists_the_policies_of_its_settings(tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes())
    training = {"evaluation": {"episodes": 2, "location": "process"}, "optimizer": {"max_epochs": 1, "batch_size": 256}}
    run_sweep = {"training": training, "grid": {"optimizer.learning_rate": [0.01, 0.02]}, "seeds": 1, "parallel": 1}
    result = sweep(parse(SweepConfig, run_sweep), dataset=data, output=str(tmp_path / "sweep"))
    rows = _listed(card_at(str(tmp_path / "sweep")))
    assert [row[0] for row in rows] == [setting.name for setting in result.settings]
    assert [row[2] for row in rows] == [f"{run.score:,.4g}" for setting in result.settings for run in setting.runs]


def test_an_ancestor_of_several_is_shown_once(tmp_path: Path) -> None:
    """From merge to merge there are twice as many ways to the first."""
    whole = write_dataset(tmp_path / "0", [episode(i) for i in range(6)]).location.uri
    for level in ("1", "2"):
        halves = [
            prune(PruningConfig(where=where), dataset=whole, output=str(tmp_path / f"{level}{side}")).dataset.uri
            for side, where in (("a", "terminated"), ("b", "not terminated"))
        ]
        whole = merge(MergeConfig(), datasets=halves, output=str(tmp_path / level)).dataset.uri
    lines = [line for _, line in card_at(whole).ancestors]
    names = [line.partition(" version")[0].rpartition("/")[2] for line in lines]
    assert names == ["2", "2a", "1", "1a", "0", "1b", "0", "2b", "1"]
    assert [name for name, line in zip(names, lines, strict=True) if line.endswith("version 1, see above")] == ["0", "1"]


def _named(name: str, root: Path) -> str:
    return f"{root.name}/{name} version 1"


def test_the_folder_of_a_chain_leads_to_its_card(tmp_path: Path) -> None:
    (tmp_path / "card.html").write_text("<html>")
    assert card_at(str(tmp_path)).places == [f"{tmp_path}/card"]
    dataset = DatasetRef(uri=str(tmp_path / "data"), version=1, fingerprint="0" * 16, episodes=1, steps=1, bytes=1)
    evaluation = dict(policy_results("", str(tmp_path / "policy/best"), dataset))["evaluate"]
    store_result(Location.of(str(tmp_path / "policy/best/_evaluations/0a.json")), "", evaluation, fingerprints={})
    card, told = card_at(str(tmp_path)), evaluation.card()
    assert (card.title, card.verdict, card.sentence) == ("Chain", told.verdict, told.headline)
    (tmp_path / "policy/best/_evaluations/0a.json").write_text("{")
    assert card_at(str(tmp_path)).sentence == "Its card is a page."
