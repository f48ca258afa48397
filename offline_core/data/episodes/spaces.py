"""Gymnasium spaces: as JSON, and what of many values they contain.

The JSON is that of the very maps that RLlib stores inside its episodes; those written by hand are read as well.
"""

from __future__ import annotations

import base64
import functools
import io
import json
import math
import reprlib
import zlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import pyarrow as pa
from gymnasium import spaces

from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.errors import SpaceError

StoredSpaces: TypeAlias = tuple[gym.Space[Any] | None, gym.Space[Any] | None]
"""(observation space, action space), None where they are not known."""

MAX_PARTS = 1000
MAX_BOUNDS_BYTES = 256 * 2**20
"""Bounds that unpack to more than this are refused: a few bytes can claim terabytes."""

_SPACE_KEYS = {"observation": b"offline.observation_space", "action": b"offline.action_space"}
"""Keys of the spaces in the metadata of a table."""
_TOO_LARGE = f"The bounds of a stored space unpack to more than {MAX_BOUNDS_BYTES} bytes; refused."


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """A JSON-able map naming the space; `space_from_json` gives the space back.

    Raises:
        SpaceError: the space is none of Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple, Text.
    """
    match space:
        case spaces.Box():
            return {
                "space": "box",
                "low": _pack(space.low),
                "high": _pack(space.high),
                "shape": list(space.shape),
                "dtype": np.dtype(space.dtype).str,
            }
        case spaces.Discrete():
            discrete = {"space": "discrete", "n": int(space.n), "start": int(space.start)}
            return discrete if space.dtype == np.int64 else discrete | {"dtype": np.dtype(space.dtype).str}
        case spaces.MultiBinary():
            n = space.n
            return {"space": "multi-binary", "n": int(n) if isinstance(n, int | np.integer) else [int(i) for i in n]}
        case spaces.MultiDiscrete():
            packed = {"space": "multi-discrete", "nvec": _pack(space.nvec), "dtype": np.dtype(space.dtype).str}
            return packed | ({"start": space.start.tolist()} if space.start.any() else {})
        case spaces.Tuple():
            return {"space": "tuple", "spaces": [space_to_json(child) for child in space.spaces]}
        case spaces.Dict():
            if not all(isinstance(key, str) for key in space.spaces):
                raise SpaceError(f"The keys of a Dict space have to be text, found {list(space.spaces)}; wrap the environment.")
            return {"space": "dict", "spaces": {key: space_to_json(child) for key, child in space.spaces.items()}}
        case spaces.Text():
            return {
                "space": "text",
                "min_length": int(space.min_length),
                "max_length": int(space.max_length),
                "charset": "".join(sorted(space.character_set)),
            }
    raise SpaceError(
        f"{type(space).__name__} spaces cannot be stored. "
        "Wrap the environment so that it offers Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple or Text."
    )


def space_from_json(value: dict[str, Any]) -> gym.Space[Any]:
    """The space that `space_to_json`, RLlib or a user described; by hand, bounds are numbers or lists of numbers, and types
    are those that Gymnasium takes.

    Raises:
        SpaceError: the map is incomplete or names a space that is unknown.
    """
    try:
        if (text := json.dumps(value)).count('"space": ') > MAX_PARTS:
            raise SpaceError(f"A stored space has more than {MAX_PARTS:,} parts; refused.")
        return _from_json(text)
    except SpaceError:
        raise
    except KeyError as error:
        raise SpaceError(f"A space {reprlib.repr(value)} has no {error.args[0]!r}, which it needs.") from error
    except Exception as error:  # whatever a foreign map is wrong about
        raise SpaceError(f"A space cannot be read: {error!r} in {reprlib.repr(value)}.") from error


@functools.lru_cache(maxsize=256)  # every episode of a file repeats the same two spaces
def _from_json(text: str) -> gym.Space[Any]:
    return _build(json.loads(text))


def _build(value: dict[str, Any]) -> gym.Space[Any]:
    match value["space"]:
        case "box":
            dtype = np.dtype(value.get("dtype", np.float32))
            shape = tuple(value["shape"])
            low, high = (_bound(value[bound], shape, dtype) for bound in ("low", "high"))
            return spaces.Box(low=low, high=high, shape=shape, dtype=dtype.type)
        case "discrete":
            dtype = np.dtype(value.get("dtype", np.int64))
            return spaces.Discrete(n=value["n"], start=value.get("start", 0), dtype=dtype.type)
        case "multi-binary":
            return spaces.MultiBinary(value["n"])
        case "multi-discrete":
            dtype = np.dtype(value.get("dtype", np.int64))
            return spaces.MultiDiscrete(_array(value["nvec"], dtype), dtype=dtype.type, start=value.get("start"))
        case "tuple":
            return spaces.Tuple([_build(child) for child in value["spaces"]])
        case "dict":
            return spaces.Dict([(key, _build(child)) for key, child in value["spaces"].items()])  # a dict would be sorted
        case "text":
            return spaces.Text(value["max_length"], min_length=value["min_length"], charset=value["charset"])
    raise SpaceError(f"Spaces of kind {value['space']!r} are unknown here.")


