"""Cards beside the data: where they lie, when they stay, and that nobody trips over them."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from flows.results import print_result
from offline_core.data.curation.config import CompactionConfig, PruningConfig, SplitConfig
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.reader import episodes
from offline_core.data.importing.config import ImportConfig
from offline_core.data.quality.config import QualityConfig
from offline_core.data.store.location import Location
from offline_core.errors import QualityError
from offline_core.judging.estimation.config import FQEConfig, OffPolicyConfig
from offline_core.policies.recording.config import RecordingConfig
from tasks import artifacts
from tasks.stages import (
    check,
    compact,
    estimate,
    import_data,
    prune,
    record,
    split,
)
from tests.data.datasets.factories import episode, write_dataset
from tests.data.importing.factories import steps, write_rows
from tests.judging.estimation.chains import TARGET, policy_of
from tests.judging.estimation.test_estimate import chain, saved

Published = list[dict[str, Any]]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    """What the tasks, called as functions, would have told Prefect."""
    found: Published = []
    monkeypatch.setattr(
        artifacts, "create_markdown_artifact", lambda markdown, **rest: found.append({"text": markdown, **rest})
    )
    yield found


@pytest.fixture
def source(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "source", [episode(i) for i in range(8)])


def yaml_of(text: str) -> Any:
    return yaml.safe_load(text.partition("```yaml\n")[2].partition("\n```")[0])


def test_a_card_is_in_prefect_with_its_picture_and_beside_the_version_without(
    published: Published, source: Dataset, tmp_path: Path
) -> None:
    config = PruningConfig(keep_top_fraction=0.5)
    result = prune.fn(config, dataset=source.location.uri, output=str(tmp_path / "pruned"))
    [artifact] = published
    assert artifact["key"] == "prune-card" and "data:image/png;base64," in artifact["text"]
    card = tmp_path / "pruned" / "_cards" / "000001.md"
    assert card.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    for text in (artifact["text"], card.read_text()):
        assert "| To | pruned version 1 (4 episodes, 28 steps, " in text and f"| Root | {tmp_path} |" in text
        assert "| Episodes kept | 4 of 8 |" in text and "| Dropped by keep_top_fraction | 4 episodes |" in text
        assert yaml_of(text) == {"prune": {"keep_top_fraction": 0.5}}
        assert "source version 1<br/>test<br/>8 episodes, 56 steps" in text.replace("#46;", ".").replace("#95;", "_")
        assert f"pyarrow {open_dataset(result.dataset.uri).manifest.provenance['pyarrow']}" in text
    assert "](000001.png)" in card.read_text()


def test_a_reused_result_says_so_and_leaves_the_files_of_the_run_that_made_it(
    published: Published, source: Dataset, tmp_path: Path
) -> None:
    for _ in range(2):
        result = prune.fn(PruningConfig(), dataset=source.location.uri, output=str(tmp_path / "pruned"))
    assert result.reused
    made = open_dataset(result.dataset.uri).manifest.created_at
    assert f"| Reused | yes, made {made:%Y-%m-%d %H:%M} UTC |" in published[1]["text"]
    assert "Reused" not in published[0]["text"]
    assert "Reused" not in (tmp_path / "pruned" / "_cards" / "000001.md").read_text()
    pictures = [re.findall(r"data:image/png[^)]+", each["text"]) for each in published]
    assert pictures[0] == pictures[1] != [], "the picture of the run that made it, not drawn again"
    assert [path.name for path in sorted((tmp_path / "pruned" / "_cards").iterdir())] == [
        "000001.html",
        "000001.md",
        "000001.png",
    ]


@pytest.mark.parametrize(("explore", "said"), [(True, "sampled"), (False, "greedy")])
def test_the_card_of_a_recording_says_how_actions_were_chosen(
    published: Published, cartpole_policy: str, tmp_path: Path, explore: bool, said: str
) -> None:
    config = RecordingConfig(episodes=2, explore=explore, envs_per_recorder=2)
    record.fn(config, policy=cartpole_policy, output=str(tmp_path))
    assert (
        f"({said} actions, standard deviation of 2 episodes; so few say little)" in published[0]["text"]
        and "Greedy return" not in published[0]["text"]
    )


def test_both_sides_of_a_split_get_the_card(published: Published, source: Dataset, tmp_path: Path) -> None:
    split.fn(SplitConfig(held_out_fraction=0.25), dataset=source.location.uri, output=str(tmp_path))
    assert len(published) == 1
    texts = {(tmp_path / side / "_cards" / "000001.md").read_text() for side in ("train", "held_out")}
    assert len(texts) == 1


def test_a_check_leaves_its_card_even_if_it_stops_the_run(published: Published, tmp_path: Path) -> None:
    bad = write_dataset(tmp_path / "bad", [episode(0, rewards=np.full(7, np.nan))])
    with pytest.raises(QualityError):
        check.fn(QualityConfig(), dataset=bad.location.uri)
    assert published[0]["key"] == "check-card"
    assert "fail" in (tmp_path / "bad" / "_checks" / "000001.md").read_text()


def test_estimates_that_weigh_nothing_or_mean_nothing_have_a_card_too(published: Published, tmp_path: Path) -> None:
    dataset, policy = chain(tmp_path, 5), saved(policy_of(TARGET), tmp_path / "policy")
    for method in ("fqe", "is"):
        config = OffPolicyConfig(methods=[method], resamples=50, fqe=FQEConfig(updates=5))
        estimate.fn(config, policy=policy, dataset=dataset)
    assert "| Estimate fqe |" in published[0]["text"] and "So few episodes count" in published[1]["text"]


def test_a_file_where_the_folder_of_cards_has_to_be_is_no_failure(
    published: Published, source: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pruned").mkdir()
    (tmp_path / "pruned" / "_cards").write_text("in the way")
    with caplog.at_level(logging.WARNING, "offline_core"):
        result = prune.fn(PruningConfig(), dataset=source.location.uri, output=str(tmp_path / "pruned"))
    assert result.dataset.episodes == 8 and len(published) == 1
    assert "The card cannot be written next to the data" in caplog.text and "A file is where a folder has to be" in caplog.text


def test_a_source_that_is_gone_costs_the_card_that_is_drawn_anew_and_not_the_stage(
    published: Published, source: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = prune.fn(PruningConfig(), dataset=source.location.uri, output=str(tmp_path / "pruned"))
    (tmp_path / "pruned" / "_cards" / "000001.png").unlink()
    for path in source.paths:
        Path(path).unlink()
    with caplog.at_level(logging.WARNING, "offline_core"):
        found = prune.fn(PruningConfig(), dataset=source.location.uri, output=str(tmp_path / "pruned"))
    assert found.reused and found.dataset == made.dataset
    assert len(published) == 1
    assert "The work is done, but its card could not be made or published: StorageError: Cannot read" in caplog.text


def test_a_server_that_is_gone_costs_the_artifact_and_not_the_stage(
    source: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nobody_there(*_: object, **__: object) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(artifacts, "create_markdown_artifact", nobody_there)
    bad = write_dataset(tmp_path / "bad", [episode(0, rewards=np.full(7, np.nan))])
    with caplog.at_level(logging.WARNING, "offline_core"):
        result = prune.fn(PruningConfig(), dataset=source.location.uri, output=str(tmp_path / "pruned"))
        with pytest.raises(QualityError):  # which is no fault of the card
            check.fn(QualityConfig(), dataset=bad.location.uri)
    assert result.dataset.episodes == 8
    assert caplog.text.count("its card could not be made or published: ConnectionError: nobody there") == 2
    assert (tmp_path / "pruned" / "_cards" / "000001.md").is_file()
    assert (tmp_path / "bad" / "_checks" / "000001.md").is_file()


def test_readers_do_not_see_cards(published: Published, source: Dataset, tmp_path: Path) -> None:
    """With the manifest and without. Ray's reader, which RLlib uses, takes the suffix `.parquet` alone."""
    result = compact.fn(CompactionConfig(), dataset=source.location.uri, output=str(tmp_path / "copy"))
    check.fn(QualityConfig(), dataset=result.dataset.uri)
    folder = tmp_path / "copy"
    beside = {path.suffix for path in folder.rglob("*") if path.is_file() and not path.name.startswith("last-")}
    assert beside == {".parquet", ".json", ".md", ".html", ".png", ".verified"}
    ids = [each.eps_id for each in episodes(open_dataset(str(folder)))]
    assert len(ids) == 8
    for manifest in (folder / "_versions").iterdir():
        manifest.unlink()
    (folder / "_versions").rmdir()
    assert [each.eps_id for each in episodes(open_dataset(str(folder)))] == ids


