"""Hypothesis strategies for spaces and episodes, and a small episode whose values tell where they stand."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

from offline_core.data.episodes import Episode, nested

BOX_DTYPES = ("uint8", "int8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64", "bool")


def counting(steps: int = 6, *, lookback: int = 0, t_started: int = 0, **changes: Any) -> Episode:
    """Every item of this episode is its own time step: observation t is t, action t is 100 + t, reward t is t / 2."""
    t = np.arange(t_started - lookback, t_started + steps + 1)
    whole: dict[str, Any] = {
        "eps_id": "count",
        "observations": np.stack([t, -t], axis=1).astype(np.float32),
        "actions": 100 + t[:-1],
        "rewards": t[:-1] / 2,
        "infos": [{"t": int(i)} for i in t],
        "extras": {"action_logp": (-t[:-1]).astype(np.float32)},
        "t_started": t_started,
        "lookback": lookback,
    }
    return Episode(**whole | changes)


def shapes(min_dims: int, max_dims: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, 3), min_size=min_dims, max_size=max_dims).map(tuple)


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    dtype, shape = np.dtype(draw(st.sampled_from(BOX_DTYPES))), draw(shapes(0, 3))
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, np.bool_)
    if dtype.kind == "f":
        finite = st.floats(-1e4, 1e4, width=16)
        low = _filled(draw, shape, st.just(-np.inf) | finite, dtype)
        high = np.maximum(low, _filled(draw, shape, st.just(np.inf) | finite, dtype))
    else:
        bounds = st.integers(-100 if dtype.kind == "i" else 0, 100)
        low = _filled(draw, shape, bounds, dtype)
        high = np.maximum(low, _filled(draw, shape, bounds, dtype))
    return spaces.Box(low, high, shape, dtype.type)


def _filled(draw: st.DrawFn, shape: tuple[int, ...], values: st.SearchStrategy[Any], dtype: np.dtype) -> np.ndarray:
    """Two values in turn are as good a test as a value for each place, and much faster to draw."""
    return np.resize(np.array([draw(values), draw(values)], dtype), shape)


@st.composite
def multi_discretes(draw: st.DrawFn) -> spaces.MultiDiscrete:
    shape = draw(shapes(1, 2))
    dtype = draw(st.sampled_from([np.int64, np.int32, np.int8]))
    nvec = _filled(draw, shape, st.integers(1, 9), np.dtype(dtype))
    start = draw(st.none() | st.just(_filled(draw, shape, st.integers(-9, 9), np.dtype(dtype))))
    return spaces.MultiDiscrete(nvec, dtype=dtype, start=start)


@st.composite
def texts(draw: st.DrawFn) -> spaces.Text:
    least = draw(st.integers(0, 3))
    charset = draw(st.just(string.ascii_letters) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
    return spaces.Text(least + draw(st.integers(1, 5)), min_length=least, charset=charset)


def leaf_spaces() -> st.SearchStrategy[gym.Space[Any]]:
    discretes = st.builds(
        spaces.Discrete,
        n=st.integers(1, 100),
        start=st.integers(-20, 20),
        dtype=st.sampled_from([np.int64, np.int32, np.int8]),
    )
    binaries = st.builds(spaces.MultiBinary, st.integers(1, 5) | st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return st.one_of(boxes(), discretes, multi_discretes(), binaries, texts())


def any_spaces() -> st.SearchStrategy[gym.Space[Any]]:
    names = st.text(string.ascii_letters + "_0/é", min_size=1, max_size=4).filter(lambda name: not name.startswith("_"))

    def composite(children: st.SearchStrategy[gym.Space[Any]]) -> st.SearchStrategy[gym.Space[Any]]:
        pairs = st.lists(st.tuples(names, children), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
        return pairs.map(spaces.Dict) | st.lists(children, min_size=1, max_size=3).map(spaces.Tuple)

    return st.recursive(leaf_spaces(), composite, max_leaves=4)


def values(space: gym.Space[Any], count: int, rng: np.random.Generator, *, infinite: bool = False) -> Any:
    """Nested arrays of `count` items in the structure, shape and dtype of `space`; any bit pattern but NaN."""
    match space:
        case spaces.Dict():
            return {key: values(child, count, rng, infinite=infinite) for key, child in space.spaces.items()}
        case spaces.Tuple():
            return tuple(values(child, count, rng, infinite=infinite) for child in space.spaces)
        case spaces.Text():
            lengths = rng.integers(space.min_length, space.max_length, count, endpoint=True)
            letters = sorted(space.character_set)
            return np.array(["".join(rng.choice(letters, length)) for length in lengths], dtype=f"<U{space.max_length}")
    dtype, shape = np.dtype(space.dtype), (count, *(space.shape or ()))
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    bits = np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape).copy()
    if dtype.kind == "f":
        bits[np.isnan(bits) if infinite else ~np.isfinite(bits)] = 0.5
        bits[rng.random(shape) < 0.1] = np.inf if infinite else 0.25
    return bits


def info_values() -> st.SearchStrategy[Any]:
    """What an info or custom data may hold, `{}` and int keys included."""
    arrays = st.sampled_from(
        [
            np.arange(3),
            np.zeros((0, 2), np.float32),
            np.array(7, np.uint8),
            np.array([[1.5, np.nan]]),
            np.array(["a", "bcd"]),
            np.array([True, False]),
            np.asfortranarray(np.arange(6).reshape(2, 3)),
            np.array([(1, 2.5)], [("a", "<i4"), ("b", "<f8")]),
            np.array([1 + 2j]),
        ]
    )
    scalars = st.sampled_from([np.float32(0.1), np.float64(0.1), np.int16(-3), np.bool_(True), np.str_("s"), np.complex64(1j)])
    plain = (
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
    )
    leaf = plain | arrays | scalars | st.complex_numbers(allow_nan=False)
    keys = st.text(max_size=4) | st.integers(-5, 5)
    return st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=5
    )


def info_dicts() -> st.SearchStrategy[dict[Any, Any]]:
    return st.just({}) | st.dictionaries(st.text(max_size=4) | st.integers(-5, 5), info_values(), max_size=3)


@st.composite
def episode_lists(
    draw: st.DrawFn,
    *,
    count: st.SearchStrategy[int],
    steps: st.SearchStrategy[int],
    lookback: st.SearchStrategy[int],
    spaces_known: st.SearchStrategy[bool] | None = None,
) -> list[Episode]:
    """Episodes of one environment and one policy: the same spaces, the same extras."""
    observation_space, action_space = draw(any_spaces()), draw(any_spaces())
    extra_names = st.sampled_from(["action_logp", "action_dist_inputs", "state_out", "weights_seq_no"])
    extra_spaces = draw(st.dictionaries(extra_names, any_spaces(), max_size=2))
    known = spaces_known is None or draw(spaces_known)

    def episode(number: int) -> Episode:
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        before, length = draw(lookback), draw(steps)
        items = before + length
        infos = draw(st.none() | st.lists(info_dicts(), min_size=items + 1, max_size=items + 1))
        terminated, truncated = draw(st.sampled_from([(False, False), (True, False), (False, True), (True, True)]))
        return Episode(
            eps_id=f"{number}-{draw(st.text(st.characters(codec='utf-8'), max_size=4))}",
            observations=values(observation_space, items + 1, rng, infinite=True),
            actions=values(action_space, items, rng),
            rewards=values(spaces.Box(-1, 1, (), draw(st.sampled_from([np.float64, np.float32]))), items, rng),
            infos=infos,
            extras={name: values(space, items, rng, infinite=True) for name, space in extra_spaces.items()},
            terminated=terminated,
            truncated=truncated,
            t_started=draw(st.integers(0, 2**40)),
            lookback=before,
            observation_space=observation_space if known else None,
            action_space=action_space if known else None,
            agent_id=draw(st.none() | st.text(max_size=3)),
            module_id=draw(st.none() | st.text(max_size=3)),
            custom_data=draw(info_dicts()),
        )

    return [episode(number) for number in range(draw(count))]


def leaves(episode: Episode) -> list[np.ndarray]:
    """All arrays of an episode, in an order that two equal episodes share."""
    trees: Sequence[Any] = (episode.observations, episode.actions, episode.rewards, episode.extras)
    return [leaf for tree in trees for leaf in nested.leaves(tree)]
