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
from offline_core.episodes.arrow import from_arrow, to_arrow
from offline_core.episodes.codec import pack, unpack
from offline_core.episodes.episode import Episode
from offline_core.episodes.nested import Nested
from offline_core.episodes.spaces import space_from_json, space_to_json
from offline_core.errors import EpisodeError, SchemaError

_SPACE_KEYS = {"observation": b"offline.observation_space", "action": b"offline.action_space"}


def episodes_to_table(episodes: Sequence[Episode]) -> pa.Table:
    """The steps of `episodes`, in that order.

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
        SchemaError: a column is missing.
        EpisodeError: rows are out of order, an end stands inside an episode, or `new_obs` contradicts the next `obs`.
    """
    required = set(columns.STEP_COLUMNS[:10]) - {columns.AGENT_ID, columns.MODULE_ID}
    if missing := required - set(table.column_names):
        raise SchemaError(f"A step table needs the columns {sorted(missing)}; it has {table.column_names}.")
    if table.num_rows == 0:
        return []
    ids = table[columns.EPS_ID].combine_chunks()
    changes = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    ends = np.concatenate([starts[1:], [len(ids)]]) - 1
    lengths = ends - starts + 1
    eps_ids: list[str] = ids.take(pa.array(starts)).to_pylist()
    t = from_arrow(table[columns.T], columns.T)
    inside = np.ones(len(ids), bool)
    inside[starts] = False
    _check_order(eps_ids, t, inside, starts)

    obs, new_obs = (from_arrow(table[name], name) for name in (columns.OBS, columns.NEW_OBS))
    observations = nested.map_leaves(lambda a, b: _with_last(a, b, inside, starts, ends), obs, new_obs)
    actions = from_arrow(table[columns.ACTIONS], columns.ACTIONS)
    rewards = from_arrow(table[columns.REWARDS], columns.REWARDS)
    terminateds, truncateds = (from_arrow(table[n], n) for n in (columns.TERMINATEDS, columns.TRUNCATEDS))
    if (early := np.flatnonzero((terminateds | truncateds)[:-1] & inside[1:])).size:
        episode = int(np.searchsorted(starts, early[0], side="right")) - 1
        raise EpisodeError(f"Episode {eps_ids[episode]} goes on after it ended at step {t[early[0]]}.")
    names = [name for name in table.column_names if name not in columns.STEP_COLUMNS]
    extras = {name: from_arrow(table[name], name) for name in names}
    infos = [unpack(cell) for cell in table[columns.INFOS].to_pylist()] if columns.INFOS in table.column_names else None
    first_rows = {
        name: [{} if cell is None else unpack(cell) for cell in table[name].take(pa.array(starts)).to_pylist()]
        for name in (columns.RESET_INFOS, columns.CUSTOM_DATA)
        if name in table.column_names
    }
    per_episode = {
        name: table[name].take(pa.array(starts)).to_pylist() if name in table.column_names else [None] * len(starts)
        for name in (columns.AGENT_ID, columns.MODULE_ID)
    }
    observation_space, action_space = spaces_of(table.schema)

    def episode(i: int) -> Episode:
        rows = slice(starts[i], starts[i] + lengths[i])
        with_last = slice(starts[i] + i, starts[i] + i + lengths[i] + 1)
        own_infos = None
        if infos is not None:
            own_infos = [first_rows.get(columns.RESET_INFOS, [{}] * len(starts))[i], *infos[rows]]
        return Episode(
            eps_id=eps_ids[i],
            observations=nested.map_leaves(lambda array: array[with_last], observations),
            actions=nested.map_leaves(lambda array: array[rows], actions),
            rewards=rewards[rows],
            infos=own_infos if own_infos is not None and any(own_infos) else None,
            extras=nested.map_leaves(lambda array: array[rows], extras),
            terminated=bool(terminateds[ends[i]]),
            truncated=bool(truncateds[ends[i]]),
            t_started=int(t[starts[i]]),
            observation_space=observation_space,
            action_space=action_space,
            agent_id=per_episode[columns.AGENT_ID][i],
            module_id=per_episode[columns.MODULE_ID][i],
            custom_data=first_rows.get(columns.CUSTOM_DATA, [{}] * len(starts))[i],
        )

    return [episode(i) for i in range(len(starts))]


def space_metadata(
    observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
) -> dict[bytes, bytes] | None:
    """Schema metadata that keeps the spaces with the table."""
    both = {"observation": observation_space, "action": action_space}
    found = {_SPACE_KEYS[k]: json.dumps(space_to_json(s)).encode() for k, s in both.items() if s is not None}
    return found or None


def spaces_of(schema: pa.Schema) -> tuple[gym.Space[Any] | None, gym.Space[Any] | None]:
    """(observation space, action space) that `space_metadata` stored, None where there is none."""
    metadata = schema.metadata or {}
    stored = (metadata.get(_SPACE_KEYS[which]) for which in ("observation", "action"))
    observation, action = (None if text is None else space_from_json(json.loads(text)) for text in stored)
    return observation, action


def _check_order(eps_ids: list[str], t: np.ndarray, inside: np.ndarray, starts: np.ndarray) -> None:
    if len(set(eps_ids)) != len(eps_ids):
        twice = next(eps_id for i, eps_id in enumerate(eps_ids) if eps_id in eps_ids[:i])
        raise EpisodeError(f"The rows of episode {twice} are not together; sort the table by eps_id and t.")
    if (jumps := np.flatnonzero((np.diff(t) != 1) & inside[1:])).size:
        episode = int(np.searchsorted(starts, jumps[0], side="right")) - 1
        raise EpisodeError(f"Episode {eps_ids[episode]} jumps from step {t[jumps[0]]} to {t[jumps[0] + 1]}; sort, or find the rows.")


def _with_last(obs: np.ndarray, new_obs: np.ndarray, inside: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """All observations of all episodes, T+1 of each, in one array: episode i starts at starts[i] + i."""
    follows = np.flatnonzero(inside)
    if not nested.array_equal(obs[follows], new_obs[follows - 1]):
        raise EpisodeError("Column new_obs is not the obs of the next row everywhere; the rows do not belong together.")
    every = np.empty((len(obs) + len(starts), *obs.shape[1:]), np.promote_types(obs.dtype, new_obs.dtype))
    every[np.arange(len(obs)) + np.cumsum(~inside) - 1] = obs
    every[ends + np.arange(len(starts)) + 1] = new_obs[ends]
    return every
