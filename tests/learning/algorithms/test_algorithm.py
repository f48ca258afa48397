"""What holds for every algorithm in the registry."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import evaluating
from offline_core.learning.algorithms.cql import CQL, ContinuousCQL, DiscreteCQL
from offline_core.learning.algorithms.marwil import MARWIL, observations_a_sequence, observations_of_all, values_of
from offline_core.learning.algorithms.registry import algorithms
from offline_core.learning.config import TrainingConfig
from offline_core.learning.steps import MASK, BatchSpec
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.runtime.config import parse
from tests.learning.algorithms.making import (
    TWO,
    VECTOR,
    loaded,
    made_steps,
    make_networks,
    space_of,
    steps_for,
    update,
    whole_batch,
)

SMALL = NetworkConfig(hidden_sizes=[8])
NAMES = sorted(algorithms().keys() - {"dt"})
"""Of what learns from single steps; sequences are in test_dt.py."""


def trained(networks: Any) -> list[torch.nn.Parameter]:
    return [parameter for parameter in networks.parameters() if parameter.requires_grad]


@pytest.mark.parametrize("share_layers", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_whatever_can_learn_gets_a_gradient_and_one_number_a_step(name: str, share_layers: bool) -> None:
    """Several learners exchange gradients of the same parameters."""
    networks = make_networks(name, VECTOR, space_of(name), NetworkConfig(hidden_sizes=[8], share_layers=share_layers))
    terms = networks(whole_batch(networks, steps_for(name, [9, 3], [True, False])))
    terms.loss.mean().backward()
    assert all(parameter.grad is not None for parameter in trained(networks))
    assert {term.shape for term in (terms.loss, *terms.metrics.values())} == {(12,)}
    assert not any(term.requires_grad for term in terms.metrics.values())


@pytest.mark.parametrize("name", ["bc", "marwil", "dqn", "iql", "cql"])
def test_a_batch_in_two_halves_has_the_same_terms(name: str) -> None:
    """Learners share batches: no step's term may depend on the others. Other algorithms draw actions."""
    networks = make_networks(name, VECTOR, space_of(name), SMALL)
    batch = whole_batch(networks, steps_for(name, [9, 3], [True, False]))
    halves = [{column: tensor[part] for column, tensor in batch.items()} for part in (slice(0, 5), slice(5, 12))]
    whole, parts = networks(batch), [networks(half) for half in halves]
    torch.testing.assert_close(whole.loss, torch.cat([part.loss for part in parts]))
    for name, term in whole.metrics.items():
        torch.testing.assert_close(term, torch.cat([part.metrics[name] for part in parts]))


@pytest.mark.parametrize(
    ("name", "settings"), [*((name, None) for name in NAMES if name != "cal_ql"), ("marwil", MARWIL(gae_lambda=0.9))]
)
def test_the_observation_after_a_termination_is_of_no_account(name: str, settings: MARWIL | None) -> None:
    """Where a source does not have it, the import repeats the one before. After a cut-off it counts for what learns values.

    Continuous CQL draws actions for its penalty there; its targets have a test of their own.
    """
    losses = []
    for after in (0.0, 5.0):
        networks = make_networks(name, VECTOR, space_of(name), SMALL, settings)
        steps = steps_for(name, [9, 3, 4], [True, False, True])
        steps.columns["obs"][steps.last[[0, 2]]] += after
        torch.manual_seed(0)
        losses.append(networks(whole_batch(networks, steps)).loss)
    assert torch.equal(*losses)


@pytest.mark.parametrize("name", NAMES)
def test_no_steps_at_all_teach_nothing(name: str) -> None:
    """A learner's share of a short last batch may be empty, and the others still wait for its gradients."""
    networks = make_networks(name, VECTOR, space_of(name), SMALL)
    batch = whole_batch(networks, steps_for(name, [9, 3], [True, False]))
    terms = networks({column: tensor[:0] for column, tensor in batch.items()})
    terms.loss.sum().backward()
    assert not any(parameter.grad.any() for parameter in trained(networks))


