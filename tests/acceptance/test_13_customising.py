"""Point 13: the three levels; worked examples of all are in `examples/`; image files are proven there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.quality.check import check
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.rule import Tally
from offline_core.errors import ConfigError, DataError, OfflineError
from offline_core.learning.prelearner.prelearner import PreLearner
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.evaluation import EvaluationConfig, evaluate
from offline_core.policies.played_step import PlayedStep
from offline_core.runtime.config import parse
from tests.acceptance.forms import metrics, run_import, run_train


def own(name: str, **arguments: Any) -> dict[str, Any]:
    return {"path": name, "arguments": arguments}


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_13_a_connector_changes_what_is_learned_from(recording: str, tmp_path: Path) -> None:
    """All returns become those of no reward, so there is nothing to value."""
    clip = own("examples.reward_clipping:clip_rewards", low=0.0, high=0.0)
    for name, connectors in (("raw", []), ("clipped", [clip])):
        run_train(recording, tmp_path / name, algorithm="marwil", data={"connectors": connectors}, evaluation={"episodes": 1})
    raw, clipped = (metrics(tmp_path / name)[0]["value_target"] for name in ("raw", "clipped"))
    assert raw > 5 and abs(clipped) < 1


@pytest.mark.usefixtures("ray_up")
@pytest.mark.slow  # tests/learning/test_own_sources.py: test_a_prelearner_makes_other_episodes_of_a_dataset
def test_13_a_prelearner_makes_episodes_of_text(tmp_path: Path) -> None:
    from examples.text import SENTENCES, VOCABULARY, write_sentences

    text = write_sentences(tmp_path / "in" / "text.txt", count=50, seed=0)
    prelearner = own("examples.text:TextPreLearner", vocabulary=VOCABULARY)
    data = {"source": {"format": "read_text"}, "prelearner": prelearner}
    result = run_train(text, tmp_path / "out", data=data, evaluation={"target_return": None})
    tokens = sum(len(line.split()) - 1 for line in Path(text).read_text().splitlines())
    assert result.steps == 2 * tokens and len(SENTENCES) == 5
    assert load_policy(result.checkpoint).action_space.n == len(VOCABULARY)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def imported(rllib_recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """RLlib's own episodes of CartPole."""
    output = tmp_path_factory.mktemp("classes") / "imported"
    recordings = rllib_recordings / "cartpole_episodes"
    return run_import(recordings, output, environment={"id": "CartPole-v1"})[0].dataset.uri


def test_13_lambdas_and_classes_of_the_script_as_filters_rules_and_metrics(
    imported: str, cartpole_policy: str, tmp_path: Path
) -> None:
    """What no other process can import is called where it is, and another one is another operation."""

    class Leaning:
        def __init__(self) -> None:
            self.tally = Tally()

        def look(self, steps: Any) -> None:
            self.tally.steps(steps, abs(steps.columns["obs"][:, 2]) > 0.2)

        def finding(self, statistics: Any) -> Any:
            return self.tally.finding("leaning", "warn", "steps lean", "Look at them.")

    class Steps:
        count = 0

        def look(self, step: PlayedStep) -> None:
            self.count += int(step.counts.sum())

        def result(self) -> dict[str, float]:
            return {"steps_played": self.count}

    for least, reused in ((100, False), (100, True), (200, False)):
        config = parse(PruningConfig, {"filters": [lambda episode, least=least: len(episode) >= least]})
        pruned = prune(config, dataset=imported, output=str(tmp_path / "pruned"))
        assert pruned.reused == reused
        assert pruned.after.lengths.min >= least  # type: ignore[operator]
    report = check(parse(QualityConfig, {"rules": [Leaning]}), dataset=imported)
    assert [finding.rule for finding in report.findings][-1] == "leaning"
    evaluated = evaluate(parse(EvaluationConfig, {"episodes": 4, "metrics": [Steps]}), policy=cartpole_policy)
    assert evaluated.metrics["steps_played"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_13_lambdas_and_classes_of_the_script_as_connectors_and_prelearners(recording: str, tmp_path: Path) -> None:
    """In this process, and in actors, to which they are sent."""

    class Counted(PreLearner):
        def batch(self, rows: Any) -> EpisodeBatch:
            return super().batch(rows)

    losses = {}
    for name, prelearners, factor in (("local", 0, 0.5), ("pool", 1, 0.5), ("other", 0, 0.25)):
        connector = {"path": lambda steps, factor=factor: steps | {"obs": steps["obs"] * factor}, "name": "scale"}
        data = {"prelearners": prelearners, "prelearner": Counted, "connectors": [connector]}
        result = run_train(recording, tmp_path / name, data=data, evaluation={"play": False})
        losses[name] = result.losses
    assert losses["local"] == losses["pool"] != losses["other"]


class Raises:
    def __init__(self, *_: Any) -> None:
        raise RuntimeError("the licence server is gone")


def pruning(*filters: Any) -> Any:
    return lambda data, out: prune(parse(PruningConfig, {"filters": list(filters)}), dataset=data, output=out)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (pruning(Raises), ConfigError),
        (pruning(lambda episode: episode.no), DataError),
        (lambda data, _: check(parse(QualityConfig, {"rules": [Raises]}), dataset=data), ConfigError),
        (lambda data, out: run_train(data, out, data={"connectors": [Raises]}), ConfigError),
        (lambda data, out: run_import(data, out, source={"format": Raises}), ConfigError),
    ],
)
def test_13_what_raises_is_named_before_anything_is_written(imported: str, tmp_path: Path, step: Any, error: type) -> None:
    with pytest.raises(error, match=r"Raises|lambda") as told:
        step(imported, str(tmp_path / "out"))
    assert isinstance(told.value, OfflineError)
    assert not (tmp_path / "out").exists()
