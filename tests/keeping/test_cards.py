"""Cards beside the data: where they lie, when they stay, what they say of the run, and that nobody trips over them."""

from __future__ import annotations

import itertools
import logging
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from pydantic import BaseModel

from offline_core.data.curation.compact import compact
from offline_core.data.curation.config import CompactionConfig, PruningConfig, SplitConfig
from offline_core.data.curation.prune import prune
from offline_core.data.curation.split import split
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.quality.check import check
from offline_core.data.quality.config import QualityConfig
from offline_core.data.store.location import Location
from offline_core.judging.estimation.config import EstimateConfig, FQEConfig
from offline_core.judging.estimation.estimate import estimate
from offline_core.keeping.cards import keep_stage_card, observe_cards
from offline_core.learning.config import TrainingConfig
from offline_core.runtime.config import parse
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Result
from offline_core.runtime.stage import STAGES, Stage
from tests.data.datasets.factories import episode, write_dataset
from tests.data.importing.factories import steps, write_rows
from tests.judging.estimation.chains import TARGET, policy_of
from tests.judging.estimation.test_estimate import chain, saved


@pytest.fixture
def source(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "source", [episode(i) for i in range(8)])


def run(stage: Stage[..., Any], config: BaseModel, **arguments: Any) -> tuple[Any, Card]:
    """The result of a stage, and its card."""
    result = stage(config, **arguments)
    return result, keep_stage_card(stage, result, config, arguments)


def yaml_of(text: str) -> Any:
    return yaml.safe_load(text.partition("```yaml\n")[2].partition("\n```")[0])


def test_a_card_lies_beside_the_version_and_says_what_ran_on_what(source: Dataset, tmp_path: Path) -> None:
    config = PruningConfig(keep_top_fraction=0.5)
    result, card = run(prune, config, dataset=source.location.uri, output=str(tmp_path / "pruned"), version=None)
    file = tmp_path / "pruned" / "_cards" / "000001.md"
    assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG") and file.with_suffix(".html").is_file()
    for text in (card.markdown(), file.read_text()):
        assert "| To | pruned version 1 (4 episodes, 28 steps, " in text and f"| Root | {tmp_path} |" in text
        assert "4 of 8 episodes kept" in text and "| Dropped by keep_top_fraction | 4 episodes |" in text
        assert yaml_of(text) == {"prune": {"keep_top_fraction": 0.5}}
        assert "source version 1<br/>test<br/>8 episodes, 56 steps" in text.replace("#46;", ".").replace("#95;", "_")
        assert f"pyarrow {open_dataset(result.dataset.uri).manifest.provenance['pyarrow']}" in text
        assert f"offline prune {source.location.uri} {tmp_path / 'pruned'} -s keep_top_fraction=0.5" in text
    assert "](000001.png)" in file.read_text() and "data:image/png;base64," in card.markdown()


@pytest.mark.parametrize(
    ("stage", "values"),
    [
        ("prune", {"where": "return >= 400 and eps_id != 'a b'", "drop_duplicates": True, "files": {"max_rows_per_file": 7}}),
        ("prune", {"where": "yes"}),
        ("train", {"algorithm": "marwil", "marwil": {"beta": 3.0}, "optimizer": {"learning_rate": 1e-4}, "seed": 7}),
        ("sweep", {"grid": {"marwil.beta": [1.0, 2.0], "algorithm": ["bc", "marwil"]}, "seeds": [1, 2]}),
        ("import", {"mapping": {"obs": ["a: b", "c"], "actions": "null"}, "append": True}),
    ],
)
def test_the_command_on_a_card_gives_the_same_parameters(stage: str, values: dict[str, Any]) -> None:
    from flows.settings import read_values
    from offline_core.keeping.cards import repeating
    from offline_core.runtime.stage import load

    config = parse(load(STAGES[stage].config), values)
    words = shlex.split(repeating(STAGES[stage], config, {"dataset": "my data", "output": "out"}))
    assert words[:2] == ["offline", STAGES[stage].title] and "out" in words
    settings = [word for before, word in itertools.pairwise(words) if before == "-s"]
    assert parse(load(STAGES[stage].config), read_values(settings, None)) == config


def test_a_reused_result_says_so_and_leaves_the_files_of_the_run_that_made_it(source: Dataset, tmp_path: Path) -> None:
    given = {"dataset": source.location.uri, "output": str(tmp_path / "pruned")}
    _, first = run(prune, PruningConfig(), **given)
    written = (tmp_path / "pruned" / "_cards" / "000001.md").read_text()
    result, second = run(prune, PruningConfig(), **given)
    made = open_dataset(result.dataset.uri).manifest.created_at
    assert result.reused and second.facts["Reused"] == f"yes, made {made:%Y-%m-%d %H:%M} UTC" and "Reused" not in first.facts
    assert (tmp_path / "pruned" / "_cards" / "000001.md").read_text() == written
    (tmp_path / "pruned" / "_cards" / "000001.html").unlink()
    run(prune, PruningConfig(), **given)
    pictures = [re.findall(r"data:image/png[^)]+", card.markdown()) for card in (first, second)]
    assert pictures[0] == pictures[1] != [], "the picture of the run that made it, not drawn again"
    assert [path.name for path in sorted((tmp_path / "pruned" / "_cards").iterdir())] == [
        "000001.html",
        "000001.md",
        "000001.png",
    ]


