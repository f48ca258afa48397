"""Text becomes episodes, and what the last three tokens tell is learned."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from examples.text import VOCABULARY, StackedTextPreLearner, TextPreLearner, main
from offline_core.data.episodes import EpisodeBatch


def made(kind: type[TextPreLearner], *sentences: str) -> EpisodeBatch:
    given = {"format": "rows", "wanted": ("obs", "actions"), "needs_next_obs": False, "where": "here"}
    return kind(vocabulary=["a", "b", "c"], **given).batch(pa.table({"text": list(sentences)}))


def test_tokens_are_observed_and_the_next_is_the_action() -> None:
    steps = made(TextPreLearner, "a b c", "c a")
    assert steps["obs"].argmax(1).tolist() == [0, 1, 2]
    assert steps["actions"].tolist() == [1, 2, 0]
    assert steps.offsets.tolist() == [0, 2, 3]


def test_stacked_tokens_are_those_of_the_same_sentence() -> None:
    steps = made(StackedTextPreLearner, "a b c", "c a")
    a, b, c, nothing = [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]
    assert steps["obs"].tolist() == [nothing + nothing + a, nothing + a + b, nothing + nothing + c]


@pytest.mark.slow
def test_three_tokens_foretell_what_one_does_not(ray_up: None, tmp_path: Path) -> None:
    found = main(str(tmp_path))
    assert found["TextPreLearner"] < 0.7
    assert found["StackedTextPreLearner"] > 0.9, f"of {len(VOCABULARY)} tokens"
