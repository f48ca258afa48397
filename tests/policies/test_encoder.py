"""Observations of every kind → flat vectors, and the normaliser that travels with the weights."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.data.episodes import nested
from offline_core.errors import ConfigError
from offline_core.policies.encoder import Encoder
from offline_core.policies.policy import as_tensors
from tests.cases import examples
from tests.policies.sampling import observed

NESTED = spaces.Dict(
    {
        "z": spaces.Box(-1, 1, (2, 2)),
        "a": spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiBinary(2)]),
        "m": spaces.Dict({"grid": spaces.MultiDiscrete([[2], [3]], start=[[1], [-1]])}),
    }
)
SPACES: list[gym.Space[Any]] = [
    spaces.Box(-1, 1, ()),
    spaces.Box(-5, 5, (3,), np.float64),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(0, 1, (2,), np.bool_),
    spaces.Discrete(4),
    spaces.Discrete(4, start=-2, dtype=np.int16),
    spaces.MultiDiscrete([2, 5, 3]),
    spaces.MultiDiscrete([[2, 3], [4, 1]], start=[[1, -2], [0, 9]]),
    spaces.MultiDiscrete([3, 4], dtype=np.uint16),
    spaces.MultiBinary([2, 3]),
    spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,)), spaces.Discrete(3)]),
    spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Box(-1, 1, (2,)))]),  # keeps its order
    NESTED,
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_flattening_is_gymnasiums(space: gym.Space[Any]) -> None:
    observations = observed(space, 16)
    found = Encoder(space, normalize=False)(as_tensors(observations))
    expected = [spaces.flatten(space, item) for item in iterate(batch_space(space, 16), observations)]
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found.numpy(), np.array(expected, np.float32))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_two_leading_axes_are_kept(space: gym.Space[Any]) -> None:
    observations = observed(space, 3, 4)
    encoder = Encoder(space, normalize=False)
    found = encoder(as_tensors(observations), axes=2)
    flat = nested.map_leaves(lambda leaf: leaf.reshape(12, *leaf.shape[2:]), observations)
    assert torch.equal(found, encoder(as_tensors(flat)).reshape(3, 4, -1))


def test_flattening_by_hand() -> None:
    observations = {
        "a": (np.array([7, 5]), np.array([[1, 0], [0, 1]], np.int8)),
        "m": {"grid": np.array([[[1], [1]], [[2], [-1]]])},
        "z": np.array([[[0.1, 0.2], [0.3, 0.4]], [[-1, -2], [-3, -4]]], np.float32),
    }
    encoder = Encoder(NESTED, normalize=False)
    expected = [
        [0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 0.1, 0.2, 0.3, 0.4],
        [1, 0, 0, 0, 1, 0, 1, 1, 0, 0, -1, -2, -3, -4],
    ]
    assert encoder.size == 14
    np.testing.assert_array_equal(encoder(as_tensors(observations)).numpy(), np.array(expected, np.float32))


@pytest.mark.parametrize(
    "space",
    [spaces.Text(3), spaces.Sequence(spaces.Discrete(2)), spaces.Dict(a=spaces.Text(3)), spaces.Tuple([spaces.Text(3)])],
)
def test_what_is_not_numbers_is_refused(space: gym.Space[Any]) -> None:
    with pytest.raises(ConfigError, match=r"(Text|Sequence) observations"):
        Encoder(space, normalize=False)


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.sampled_from([0.0, 1.0, -300.0, 1e4]),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.integers(0, 2**32 - 1),
)
def test_running_statistics_are_those_of_all_batches_together(batches: list[int], mean: float, std: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = [rng.normal(mean + i, std * (i + 1), (size, 3)).astype(np.float32) for i, size in enumerate(batches)]
    encoder = Encoder(spaces.Box(-np.inf, np.inf, (3,)), normalize=True)
    for batch in seen:
        encoder.update_statistics(torch.from_numpy(batch))
    everything = np.concatenate(seen).astype(np.float64)
    assert encoder.count.item() == len(everything)
    np.testing.assert_allclose(encoder.mean.numpy(), everything.mean(axis=0), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(encoder.variance.numpy(), everything.var(axis=0), rtol=1e-9, atol=1e-10)


def test_normalised_observations_have_mean_zero_and_variance_one() -> None:
    observations = torch.randn(5000, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([1e-2, 30.0]) + 7
    encoder = Encoder(spaces.Box(-np.inf, np.inf, (2,)), normalize=True)
    encoder.update_statistics(observations)
    normalised = encoder(observations)
    assert normalised.mean(dim=0).numpy() == pytest.approx([0, 0], abs=1e-3)
    assert normalised.std(dim=0).numpy() == pytest.approx([1, 1], abs=1e-3)


def test_outliers_are_clipped_and_constants_are_zero() -> None:
    encoder = Encoder(spaces.Box(-np.inf, np.inf, (2,)), normalize=True)
    encoder.update_statistics(torch.tensor([[1.0, 5.0], [-1.0, 5.0]]))
    outliers = encoder(torch.tensor([[1e9, 5.0], [-1e9, 5.0], [2.0, 5.0]]))
    np.testing.assert_allclose(outliers.numpy(), [[10, 0], [-10, 0], [2, 0]], rtol=1e-6)


def test_without_normalisation_statistics_do_not_matter() -> None:
    encoder = Encoder(spaces.Box(-np.inf, np.inf, (2,)), normalize=False)
    encoder.update_statistics(torch.randn(10, 2) * 5)
    assert encoder(torch.tensor([[1e9, -3.0]])).tolist() == [[1e9, -3.0]]


@pytest.mark.parametrize("normalize", [False, True])
def test_what_is_looked_at_stays_as_it_is(normalize: bool) -> None:
    observations = observed(NESTED, 8)
    before = copy.deepcopy(observations)
    encoder = Encoder(NESTED, normalize=normalize)
    encoder.update_statistics(as_tensors(observations))
    encoder(as_tensors(observations)).add_(1.0)
    assert nested.equal(observations, before)


def test_the_filter_travels_with_the_weights() -> None:
    one, other = (Encoder(spaces.Box(-9, 9, (2,)), normalize=True) for _ in range(2))
    one.update_statistics(torch.tensor([[1.0, 5.0], [3.0, 8.0]]))
    other.load_state_dict(one.state_dict())
    observations = torch.tensor([[0.5, -0.5]])
    assert torch.equal(one(observations), other(observations))
    assert not torch.equal(one(observations), Encoder(spaces.Box(-9, 9, (2,)), normalize=True)(observations))
