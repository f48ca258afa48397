"""Refuse episodes in which several agents act: their steps would follow one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import arrow, columns
from offline_core.data.episodes.mapping import ColumnMapping
from offline_core.data.episodes.names import named
from offline_core.data.importing.ordering import Refuse, SourceRows
from offline_core.errors import EpisodeError

MAX_SHOWN = 5
"""Agents that an error names."""


def of_one_agent(steps: SourceRows, mapping: ColumnMapping, files: Sequence[str], refuse: Refuse) -> SourceRows:
    """The steps without the episodes that have several agents, which are refused.

    Arguments:
        steps: grouped by episode.
        mapping: says what columns are called in the source.
    """
    for name in named(columns.AGENT_ID, steps.table.column_names):
        column = steps.table[name].combine_chunks()
        if not len(steps) or not (arrow.is_text(column.type) or pa.types.is_integer(column.type)):
            continue
        encoded = column.dictionary_encode()
        code = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = np.unique(np.stack([steps.group, code])[:, code >= 0], axis=1)
        mixed, count = np.unique(pairs[0], return_counts=True)
        mixed = mixed[count > 1]
        order = np.argsort(steps.group, kind="stable")
        begin, end = (np.searchsorted(steps.group[order], mixed, side) for side in ("left", "right"))
        for group, start, stop in zip(mixed, begin, end, strict=True):
            rows = order[start:stop]
            agents = [encoded.dictionary[int(number)].as_py() for number in pairs[1][pairs[0] == group]]
            refuse(steps.take(rows), _error(steps, int(rows[0]), name, agents, mapping, files))
        steps = steps.take(np.flatnonzero(~np.isin(steps.group, mixed)))
    return steps


def _error(
    steps: SourceRows, row: int, name: str, agents: list[str | int], mapping: ColumnMapping, files: Sequence[str]
) -> EpisodeError:
    agents = sorted(agents, key=str)
    more = len(agents) - MAX_SHOWN
    shown = ", ".join(map(str, agents[:MAX_SHOWN])) + (f" and {more:,} more" if more > 0 else "")
    source, eps_id = (str(mapping.get(each, each)) for each in (name, columns.EPS_ID))
    is_text = isinstance(agents[0], str)
    is_number = is_text and str(agents[0]).isdecimal()  # or was one before it became an id
    value, of = (f"'{agents[0]}'" if is_text else agents[0]), f"cast({source} as text)" if is_number else source
    one = f'source: {{where: "{of} = {value}"}}'
    kept = f", episode: {eps_id}" if eps_id == columns.EPS_ID else ""
    each = f"columns: {{computed: {{by_agent: \"{eps_id} || '/' || {source}\"}}}}, mapping: {{eps_id: by_agent{kept}}}"
    by_agent = f" To make an episode of each agent's steps: {each}." if steps.ids is not None else ""
    episode = f"Episode {steps.ids[steps.group[row]]}" if steps.ids is not None else f"The episode of {steps.where(row, files)}"
    return EpisodeError(
        f"{episode} has steps of {len(agents)} agents in column {source}: {shown}. To take one: {one}.{by_agent} If the column "
        "names no agents, map it to another name."
    )
