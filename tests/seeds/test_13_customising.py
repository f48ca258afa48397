"""Point 13: the three levels; worked examples of all are in `examples/`; image files are proven there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offline_core.policies.checkpoint import load_policy
from tests.seeds.forms import metrics, train

pytestmark = pytest.mark.usefixtures("ray_up")


def own(name: str, **arguments: Any) -> dict[str, Any]:
    return {"path": name, "arguments": arguments}


def test_13_a_connector_changes_what_is_learned_from(recording: str, tmp_path: Path) -> None:
    """All returns become those of no reward, so there is nothing to value."""
    clip = own("examples.reward_clipping:clip_rewards", low=0.0, high=0.0)
    for name, connectors in (("raw", []), ("clipped", [clip])):
        train(recording, tmp_path / name, algorithm="marwil", data={"connectors": connectors}, evaluation={"episodes": 1})
    raw, clipped = (metrics(tmp_path / name)[0]["value_target"] for name in ("raw", "clipped"))
    assert raw > 5 and abs(clipped) < 1


def test_13_a_prelearner_makes_episodes_of_text(tmp_path: Path) -> None:
    from examples.text import SENTENCES, VOCABULARY, write_sentences

    text = write_sentences(tmp_path / "in" / "text.txt", count=50, seed=0)
    prelearner = own("examples.text:TextPreLearner", vocabulary=VOCABULARY)
    data = {"source": {"format": "read_text"}, "prelearner": prelearner}
    result = train(text, tmp_path / "out", data=data, evaluation={"target_return": None})
    tokens = sum(len(line.split()) - 1 for line in Path(text).read_text().splitlines())
    assert result.steps == 2 * tokens and len(SENTENCES) == 5
    assert load_policy(result.checkpoint).action_space.n == len(VOCABULARY)  # type: ignore[attr-defined]


def test_13_a_prelearner_stacks_frames_of_tokens(tmp_path: Path) -> None:
    from examples.text import VOCABULARY, write_sentences

    text = write_sentences(tmp_path / "in" / "text.txt", count=50, seed=0)
    prelearner = own("examples.text:StackedTextPreLearner", vocabulary=VOCABULARY, frames=3)
    data = {"source": {"format": "read_text"}, "prelearner": prelearner}
    result = train(text, tmp_path / "out", data=data, evaluation={"target_return": None})
    assert load_policy(result.checkpoint).observation_space.shape == (3 * len(VOCABULARY),)