def test_both_sides_of_a_split_get_the_card(source: Dataset, tmp_path: Path) -> None:
    run(split, SplitConfig(held_out_fraction=0.25), dataset=source.location.uri, output=str(tmp_path))
    texts = {(tmp_path / side / "_cards" / "000001.md").read_text() for side in ("train", "held_out")}
    assert len(texts) == 1


def test_estimates_that_weigh_nothing_or_mean_nothing_have_a_card_too(tmp_path: Path) -> None:
    dataset, policy = chain(tmp_path, 5), saved(policy_of(TARGET), tmp_path / "policy")
    for method in ("fqe", "is"):
        config = EstimateConfig(methods=[method], resamples=50, fqe=FQEConfig(updates=5))
        _, card = run(estimate, config, policy=policy, dataset=dataset)
        assert f"({method})" in str(card.sections[0].rows[0][0])
    assert any("So few episodes count" in warning for warning in card.warnings)


def test_a_gate_that_refuses_a_result_makes_its_card_bad(tmp_path: Path) -> None:
    dataset, policy = chain(tmp_path, 5), saved(policy_of(TARGET), tmp_path / "policy")
    config = EstimateConfig(methods=["fqe"], gate_method="fqe", resamples=50, fqe=FQEConfig(updates=5), require_return=1e6)
    result, card = run(estimate, config, policy=policy, dataset=dataset)
    assert result.card().verdict != "bad"
    assert (card.verdict, card.word) == ("bad", "Gate failed") and "is not shown to reach" in card.warnings[0]
    assert not card.next


def test_the_card_of_a_reused_result_has_the_verdict_of_the_gate_that_was_asked_for_last(tmp_path: Path) -> None:
    dataset, policy = chain(tmp_path, 5), saved(policy_of(TARGET), tmp_path / "policy")
    words = []
    for wanted in (None, 1e6, 1e6, None):
        config = EstimateConfig(
            methods=["fqe"], gate_method="fqe", resamples=50, fqe=FQEConfig(updates=5), require_return=wanted
        )
        result, card = run(estimate, config, policy=policy, dataset=dataset)
        words.append(card.word)
        assert f"{card.word}.**" in Path(f"{card.places[0]}.md").read_text()
    assert result.reused and words[1:3] == ["Gate failed"] * 2 and words[0] == words[3] != "Gate failed"


def test_what_a_gate_says_is_not_told_twice_on_its_card(source: Dataset) -> None:
    config = QualityConfig(stop_on="warn")
    _, card = run(check, config, dataset=source.location.uri)
    assert card.word == "Gate failed" and len(card.warnings) > 1
    assert not any(warning in card.warnings[0] for warning in card.warnings[1:])
    assert card.warnings[0].endswith("Correct the data, or set stop_on to 'never' to go on with it as it is.")


def test_observers_see_each_card_as_soon_as_it_is_kept(source: Dataset) -> None:
    seen: list[Card] = []
    with observe_cards(seen.append):
        _, card = run(check, QualityConfig(), dataset=source.location.uri)
    run(check, QualityConfig(), dataset=source.location.uri)
    assert seen == [card]


def test_a_card_that_cannot_be_made_or_shown_costs_no_result(
    source: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Result, "card", lambda _: 1 / 0)
    monkeypatch.setattr(
        type(made := compact(CompactionConfig(), dataset=source.ref.uri, output=str(tmp_path))), "card", Result.card
    )
    with observe_cards(lambda _: 1 / 0):
        card = keep_stage_card(STAGES["compact"], made, CompactionConfig(), {})
    assert card.sentence == "The card could not be made."
    assert "could not be made: ZeroDivisionError" in caplog.text and "could not be shown: ZeroDivisionError" in caplog.text


