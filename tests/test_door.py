"""`import offline_core as offline`: the names, what the import costs, and that stages take what stages return."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import offline_core as offline
from offline_core.runtime.stage import STAGES
from tests.docs.blocks import PAGES, ROOT, blocks

PINNED = """
Algorithm BC Config Dataset DatasetRef EnvironmentSpec Episode EpisodeBatch Finding ForgetConfig ImportPlan LossOutput
NetworkConfig Networks OfflineError PlayedStep Policy PreLearner ReplayBuffer SampleBatchBuilder SampleBatchWriter StepBatch
Tally UserCode about each_episode errors explain forget list load_policy named open_dataset plan_import ray_session ray_steps
read_registry tag verify
"""
NAMES = [*PINNED.split()]
NAMES += [name for each in STAGES.values() for name in (each.attribute, each.config.partition(":")[2])]


def test_the_names_are_pinned_sorted_and_exist() -> None:
    assert list(offline.__all__) == sorted(NAMES)
    assert all(getattr(offline, name) is not None for name in NAMES)


def test_docs_and_examples_import_from_the_door_alone() -> None:
    texts = {str(block): block.text for page in PAGES for block in blocks(page) if block.language == "python"}
    texts |= {path.name: path.read_text() for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb")}
    imports = re.compile(r"(?:from|import) +(offline_core[\w.]*)([ \w,(]*)")
    found = {name: imports.findall(text) for name, text in texts.items()}
    assert not {name for name, lines in found.items() if set(lines) - {("offline_core", " as offline")}}
    assert len([name for name, lines in found.items() if lines]) > 15


def test_the_ten_lines(tmp_path: Path) -> None:
    """Those of the README, with fewer episodes."""
    expert = offline.train_expert("CartPole-v1", evaluation={"target_return": 60}, output=tmp_path / "expert")
    data = offline.record(expert, episodes=40, output=tmp_path / "recording")
    good = data.prune("return >= 20", output=tmp_path / "pruned")
    run = offline.train(good, algorithm="marwil", optimizer={"max_epochs": 1}, output=tmp_path / "policy")
    assert offline.evaluate(run, episodes=4).mean_return > 0
    actions = offline.load_policy(run.best).act(np.zeros((8, 4), np.float32))
    assert actions.shape == (8,)

    assert data.ref.episodes == 40
    assert offline.check(good).dataset == good.ref
    train, held_out = offline.split(good, output=tmp_path / "split")
    assert train.ref.episodes + held_out.ref.episodes == good.ref.episodes
    assert offline.prune(data, "return >= 20", output=tmp_path / "pruned").result.reused


def test_data_is_named_by_path_reference_dataset_or_result(tmp_path: Path) -> None:
    made = offline.import_data("tests/data/rllib/cartpole_episodes", output=tmp_path / "imported")
    for data in (made, made.ref, made.result, str(tmp_path / "imported"), tmp_path / "imported"):
        assert offline.open_dataset(data).ref == made.ref
    assert "cart" not in repr(made) or str(tmp_path) in repr(made)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: offline.prune(3, output="x"), "A int names no dataset"),  # type: ignore[arg-type]
        (lambda: offline.import_data(pl.DataFrame({"obs": [1.0]}), output="x"), "A DataFrame is no path: write it to a file"),  # type: ignore[arg-type]
        (lambda: offline.evaluate(offline.EvaluationConfig()), "A EvaluationConfig names no checkpoint"),
        (lambda: offline.train("data", algorithm="ppo2", output="x"), "algorithm"),
        (lambda: offline.train("data", data={"prelearners": -1}, output="x"), "prelearners"),
        (lambda: offline.train("data", output="x", config=offline.EvaluationConfig()), "this stage takes a TrainingConfig"),  # type: ignore[arg-type]
    ],
)
def test_wrong_calls_are_named_before_anything_starts(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(offline.errors.ConfigError, match=message):
        call()


def test_keywords_win_over_a_config_and_a_mapping(tmp_path: Path) -> None:
    made = offline.import_data("tests/data/rllib/cartpole_episodes", output=tmp_path / "imported")
    config = offline.PruningConfig(where="length >= 1", keep_top_fraction=0.5)
    by_config = offline.prune(made, output=tmp_path / "a", config=config, keep_top_fraction=1.0)
    by_mapping = offline.prune(made, output=tmp_path / "b", config={"where": "length >= 1"})
    assert by_config.ref.episodes == by_mapping.ref.episodes == made.ref.episodes