@pytest.mark.parametrize("name", NAMES)
def test_its_state_is_all_that_goes_on(name: str) -> None:
    """Restored after some updates, the next ones are the same to the bit."""
    steps = steps_for(name, [30, 20], [True, False])
    one, other = (make_networks(name, VECTOR, space_of(name), SMALL, seed=seed) for seed in (0, 1))
    reading = BatchSpec(one.algorithm.batch_columns)
    batch = whole_batch(one, steps)
    optimizer = torch.optim.SGD(trained(one), lr=0.01)
    for _ in range(5):
        update(one, optimizer, batch)
    other.load_state_dict(one.state_dict())
    other.updates = one.updates
    other.algorithm.before_update(other)
    ends = []
    for networks in (one, other):
        torch.manual_seed(0)
        networks.algorithm.prepare(networks, steps, reading)
        optimizer = torch.optim.SGD(trained(networks), lr=0.01)
        for _ in range(5):
            if networks.algorithm.refresh_rows(networks, steps, reading):
                networks.algorithm.refresh(networks, steps, reading)
            update(networks, optimizer, steps.batch(steps.rows, reading))
        ends.append(networks.state_dict())
    for key, tensor in ends[0].items():
        assert torch.equal(tensor, ends[1][key]), key


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_alone_decides_the_weights(name: str) -> None:
    first, again, other = (make_networks(name, VECTOR, space_of(name), SMALL, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(tensor, again[key]) for key, tensor in first.items() if key not in ("normalizer", "value_variance"))
    assert not all(torch.equal(tensor, other[key]) for key, tensor in first.items() if tensor.ndim == 2)


@pytest.mark.parametrize("name", NAMES)
def test_composite_observations(name: str) -> None:
    space = gym.spaces.Dict({"a": VECTOR, "b": gym.spaces.Discrete(4)})
    networks = make_networks(name, space, space_of(name), SMALL)
    steps = steps_for(name, [9, 3], [True, False])
    steps.columns |= {"obs/a": steps.columns.pop("obs"), "obs/b": torch.arange(14) % 4}
    flat = whole_batch(networks, steps)
    nested: dict[str, Any] = {key: tensor for key, tensor in flat.items() if "/" not in key}
    for key in ("obs", "new_obs"):
        if f"{key}/a" in flat:
            nested[key] = {"a": flat[f"{key}/a"], "b": flat[f"{key}/b"]}
    assert networks(nested).loss.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_reports_are_numbers(name: str) -> None:
    networks = make_networks(name, VECTOR, space_of(name), SMALL)
    terms = networks(whole_batch(networks, steps_for(name, [9, 3], [True, False])))
    numbers = networks.algorithm.log_metrics(
        networks, {name: float(term.mean()) for name, term in terms.metrics.items()} | {"loss": 1.5}
    )
    assert numbers["loss"] == 1.5
    assert all(isinstance(value, float) for value in numbers.values())


def test_values_of_rows_in_any_order_and_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offline_core.learning.algorithms.algorithm.ROWS_AT_A_TIME", 5)
    policy = Policy(VECTOR, TWO, SMALL, value_function=True)
    steps = made_steps([9, 3], [True, False])
    rows = torch.tensor([13, 0, 5, 9, 1, 12, 3])
    found = values_of(policy, steps, rows, BatchSpec(("obs", "new_obs")))
    torch.testing.assert_close(found, policy.values(steps.columns["obs"][rows]).detach())
    assert not found.requires_grad


@pytest.mark.parametrize("rows_at_a_time", [7, 65_536])
def test_values_with_a_memory_of_what_came_before(monkeypatch: pytest.MonkeyPatch, rows_at_a_time: int) -> None:
    """After what training sees before them: by hand, a row at a time, in any order, those after last steps too."""
    monkeypatch.setattr("offline_core.learning.algorithms.algorithm.ROWS_AT_A_TIME", rows_at_a_time)
    policy = Policy(VECTOR, TWO, NetworkConfig(hidden_sizes=[8], recurrent="gru", recurrent_units=5), value_function=True)
    steps = made_steps([9, 3], [True, False])
    reading = BatchSpec(("obs",), sequence_steps=3, burn_in_steps=1)
    rows = torch.randperm(len(steps.episode), generator=torch.Generator().manual_seed(0))
    found = values_of(policy, steps, rows, reading)
    for row, value in zip(rows.tolist(), found, strict=True):
        first = 0 if row < 10 else 10
        start = row - (row - first) % 3
        expected = policy.values(steps.columns["obs"][None, max(start - 1, first) : row + 1])[-1]
        torch.testing.assert_close(value, expected.detach())


def test_a_memory_goes_through_each_sequence_once() -> None:
    """And no further than it says it does."""
    policy = Policy(VECTOR, TWO, NetworkConfig(hidden_sizes=[8], recurrent="gru", recurrent_units=5), value_function=True)
    steps = made_steps([9, 3], [True, False])
    reading = BatchSpec(("obs",), sequence_steps=3, burn_in_steps=1)
    looked_at = []
    policy.value_hidden.register_forward_hook(lambda module, inputs, output: looked_at.append(len(output)))
    values_of(policy, steps, torch.arange(14), reading)
    assert sum(looked_at) == observations_of_all(steps, reading) == (4 + 2) * 4
    values_of(policy, steps, steps.last, reading)
    assert sum(looked_at[1:]) == 2 * observations_a_sequence(reading) == 8


class Moody(torch.nn.Module):
    """A user's own layers, which are something else in training."""

    def __init__(self, inputs: int, network: NetworkConfig) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(inputs, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)


def test_values_are_those_of_evaluation_and_leave_no_trace() -> None:
    policy = Policy(VECTOR, TWO, NetworkConfig(module=f"{__name__}:Moody"), value_function=True)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    steps = made_steps([9, 3], [True, False])
    found = values_of(policy, steps, steps.rows, BatchSpec(("obs",)))
    assert all(part.training for part in policy.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())
    torch.testing.assert_close(found, policy.eval().values(steps.columns["obs"][steps.rows]).detach())


def test_evaluating_leaves_each_part_as_it_was() -> None:
    policy = Policy(VECTOR, TWO, NetworkConfig(hidden_sizes=[8]))
    policy.hidden.eval()  # frozen by its user
    modes = [part.training for part in policy.modules()]
    with pytest.raises(RuntimeError, match="within"), evaluating(policy):
        assert not any(part.training for part in policy.modules())
        raise RuntimeError("within")
    assert [part.training for part in policy.modules()] == modes


def test_values_of_several_frames() -> None:
    policy = Policy(VECTOR, TWO, NetworkConfig(hidden_sizes=[8], frames=3), value_function=True)
    steps = made_steps([9, 3], [True, False])
    found = values_of(policy, steps, torch.tensor([5, 11, 13]), BatchSpec(("obs",), frames=3))
    obs = steps.columns["obs"]
    expected = policy.values(torch.stack([obs[[3, 4, 5]], obs[[10, 10, 11]], obs[[11, 12, 13]]]))
    torch.testing.assert_close(found, expected.detach())


FRAMES = (NetworkConfig(hidden_sizes=[8], frames=2), {"frames": 2})
RECURRENT = (NetworkConfig(hidden_sizes=[8], recurrent="lstm"), {"sequence_steps": 4, "burn_in_steps": 2})


@pytest.mark.parametrize(
    ("name", "network", "reading"),
    [*((name, *FRAMES) for name in NAMES), *((name, *RECURRENT) for name in ("bc", "marwil"))],
    ids=[*(f"{name}-frames" for name in NAMES), "bc-recurrent", "marwil-recurrent"],
)
def test_policies_that_remember(name: str, network: NetworkConfig, reading: dict[str, int]) -> None:
    """Sequences come flat but for the observations, and whatever can learn gets a gradient."""
    networks = make_networks(name, VECTOR, space_of(name), network)
    steps = steps_for(name, [9, 3], [True, False])
    how = BatchSpec(networks.algorithm.batch_columns, **reading)
    loaded(networks, steps, how)
    batch = steps.batch(steps.indices(how), how)
    mask = batch.pop(MASK, None)
    if mask is not None:
        batch = {key: tensor if key == "obs" else tensor.flatten(0, 1) for key, tensor in batch.items()}
    terms = networks(batch)
    counted = terms.loss if mask is None else terms.loss[mask.flatten()]
    assert len(counted) == 12
    assert counted.isfinite().all()
    counted.mean().backward()
    assert all(parameter.grad is not None for parameter in trained(networks))


@pytest.mark.parametrize(
    ("name", "actions"),
    [("dqn", TWO), ("cql", TWO), ("cql", gym.spaces.Box(-1, 1, (2,))), ("iql", TWO)],
    ids=["dqn", "cql", "continuous cql", "iql"],
)
def test_a_memory_is_refused_where_later_observations_are_asked_about(name: str, actions: gym.Space[Any]) -> None:
    """They would be valued without what came before them, so the targets would be wrong."""
    network = NetworkConfig(recurrent="gru", squash=isinstance(actions, gym.spaces.Box))
    with pytest.raises(ConfigError, match=r"network.recurrent to None and network.frames .* or use bc or marwil"):
        make_networks(name, VECTOR, actions, network)


@pytest.mark.parametrize("name", NAMES)
def test_images(name: str) -> None:
    space = gym.spaces.Box(0, 255, (12, 12, 1), "uint8")
    networks = make_networks(name, space, space_of(name), SMALL)
    steps = steps_for(name, [9, 3], [True, False])
    steps.columns["obs"] = torch.randint(0, 256, (14, 12, 12, 1), dtype=torch.uint8)
    assert networks(whole_batch(networks, steps)).loss.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_in_bfloat16_losses_stay_in_float32(name: str) -> None:
    networks = make_networks(name, VECTOR, space_of(name), SMALL)
    batch = whole_batch(networks, steps_for(name, [9, 3], [True, False]))
    torch.manual_seed(0)
    exact = networks(batch)
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        terms = networks(batch)
    assert {term.dtype for term in (terms.loss, *terms.metrics.values())} == {torch.float32}
    torch.testing.assert_close(terms.loss, exact.loss, rtol=0.1, atol=0.1)


def test_cql_is_the_algorithm_of_the_action_space() -> None:
    config = CQL(alpha=2.0, n_step=4, gamma=0.5)
    for space, kind in ((TWO, DiscreteCQL), (gym.spaces.Box(-1.0, 1.0, (1,)), ContinuousCQL)):
        networks = make_networks("cql", VECTOR, space, SMALL, config)
        assert type(networks.algorithm) is kind
        assert (networks.algorithm.alpha, networks.algorithm.n_step, networks.algorithm.gamma) == (2.0, 4, 0.5)
    assert make_networks("cql", VECTOR, TWO, SMALL, CQL(double=False)).algorithm.double is False


@pytest.mark.parametrize(
    ("space", "changed"),
    [
        (TWO, {"action_samples": 3}),
        (TWO, {"target_rate": 0.1}),
        (gym.spaces.Box(-1.0, 1.0, (1,)), {"target_network_interval_updates": 100}),
        (gym.spaces.Box(-1.0, 1.0, (1,)), {"double": False, "dueling": False}),
    ],
    ids=str,
)
def test_cql_refuses_parameters_without_effect_in_the_action_space(space: gym.Space[Any], changed: dict[str, Any]) -> None:
    names = " and ".join(f"cql.{name}" for name in changed)
    with pytest.raises(ConfigError, match=rf"actions in {type(space).__name__}.*, {names} would change nothing"):
        make_networks("cql", VECTOR, space, NetworkConfig(squash=True), CQL(**changed))


def test_only_losses_without_learned_targets_can_be_compared() -> None:
    """Of others the lowest held-out loss would choose the best policy."""
    assert [name for name, kind in algorithms().items() if kind.loss_compares] == ["bc", "dt"]
    assert not ContinuousCQL.loss_compares


def test_the_form_lists_each_algorithm_and_its_parameters() -> None:
    schema = TrainingConfig.model_json_schema()
    named = {"type": "string", "enum": list(algorithms()), "title": "Choice"}
    assert schema["properties"]["algorithm"]["anyOf"][0] == named
    assert [name for name in schema["properties"] if name in algorithms()] == list(algorithms())
    with pytest.raises(ConfigError, match=r"algorithm: .*no algorithm 'a2c'.*; there are bc, marwil, dqn, iql, cql"):
        parse(TrainingConfig, {"algorithm": "a2c"})
