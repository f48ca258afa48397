"""Episodes ⇄ the step table: one row a step, sorted by episode and time, with the columns of `columns.py`.

Row t of an episode holds (obs[t], actions[t]) → (rewards[t], new_obs[t], terminateds[t], truncateds[t], infos[t+1]).
No loop over steps in either direction. Lookback items are context and not steps; they are not stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import read_column, to_arrow
from offline_core.data.episodes.batch import EpisodeBatch, run_starts
from offline_core.data.episodes.codec import pack, unpack
from offline_core.data.episodes.episode import Episode
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import space_from_json, space_to_json
from offline_core.data.episodes.steps import step_column
from offline_core.errors import EpisodeError, SchemaError, SpaceError
from offline_core.runtime.units import count_text

_SPACE_KEYS = {"observation": b"offline.observation_space", "action": b"offline.action_space"}
_NULLABLE = {columns.AGENT_ID, columns.MODULE_ID, columns.RESET_INFOS, columns.CUSTOM_DATA}


def episodes_to_table(episodes: Sequence[Episode]) -> pa.Table:
    """The steps of `episodes`, in that order; of one episode no two pieces, as `table_to_episodes` would join them.

    Raises:
        EpisodeError: there is none, one has no steps, or they differ in structure or extras.
        SpaceError: a value cannot be an Arrow column.
    """
    if not episodes:
        raise EpisodeError("There are no episodes to make a table of.")
    first = episodes[0]
    for episode in episodes:
        if len(episode) == 0:
            raise EpisodeError(f"Episode {episode.eps_id} has no steps and so no rows; use the episode format or drop it.")
        if episode.extras.keys() != first.extras.keys():
            raise EpisodeError(
                f"Episode {episode.eps_id} has extras {sorted(episode.extras)}, episode {first.eps_id} has "
                f"{sorted(first.extras)}; one table needs the same columns for all."
            )
    lengths = [len(episode) for episode in episodes]
    starts = np.cumsum([0, *lengths[:-1]])

    def column(name: str) -> pa.Array:
        try:
            return to_arrow(step_column(episodes, name), name)
        except ValueError as error:
            raise EpisodeError(f"The episodes do not agree on the shape of {name}: {error}.") from error

    def per_episode(values: list[str | None]) -> pa.Array:
        return pa.array(values, pa.string()).take(pa.array(np.repeat(np.arange(len(episodes)), lengths)))

    def first_row_only(values: list[dict[Any, Any]], name: str) -> pa.Array:
        cells: list[bytes | None] = [None] * sum(lengths)
        for start, value in zip(starts, values, strict=True):
            cells[start] = pack(value, where=name) if value else None
        return pa.array(cells, pa.binary())

    table: dict[str, pa.Array] = {
        columns.EPS_ID: per_episode([e.eps_id for e in episodes]),
        columns.AGENT_ID: per_episode([e.agent_id for e in episodes]),
        columns.MODULE_ID: per_episode([e.module_id for e in episodes]),
    }
    in_every_step = (columns.T, columns.OBS, columns.ACTIONS, columns.REWARDS, columns.NEW_OBS)
    table |= {name: column(name) for name in (*in_every_step, columns.TERMINATEDS, columns.TRUNCATEDS)}
    if any(e.infos is not None for e in episodes):
        cells = [pack(info, where=columns.INFOS) for e in episodes for info in e.get_infos(slice(1, len(e) + 1))]
        table[columns.INFOS] = pa.array(cells, pa.binary())
        table[columns.RESET_INFOS] = first_row_only([e.get_infos(0) for e in episodes], columns.RESET_INFOS)
    if any(e.custom_data for e in episodes):
        table[columns.CUSTOM_DATA] = first_row_only([e.custom_data for e in episodes], columns.CUSTOM_DATA)
    for name in first.extras:
        if name in columns.STEP_COLUMNS:
            raise EpisodeError(f"An extra output may not be called {name!r}: that is a column of its own.")
        table[name] = column(name)
    fields = [pa.field(name, array.type, nullable=name in _NULLABLE) for name, array in table.items()]
    metadata = space_metadata(first.observation_space, first.action_space)
    return pa.Table.from_arrays(list(table.values()), schema=pa.schema(fields, metadata=metadata))


def table_to_episodes(table: pa.Table) -> list[Episode]:
    """The episodes of a step table whose rows are sorted by episode and time.

    Raises:
        SchemaError: a column is missing, or holds what it cannot hold: nulls, ragged lists, text for numbers.
        EpisodeError: rows are out of order, an end stands inside an episode, or `new_obs` contradicts the next `obs`.
    """
    required = set(columns.STEP_COLUMNS[:10]) - {columns.AGENT_ID, columns.MODULE_ID}
    if missing := required - set(table.column_names):
        raise SchemaError(f"A step table needs the columns {sorted(missing)}; it has {table.column_names}.")
    if table.num_rows == 0:
        return []
    ids = _ids(table)
    starts = run_starts(ids)
    eps_ids: list[str] = ids.take(pa.array(starts)).to_pylist()
    if len(set(eps_ids)) != len(eps_ids):
        twice = next(eps_id for i, eps_id in enumerate(eps_ids) if eps_id in eps_ids[:i])
        raise EpisodeError(f"The rows of episode {twice} are not together; sort the table by eps_id and t.")
    t = one_a_step(table, columns.T)
    steps: dict[str, Nested] = {columns.REWARDS: one_a_step(table, columns.REWARDS)}
    steps |= {name: one_a_step(table, name).astype(bool) for name in (columns.TERMINATEDS, columns.TRUNCATEDS)}
    follows = np.delete(np.arange(len(ids)), starts)  # the rows that are not the first of their episode
    if (row := _first(follows, t[follows] != t[follows - 1] + 1)) is not None:
        raise EpisodeError(f"Episode {ids[row]} jumps from step {t[row - 1]} to {t[row]}; sort the table, or find the rows.")
    if (row := _first(follows, (steps[columns.TERMINATEDS] | steps[columns.TRUNCATEDS])[follows - 1])) is not None:
        raise EpisodeError(f"Episode {ids[row]} goes on after it ended at step {t[row - 1]}.")

    def check_chain(obs: np.ndarray, new_obs: np.ndarray) -> None:
        now, before = obs[follows], new_obs[follows - 1]
        if not nested.array_equal(now, before):
            differ = ((now != before) & ((now == now) | (before == before))).reshape(len(now), -1).any(axis=1)
            row = int(follows[np.argmax(differ)])
            raise EpisodeError(f"Episode {ids[row]}: new_obs of step {t[row - 1]} is not obs of step {t[row]}.")

    steps |= {name: read_column(table, name) for name in (columns.OBS, columns.NEW_OBS)}
    check_shapes(steps)
    nested.map_leaves(check_chain, steps[columns.OBS], steps[columns.NEW_OBS])
    extras = [name for name in table.column_names if name not in columns.STEP_COLUMNS]
    steps |= {name: read_column(table, name) for name in (columns.ACTIONS, *extras)}
    observation_space, action_space = spaces_of(table.schema)
    batch = EpisodeBatch(
        columns=steps,
        offsets=np.append(starts, len(ids)),
        eps_ids=eps_ids,
        t_started=t[starts],
        observation_space=observation_space,
        action_space=action_space,
    )
    return batch.episodes(_details(table, starts))


def one_a_step(table: pa.Table, name: str) -> np.ndarray:
    """A column (N,) of numbers; of whole ones, if it is `t`.

    Raises:
        SchemaError: it is none.
    """
    values, kinds = read_column(table, name), "iu" if name == columns.T else "biuf"
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
        wanted = "integer" if kinds == "iu" else "number"
        raise SchemaError(f"Column {name!r} has type {table[name].type}; it has to hold one {wanted} a step.")
    return values


def check_shapes(steps: dict[str, Nested]) -> None:
    """Raises a SchemaError if columns `obs` and `new_obs` differ in structure or shape."""
    shapes, new_shapes = (
        nested.map_leaves(lambda array: array.shape[1:], steps[name]) for name in (columns.OBS, columns.NEW_OBS)
    )
    if shapes != new_shapes:
        raise SchemaError(f"Columns obs and new_obs have steps of different shapes: {shapes} and {new_shapes}.")


def space_metadata(observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None) -> dict[bytes, bytes] | None:
    """Schema metadata that keeps the spaces with the table."""
    both = {"observation": observation_space, "action": action_space}
    found = {_SPACE_KEYS[k]: json.dumps(space_to_json(s)).encode() for k, s in both.items() if s is not None}
    return found or None


def stated_spaces(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    """The part of a file's metadata that keeps the spaces, None if there is none."""
    metadata = metadata or {}
    return {key: metadata[key] for key in _SPACE_KEYS.values() if key in metadata} or None


