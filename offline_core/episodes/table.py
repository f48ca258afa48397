"""Episodes ⇄ the step table: one row a step, sorted by episode and time, with the columns of `columns.py`.

Row t of an episode holds (obs[t], actions[t]) → (rewards[t], new_obs[t], terminateds[t], truncateds[t], infos[t+1]).
No loop over steps in either direction. Lookback items are context and not steps; they are not stored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.episodes import columns, nested
from offline_core.episodes.arrow import read_column, to_arrow
from offline_core.episodes.codec import pack, unpack
from offline_core.episodes.episode import Episode
from offline_core.episodes.nested import Nested
from offline_core.episodes.spaces import space_from_json, space_to_json
from offline_core.errors import EpisodeError, SchemaError, SpaceError

_SPACE_KEYS = {"observation": b"offline.observation_space", "action": b"offline.action_space"}


def episodes_to_table(episodes: Sequence[Episode]) -> pa.Table:
    """The steps of `episodes`, in that order; consecutive pieces of one episode are one again when they are read.

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
    lengths = np.array([len(episode) for episode in episodes])
    ends = np.cumsum(lengths) - 1

    def column(name: str, trees: list[Nested]) -> pa.Array:
        try:
            return to_arrow(nested.concatenate(trees), name)
        except ValueError as error:
            raise EpisodeError(f"The episodes do not agree on the shape of {name}: {error}.") from error

    def flags(values: list[bool]) -> pa.Array:
        steps = np.zeros(lengths.sum(), bool)
        steps[ends] = values
        return pa.array(steps)

    def per_episode(values: list[str | None]) -> pa.Array:
        return pa.array(values, pa.string()).take(pa.array(np.repeat(np.arange(len(episodes)), lengths)))

    def first_row_only(values: list[dict[Any, Any]], name: str) -> pa.Array:
        cells: list[bytes | None] = [None] * int(lengths.sum())
        for start, value in zip(ends + 1 - lengths, values, strict=True):
            cells[start] = pack(value, where=name) if value else None
        return pa.array(cells, pa.binary())

    t = np.arange(lengths.sum()) - np.repeat(ends + 1 - lengths - [e.t_started for e in episodes], lengths)
    table: dict[str, pa.Array] = {
        columns.EPS_ID: per_episode([e.eps_id for e in episodes]),
        columns.AGENT_ID: per_episode([e.agent_id for e in episodes]),
        columns.MODULE_ID: per_episode([e.module_id for e in episodes]),
        columns.T: pa.array(t.astype(np.int64)),
        columns.OBS: column(columns.OBS, [e.get_observations(slice(0, len(e))) for e in episodes]),
        columns.ACTIONS: column(columns.ACTIONS, [e.get_actions() for e in episodes]),
        columns.REWARDS: column(columns.REWARDS, [e.get_rewards() for e in episodes]),
        columns.NEW_OBS: column(columns.NEW_OBS, [e.get_observations(slice(1, len(e) + 1)) for e in episodes]),
        columns.TERMINATEDS: flags([e.terminated for e in episodes]),
        columns.TRUNCATEDS: flags([e.truncated for e in episodes]),
    }
    if any(e.infos is not None for e in episodes):
        steps = [info for e in episodes for info in e.get_infos(slice(1, len(e) + 1))]
        cells = [pack(info, where=columns.INFOS) for info in steps]
        table[columns.INFOS] = pa.array(cells, pa.binary())
        table[columns.RESET_INFOS] = first_row_only([e.get_infos(0) for e in episodes], columns.RESET_INFOS)
    if any(e.custom_data for e in episodes):
        table[columns.CUSTOM_DATA] = first_row_only([e.custom_data for e in episodes], columns.CUSTOM_DATA)
    for name in first.extras:
        if name in columns.STEP_COLUMNS:
            raise EpisodeError(f"An extra output may not be called {name!r}: that is a column of its own.")
        table[name] = column(name, [e.get_extra(name) for e in episodes])
    nullable = {columns.AGENT_ID, columns.MODULE_ID, columns.RESET_INFOS, columns.CUSTOM_DATA}
    fields = [pa.field(name, array.type, nullable=name in nullable) for name, array in table.items()]
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
    changes = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    ends = np.concatenate([starts[1:], [len(ids)]]) - 1
    eps_ids: list[str] = ids.take(pa.array(starts)).to_pylist()
    if len(set(eps_ids)) != len(eps_ids):
        twice = next(eps_id for i, eps_id in enumerate(eps_ids) if eps_id in eps_ids[:i])
        raise EpisodeError(f"The rows of episode {twice} are not together; sort the table by eps_id and t.")
    follows = np.delete(np.arange(len(ids)), starts)  # the rows that are not the first of their episode

    t = _one_a_step(table, columns.T, "iu")
    rewards = _one_a_step(table, columns.REWARDS, "biuf")
    terminateds, truncateds = (_one_a_step(table, n, "biuf").astype(bool) for n in (columns.TERMINATEDS, columns.TRUNCATEDS))
    if (row := _first(follows, t[follows] != t[follows - 1] + 1)) is not None:
        raise EpisodeError(f"Episode {ids[row]} jumps from step {t[row - 1]} to {t[row]}; sort the table, or find the rows.")
    if (row := _first(follows, (terminateds | truncateds)[follows - 1])) is not None:
        raise EpisodeError(f"Episode {ids[row]} goes on after it ended at step {t[row - 1]}.")

    def with_last(obs: np.ndarray, new_obs: np.ndarray) -> np.ndarray:
        """All observations of all episodes, T+1 of each, in one array: episode i starts at starts[i] + i."""
        now, before = obs[follows], new_obs[follows - 1]
        if not nested.array_equal(now, before):
            differ = ((now != before) & ((now == now) | (before == before))).reshape(len(now), -1).any(axis=1)
            row = int(follows[np.argmax(differ)])
            raise EpisodeError(f"Episode {ids[row]}: new_obs of step {t[row - 1]} is not obs of step {t[row]}.")
        every = np.empty((len(obs) + len(starts), *obs.shape[1:]), np.promote_types(obs.dtype, new_obs.dtype))
        every[np.arange(len(obs)) + np.repeat(np.arange(len(starts)), ends - starts + 1)] = obs
        every[ends + np.arange(len(starts)) + 1] = new_obs[ends]
        return every

    obs, new_obs = (read_column(table, name) for name in (columns.OBS, columns.NEW_OBS))
    shapes, new_shapes = (nested.map_leaves(lambda array: array.shape[1:], tree) for tree in (obs, new_obs))
    if shapes != new_shapes:
        raise SchemaError(f"Columns obs and new_obs have steps of different shapes: {shapes} and {new_shapes}.")
    observations = nested.map_leaves(with_last, obs, new_obs)
    actions = read_column(table, columns.ACTIONS)
    extras = {name: read_column(table, name) for name in table.column_names if name not in columns.STEP_COLUMNS}
    infos = _maps(table, columns.INFOS) if columns.INFOS in table.column_names else None
    observation_space, action_space = spaces_of(table.schema)

    names = {columns.AGENT_ID, columns.MODULE_ID, columns.RESET_INFOS, columns.CUSTOM_DATA} & set(table.column_names)
    first_rows = table.select(sorted(names)).take(pa.array(starts))
    reset_infos, custom_data = (
        _maps(first_rows, name) if name in names else [{} for _ in starts]
        for name in (columns.RESET_INFOS, columns.CUSTOM_DATA)
    )
    agent_ids, module_ids = (
        first_rows[name].to_pylist() if name in names else [None] * len(starts)
        for name in (columns.AGENT_ID, columns.MODULE_ID)
    )

    def episode(i: int) -> Episode:
        start, stop = int(starts[i]), int(ends[i]) + 1
        own_infos = None if infos is None else [reset_infos[i], *infos[start:stop]]
        return Episode(
            eps_id=eps_ids[i],
            observations=nested.map_leaves(lambda array: array[start + i : stop + i + 1], observations),
            actions=nested.map_leaves(lambda array: array[start:stop], actions),
            rewards=rewards[start:stop],
            infos=own_infos if own_infos is not None and any(own_infos) else None,
            extras=nested.map_leaves(lambda array: array[start:stop], extras),
            terminated=bool(terminateds[stop - 1]),
            truncated=bool(truncateds[stop - 1]),
            t_started=int(t[start]),
            observation_space=observation_space,
            action_space=action_space,
            agent_id=agent_ids[i],
            module_id=module_ids[i],
            custom_data=custom_data[i],
        )

    return [episode(i) for i in range(len(starts))]


