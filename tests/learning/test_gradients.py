"""Updates that are compiled: the same as those that are not, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.registry import make_networks
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.runtime.config import parse
from tests.learning.algorithms.making import BOX, TWO, VECTOR, made_steps, with_box_actions

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
    config = parse(TrainingConfig, values)
    algorithm = make_networks(name, VECTOR, BOX if continuous else TWO, config.network, seed=1)
    one, steps = Learner(algorithm, config, total_steps=1000), made_steps([40, 24], [True, False])
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


def test_a_network_that_is_no_single_graph_is_refused() -> None:
    """Torch would leave out the backward pass, and the weights would stay as they are."""
    one = learner("bc", continuous=False, compiled=True, network={"recurrent": "gru", "recurrent_units": 8})
    with pytest.raises(ConfigError, match=r"found none in BC .* \(Attempted to wrap RNN.*\): leave compute\.compile out"):
        one.update(one.indices())
