"""Streams of episodes mixed by weight."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_core.data.episodes import Episode
from offline_core.errors import ConfigError
from offline_core.policies.recording.mixing import mixed


def episode(eps_id: str, steps: int) -> Episode:
    return Episode(
        eps_id=eps_id, observations=np.zeros((steps + 1, 1)), actions=np.zeros(steps), rewards=np.zeros(steps), truncated=True
    )


def stream(name: str, steps: int, count: int | None = None) -> Iterator[Episode]:
    numbers = itertools.count() if count is None else range(count)
    return (episode(f"{name}-{i}", steps) for i in numbers)


def test_steps_and_not_episodes_are_shared_out() -> None:
    """Weights 3 to 1, episodes of 10 and 30 steps: nine short ones for each long one."""
    streams = {"short": (3.0, stream("short", 10)), "long": (1.0, stream("long", 30))}
    chosen = [name for name, _ in itertools.islice(mixed(streams, 10_000), 40)]
    assert chosen.count("long") == 4 and chosen.count("short") == 36
    assert chosen[:12] == ["short", "long", *["short"] * 9, "long"]


@given(
    weights=st.lists(st.floats(0.05, 10), min_size=1, max_size=4), lengths=st.lists(st.integers(1, 50), min_size=4, max_size=4)
)
def test_at_any_moment_no_share_is_off_by_more_than_its_longest_episodes(weights: list[float], lengths: list[int]) -> None:
    streams = {str(i): (weight, stream(str(i), lengths[i])) for i, weight in enumerate(weights)}
    steps = dict.fromkeys(streams, 0)
    for name, found in itertools.islice(mixed(streams, 100_000), 200):
        steps[name] += len(found)
        total = sum(steps.values())
        for i, weight in enumerate(weights):
            share = weight / sum(weights) * total
            assert abs(steps[str(i)] - share) <= sum(lengths[: len(weights)])


def test_each_stream_keeps_its_order_and_the_mixture_ends_with_the_first_that_is_empty() -> None:
    streams = {"a": (1.0, stream("a", 5, count=3)), "b": (1.0, stream("b", 5))}
    found = [e.eps_id for _, e in mixed(streams, 100_000)]
    assert found == ["a-0", "b-0", "a-1", "b-1", "a-2", "b-2"]


def test_weights_have_to_be_above_zero() -> None:
    with pytest.raises(ConfigError, match="weight of b is not above zero"):
        next(mixed({"a": (1.0, []), "b": (0.0, [])}, 100_000))
    assert list(mixed({}, 100_000)) == []