def space_metadata(observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None) -> dict[bytes, bytes] | None:
    """Schema metadata that keeps the spaces with the table."""
    both = {"observation": observation_space, "action": action_space}
    found = {_SPACE_KEYS[k]: json.dumps(space_to_json(s)).encode() for k, s in both.items() if s is not None}
    return found or None


def spaces_of(schema: pa.Schema) -> tuple[gym.Space[Any] | None, gym.Space[Any] | None]:
    """(observation space, action space) that `space_metadata` stored, None where there is none."""
    metadata = schema.metadata or {}
    stored = (metadata.get(_SPACE_KEYS[which]) for which in ("observation", "action"))
    try:
        observation, action = (None if text is None else space_from_json(json.loads(text)) for text in stored)
    except ValueError as error:
        raise SpaceError(f"The spaces in the metadata of a table cannot be read: {error}.") from error
    return observation, action


def _ids(table: pa.Table) -> pa.Array:
    column = table[columns.EPS_ID]
    if column.null_count:
        raise SchemaError(f"Column {columns.EPS_ID!r} has {column.null_count} nulls; every step has to belong to an episode.")
    try:
        return column.cast(pa.string()).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"Column {columns.EPS_ID!r} has type {column.type}, which cannot name episodes.") from error


def _one_a_step(table: pa.Table, name: str, kinds: str) -> np.ndarray:
    values = read_column(table, name)
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
        wanted = "integer" if kinds == "iu" else "number"
        raise SchemaError(f"Column {name!r} has type {table[name].type}; it has to hold one {wanted} a step.")
    return values


def _first(rows: np.ndarray, wrong: np.ndarray) -> int | None:
    """The first of `rows` that is wrong."""
    found = np.flatnonzero(wrong)
    return int(rows[found[0]]) if found.size else None


def _maps(table: pa.Table, name: str) -> list[dict[Any, Any]]:
    """A column of dicts, as we pack them or as structs; null is an empty one."""
    kind, cells = table[name].type, table[name].to_pylist()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        cells = [None if cell is None else unpack(cell) for cell in cells]
    if not all(cell is None or isinstance(cell, dict) for cell in cells):
        raise SchemaError(f"Column {name!r} has type {kind}; it has to hold dicts: msgpack bytes, or structs.")
    return [cell or {} for cell in cells]