def test_a_file_where_the_folder_of_cards_has_to_be_is_no_failure(
    source: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pruned").mkdir()
    (tmp_path / "pruned" / "_cards").write_text("in the way")
    with caplog.at_level(logging.WARNING, "offline_core"):
        result, card = run(prune, PruningConfig(), dataset=source.location.uri, output=str(tmp_path / "pruned"))
    assert result.dataset.episodes == 8 and card.ran is not None
    assert "The card cannot be written next to the data" in caplog.text and "A file is where a folder has to be" in caplog.text


def test_a_source_that_is_gone_costs_the_picture_and_not_the_card(
    source: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"dataset": source.location.uri, "output": str(tmp_path / "pruned")}
    made, _ = run(prune, PruningConfig(), **given)
    (tmp_path / "pruned" / "_cards" / "000001.png").unlink()
    for path in source.paths:
        Path(path).unlink()
    with caplog.at_level(logging.WARNING, "offline_core"):
        found, card = run(prune, PruningConfig(), **given)
    assert found.reused and found.dataset == made.dataset and card.draw is None and card.ran is not None
    assert re.search(rf"The card has no picture, .*: Cannot read {source.location.uri}/\S+\.parquet: it does not", caplog.text)


def test_whatever_fails_costs_what_is_kept_and_not_the_stage(
    source: Dataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no lineage")

    monkeypatch.setattr("offline_core.keeping.cards.lineage", broken)
    with caplog.at_level(logging.WARNING, "offline_core"):
        result, card = run(check, QualityConfig(), dataset=source.location.uri)
    assert card == result.card() or card.headline == result.card().headline
    assert "The work is done, but its card could not be kept: RuntimeError: no lineage" in caplog.text


def test_readers_do_not_see_cards(source: Dataset, tmp_path: Path) -> None:
    """With the manifest and without. Ray's reader, which RLlib uses, takes the suffix `.parquet` alone."""
    result, _ = run(compact, CompactionConfig(), dataset=source.location.uri, output=str(tmp_path / "copy"))
    run(check, QualityConfig(), dataset=result.dataset.uri)
    folder = tmp_path / "copy"
    beside = {path.suffix for path in folder.rglob("*") if path.is_file() and not path.name.startswith(("last-", ".lock"))}
    assert beside == {".parquet", ".json", ".md", ".html", ".png", ".verified"}
    ids = [each.eps_id for each in open_dataset(str(folder)).episodes()]
    assert len(ids) == 8
    for manifest in (folder / "_versions").iterdir():
        manifest.unlink()
    (folder / "_versions").rmdir()
    assert [each.eps_id for each in open_dataset(str(folder)).episodes()] == ids


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    hostile = tmp_path / "a|b `c` \"d\" 'e' <img src=x> ![f](g) üñí"
    source = write_dataset(hostile, [episode(i) for i in range(4)])
    _, card = run(compact, CompactionConfig(), dataset=source.location.uri, output=str(hostile / "copy"))
    text = (hostile / "copy" / "_cards" / "000001.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(row.replace("\\|", "").count("|") == 3 for row in rows)
    outside = re.sub(r"^(`{3,})\w+\n.*?\n\1$", "", text, flags=re.M | re.S)
    assert "<img" not in outside.replace("\\<", "") and "![f]" not in outside and Location.of(str(hostile)).is_folder()
    assert card.ran is not None and source.location.uri in shlex.split(card.ran.command)


def test_a_card_says_which_version_is_reused_and_what_is_replaced(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_rows(tmp_path / name / "x.parquet", steps(name, 3))
    cards = [
        run(import_data, ImportConfig(), source=str(tmp_path / name), output=str(tmp_path / "out"))[1]
        for name in ("a", "b", "a")
    ]
    assert str(cards[1].facts["Replaces"]).startswith("Version 2 replaces version 1: 1 episode of ")
    assert "not the latest version, which is 2" in str(cards[2].facts["Dataset"])
    assert cards[2].warnings[-1] == (
        f"{tmp_path}/out: version 1 is reused; the latest is version 2. Give the next command --version 1, "
        "for without it the latest is read."
    )


def test_a_chain_has_the_parameters_of_its_stages_by_name(source: Dataset, tmp_path: Path) -> None:
    from offline_core.keeping.cards import keep_card

    card = Card("Chain", about=(source.location.uri, 1), places=[f"{tmp_path}/card"])
    parameters = {"pruning": PruningConfig(where="return > 1"), "training": TrainingConfig()}
    kept = keep_card(card, "expert_to_policy", parameters, is_reused=False)
    assert yaml_of(kept.markdown()) == {"expert_to_policy": {"pruning": {"where": "return > 1"}}}
    assert (tmp_path / "card.md").read_text() == kept.markdown()


def test_a_check_leaves_its_card_though_its_gate_refuses_the_data(tmp_path: Path) -> None:
    bad = write_dataset(tmp_path / "bad", [episode(0, rewards=np.full(7, np.nan))])
    result, card = run(check, QualityConfig(), dataset=bad.location.uri)
    assert isinstance(result, Result) and card.verdict == "bad"
    assert "fail" in (tmp_path / "bad" / "_checks" / "000001.md").read_text()


def test_the_verb_shows_the_card_of_what_is_at_a_path(source: Dataset, tmp_path: Path) -> None:
    from flows.cli import app

    run(prune, PruningConfig(), dataset=source.location.uri, output=str(tmp_path / "pruned"))
    done = CliRunner().invoke(app, ["card", str(tmp_path / "pruned")])
    assert done.exit_code == 0 and "Not checked" in done.output and "pruned/_cards/000001.html" in done.output
    run(check, QualityConfig(), dataset=str(tmp_path / "pruned"))
    checked = CliRunner().invoke(app, ["card", str(tmp_path / "pruned/_checks/000001.json")])
    assert "Gate passed" in checked.output and len(checked.output.splitlines()) <= 15