def spaces_of(schema: pa.Schema) -> tuple[gym.Space[Any] | None, gym.Space[Any] | None]:
    """(observation space, action space) that `space_metadata` stored, None where there is none."""
    metadata = schema.metadata or {}
    stored = (metadata.get(_SPACE_KEYS[which]) for which in ("observation", "action"))
    try:
        observation, action = (None if text is None else space_from_json(json.loads(text)) for text in stored)
    except ValueError as error:
        raise SpaceError(f"The spaces in the metadata of a table cannot be read: {error}.") from error
    return observation, action


def _details(table: pa.Table, starts: np.ndarray) -> list[dict[str, Any]]:
    """What each episode has besides columns of numbers."""
    stops = [*starts[1:].tolist(), table.num_rows]
    first_rows = table.select([name for name in table.column_names if name in _NULLABLE]).take(pa.array(starts))

    def of_first_rows(name: str, nothing: Any) -> list[Any]:
        if name not in first_rows.column_names:
            return [nothing] * len(starts)
        return first_rows[name].to_pylist() if nothing is None else _maps(first_rows, name)

    found = [
        {"agent_id": agent_id, "module_id": module_id, "custom_data": dict(custom_data)}
        for agent_id, module_id, custom_data in zip(
            of_first_rows(columns.AGENT_ID, None),
            of_first_rows(columns.MODULE_ID, None),
            of_first_rows(columns.CUSTOM_DATA, {}),
            strict=True,
        )
    ]
    if columns.INFOS in table.column_names:
        infos = _maps(table, columns.INFOS)
        for each, reset, start, stop in zip(found, of_first_rows(columns.RESET_INFOS, {}), starts, stops, strict=True):
            own_infos = [reset, *infos[start:stop]]
            each["infos"] = own_infos if any(own_infos) else None
    return found


def _ids(table: pa.Table) -> pa.Array:
    column = table[columns.EPS_ID]
    if column.null_count:
        nulls = count_text(column.null_count, "null")
        raise SchemaError(f"Column {columns.EPS_ID!r} has {nulls}; every step has to belong to an episode.")
    try:
        return column.cast(pa.string()).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"Column {columns.EPS_ID!r} has type {column.type}, which cannot name episodes.") from error


def _first(rows: np.ndarray, wrong: np.ndarray) -> int | None:
    """The first of `rows` that is wrong."""
    found = np.flatnonzero(wrong)
    return int(rows[found[0]]) if found.size else None


def _maps(table: pa.Table, name: str) -> list[dict[Any, Any]]:
    """A column of dicts, packed by `episodes_to_table` or as structs; null is an empty one."""
    kind, cells = table[name].type, table[name].to_pylist()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        cells = [None if cell is None else unpack(cell) for cell in cells]
    if not all(cell is None or isinstance(cell, dict) for cell in cells):
        raise SchemaError(f"Column {name!r} has type {kind}; it has to hold dicts: msgpack bytes, or structs.")
    return [cell or {} for cell in cells]
