"""Point 11: evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.curation.config import SplitConfig
from offline_core.data.curation.split import split
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.episodes import space_to_json
from offline_core.errors import PromotionError
from offline_core.judging.estimation.config import EstimateConfig, FQEConfig
from offline_core.judging.estimation.estimate import enforce, estimate
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.evaluation import EvaluationConfig, evaluate
from tests.acceptance.forms import by_id, metrics, run_import, run_train
from tests.data.formats.sources.factories import SEEDS, steps, write_steps


@pytest.mark.slow
def test_11_in_the_environment_every_k_iterations(recording: str, tmp_path: Path) -> None:
    """k updates: an iteration is what lies between two evaluations."""
    result = run_train(recording, tmp_path, optimizer={"updates_per_iteration": 20})
    assert [updates for updates, _ in result.curve][:3] == [20, 40, 60]
    assert result.metrics["episodes"] == 2
    assert result.metrics["episode_return_mean"] == max(mean for _, mean in result.curve)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_11_in_parallel_to_training_with_an_interval_and_actors_of_its_own(recording: str, tmp_path: Path) -> None:
    """Checkpoints come each iteration, evaluations every second one and at the end, by two actors."""
    evaluation = {"location": "actor", "actors": 2, "interval_iterations": 2, "episodes": 3}
    result = run_train(recording, tmp_path, optimizer={"updates_per_iteration": 20}, evaluation=evaluation)
    reports = [record["updates"] for record in metrics(tmp_path) if "steps_per_second" in record]
    assert [updates for updates, _ in result.curve] == sorted({*reports[1::2], reports[-1]})
    assert result.metrics["episodes"] == 3


def test_11_without_an_environment_spaces_are_given(tmp_path: Path) -> None:
    given = {"observation_space": space_to_json(spaces.Box(0, 20, (2,))), "action_space": space_to_json(spaces.Discrete(5))}
    write_steps(tmp_path / "in" / "x.parquet", steps())
    result, _ = run_import(tmp_path / "in", tmp_path / "data", mapping=SEEDS, **given)
    trained = run_train(result.dataset.uri, tmp_path / "out", evaluation={"target_return": None})
    assert not trained.metrics and not trained.curve
    assert load_policy(trained.checkpoint).action_space == spaces.Discrete(5)


def test_11_without_an_environment_spaces_are_read_from_the_data(tmp_path: Path) -> None:
    write_steps(tmp_path / "in" / "x.parquet", steps())
    result, _ = run_import(tmp_path / "in", tmp_path / "data", mapping=SEEDS)
    trained = run_train(result.dataset.uri, tmp_path / "out", evaluation={"target_return": None})
    assert load_policy(trained.checkpoint).action_space == spaces.Discrete(2)
    assert load_policy(trained.checkpoint).observation_space.shape == (2,)


def test_11_on_held_out_data(recording: str, tmp_path: Path) -> None:
    split(SplitConfig(held_out_fraction=0.3), dataset=recording, output=str(tmp_path))
    learned, held_out = (open_dataset(str(tmp_path / side)) for side in ("train", "held_out"))
    assert (learned.ref.episodes, held_out.ref.episodes) == (14, 6)
    result = run_train(learned.ref.uri, tmp_path / "out", evaluation={"held_out": held_out.ref.uri})
    recorded = [record["held_out_loss"] for record in metrics(tmp_path / "out") if "held_out_loss" in record]
    assert recorded == [loss for _, loss in result.held_out_losses] and len(recorded) > 1
    policy = load_policy(result.last_checkpoint)
    total = [
        -policy.head.log_prob(policy(torch.tensor(e.observations[:-1])), torch.tensor(e.actions)).detach().numpy()
        for e in by_id(held_out.ref.uri).values()
    ]
    assert recorded[-1] == pytest.approx(np.concatenate(total).mean(), rel=1e-4), "the loss of all of it"


def test_11_a_finished_policy_on_new_start_states(cartpole_policy: str) -> None:
    one, other = (evaluate(EvaluationConfig(episodes=3, seed=seed), policy=cartpole_policy).returns for seed in (0, 1))
    assert len(one) == len(other) == 3


@pytest.mark.slow
def test_11_off_policy_is_wis_and_better(own_recording: str, cartpole_policy: str, tmp_path: Path) -> None:
    """Of the policy that recorded, estimates are the mean return; of one that leans where the pole falls, they are more."""
    config = EstimateConfig(gamma=0.95, min_effective_episodes=1, fqe=FQEConfig(updates=30))
    own = estimate(config, policy=cartpole_policy, dataset=own_recording)
    assert own.estimates.keys() == {"is", "wis", "pdis", "wpdis", "fqe", "dr", "wdr"}
    returns = [(1 - 0.95 ** len(episode)) / 0.05 for episode in by_id(own_recording).values()]
    for name in ("is", "wis", "pdis", "wpdis"):
        assert own.estimates[name].value == pytest.approx(np.mean(returns), rel=1e-3), name
    leaning = load_policy(cartpole_policy)
    with torch.no_grad():
        for parameter in leaning.parameters():
            parameter.zero_()
        leaning.hidden[0].weight[0, 2] = 1.0
        leaning.hidden[2].weight[0, 0] = 1.0
        leaning.head.logits.weight[:, 0] = torch.tensor([-3.0, 3.0])
    save_policy(leaning, str(tmp_path / "leaning"), operation=Operation(name="test"))
    better = estimate(config, policy=str(tmp_path / "leaning"), dataset=own_recording)
    for name in ("wis", "wpdis"):
        found = better.estimates[name]
        assert found.low <= found.value <= found.high and found.value > own.estimates[name].value, name
    assert better.estimates["wis"].effective_episodes < own.estimates["wis"].effective_episodes == pytest.approx(20, rel=1e-3)


def test_11_off_policy_as_a_gate(own_recording: str, cartpole_policy: str) -> None:
    config = EstimateConfig(methods=["wpdis"], gate_method="wpdis", require_return=5.0)
    enforce(estimate(config, policy=cartpole_policy, dataset=own_recording), config)
    too_much = config.model_copy(update={"require_return": 500.0})
    with pytest.raises(PromotionError, match="not shown to reach a discounted return of 500"):
        enforce(estimate(too_much, policy=cartpole_policy, dataset=own_recording), too_much)