def space_metadata(observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None) -> dict[bytes, bytes] | None:
    """Schema metadata that keeps the spaces with the table."""
    both = {"observation": observation_space, "action": action_space}
    metadata = {_SPACE_KEYS[k]: json.dumps(space_to_json(s)).encode() for k, s in both.items() if s is not None}
    return metadata or None


def stated_spaces(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    """The part of a file's metadata that keeps the spaces, None if there is none."""
    return {key: value for key, value in (metadata or {}).items() if key in _SPACE_KEYS.values()} or None


def spaces_of(schema: pa.Schema) -> StoredSpaces:
    """(observation space, action space) that `space_metadata` stored, None where there is none."""
    metadata = schema.metadata or {}
    stored = (metadata.get(_SPACE_KEYS[which]) for which in ("observation", "action"))
    try:
        observation, action = (None if text is None else space_from_json(json.loads(text)) for text in stored)
    except ValueError as error:
        raise SpaceError(f"The spaces in the metadata of a table cannot be read: {error}.") from error
    return observation, action


def space_leaves(space: gym.Space[Any] | None, prefix: str) -> dict[str, gym.Space[Any]]:
    """The spaces of the leaves, by the names that `flatten(…, prefix)` gives them; none without a space."""
    match space:
        case None:
            return {}
        case spaces.Dict():
            children: list[tuple[Any, gym.Space[Any]]] = list(space.spaces.items())
        case spaces.Tuple():
            children = list(enumerate(space.spaces))
        case _:
            return {prefix: space}
    of_children = (space_leaves(child, f"{prefix}{PATH_SEPARATOR}{key}") for key, child in children)
    return {name: leaf for leaves in of_children for name, leaf in leaves.items()}


def has_box(space: gym.Space[Any]) -> bool:
    """Whether a leaf of the space is a Box: what is drawn from it has a density, and not a probability."""
    return any(isinstance(leaf, spaces.Box) for leaf in space_leaves(space, "").values())


def outside(values: np.ndarray, space: gym.Space[Any]) -> np.ndarray:
    """Shape (N,), True for the values, of shape (N, …), that are not in the space; NaN is not looked at.

    Unlike `contains`, a value of another dtype is taken for what it means: 1.0 is in Discrete(2), and a float64 is compared
    with the bounds of a float32 Box as float32.

    Raises:
        SpaceError: a kind of space that cannot be stored either.
    """
    low: Any
    high: Any
    match space:
        case spaces.Text():
            texts, which = np.unique(values, return_inverse=True)
            return np.array([not space.contains(str(text)) for text in texts], bool)[which]
        case spaces.Box():
            low, high = space.low, space.high
            if values.dtype.kind == "f" and low.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    values = values.astype(low.dtype, copy=False)
        case _:
            if (bounds := discrete_bounds(space)) is None:
                raise SpaceError(f"Values cannot be compared with a {type(space).__name__} space.")
            low, high = bounds
    if values.shape[1:] != (space.shape or ()) or values.dtype.kind not in "biuf":
        return np.ones(len(values), bool)
    wrong = (values < low) | (values > high)
    if values.dtype.kind == "f" and np.dtype(space.dtype).kind != "f":
        wrong |= np.floor(values) < values
    return any_in_step(wrong)


def discrete_bounds(space: gym.Space[Any]) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value of each component of a discrete space; None for other spaces."""
    match space:
        case spaces.Discrete():
            return int(space.start), int(space.start) + int(space.n) - 1
        case spaces.MultiDiscrete():
            start = space.start.astype(np.int64)
            return start, start + space.nvec.astype(np.int64) - 1
        case spaces.MultiBinary():
            return 0, 1
    return None


def any_in_step(wrong: np.ndarray) -> np.ndarray:
    """Shape (N,): whether any of the numbers of a step, in (N, …), is True."""
    return np.asarray(wrong.any(axis=tuple(range(1, wrong.ndim))))


def _pack(array: np.ndarray) -> str:
    return _packed(array.tobytes(), array.dtype.str, array.shape)


@functools.lru_cache(maxsize=256)  # as above
def _packed(data: bytes, dtype: str, shape: tuple[int, ...]) -> str:
    buffer = io.BytesIO()
    np.save(buffer, np.frombuffer(data, dtype).reshape(shape), allow_pickle=False)
    return base64.b64encode(zlib.compress(buffer.getvalue())).decode("ascii")


def _bound(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    bound = _array(value, dtype)
    if bound.shape != ():
        return bound.reshape(shape)
    if math.prod(shape) * dtype.itemsize > MAX_BOUNDS_BYTES:
        raise SpaceError(_TOO_LARGE)
    return np.full(shape, bound)


def _array(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """What is packed, or written by hand: a number, or nested lists."""
    if isinstance(value, str):
        return _unpack(value)
    array = np.asarray(value, dtype)
    if array.dtype.kind != "f" and array.tolist() != value:
        raise SpaceError(f"A stored space has type {dtype}, which cannot hold {reprlib.repr(value)}.")
    return array


def _unpack(text: str) -> np.ndarray:
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(base64.b64decode(text), MAX_BOUNDS_BYTES)
    if decompressor.unconsumed_tail:
        raise SpaceError(_TOO_LARGE)
    return np.load(io.BytesIO(data), allow_pickle=False)  # type: ignore[no-any-return]