def test_hostile_names_stay_names(published: Published, tmp_path: Path) -> None:
    hostile = tmp_path / "a|b `c` \"d\" 'e' <img src=x> ![f](g) üñí"
    source = write_dataset(hostile, [episode(i) for i in range(4)])
    compact.fn(CompactionConfig(), dataset=source.location.uri, output=str(hostile / "copy"))
    text = (hostile / "copy" / "_cards" / "000001.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(row.replace("\\|", "").count("|") == 3 for row in rows)
    assert "<img" not in text.replace("\\<", "") and "![f]" not in text and Location.of(str(hostile)).is_folder()


def test_card_and_command_line_say_which_version_is_reused_and_what_is_replaced(
    published: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        write_rows(tmp_path / name / "x.parquet", steps(name, 3))
    for name in ("a", "b", "a"):
        result = import_data.fn(ImportConfig(), source=str(tmp_path / name), output=str(tmp_path / "out"))
    _, second, third = (artifact["text"] for artifact in published)
    assert "| Replaces | Version 2 replaces version 1: 1 episodes of " in second
    assert "not the latest version, which is 2 |" in third
    print_result(result)
    assert (
        f"{tmp_path}/out: version 1 is reused; the latest is version 2. Give the next command --version 1, "
        "for without it the latest is read."
    ) in capsys.readouterr().out
