"""The squashed Gaussian, against torch's transformed distributions and by integration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import AffineTransform, Independent, Normal, TanhTransform, TransformedDistribution

from offline_core.errors import ConfigError
from offline_core.policies.config import NetworkConfig
from offline_core.policies.heads import make_head
from offline_core.policies.policy import Policy
from offline_core.policies.squashed import EDGE, SquashedGaussianHead


def head_of(space: spaces.Box) -> SquashedGaussianHead:
    head = make_head(space, 3, NetworkConfig(squash=True))
    assert isinstance(head, SquashedGaussianHead)
    return head


def between(*bounds: tuple[float, float], dtype: Any = np.float32) -> spaces.Box:
    low, high = np.array(bounds, dtype).T
    return spaces.Box(low, high, dtype=dtype)


def inputs_of(*mean_and_std: tuple[float, float], dtype: torch.dtype = torch.float64) -> Tensor:
    mean, std = torch.tensor(mean_and_std, dtype=dtype).unbind(dim=1)
    return torch.cat([mean, std.log()])[None]


def torchs(inputs: Tensor, low: Tensor, high: Tensor) -> Any:
    mean, log_std = inputs.chunk(2, dim=1)
    scaled = [TanhTransform(cache_size=1), AffineTransform((low + high) / 2, (high - low) / 2, cache_size=1)]
    return Independent(TransformedDistribution(Normal(mean, log_std.exp()), scaled), 1)


def test_it_is_torchs_transformed_distribution() -> None:
    head, generator = head_of(between((-2, 2), (0, 300))), torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 4, dtype=torch.float64, generator=generator) * torch.tensor([1.0, 1.0, 0.2, 0.2])
    expected = torchs(inputs, torch.tensor([-2.0, 0.0]).double(), torch.tensor([2.0, 300.0]).double())
    torch.manual_seed(1)
    actions = expected.sample()
    torch.testing.assert_close(head.log_prob(inputs, actions), expected.log_prob(actions), rtol=1e-6, atol=1e-6)


ROUNDED = 2.0**-24
"""Half a step of float32, relative."""


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 1.0), (0.1, 0.7), (-300.0, 5.0)])
@pytest.mark.parametrize("mean", [0.0, 2.0, -3.0, 4.0, 5.0, -5.0])
def test_float32_is_as_right_as_an_action_in_float32_can_be(low: float, high: float, mean: float) -> None:
    """Of the same action log_prob is what float64 says, of a draw rsample's; the two differ by the action's rounding alone."""
    head = head_of(between((low, high)))
    inputs = inputs_of((mean, 0.5), dtype=torch.float32).expand(2_000, -1)
    actions, drawn_with = head.rsample(inputs, torch.Generator().manual_seed(0))
    log_probs = head.log_prob(inputs, actions)
    bounds = head.low.double(), head.high.double()
    exact = torchs(inputs.double(), *bounds)
    torch.testing.assert_close(log_probs.double(), exact.log_prob(actions.double()), rtol=1e-6, atol=1e-5)
    draws = head._drawn(inputs, torch.Generator().manual_seed(0)).double()
    squashed = bounds[0] + (bounds[1] - bounds[0]) * torch.sigmoid(2 * draws)
    slope = math.log(4) + torch.nn.functional.logsigmoid(2 * draws) + torch.nn.functional.logsigmoid(-2 * draws)
    gaussian = Normal(inputs[:, :1].double(), inputs[:, 1:].double().exp()).log_prob(draws)
    right = (gaussian - slope - head.half_range.double().log())[:, 0]
    torch.testing.assert_close(drawn_with.double(), right, rtol=1e-6, atol=1e-5)
    distance = torch.minimum(squashed - bounds[0], bounds[1] - squashed)[:, 0]
    steps = ROUNDED * actions.double().abs()[:, 0] / distance
    slopes = (draws[:, 0].sign() - (draws[:, 0] - mean) / (2 * 0.5**2)).abs()
    assert ((log_probs - drawn_with).abs() <= 2.5 * steps * slopes + 10 * steps**2 + 2e-5).all()


def test_next_to_a_bound_of_nothing_no_digit_is_lost() -> None:
    """Where float32 is fine: draws of -6 before tanh are a millionth from the bound 0."""
    head, inputs = head_of(between((0, 300))), inputs_of((-6.0, 0.3), dtype=torch.float32).expand(500, -1)
    actions, drawn_with = head.rsample(inputs, torch.Generator().manual_seed(0))
    torch.testing.assert_close(head.log_prob(inputs, actions), drawn_with, rtol=1e-6, atol=1e-5)


def test_at_nothing_it_is_as_steep_as_tanh() -> None:
    head, inputs = head_of(between((-2, 2))), torch.zeros(1, 2, requires_grad=True)
    head.mode(inputs).sum().backward()
    assert inputs.grad is not None and inputs.grad[0, 0] == 2


def test_actions_are_drawn_as_often_as_their_probability_says() -> None:
    head, draws = head_of(between((-1, 3))), 20_000
    sampled = head.sample(inputs_of((0.4, 0.8)).expand(draws, -1), torch.Generator().manual_seed(3))[:, 0]
    edges = torch.linspace(-1, 3, 12, dtype=torch.float64)[1:-1]
    below = Normal(0.4, 0.8).cdf(torch.atanh((edges - 1) / 2))
    probabilities = np.diff([0.0, *below.tolist(), 1.0])
    counts = np.bincount(np.searchsorted(edges.numpy(), sampled.numpy()), minlength=len(probabilities))
    expected = draws * probabilities
    assert ((counts - expected) ** 2 / expected).sum() < len(counts) + 5 * math.sqrt(2 * len(counts))


@pytest.mark.parametrize("action", [-1.0, 1.0, -7.0, 7.0, 1 - 1e-9])
def test_at_a_bound_nothing_is_infinite(action: float) -> None:
    """Foreign data is full of such actions: they count as a little inside."""
    head = head_of(between((-1, 1)))
    inputs = torch.tensor([[0.5, -8.0], [0.5, 2.0]], requires_grad=True)
    log_probs = head.log_prob(inputs, torch.tensor([[action], [action]]))
    log_probs.sum().backward()
    assert log_probs.isfinite().all()
    assert inputs.grad is not None and inputs.grad.isfinite().all()
    inside = torch.tensor([[math.copysign(1 - EDGE, action)]], dtype=torch.float64)
    torch.testing.assert_close(
        head.log_prob(inputs_of((0.5, 0.4)), torch.tensor([[action]]).double()), head.log_prob(inputs_of((0.5, 0.4)), inside)
    )


def test_the_most_likely_action_is_where_the_mean_is() -> None:
    head = head_of(between((-2, 2), (100, 300)))
    torch.testing.assert_close(
        head.mode(inputs_of((0.0, 1.0), (0.5, 3.0))), torch.tensor([[0.0, 200 + 100 * math.tanh(0.5)]]).double()
    )


def test_drawing_by_reparametrisation_gives_the_same_actions_and_gradients() -> None:
    head = head_of(between((-2, 2), (0, 5))).double()
    inputs = (torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.5).requires_grad_()
    actions, log_probs = head.rsample(inputs, torch.Generator().manual_seed(4))
    assert torch.equal(actions, head.sample(inputs, torch.Generator().manual_seed(4)))
    torch.testing.assert_close(log_probs, head.log_prob(inputs, actions), rtol=1e-6, atol=1e-5)
    few = inputs[:3].detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: head.rsample(x, torch.Generator().manual_seed(4)), (few,))


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.1), (0.3, 0.7), (-2.0, 1.0), (1.0, 3.0)])
def test_the_entropy_is_minus_the_mean_log_probability(mean: float, std: float) -> None:
    head, inputs = head_of(between((-2, 2), (0, 10))), inputs_of((mean, std), (-mean, std))
    z = torch.linspace(-8, 8, 20_001, dtype=torch.float64)
    weights = Normal(0.0, 1.0).log_prob(z).exp() * (z[1] - z[0])
    slope = torch.log1p(-(torch.tanh(mean + std * z).clamp(-1 + 1e-15, 1 - 1e-15) ** 2))
    one = math.log(std) + 0.5 * math.log(2 * math.pi * math.e) + (slope.clamp(min=-60) * weights).sum().item()
    expected = 2 * one + math.log(2) + math.log(5)
    assert head.entropy(inputs).item() == pytest.approx(expected, abs=0.03)


def test_a_component_without_a_choice_is_certain() -> None:
    head, free = head_of(between((3, 3), (-1, 1))), head_of(between((-1, 1)))
    inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    actions, drawn_with = head.rsample(inputs, torch.Generator().manual_seed(0))
    assert (actions[:, 0] == 3).all()
    torch.testing.assert_close(head.log_prob(inputs, actions), free.log_prob(inputs[:, [1, 3]], actions[:, 1:]))
    torch.testing.assert_close(head.entropy(inputs), free.entropy(inputs[:, [1, 3]]))
    drawn_with.sum().backward()
    assert inputs.grad is not None and inputs.grad.isfinite().all()


@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (0.0, np.inf), (-3e38, 3e38)])
def test_without_finite_bounds_there_is_nothing_to_be_scaled_to(bounds: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match=r"cannot be squashed.*finite bounds"):
        make_head(between((-1, 1), bounds), 3, NetworkConfig(squash=True))


def test_squashing_where_nothing_can_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"The action space Discrete\(3\) has no Box"):
        Policy(spaces.Box(-1, 1, (2,)), spaces.Discrete(3), NetworkConfig(squash=True))
