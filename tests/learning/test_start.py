"""A training that begins at an earlier policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load_file

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.errors import CheckpointError, ConfigError
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.settings import settings_of
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.learning.train import train
from offline_core.learning.work import make_run
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.lineage import episodes_in, lineage
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.runtime.config import parse
from tests.learning.datasets import SPACES, dataset_of
from tests.learning.test_resume import interrupted
from tests.learning.test_train import balancing_episodes

OBSERVATIONS = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
SETTINGS: dict[str, Any] = {
    "optimizer": {"updates_per_iteration": 5, "batch_size": 100, "max_epochs": 1, "learning_rate": 0.01},
    "evaluation": {"play": False},
    "data": {"prelearners": 0},
}
BARELY = SETTINGS["optimizer"] | {"max_updates": 1, "learning_rate": 1e-8}
"""One update that changes nearly nothing."""
PLAYED = {"episodes": 3, "location": "process"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("data"), balancing_episodes())


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, data: str) -> str:
    """A trained policy with a network and an observation filter of its own."""
    network = {"hidden_sizes": [12], "normalize_observations": True}
    return run_train(data, tmp_path_factory.mktemp("first"), network=network).checkpoint


def run_train(data: str, output: Path, **settings: Any) -> TrainingResult:
    return train(parse(TrainingConfig, SETTINGS | settings), dataset=data, output=str(output))


def saved(policy: Policy, folder: Path) -> str:
    save_policy(policy, str(folder), operation=Operation(name="made by a test"))
    return str(folder)


def weights(uri: str) -> str:
    return read_policy_manifest(uri).weights_sha256


@pytest.mark.parametrize("algorithm", ["bc", "marwil", "iql", "awac"])
def test_it_begins_as_the_initial_policy_whatever_is_learned_beside(
    tmp_path: Path, data: str, first: str, algorithm: str
) -> None:
    """Critics and value functions are new."""
    other = dataset_of(tmp_path / "other", balancing_episodes(seed=1))
    result = run_train(other, tmp_path / "out", algorithm=algorithm, initial_policy=first, optimizer=BARELY)
    before, after = load_policy(first), load_policy(result.last_checkpoint)
    assert result.updates == 1
    assert (after.act(OBSERVATIONS) == before.act(OBSERVATIONS)).all()
    for name in ("mean", "variance", "count"):
        assert torch.equal(getattr(after.encoder, name), getattr(before.encoder, name)), "the filter is not of the new data"
    assert weights(result.last_checkpoint) != weights(first)


def test_the_target_network_begins_as_the_initial_policy(tmp_path: Path, data: str) -> None:
    before = run_train(data, tmp_path / "before", algorithm="dqn").last_checkpoint
    result = run_train(data, tmp_path / "out", algorithm="dqn", initial_policy=before, optimizer=BARELY)
    networks = tmp_path / "out" / "networks.safetensors"
    found, expected = load_file(networks), load_policy(before).state_dict()
    assert all(torch.equal(found[f"target.{name}"], tensor) for name, tensor in expected.items())
    assert result.updates == 1


def test_a_value_function_goes_along_only_where_there_is_one(tmp_path: Path, data: str) -> None:
    before = saved(Policy(*SPACES, NetworkConfig(hidden_sizes=[8]), value_function=True, seed=3), tmp_path / "before")
    values = load_policy(before).value.weight
    for algorithm, has_values in (("bc", False), ("marwil", True)):
        result = run_train(data, tmp_path / algorithm, algorithm=algorithm, initial_policy=before, optimizer=BARELY)
        after = load_policy(result.last_checkpoint)
        assert after.value_function is has_values
        if has_values:
            torch.testing.assert_close(after.value.weight, values, atol=1e-6, rtol=0)


def test_a_decision_transformer_goes_on_with_its_own_returns(tmp_path: Path, data: str) -> None:
    """Those of the new data are others."""
    layers = {"layers": 1, "units": 8, "context_steps": 5}
    before = run_train(data, tmp_path / "before", algorithm="dt", dt=layers).last_checkpoint
    longer = dataset_of(tmp_path / "longer", balancing_episodes(10, 150))
    result = run_train(longer, tmp_path / "out", algorithm="dt", dt=layers, initial_policy=before, optimizer=BARELY)
    one, other = (read_policy_manifest(each).network.transformer for each in (before, result.last_checkpoint))
    assert one is not None and one == other and one.target_return == 100.0
    with pytest.raises(ConfigError, match="transformer is"):
        run_train(longer, tmp_path / "out", algorithm="dt", dt=layers | {"target_return": 150.0}, initial_policy=before)


def test_what_is_good_enough_already_is_the_result(tmp_path: Path, data: str, first: str) -> None:
    result = run_train(data, tmp_path / "out", initial_policy=first, evaluation=PLAYED | {"target_return": 1.0})
    assert result.updates == result.steps == 0 and result.reached_target
    assert [updates for updates, _ in result.curve] == [0]
    assert weights(result.checkpoint) == weights(result.last_checkpoint) == weights(first)
    assert run_train(data, tmp_path / "out", initial_policy=first, evaluation=PLAYED | {"target_return": 1.0}).reused


def test_a_training_that_only_makes_it_worse_gives_it_back(tmp_path: Path, data: str) -> None:
    """By the held-out loss: a policy that was learned, then one update that is far too large."""
    good = run_train(data, tmp_path / "good", optimizer=SETTINGS["optimizer"] | {"max_epochs": 10}).last_checkpoint
    wrecking = SETTINGS["optimizer"] | {"max_updates": 1, "learning_rate": 10.0}
    settings = {"optimizer": wrecking, "evaluation": {"play": False, "held_out": data}, "initial_policy": good}
    result = run_train(data, tmp_path / "out", **settings)
    (start, before), (end, after) = result.held_out_losses
    assert (start, end) == (0, 1) and after > before
    assert weights(result.checkpoint) == weights(good) and result.metrics == {"held_out_loss": before}


def test_the_network_is_the_initial_policys_and_another_is_refused(tmp_path: Path, data: str, first: str) -> None:
    result = run_train(
        data, tmp_path / "out", initial_policy=first, network={"hidden_sizes": [12], "normalize_observations": True}
    )
    assert read_policy_manifest(result.checkpoint).network.hidden_sizes == [12]
    with pytest.raises(ConfigError, match=r"hidden_sizes is \[12\] there and \[16\] here.*leave 'network' as it is"):
        run_train(
            data, tmp_path / "other", initial_policy=first, network={"hidden_sizes": [16], "normalize_observations": True}
        )
    with pytest.raises(ConfigError, match=r"imitation_threshold is None there and 0\.3 here"):
        run_train(data, tmp_path / "other", initial_policy=first, algorithm="bcq")
    assert not (tmp_path / "other").exists()


def test_other_spaces_are_refused_before_anything_is_trained(tmp_path: Path, data: str) -> None:
    policies = {
        "has the action space": Policy(SPACES[0], spaces.Discrete(3)),
        "has other spaces than": Policy(spaces.Box(-1, 1, (5,)), SPACES[1]),
    }
    for number, (message, policy) in enumerate(policies.items()):
        with pytest.raises(ConfigError, match=message):
            run_train(data, tmp_path / "out", initial_policy=saved(policy, tmp_path / str(number)))
    with pytest.raises(CheckpointError, match="no policy at"):
        run_train(data, tmp_path / "out", initial_policy=str(tmp_path / "none"))
    assert not (tmp_path / "out").exists()


def test_its_own_output_cannot_be_where_it_begins(tmp_path: Path, data: str) -> None:
    before = run_train(data, tmp_path / "out")
    with pytest.raises(ConfigError, match="would replace initial_policy"):
        run_train(data, tmp_path / "out", initial_policy=before.checkpoint)


def test_it_is_a_parent_and_another_one_is_another_operation(tmp_path: Path, data: str, first: str) -> None:
    other = run_train(
        data, tmp_path / "other", network={"hidden_sizes": [12], "normalize_observations": True}, seed=1
    ).checkpoint
    result = run_train(data, tmp_path / "out", initial_policy=first)
    parents = read_policy_manifest(result.checkpoint).parents
    assert parents == [open_dataset(data).parent_entry, read_policy_manifest(first).parent_entry(first)]
    assert [node.operation for node in lineage(result.checkpoint).nodes[:3]] == ["train", "made up", "train"]

    copy = saved(load_policy(first), tmp_path / "copy")
    assert run_train(data, tmp_path / "out", initial_policy=copy).reused, "the same weights elsewhere"
    assert not run_train(data, tmp_path / "out", initial_policy=other).reused
    assert "initial_policy" not in read_policy_manifest(result.checkpoint).operation.config


def test_what_the_initial_policy_learned_from_is_learned_from(tmp_path: Path, data: str, first: str) -> None:
    newer, held_out = (dataset_of(tmp_path / name, balancing_episodes(seed=seed)) for name, seed in (("newer", 1), ("out", 2)))
    evaluation = {"play": False, "held_out": held_out}
    result = run_train(newer, tmp_path / "policy", initial_policy=first, evaluation=evaluation)
    assert [node.uri for node in episodes_in(lineage(result.checkpoint))][1:] == [newer, first, data]


def test_identities_without_one_are_as_before(data: str, tmp_path: Path) -> None:
    run = make_run(parse(TrainingConfig, SETTINGS), data, str(tmp_path / "out"), None)
    assert not {"initial_policy", "keep"} & run.operation.config.keys()


@pytest.mark.parametrize(
    "evaluation", [PLAYED | {"target_return": 501}, {"play": False, "held_out": True}], ids=["played", "not"]
)
def test_a_run_that_ends_half_way_ends_with_the_same_bits(
    tmp_path: Path, data: str, first: str, evaluation: dict[str, Any]
) -> None:
    evaluation = evaluation | ({"held_out": data} if "held_out" in evaluation else {})
    settings = {"initial_policy": first, "evaluation": evaluation}
    whole = run_train(data, tmp_path / "whole", **settings)
    for at in (3, 12, None):
        interrupted(data, tmp_path / "broken", SETTINGS | settings, at=at)
    broken = run_train(data, tmp_path / "broken", **settings)
    assert (broken.curve, broken.held_out_losses) == (whole.curve, whole.held_out_losses)
    assert (broken.curve or broken.held_out_losses)[0][0] == 0
    for name in ("best", "last"):
        assert weights(str(tmp_path / "broken" / name)) == weights(str(tmp_path / "whole" / name))


def test_initial_policies_can_be_swept(first: str) -> None:
    sweep = parse(SweepConfig, {"training": SETTINGS, "grid": {"initial_policy": [None, first]}})
    assert len(settings_of(sweep)) == 2
