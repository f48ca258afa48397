"""Action distributions, against torch.distributions, the normal distribution itself, and counting."""

from __future__ import annotations

import itertools
import math
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Normal

from offline_core.errors import ConfigError
from offline_core.policies.config import NetworkConfig
from offline_core.policies.gaussian import GaussianHead
from offline_core.policies.head import Head
from offline_core.policies.heads import make_head
from tests.cases import examples

CATEGORICAL: list[gym.Space[Any]] = [
    spaces.Discrete(1),
    spaces.Discrete(5),
    spaces.Discrete(3, start=-7),
    spaces.MultiDiscrete([2, 4, 3]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, -2], [3, 0]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
]
every_categorical = pytest.mark.parametrize("space", CATEGORICAL, ids=str)


def head_of(space: gym.Space[Any], *, squash: bool = False) -> Head:
    return cast(Head, make_head(space, 3, NetworkConfig(squash=squash)))


def sizes_and_starts(space: gym.Space[Any]) -> tuple[list[int], np.ndarray]:
    match space:
        case spaces.Discrete():
            return [int(space.n)], np.array([space.start])
        case spaces.MultiDiscrete():
            return space.nvec.reshape(-1).tolist(), space.start.reshape(-1)
        case spaces.MultiBinary():
            bits = math.prod(space.shape)
            return [2] * bits, np.zeros(bits, int)
    raise AssertionError(space)


