"""Updates that are compiled: the same as those that are not, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.learning.steps import Batch, BatchSpec
from offline_core.learning.update import (
    WORTH_COMPILING_UPDATES,
    WORTH_COMPILING_UPDATES_ON_GPU,
    BatchOutput,
    CompiledUpdate,
    clip_gradients,
    is_compiled,
)
from offline_core.runtime.config import parse
from tests.learning.algorithms.making import BOX, TWO, VECTOR, made_steps, make_networks, with_box_actions

pytestmark = [
    pytest.mark.slow,  # Torch's compiler alone takes seconds
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of what that uses
]


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def learner(name: str, *, continuous: bool, compiled: bool, network: dict[str, Any]) -> Learner:
    values = {"algorithm": name, "network": {"hidden_sizes": [8]} | network, "compute": {"compile": compiled}}
    values["optimizer"] = {"batch_size": 64}
    config = parse(TrainingConfig, values)
    networks = make_networks(name, VECTOR, BOX if continuous else TWO, config.network, seed=1)
    one, steps = Learner(networks, config, total_steps=1000), made_steps([40, 24], [True, False])
    one.load(with_box_actions(steps) if continuous else steps)
    return one


@pytest.mark.parametrize(
    ("name", "continuous", "sizes"),
    [
        ("bc", True, [64, 64]),
        ("cql", False, [64, 64]),
        ("marwil", False, [64, 64, 40]),
        ("iql", False, [64, 64, 40]),
        ("iql", True, [64, 64, 40]),
        ("td3_bc", True, [64, 64, 64, 40, 40]),
        ("cql", True, [64, 64, 40]),
    ],
)
def test_compiled_updates_are_the_same(name: str, continuous: bool, sizes: list[int]) -> None:
    """Losses, metrics, weights, targets and the optimiser's state, with the same draws, of dropout, too."""
    plain, compiled = (learner(name, continuous=continuous, compiled=each, network={"dropout": 0.5}) for each in (False, True))
    for size in sizes:
        for one in (plain, compiled):
            assert one.update(one.indices()[:size])
        assert compiled.take_metrics() == pytest.approx(plain.take_metrics(), rel=1e-4, abs=1e-5)
    torch.testing.assert_close(compiled.state(), plain.state(), rtol=1e-4, atol=1e-5)


def test_a_network_with_too_many_operations_is_refused() -> None:
    one = learner("bc", continuous=False, compiled=True, network={"recurrent": "gru", "recurrent_units": 8})
    with pytest.raises(ConfigError, match=r"found none in BC .* \(its .* operations would .*\): leave compute\.compile out"):
        one.update(one.indices()[: one.batch_units])


class Curious(BC):
    """A loss that looks at what a tensor holds."""

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        output = super().loss(networks, batch)
        return output if output.loss.mean() > 0 else LossOutput(-output.loss, {})


class Counting(BC):
    """A loss that depends on how many updates there were."""

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        output = super().loss(networks, batch)
        return LossOutput(output.loss / (networks.updates + 1), output.metrics)


@pytest.mark.parametrize("kind", [Curious, Counting])
def test_a_loss_that_is_no_single_graph_is_refused(kind: type[BC]) -> None:
    """What was recorded once would be wrong in the next update."""
    with pytest.raises(ConfigError, match=r"found none in C.* \(.*\): leave compute\.compile out"):
        compiled_update(kind, fall_back=False)


def test_auto_updates_without_a_graph_where_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    assert compiled_update(Curious, fall_back=True).means.isfinite().all()
    assert "Updates are not compiled. compute.compile makes one graph" in caplog.text


def compiled_update(kind: type[BC], *, fall_back: bool) -> BatchOutput:
    networks, steps = Networks(kind(), VECTOR, TWO, seed=1), made_steps([40, 24], [True, False])
    batch = steps.batch(steps.rows, BatchSpec(networks.algorithm.batch_columns))
    weights = torch.full((64,), 1 / 64)
    return CompiledUpdate(networks, lambda flat: flat, rows=64, fall_back=fall_back)(batch, weights, weights)


def test_auto_compiles_long_runs_of_algorithms_of_this_project() -> None:
    assert is_compiled("auto", WORTH_COMPILING_UPDATES, BC)
    assert not is_compiled("auto", WORTH_COMPILING_UPDATES - 1, BC)
    assert not is_compiled("auto", WORTH_COMPILING_UPDATES, Curious)
    assert is_compiled(True, 1, Curious)
    assert not is_compiled("auto", WORTH_COMPILING_UPDATES_ON_GPU - 1, BC, on_gpu=True)
    assert is_compiled("auto", WORTH_COMPILING_UPDATES_ON_GPU, BC, on_gpu=True)


def test_gradients_are_clipped_as_torch_clips_them() -> None:
    parameters, expected = ([torch.nn.Parameter(torch.zeros(n)) for n in (3, 5)] for _ in range(2))
    for scale in (0.01, 10.0):
        for one, other in zip(parameters, expected, strict=True):
            one.grad = torch.linspace(-scale, scale, len(one))
            other.grad = one.grad.clone()
        norm = torch.nn.utils.clip_grad_norm_(expected, 1.0)
        assert torch.equal(clip_gradients(parameters, 1.0), norm)
        assert all(torch.equal(one.grad, other.grad) for one, other in zip(parameters, expected, strict=True))  # type: ignore[arg-type]
