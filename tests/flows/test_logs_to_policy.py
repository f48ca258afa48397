"""The chain from logs, on RLlib's own recordings, under a real Prefect server."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.logs_to_policy import _behaviour, logs_to_policy
from offline_core.data.curation.split import SplitResult
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.formats.sources.opening import SourceConfig
from offline_core.data.importing.config import EpisodesConfig, ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.store.location import Location
from offline_core.errors import PromotionError
from offline_core.judging.estimation.config import EstimateConfig, FQEConfig
from offline_core.learning.config import EvaluationDuringTraining, TrainingConfig
from offline_core.learning.trainer_config import OptimizerConfig
from offline_core.policies.evaluation import EvaluationConfig
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import EnvironmentSpec
from tasks.chain import Chain
from tests.flows.test_flows import artifacts_of, latest_run
from tests.judging.estimation.test_estimate import chain

pytestmark = [pytest.mark.usefixtures("prefect_server", "ray_up"), pytest.mark.filterwarnings("default")]

SHORT = TrainingConfig(optimizer=OptimizerConfig(max_epochs=2), evaluation=EvaluationDuringTraining(episodes=5))
QUICK = EstimateConfig(methods=["wis", "wdr"], resamples=50, fqe=FQEConfig(updates=50))


@pytest.mark.slow
def test_logs_of_a_known_environment_are_evaluated_in_it(rllib_recordings: Path, tmp_path: Path) -> None:
    """A table of ours is converted as a stage of its own; nothing is split off."""
    source = _table(rllib_recordings, tmp_path)
    result = logs_to_policy(source=source, root=str(tmp_path / "logs"), training=SHORT, evaluation=EvaluationConfig(episodes=5))
    assert [stage.name for stage in result.stages] == ["convert to episodes", "check", "prune", "train policy", "evaluate"]
    assert result.conversion is not None and result.conversion.dataset.steps == 23_486 == result.training.dataset.steps
    assert result.evaluation is not None and result.evaluation.environment == "CartPole-v1"
    run = latest_run()
    cards = {card.key: str(card.data) for card in artifacts_of(run.id) if card.key}
    assert cards.keys() == {
        "convert-card",
        "check-card",
        "prune-card",
        "train-card",
        "evaluate-card",
        "logs-to-policy-card",
    }
    assert "| Convert to episodes |" in cards["logs-to-policy-card"] and "Logs to policy" in cards["logs-to-policy-card"]


def test_logs_without_an_environment_are_estimated_on_episodes_that_nothing_learned_from(
    rllib_recordings: Path, tmp_path: Path
) -> None:
    source = str(rllib_recordings / "cartpole_json_packed")
    result = logs_to_policy(source=source, root=str(tmp_path), training=SHORT, estimate=QUICK)
    assert [stage.name for stage in result.stages] == ["import", "check", "split", "prune", "train policy", "estimate"]
    assert result.split is not None and result.estimate is not None and result.evaluation is None
    assert result.estimate.dataset == result.split.held_out
    assert result.pruning.source == result.split.train
    assert result.split.train.episodes + result.split.held_out.episodes == 40
    assert result.estimate.behaviour is None, "the logs say how probable their actions were"
    assert not any("learned from" in warning for warning in result.estimate.warnings)


@pytest.mark.slow
def test_actions_of_unknown_probability_are_weighed_by_a_clone_of_who_acted(rllib_recordings: Path, tmp_path: Path) -> None:
    table = _table(rllib_recordings, tmp_path)
    steps = ["eps_id", "t", "obs", "actions", "rewards", "terminateds", "truncateds"]
    with pytest.raises(PromotionError):
        logs_to_policy(
            source=f"{table}/*.parquet",
            root=str(tmp_path / "logs"),
            importing=ImportConfig(source=SourceConfig(columns=steps), episodes=EpisodesConfig(last_new_obs="repeat")),
            training=SHORT,
            estimate=QUICK.model_copy(update={"require_return": 1_000.0}),
        )
    behaviour = read_policy_manifest(str(tmp_path / "logs/behaviour/best"))
    assert behaviour.parents[0].uri == str(tmp_path / "logs/split/train"), "of what was logged, pruned or not"
    assert latest_run().state_name == "Failed"


def test_no_clone_is_trained_where_nothing_is_weighed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chain, "run", lambda *_, **__: pytest.fail("a stage runs"))
    held_out = open_dataset(chain(tmp_path, 5, logp=False)).ref
    sides = SplitResult(source=held_out, train=held_out, held_out=held_out, before=Statistics(), duplicates=0)
    config = EstimateConfig(methods=["fqe"], gate_method="fqe")
    assert _behaviour(Chain("", Location.of(str(tmp_path)), 0, {}), config, SHORT, sides) is None


def _table(recordings: Path, folder: Path) -> str:
    """RLlib's CartPole recording as a table of ours, which says where it was recorded."""
    config = ImportConfig(environment=EnvironmentSpec(id="CartPole-v1"), format="table")
    source = str(recordings / "cartpole_episodes")
    return import_data(config, source=source, output=str(folder / "table")).dataset.uri
