"""Cards in Prefect: with their pictures in the text, before a gate fails, and never in the way of a stage."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offline_core.data.curation.config import PruningConfig, SplitConfig
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.quality.config import QualityConfig
from offline_core.errors import QualityError
from offline_core.policies.recording.config import RecordingConfig
from tasks import artifacts
from tasks.stages import check, prune, record, split
from tests.data.datasets.factories import episode, write_dataset

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


def test_a_card_is_in_prefect_with_its_picture_and_beside_the_version_without(
    published: Published, source: Dataset, tmp_path: Path
) -> None:
    prune.fn(PruningConfig(keep_top_fraction=0.5), dataset=source.location.uri, output=str(tmp_path / "pruned"))
    [artifact] = published
    assert artifact["key"] == "prune-card" and "data:image/png;base64," in artifact["text"]
    assert artifact["description"].startswith("Pruning: Pruned: 4 of 8 episodes kept;")
    assert "](000001.png)" in (tmp_path / "pruned" / "_cards" / "000001.md").read_text()


@pytest.mark.parametrize(("explore", "said"), [(True, "sampled"), (False, "greedy")])
def test_the_card_of_a_recording_says_how_actions_were_chosen(
    published: Published, cartpole_policy: str, tmp_path: Path, explore: bool, said: str
) -> None:
    config = RecordingConfig(episodes=2, explore=explore, envs_per_recorder=2)
    record.fn(config, policy=cartpole_policy, output=str(tmp_path))
    text = published[0]["text"]
    assert f"over 2 episodes ({said} actions; so few say little)" in text and "Greedy actions" not in text


def test_one_artifact_is_left_of_both_sides_of_a_split(published: Published, source: Dataset, tmp_path: Path) -> None:
    split.fn(SplitConfig(held_out_fraction=0.25), dataset=source.location.uri, output=str(tmp_path))
    assert len(published) == 1


def test_a_check_leaves_its_card_even_if_it_stops_the_run(published: Published, tmp_path: Path) -> None:
    bad = write_dataset(tmp_path / "bad", [episode(0, rewards=np.full(7, np.nan))])
    with pytest.raises(QualityError):
        check.fn(QualityConfig(), dataset=bad.location.uri)
    assert published[0]["key"] == "check-card" and "Gate failed" in published[0]["text"]
    assert "fail" in (tmp_path / "bad" / "_checks" / "000001.md").read_text()


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
    assert caplog.text.count("its card could not be published: ConnectionError: nobody there") == 2
    assert (tmp_path / "pruned" / "_cards" / "000001.md").is_file()
    assert (tmp_path / "bad" / "_checks" / "000001.md").is_file()
