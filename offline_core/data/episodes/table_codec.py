"""The format `table`: a row a step, sorted by episode and time, with the columns of `columns.py`.

Row t of an episode holds (obs[t], actions[t]) → (rewards[t], new_obs[t], terminateds[t], truncateds[t], infos[t+1]).
No loop over steps in either direction. Lookback items are context and not steps; they are not stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import read_column, to_arrow
from offline_core.data.episodes.batch import STEP_NAMES, EpisodeBatch, check_one_shape, run_starts, step_column
from offline_core.data.episodes.episode import Episode, return_of
from offline_core.data.episodes.episode_codec import pack, unpack
from offline_core.data.episodes.index import Read, Share, content_of, index_schema, policy_of, success_of
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import space_metadata, spaces_of
from offline_core.errors import EpisodeError, SchemaError, within
from offline_core.runtime.units import count_text

_NULLABLE = {columns.AGENT_ID, columns.MODULE_ID, columns.RESET_INFOS, columns.CUSTOM_DATA}


class TableCodec:
    """A codec; see `Codec`."""

    name: Literal["table"] = "table"
    needs_import = True
    metadata = tuple(name for name in columns.EPISODE_METADATA if name != columns.CONTENT)

    def rows_of(self, lengths: np.ndarray) -> np.ndarray:
        return lengths

    def encode(self, episodes: Sequence[Episode]) -> pa.Table:
        return episodes_to_table(episodes)

    def encoded(self, episodes: Sequence[Episode], share: Share) -> Iterator[tuple[pa.Table, int, int]]:
        lengths = np.array([len(episode) for episode in episodes])
        observations = sum(array.nbytes for array in nested.leaves(episodes[0].observations))  # stored again as new_obs
        per_row = (episodes[0].nbytes + observations) / max(1, lengths[0])
        names = np.array([episode.eps_id for episode in episodes], object)
        for start, stop in share(lengths, lengths * per_row, names):
            yield episodes_to_table(episodes[start:stop]), start, stop

    def shared(self, rows: pa.Table, summary: Mapping[str, np.ndarray], share: Share) -> Iterator[tuple[pa.Table, int, int]]:
        lengths = summary[columns.LENGTH]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        per_row = rows.nbytes / max(1, rows.num_rows)
        for start, stop in share(lengths, lengths * per_row, summary[columns.EPS_ID]):
            yield rows.slice(offsets[start], offsets[stop] - offsets[start]), start, stop

    def numbers(self, rows: pa.Table) -> dict[str, Nested]:
        names = {*columns.STATISTICS, *rows.column_names} - (set(columns.STEP_COLUMNS) - set(columns.STATISTICS))
        return {name: read_column(rows, name) for name in sorted(names)}

    def stored(self, names: Sequence[str] | None) -> Sequence[str] | None:
        return names

    def projection(self, names: Sequence[str], schema: pa.Schema, uri: str) -> Sequence[str]:
        if missing := sorted(set(names) - set(schema.names)):
            raise SchemaError(f"{uri} has no column {', '.join(missing)}; it has {', '.join(schema.names)}.")
        return [*columns.STEP_COLUMNS, *names]  # those that a file lacks are passed over

    def starts(self, rows: pa.Table) -> np.ndarray:
        """Row groups end where episodes end, so an id in two of them is of two episodes."""
        names = [name for name in (columns.ROW_GROUP, columns.EPS_ID) if name in rows.column_names]
        return np.unique(np.concatenate([run_starts(rows[name].combine_chunks()) for name in names]))

    def episodes(self, rows: pa.Table, only: np.ndarray | None = None) -> list[Episode]:
        episodes = table_to_episodes(rows)
        return episodes if only is None else list(itertools.compress(episodes, only))

    def batch(self, rows: pa.Table, names: Sequence[str], *, has_last: bool) -> EpisodeBatch:
        """Runs of one `eps_id` whose steps follow each other are the episodes; the row groups may be in any order."""
        if not rows.num_rows:
            return EpisodeBatch(columns={}, offsets=np.zeros(1, np.int64), has_last=has_last)
        jumps = np.flatnonzero(np.diff(read_column(rows, columns.T)) != 1) + 1
        starts = np.union1d(run_starts(rows[columns.EPS_ID].combine_chunks()), jumps)
        ends = np.append(starts[1:], rows.num_rows) - 1
        last = nested.map_leaves(lambda leaf: leaf[ends], read_column(rows, columns.NEW_OBS)) if has_last else None
        return EpisodeBatch.from_steps({name: read_column(rows, name) for name in names}, ends + 1 - starts, last)

    def as_stored(self, tables: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[EpisodeBatch, list[str]]]:
        for uri, rows in _whole_episodes(tables):
            with within(uri=uri):
                ids, t = _ids(rows), _one_a_step(rows, columns.T).astype(np.int64)
                # An episode whose t does not rise begins again.
                batch = _pieces(rows, ids, np.union1d(run_starts(ids), np.flatnonzero(np.diff(t) <= 0) + 1))
                contents = [content_of(episode) for episode in batch.episodes()]
            yield batch, contents

    def index(self, names: Sequence[str], read: Read) -> pa.Table:
        if {*names} <= {columns.EPS_ID, columns.ROW_GROUP}:
            rows = read([columns.EPS_ID])
            return rows.select(list(names)).take(pa.array(self.starts(rows)))
        more = {columns.SUCCESS: columns.INFOS, columns.POLICY_ID: columns.CUSTOM_DATA}
        summed = (columns.EPS_ID, columns.T, columns.REWARDS, columns.TERMINATEDS, columns.TRUNCATEDS)
        core = columns.STEP_CORE if columns.CONTENT in names else summed
        rows = read([*core, *(column for name, column in more.items() if name in names)])
        starts = self.starts(rows)
        ends = np.append(starts[1:], rows.num_rows)[: len(starts)]
        rewards = _one_a_step(rows, columns.REWARDS)
        index: dict[str, Any] = {
            columns.EPS_ID: rows[columns.EPS_ID].take(pa.array(starts)),
            columns.T_STARTED: _one_a_step(rows, columns.T)[starts],
            columns.LENGTH: ends - starts,
            columns.RETURN: [return_of(rewards[start:end]) for start, end in zip(starts, ends, strict=True)],
            columns.ROW_GROUP: rows[columns.ROW_GROUP].take(pa.array(starts)),
        }
        for name, flags in ((columns.TERMINATED, columns.TERMINATEDS), (columns.TRUNCATED, columns.TRUNCATEDS)):
            index[name] = np.logical_or.reduceat(_one_a_step(rows, flags), starts) if len(starts) else []
        if columns.SUCCESS in names and columns.INFOS in rows.column_names:
            infos = rows[columns.INFOS].take(pa.array(ends - 1)).to_pylist()
            index[columns.SUCCESS] = [success_of(unpack(info)) for info in infos]
        if columns.POLICY_ID in names and columns.CUSTOM_DATA in rows.column_names:
            custom = rows[columns.CUSTOM_DATA].take(pa.array(starts)).to_pylist()
            index[columns.POLICY_ID] = [None if data is None else policy_of(unpack(data)) for data in custom]
        if columns.CONTENT in names:
            groups = [*run_starts(rows[columns.ROW_GROUP].combine_chunks()).tolist(), rows.num_rows]
            parts = [rows.slice(a, b - a).select(columns.STEP_CORE) for a, b in itertools.pairwise(groups)]
            index[columns.CONTENT] = [content_of(episode) for part in parts for episode in table_to_episodes(part)]
        unknown = pa.nulls(len(starts))
        return pa.table({name: index.get(name, unknown) for name in names}).cast(index_schema(names))

    def firsts(self, name: str, read: Read) -> list[object]:
        import polars as pl  # here, as it is slow to import

        rows = read([columns.EPS_ID, name])
        if name not in rows.column_names:
            return [None] * len(self.starts(rows))
        first = pl.DataFrame(rows).group_by(columns.ROW_GROUP, columns.EPS_ID, maintain_order=True).agg(pl.col(name).first())
        return first[name].to_list()

    def constants(self, name: str, read: Read) -> list[object]:
        import polars as pl  # here, as it is slow to import

        rows = read([columns.EPS_ID, name])
        if name not in rows.column_names:
            return [None] * len(self.starts(rows))
        one = pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()).alias("one")
        return pl.DataFrame(rows).group_by(columns.ROW_GROUP, columns.EPS_ID, maintain_order=True).agg(one)["one"].to_list()


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
    batch = _pieces(table, ids, starts := run_starts(ids))
    t, eps_ids = batch[columns.T], batch.eps_ids or ()
    if len(set(eps_ids)) != len(eps_ids):
        twice = next(eps_id for i, eps_id in enumerate(eps_ids) if eps_id in eps_ids[:i])
        raise EpisodeError(f"The rows of episode {twice} are not together; sort the table by eps_id and t.")
    follows = np.delete(np.arange(len(ids)), starts)  # the rows that are not the first of their episode
    if (row := _first(follows, t[follows] != t[follows - 1] + 1)) is not None:
        raise EpisodeError(f"Episode {ids[row]} jumps from step {t[row - 1]} to {t[row]}; sort the table, or find the rows.")
    if (row := _first(follows, (batch[columns.TERMINATEDS] | batch[columns.TRUNCATEDS])[follows - 1])) is not None:
        raise EpisodeError(f"Episode {ids[row]} goes on after it ended at step {t[row - 1]}.")

    def check_chain(obs: np.ndarray, new_obs: np.ndarray) -> None:
        now, before = obs[follows], new_obs[follows - 1]
        if not nested.array_equal(now, before):
            differ = ((now != before) & ((now == now) | (before == before))).reshape(len(now), -1).any(axis=1)
            row = int(follows[np.argmax(differ)])
            raise EpisodeError(f"Episode {ids[row]}: new_obs of step {t[row - 1]} is not obs of step {t[row]}.")

    nested.map_leaves(check_chain, batch[columns.OBS], batch[columns.NEW_OBS])
    return batch.episodes(_details(table, starts))


def _pieces(table: pa.Table, ids: pa.Array, starts: np.ndarray) -> EpisodeBatch:
    """The steps of a table as pieces that begin at these rows; only whether its columns are those of steps is checked."""
    kinds = {columns.T: np.int64, columns.TERMINATEDS: bool, columns.TRUNCATEDS: bool}
    steps = {name: _one_a_step(table, name).astype(kind, copy=False) for name, kind in kinds.items()}
    steps |= {columns.REWARDS: _one_a_step(table, columns.REWARDS)}
    extras = [name for name in table.column_names if name not in columns.STEP_COLUMNS]
    steps |= {name: read_column(table, name) for name in (columns.OBS, columns.NEW_OBS, columns.ACTIONS, *extras)}
    check_one_shape(steps[columns.OBS], steps[columns.NEW_OBS])
    observation_space, action_space = spaces_of(table.schema)
    return EpisodeBatch(
        columns=steps,
        offsets=np.append(starts, len(ids)),
        eps_ids=ids.take(pa.array(starts)).to_pylist(),
        t_started=steps[columns.T][starts],
        observation_space=observation_space,
        action_space=action_space,
    )


def _one_a_step(table: pa.Table, name: str) -> np.ndarray:
    """A column (N,) of numbers; of whole ones, if it is `t`.

    Raises:
        SchemaError: it is none.
    """
    values, kinds = read_column(table, name), "iu" if name == columns.T else "biuf"
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
        wanted = "integer" if kinds == "iu" else "number"
        raise SchemaError(f"Column {name!r} has type {table[name].type}; it has to hold one {wanted} a step.")
    return values


def _whole_episodes(tables: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    """The same rows, cut where episodes end."""
    held: tuple[str, pa.Table] | None = None
    for uri, table in tables:
        if missing := sorted(set(STEP_NAMES) - set(table.column_names)):
            raise SchemaError(f"{uri} lacks the columns {missing} of a step table; convert it to episodes first.")
        if held is not None:
            before = held[1]
            if before.schema.equals(table.schema) and before[columns.EPS_ID][-1] == table[columns.EPS_ID][0]:
                last = run_starts(before[columns.EPS_ID].combine_chunks())[-1]
                table = pa.concat_tables([before.slice(last), table])
                held = (held[0], before.slice(0, last))
            if held[1].num_rows:
                yield held
        held = (uri, table)
    if held is not None:
        yield held


def _details(table: pa.Table, starts: np.ndarray) -> list[dict[str, Any]]:
    """Return what each episode has besides columns of numbers: its agent, module, custom data and infos."""
    stops = [*starts[1:].tolist(), table.num_rows]
    first_rows = table.select([name for name in table.column_names if name in _NULLABLE]).take(pa.array(starts))

    def of_first_rows(name: str, nothing: Any) -> list[Any]:
        if name not in first_rows.column_names:
            return [nothing] * len(starts)
        return first_rows[name].to_pylist() if nothing is None else _maps(first_rows, name)

    details = [
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
        for detail, reset, start, stop in zip(details, of_first_rows(columns.RESET_INFOS, {}), starts, stops, strict=True):
            own_infos = [reset, *infos[start:stop]]
            detail["infos"] = own_infos if any(own_infos) else None
    return details


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
    positions = np.flatnonzero(wrong)
    return int(rows[positions[0]]) if positions.size else None


def _maps(table: pa.Table, name: str) -> list[dict[Any, Any]]:
    """A column of dicts, packed by `episodes_to_table` or as structs; null is an empty one."""
    kind, cells = table[name].type, table[name].to_pylist()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        cells = [None if cell is None else unpack(cell) for cell in cells]
    if not all(cell is None or isinstance(cell, dict) for cell in cells):
        raise SchemaError(f"Column {name!r} has type {kind}; it has to hold dicts: msgpack bytes, or structs.")
    return [cell or {} for cell in cells]