def logits_of(space: gym.Space[Any], batch: int, *, scale: float = 2.0) -> Tensor:
    size = sum(sizes_and_starts(space)[0])
    return torch.randn(batch, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * scale


def parts(space: gym.Space[Any], logits: Tensor) -> list[Categorical]:
    return [Categorical(logits=part) for part in logits.split(sizes_and_starts(space)[0], dim=1)]


def bell(z: float) -> float:
    """The normal distribution function."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def log_bell(z: float) -> float:
    """Its logarithm; far out, by the asymptotic series (Abramowitz & Stegun 26.2.12)."""
    if z > -15:
        return math.log(bell(z))
    series = sum((-1) ** k * math.prod(range(1, 2 * k, 2)) / z ** (2 * k) for k in range(6))
    return -(z**2) / 2 - math.log(-z) - 0.5 * math.log(2 * math.pi) + math.log(series)


def assert_frequencies(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Pearson's chi² stays within five standard deviations of what chance gives."""
    expected = counts.sum() * probabilities
    assert expected.min() > 5, "too few draws to tell"
    freedom = max(1, len(counts) - 1)
    assert ((counts - expected) ** 2 / expected).sum() < freedom + 5 * math.sqrt(2 * freedom)


# ---- Categorical -----------------------------------------------------------------------------------------------------


@every_categorical
def test_categorical_agrees_with_torch(space: gym.Space[Any]) -> None:
    head, logits = head_of(space), logits_of(space, 64)
    space.seed(3)
    actions = torch.as_tensor(np.stack([np.asarray(space.sample()) for _ in range(64)]))
    indices = (actions.reshape(64, -1) - torch.as_tensor(sizes_and_starts(space)[1])).unbind(dim=1)
    expected = sum(part.log_prob(index) for part, index in zip(parts(space, logits), indices, strict=True))
    torch.testing.assert_close(head.log_prob(logits, actions), expected, rtol=1e-12, atol=1e-12)
    entropy = sum(part.entropy() for part in parts(space, logits))
    torch.testing.assert_close(head.entropy(logits), entropy, rtol=1e-12, atol=1e-12)


@every_categorical
def test_the_mode_is_the_most_likely_of_all_actions(space: gym.Space[Any]) -> None:
    head, logits = head_of(space), logits_of(space, 8)
    sizes, starts = sizes_and_starts(space)
    everything = torch.tensor(list(itertools.product(*map(range, sizes)))) + torch.as_tensor(starts)
    best = torch.stack([head.log_prob(logits, a.expand(8, -1)) for a in everything]).max(dim=0).values
    torch.testing.assert_close(head.log_prob(logits, head.mode(logits)), best)


@pytest.mark.parametrize("space", [spaces.Discrete(4, start=2), spaces.MultiDiscrete([2, 3], start=[5, -1])], ids=str)
def test_actions_are_drawn_as_often_as_their_probability_says(space: gym.Space[Any]) -> None:
    """Of a product space, every combination: components may not be mixed up or depend on each other."""
    head, draws = head_of(space), 20_000
    logits = logits_of(space, 1, scale=0.7).expand(draws, -1)
    sampled = head.sample(logits, torch.Generator().manual_seed(2)).reshape(draws, -1).numpy()
    sizes, starts = sizes_and_starts(space)
    counts = np.bincount(np.ravel_multi_index((sampled - starts).T, sizes), minlength=math.prod(sizes))
    probabilities = np.ones(1)
    for part in parts(space, logits[:1]):
        probabilities = np.outer(probabilities, part.probs[0].numpy()).reshape(-1)
    assert_frequencies(counts, probabilities)


def test_hopeless_and_certain_actions_stay_finite() -> None:
    head = head_of(spaces.Discrete(3))
    logits = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    assert head.entropy(logits).item() == 0.0
    log_prob = head.log_prob(logits, torch.tensor([2]))
    assert log_prob.item() == -2e4
    log_prob.backward()
    assert logits.grad is not None and logits.grad.isfinite().all()


# ---- Both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [*CATEGORICAL[1:], spaces.Box(-1, 1, (2, 2)), spaces.Box(-np.inf, np.inf, (3,))], ids=str)
def test_the_generator_alone_decides_what_is_drawn(space: gym.Space[Any]) -> None:
    head = head_of(space)
    inputs = head(torch.randn(50, 3, generator=torch.Generator().manual_seed(0))).detach()
    before = torch.get_rng_state()
    first, again, other = (head.sample(inputs, torch.Generator().manual_seed(seed)) for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (3,), np.uint8),
        spaces.Text(5),
        spaces.Dict(),
        spaces.Tuple([]),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
    ],
    ids=str,
)
def test_a_space_nobody_can_act_in_is_named(space: gym.Space[Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        make_head(space, 3)
    assert str(space) in str(caught.value)
    assert "Discrete" in str(caught.value)


# ---- Gaussian --------------------------------------------------------------------------------------------------------


def gaussian(low: Any, high: Any, shape: tuple[int, ...] | None = None, dtype: Any = np.float32) -> GaussianHead:
    if shape is None:
        low, high = np.array(low, dtype), np.array(high, dtype)
    head = make_head(spaces.Box(low, high, shape, dtype), 3)
    assert isinstance(head, GaussianHead)
    return head


def inputs_of(*mean_and_std: tuple[float, float], dtype: torch.dtype = torch.float64) -> Tensor:
    """(1, 2 · components)."""
    mean, std = torch.tensor(mean_and_std, dtype=dtype).unbind(dim=1)
    return torch.cat([mean, std.log()])[None]


def test_inside_the_bounds_it_is_a_gaussian() -> None:
    head = gaussian([-1, 0], [1, 50])
    inputs = inputs_of((0.3, 0.8), (60.0, 25.0)).expand(40, -1)
    actions = torch.stack([torch.linspace(-0.99, 0.99, 40), torch.linspace(0.1, 49.9, 40)], dim=1).double()
    mean, std = inputs[:, :2], inputs[:, 2:].exp()
    torch.testing.assert_close(head.log_prob(inputs, actions), Normal(mean, std).log_prob(actions).sum(dim=1))


@pytest.mark.parametrize("z", [-2000.0, -300.0, -40.0, -14.0, -6.0, -0.5, 0.0, 0.7, 5.0, 30.0])
def test_at_a_bound_it_has_the_whole_tail_as_its_probability(z: float) -> None:
    head, std = gaussian([-1], [1]), 0.25
    for bound, mean in ((-1.0, -1.0 - z * std), (1.0, 1.0 + z * std)):
        found = head.log_prob(inputs_of((mean, std)), torch.tensor([[bound]], dtype=torch.float64)).item()
        assert found == pytest.approx(log_bell(z), rel=1e-9, abs=1e-15)


def test_actions_are_drawn_as_often_as_their_probability_says_clipped_or_not() -> None:
    head, mean, std, draws = gaussian([-1], [2]), 0.4, 1.1, 20_000
    inputs = inputs_of((mean, std)).expand(draws, -1)
    sampled = head.sample(inputs, torch.Generator().manual_seed(5)).numpy()[:, 0]
    edges = np.linspace(-1, 2, 13)
    inside = sampled[(sampled > -1) & (sampled < 2)]
    counts = np.array([(sampled == -1).sum(), *np.histogram(inside, edges)[0], (sampled == 2).sum()])
    assert counts.sum() == draws, "drawn outside the bounds"
    below = np.array([0.0, *(bell((edge - mean) / std) for edge in edges), 1.0])
    assert_frequencies(counts, np.diff(below))


FINITE = [(-1.0, 1.0), (0.1, 0.7), (-200.0, 300.0)]
OTHERS = [(-math.inf, 0.3), (5.0, math.inf), (-math.inf, math.inf), (-2e38, 3e38)]


@pytest.mark.parametrize(
    ("bounds", "squash"), [(b, squash) for squash in (False, True) for b in FINITE + (OTHERS * (not squash))]
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")  # of the test's own bounds, to float16
def test_what_is_drawn_lies_in_the_space_and_has_the_probability_it_was_drawn_with(
    bounds: tuple[float, float], squash: bool, dtype: Any
) -> None:
    """Bounds that float32 does not hold exactly, of float64, and values that the environment rounds, to float16, included."""
    low, high = np.array(bounds).astype(dtype)
    space = spaces.Box(low, high, (2, 3), dtype)
    head = head_of(space, squash=squash)
    features = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) * 50
    inputs = head(features).detach()
    assert inputs.isfinite().all()
    for actions in (head.sample(inputs, torch.Generator().manual_seed(1)), head.mode(inputs)):
        sent = head.to_env(actions)
        assert sent.dtype == dtype
        assert all(space.contains(action) for action in sent)
        log_probs = head.log_prob(inputs, actions)
        assert log_probs.isfinite().all()
        torch.testing.assert_close(head.log_prob(inputs, torch.from_numpy(sent)).float(), log_probs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_numbers_as_bounds_mean_no_bounds(dtype: Any) -> None:
    """Environments write `np.finfo(...).max` where they mean infinity; nobody can act in such units."""
    largest = np.finfo(dtype).max
    inputs = head_of(spaces.Box(-largest, largest, (2,), dtype))(torch.zeros(1, 3))
    torch.testing.assert_close(inputs, head_of(spaces.Box(-np.inf, np.inf, (2,)))(torch.zeros(1, 3)))


def test_a_component_without_a_choice_is_certain() -> None:
    space = spaces.Box(np.array([3, -1], np.float32), np.array([3, 1], np.float32))
    head, free = head_of(space), head_of(spaces.Box(-1, 1, (1,)))
    inputs = head(torch.zeros(20, 3)).detach().requires_grad_()
    actions = head.sample(inputs, torch.Generator().manual_seed(0))
    assert (actions[:, 0] == 3).all()
    log_probs = head.log_prob(inputs, actions)
    torch.testing.assert_close(log_probs, free.log_prob(inputs[:, [1, 3]], actions[:, 1:]))
    log_probs.sum().backward()
    assert inputs.grad is not None and inputs.grad.isfinite().all()


def test_actions_are_in_the_units_of_the_environment() -> None:
    """The network's -1, 0, 1 are low, middle, high; its standard deviation of 1 is half the range."""
    head = gaussian([-2, 100], [2, 300])
    with torch.no_grad():
        head.mean.weight.zero_()
        for units, expected in ((-1.0, [-2.0, 100.0]), (0.0, [0.0, 200.0]), (1.0, [2.0, 300.0])):
            head.mean.bias.fill_(units)
            mean, log_std = head(torch.zeros(1, 3)).chunk(2, dim=1)
            assert mean[0].tolist() == expected
            assert log_std.exp()[0].tolist() == pytest.approx([2.0, 100.0])
            assert head.mode(torch.cat([mean, log_std], dim=1))[0].tolist() == expected


@pytest.mark.parametrize("bounds", [(5.0, math.inf), (-math.inf, -5.0), (-math.inf, math.inf)])
def test_with_one_bound_or_none_the_first_actions_are_at_hand(bounds: tuple[float, float]) -> None:
    """A fresh policy begins inside, not five standard deviations beyond its only bound."""
    head = gaussian([bounds[0]], [bounds[1]])
    sampled = head.sample(head(torch.zeros(1000, 3)), torch.Generator().manual_seed(0))
    at_bound = ((sampled == bounds[0]) | (sampled == bounds[1])).float().mean().item()
    assert at_bound == pytest.approx(0.5 if any(map(math.isfinite, bounds)) else 0.0, abs=0.08)


def test_without_bounds_it_is_torchs_normal() -> None:
    head = gaussian(-np.inf, np.inf, (2, 2))
    generator = torch.Generator().manual_seed(0)
    mean, log_std, actions = torch.randn(3, 30, 4, dtype=torch.float64, generator=generator) * 3
    expected = Normal(mean, log_std.exp())
    inputs = torch.cat([mean, log_std], dim=1)
    torch.testing.assert_close(head.log_prob(inputs, actions.reshape(30, 2, 2)), expected.log_prob(actions).sum(dim=1))
    torch.testing.assert_close(head.entropy(inputs), expected.entropy().sum(dim=1))
    assert torch.equal(head.mode(inputs), mean.reshape(30, 2, 2))


def test_an_action_beyond_a_bound_counts_as_the_bound() -> None:
    head = gaussian([-1, -1], [1, np.inf])
    inputs = inputs_of((0.2, 0.5), (0.1, 2.0))
    beyond, bound = torch.tensor([[1.7, -9.0]]).double(), torch.tensor([[1.0, -1.0]]).double()
    assert torch.equal(head.log_prob(inputs, beyond), head.log_prob(inputs, bound))


def test_gradients_are_those_of_finite_differences() -> None:
    head = gaussian([-1, -1, 0], [1, 1, np.inf]).double()
    actions = torch.tensor([[-1.0, 0.3, 0.0], [1.0, -1.0, 2.5], [0.999, 1.0, 0.0], [-0.5, 0.0, 1e-3]]).double()
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, 6, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: head.log_prob(x, actions), (inputs,))
    assert torch.autograd.gradcheck(head.entropy, (inputs,))


@pytest.mark.parametrize("z", [-1e8, -1e6, -3e4, -1e3, -30.0, -1.0, 0.0, 2.0])
def test_the_tail_pulls_as_strongly_as_it_should_in_float32(z: float) -> None:
    """d log Φ(z) / dz, by its asymptote |z| + 1 / |z| far out; PyTorch's own is 0, or infinite, there."""
    expected = math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) / bell(z) if z > -10 else -z - 1 / z
    for bound, sign in ((-1.0, -1), (1.0, 1)):
        inputs = torch.tensor([[bound + sign * z, 0.0]], requires_grad=True)
        exact_z = sign * (inputs[0, 0].item() - bound)
        gaussian([-1], [1]).log_prob(inputs, torch.tensor([[bound]])).sum().backward()
        assert inputs.grad is not None
        assert exact_z == pytest.approx(z, rel=1e-6)
        assert sign * inputs.grad[0, 0].item() == pytest.approx(expected, rel=1e-4)


@settings(max_examples=examples(100))
@given(st.floats(-1e6, 1e6, width=32), st.floats(-8, 2, width=32), st.sampled_from([-1.0, 1.0, 0.0, 0.999]))
def test_far_out_nothing_is_infinite(mean: float, log_std: float, action: float) -> None:
    head = gaussian([-1], [1])
    inputs = torch.tensor([[mean, log_std]], requires_grad=True)
    log_prob = head.log_prob(inputs, torch.tensor([[action]]))
    log_prob.sum().backward()
    assert log_prob.isfinite().all()
    assert inputs.grad is not None and inputs.grad.isfinite().all()


def test_weights_get_finite_gradients_through_the_whole_head() -> None:
    head = gaussian([-1, 0], [1, np.inf])
    features = torch.randn(16, 3, generator=torch.Generator().manual_seed(0)) * 1e4
    inputs = head(features)
    head.log_prob(inputs, head.sample(inputs.detach(), torch.Generator().manual_seed(1))).sum().backward()
    gradients = {name: parameter.grad for name, parameter in head.named_parameters()}
    assert gradients.keys() == {"mean.weight", "mean.bias", "log_std"}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())
