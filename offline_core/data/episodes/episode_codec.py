"""The format `episodes`: a row an episode, its bytes in column `item` as RLlib keeps them, and its index beside them.

The bytes are msgpack, numpy values as msgpack-numpy packs them.

Written is the numpy form (whole arrays), which RLlib reads, is a third of the size of the list form that RLlib's recorder
writes, and decodes some seventy times as fast. Both forms are read, with bytes or str keys, with any lookback, from any
Ray version that stored episode states. Nothing that is read can run code: pickles inside go through
`offline_core.data.episodes.unpickle`.

Format: Ray 2.60, `SingleAgentEpisode.get_state` and `InfiniteLookbackBuffer.get_state`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import msgpack
import msgpack_numpy
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.batch import EpisodeBatch
from offline_core.data.episodes.episode import Episode
from offline_core.data.episodes.index import SCHEMA, Read, Share, content_of, episode_summary, policy_of, success_of
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import space_from_json, space_metadata, space_to_json
from offline_core.data.episodes.unpickle import load_array
from offline_core.errors import ConfigError, CorruptFileError, DataError, EpisodeError, UnsafeDataError, within

_OF_STEPS = (
    *(columns.OBS, columns.NEW_OBS, columns.ACTIONS, columns.REWARDS),
    *(columns.T, columns.TERMINATEDS, columns.TRUNCATEDS),
)


class EpisodeCodec:
    """A codec; see `Codec`."""

    name: Literal["episodes"] = "episodes"
    needs_import = False
    metadata = columns.EPISODE_METADATA

    def rows_of(self, lengths: np.ndarray) -> np.ndarray:
        return np.ones(len(lengths), np.int64)

    def encode(self, episodes: Sequence[Episode]) -> pa.Table:
        items = pa.array([encode(episode) for episode in episodes], pa.binary())
        metadata: dict[str, Any] = dict(episode_summary(episodes))
        metadata[columns.SUCCESS] = [success_of(e.get_infos(-1)) if len(e) else None for e in episodes]
        metadata[columns.POLICY_ID] = [policy_of(e.custom_data) for e in episodes]
        metadata[columns.CONTENT] = [content_of(e) for e in episodes]
        rows = pa.table(metadata, schema=SCHEMA)
        rows = rows.add_column(0, pa.field(columns.ITEM, items.type, nullable=False), items)
        return rows.replace_schema_metadata(space_metadata(episodes[0].observation_space, episodes[0].action_space))

    def encoded(self, episodes: Sequence[Episode], share: Share) -> Iterator[tuple[pa.Table, int, int]]:
        return self.shared(self.encode(episodes), {}, share)

    def shared(self, rows: pa.Table, summary: Mapping[str, np.ndarray], share: Share) -> Iterator[tuple[pa.Table, int, int]]:
        rows = _complete(rows)
        sizes = pc.binary_length(rows[columns.ITEM]).to_numpy()
        for start, stop in share(self.rows_of(sizes), sizes, np.arange(len(sizes))):
            yield rows.slice(start, stop - start), start, stop

    def numbers(self, rows: pa.Table) -> None:
        return None

    def stored(self, names: Sequence[str] | None) -> Sequence[str]:
        return (columns.ITEM,)

    def projection(self, names: Sequence[str], schema: pa.Schema, uri: str) -> Sequence[str]:
        raise ConfigError("Columns can be chosen in table format only; in episode format an episode is one value.")

    def starts(self, rows: pa.Table) -> np.ndarray:
        return np.arange(rows.num_rows)

    def episodes(self, rows: pa.Table, only: np.ndarray | None = None) -> list[Episode]:
        items = rows[columns.ITEM]
        return [decode(item) for item in (items if only is None else items.filter(pa.array(only))).to_pylist()]

    def batch(self, rows: pa.Table, names: Sequence[str], *, has_last: bool) -> EpisodeBatch:
        return EpisodeBatch.of([episode for episode in self.episodes(rows) if len(episode)], names, has_last=has_last)

    def as_stored(self, tables: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[EpisodeBatch, list[str]]]:
        for uri, rows in tables:
            with within(uri=uri):
                episodes = self.episodes(rows)
            for _, alike in itertools.groupby(episodes, lambda e: (e.types, e.observation_space, e.action_space)):
                group = list(alike)
                yield EpisodeBatch.of(group, [*_OF_STEPS, *group[0].extras]), [content_of(episode) for episode in group]

    def index(self, names: Sequence[str], read: Read) -> pa.Table:
        index = _complete(read(list(dict.fromkeys([*names, columns.EPS_ID]))))
        if columns.CONTENT in names and index[columns.CONTENT].null_count:
            contents = [content_of(episode) for episode in self.episodes(read([columns.ITEM]))]
            position = index.schema.get_field_index(columns.CONTENT)
            index = index.set_column(position, SCHEMA.field(columns.CONTENT), pa.array(contents, pa.string()))
        return index.select(list(names))

    def firsts(self, name: str, read: Read) -> list[object]:
        values = (episode.extras.get(name) for episode in self.episodes(read([columns.ITEM])))
        return [value[0].tolist() if isinstance(value, np.ndarray) and len(value) else None for value in values]

    def constants(self, name: str, read: Read) -> list[object]:
        values = (episode.extras.get(name) for episode in self.episodes(read([columns.ITEM])))
        return [_constant(value) if isinstance(value, np.ndarray) else None for value in values]


def _complete(rows: pa.Table) -> pa.Table:
    """The rows with every column of the index: null in those that files from before them lack."""
    for field in SCHEMA:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def _constant(values: np.ndarray) -> object:
    """The value of all steps, with NaN as equal to itself as in step tables; None if there are several or none."""
    if not len(values):
        return None
    first = values[0]
    same = (values == first) | ((values != values) & (first != first))
    return (first.tolist() if isinstance(first, (np.generic, np.ndarray)) else first) if same.all() else None


def encode(episode: Episode) -> bytes:
    """The bytes of one episode, readable by RLlib's `SingleAgentEpisode.from_state` and by `decode`.

    Raises:
        EpisodeError: something in it (an info, as a rule) is neither number, text, array nor a container of them.
    """

    def buffer(data: Nested) -> dict[str, Any]:
        return {"data": data, "lookback": episode.lookback, "finalized": True, "space": None}

    items = episode.lookback + len(episode) + 1
    infos = [{}] * items if episode.infos is None else list(episode.infos)
    spaces = [None if space is None else space_to_json(space) for space in (episode.observation_space, episode.action_space)]
    state = {
        "id_": episode.eps_id,
        "agent_id": episode.agent_id,
        "module_id": episode.module_id,
        "multi_agent_episode_id": None,
        "observations": buffer(episode.observations),
        "actions": buffer(episode.actions),
        "rewards": buffer(episode.rewards),
        "infos": {"data": infos, "lookback": episode.lookback, "finalized": False, "space": None},
        "extra_model_outputs": {name: buffer(tree) for name, tree in episode.extras.items()} or None,
        "is_terminated": episode.terminated,
        "is_truncated": episode.truncated,
        "t_started": episode.t_started,
        "t": episode.t,
        "_observation_space": spaces[0],
        "_action_space": spaces[1],
        "_start_time": None,
        "_last_step_time": None,
        "custom_data": episode.custom_data,
    }
    return pack(state, where=f"Episode {episode.eps_id}")


def decode(data: bytes) -> Episode:
    """The episode in `data`; its arrays are read-only wherever they were stored as arrays.

    Raises:
        CorruptFileError: not the bytes of an episode.
        EpisodeError: an episode, but not a whole one.
        UnsafeDataError: it holds a pickle that is more than a numeric array.
    """
    state = _state(data)
    missing = {"id_", "observations", "actions", "rewards", "infos", "is_terminated", "is_truncated"} - state.keys()
    if missing:
        raise CorruptFileError(f"An episode lacks {sorted(missing)}; it has {sorted(map(str, state))[:20]}.")
    eps_id = str(state["id_"])
    try:
        return _from_state(eps_id, state)
    except DataError as error:
        raise error.within(f"Episode {eps_id}", episode=eps_id) from error
    except Exception as error:  # whatever a foreign state is wrong about, down to nesting too deep to walk
        raise CorruptFileError(f"Episode {eps_id} cannot be read: {error!r}.") from error


def _state(data: bytes) -> dict[str, Any]:
    """The top-level map, its infos None when they are all empty: half of the decoding time went into those dicts."""
    unpacker = msgpack.Unpacker(None, max_buffer_size=max(len(data), 1), object_hook=_decode_numpy, strict_map_key=False)
    unpacker.feed(data)
    state: dict[str, Any] = {}
    try:
        for _ in range(unpacker.read_map_header()):
            key = unpacker.unpack()
            if key == "infos":
                start = unpacker.tell()
                unpacker.skip()
                infos = data[start : unpacker.tell()]
                state[key] = None if _EMPTY_INFOS.fullmatch(infos) else unpack(infos)
            else:
                state[key] = unpacker.unpack()
        if unpacker.tell() != len(data):
            raise CorruptFileError(f"{len(data)} bytes hold an episode of {unpacker.tell()}; the rest belongs to nothing.")
    except DataError:
        raise
    except Exception as error:  # msgpack raises a dozen kinds, and hostile bytes more
        raise CorruptFileError(f"{len(data)} bytes are not a stored episode: {error!r}.") from error
    return state


_EMPTY_INFOS = re.compile(
    rb"\x84\xa4data(?:[\x91-\x9f]|\xdc..|\xdd....)\x80+\xa8lookback\x00\xa9finalized[\xc2\xc3]\xa5space\xc0", re.DOTALL
)
"""msgpack of {"data": [{}, {}, …], "lookback": 0, "finalized": …, "space": nil}."""


def pack(value: Any, *, where: str) -> bytes:
    """msgpack bytes of plain containers, numbers, text and numpy values.

    Raises:
        EpisodeError: there is something else in it.
    """
    try:
        return msgpack.packb(value, default=_encode_numpy)  # type: ignore[no-any-return]
    except (TypeError, ValueError, OverflowError) as error:
        raise EpisodeError(
            f"{where} holds a value that cannot be stored: {error}. Infos take numbers, text, arrays, lists, dicts."
        ) from error


def unpack(data: bytes) -> Any:
    """The value in msgpack bytes; arrays are read-only, tuples come back as lists.

    Raises:
        CorruptFileError: `data` is not msgpack.
        UnsafeDataError: it holds a pickle that is more than a numeric array.
    """
    try:
        return msgpack.unpackb(data, object_hook=_decode_numpy, strict_map_key=False)
    except DataError:
        raise
    except Exception as error:  # msgpack raises a dozen kinds, and hostile bytes more
        raise CorruptFileError(f"{len(data)} bytes are not a stored episode: {error!r}.") from error


def _encode_numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        raise TypeError(f"an array of Python objects, shape {value.shape}")
    encoded = msgpack_numpy.encode(value)
    if encoded is value:
        raise TypeError(f"a {type(value).__name__}")
    return encoded


def _decode_numpy(value: dict[Any, Any]) -> Any:
    if b"nd" in value:
        return _array(value[b"nd"], value[b"type"], value.get(b"kind", b""), value.get(b"shape"), value[b"data"])
    if b"complex" in value:
        return complex(value[b"data"])
    if "nd" in value and "type" in value and "data" in value:
        return _array(value["nd"], value["type"], value.get("kind", b""), value.get("shape"), value["data"])
    return value


def _array(is_array: bool, dtype: Any, kind: Any, shape: Any, data: Any) -> Any:
    if kind in (b"O", "O"):
        return load_array(data)
    if kind in (b"V", "V"):
        dtype = [_record_field(entry) for entry in dtype]
    resolved = np.dtype(_text(dtype))
    if resolved.hasobject:
        raise UnsafeDataError(f"A stored array has dtype {resolved}, Python objects; refused.")
    if isinstance(data, str):
        data = data.encode("latin1")
    array = np.frombuffer(data, dtype=resolved) if data else np.empty(0, resolved)
    return array.reshape(shape) if is_array else array[0]


def _record_field(entry: list[Any]) -> tuple[Any, ...]:
    """(name, type, shape if any) as numpy wants it: msgpack has made lists of the tuples in it."""
    name, kind, *shape = entry
    return (
        _text(name),
        [_record_field(inner) for inner in kind] if isinstance(kind, list) else _text(kind),
        *map(tuple, shape),
    )


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _from_state(eps_id: str, state: dict[str, Any]) -> Episode:
    observation_space, action_space = (_space(state, key) for key in ("observation", "action"))
    lookback = int(state["observations"].get("lookback") or 0)
    buffers = state.get("extra_model_outputs") or {}
    infos = state["infos"]["data"] if state["infos"] else ()
    rewards = state["rewards"]["data"]
    episode = Episode(
        eps_id=eps_id,
        observations=_tree(state["observations"], "observations", observation_space),
        actions=_tree(state["actions"], "actions", action_space),
        rewards=rewards if isinstance(rewards, np.ndarray) else np.asarray(rewards, np.float64),
        infos=_checked_infos(infos) if any(infos) else None,
        extras={str(name): _tree(buffer, str(name)) for name, buffer in buffers.items()},
        terminated=bool(state["is_terminated"]),
        truncated=bool(state["is_truncated"]),
        t_started=int(state.get("t_started") or 0),
        lookback=lookback,
        observation_space=observation_space,
        action_space=action_space,
        agent_id=_optional_text(state.get("agent_id")),
        module_id=_optional_text(state.get("module_id")),
        custom_data=dict(state.get("custom_data") or {}),
    )
    if problems := episode.length_problems():
        raise EpisodeError(f"{'; '.join(problems)}.")
    for what in ("actions", "rewards", "infos"):
        buffer = state[what]
        if buffer and int(buffer.get("lookback") or 0) != lookback:
            raise EpisodeError(f"{what} have a lookback of {buffer.get('lookback')}, observations one of {lookback}.")
    return episode


def _space(state: dict[str, Any], which: str) -> Any:
    stored = state.get(f"_{which}_space") or state[f"{which}s"].get("space")
    return None if stored is None else space_from_json(stored)


def _checked_infos(infos: Any) -> list[dict[str, Any]]:
    checked = [{} if info is None else info for info in infos]
    for info in checked:
        if not isinstance(info, dict):
            raise EpisodeError(f"infos hold {type(info).__name__} where a dict has to be.")
    return checked


def _tree(buffer: dict[str, Any], what: str, space: Any = None) -> Nested:
    data = buffer["data"]
    if not buffer.get("finalized"):
        return nested.stack(data, what) if data else _nothing(space)
    return _tuples(data, what)


def _nothing(space: gym.Space[Any] | None) -> Nested:
    """The arrays of no steps at all."""
    match space:
        case gym.spaces.Dict():
            return {key: _nothing(child) for key, child in space.spaces.items()}
        case gym.spaces.Tuple():
            return tuple(map(_nothing, space.spaces))
    return np.empty((0, *(getattr(space, "shape", None) or ())), getattr(space, "dtype", None) or np.float32)


def _tuples(data: Any, what: str) -> Nested:
    """msgpack gives lists for tuples; a leaf that is no array is one numpy scalar too few to be a time series."""
    if isinstance(data, dict):
        return {str(key): _tuples(child, f"{what}/{key}") for key, child in data.items()}
    if isinstance(data, list | tuple):
        return tuple(_tuples(child, f"{what}/{i}") for i, child in enumerate(data))
    if not isinstance(data, np.ndarray):
        raise EpisodeError(f"{what} are {type(data).__name__} where an array has to be.")
    return data


def _optional_text(value: Any) -> str | None:
    return None if value is None else str(value)
