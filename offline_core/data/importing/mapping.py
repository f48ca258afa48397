"""The user's column names → the canonical ones of `columns.py`."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import columns
from offline_core.data.episodes.action_masks import ACTION_MASK, NEW_ACTION_MASK
from offline_core.data.episodes.arrow import read_column, to_arrow
from offline_core.data.formats.sources.names import CANONICAL, SYNONYMS, plain
from offline_core.data.inputs.row_steps import as_sql
from offline_core.errors import ConfigError, SchemaError
from offline_core.runtime.parameter_names import closest

ColumnMapping: TypeAlias = Mapping[str, str | list[str]]
"""Canonical name → source column, as in `{"obs": "o_t", "dones": "d_t"}`; several source columns, a number or a vector each,
are joined into one vector a step, or into one id of an episode. What is not mapped keeps its name, and is an extra output
unless that name is canonical.
What is mapped to `action_prob` becomes `action_logp`, by its logarithm."""


NAMES = (
    *(*columns.STEP_COLUMNS, columns.DONES, columns.IS_LAST, columns.IS_FIRST, columns.ACTION_LOGP, columns.ACTION_PROB),
    *(columns.ACTION_DIST_INPUTS, columns.WEIGHTS_SEQ_NO, columns.AGENT_ID, columns.MODULE_ID, ACTION_MASK, NEW_ACTION_MASK),
)
"""The canonical names that a mapping may give."""
NEAR_MISS, LIKE = 0.88, 0.78
"""How like two names are, 1 at most: so much is a slip of the pen, and so much may be one."""
REQUIRED = (columns.OBS, columns.ACTIONS, columns.REWARDS)
"""What each row has, unless it is no step."""


def sources_of(mapping: ColumnMapping, names: Iterable[str]) -> list[str]:
    """Return the source's columns for these canonical ones. A column that is not mapped keeps its name."""
    sources = [mapping.get(name, name) for name in names]
    return [column for source in sources for column in ([source] if isinstance(source, str) else source)]


def canonical_mapping(mapping: dict[str, str | list[str]]) -> dict[str, str | list[str]]:
    """The mapping with canonical names for other ones of ends and next observations: `terminated`, `done`, `next_obs`.

    Raises:
        ConfigError: two source columns are to be one canonical column.
    """
    if empty := [name for name, source in mapping.items() if not source]:
        raise ConfigError(f"mapping.{empty[0]} names no column.")
    targets = [CANONICAL.get(name, name) for name in mapping]
    if twice := sorted({name for name in targets if targets.count(name) > 1}):
        raise ConfigError(f"The mapping names several source columns for {', '.join(twice)}; keep one each.")
    return dict(zip(targets, mapping.values(), strict=True))


def check_names(mapping: ColumnMapping, source: Collection[str]) -> None:
    """Refuse a name that is nearly a canonical one: what needs that would miss it, and nothing would say why.

    Arguments:
        source: the columns of the source: a canonical one among them is meant by no other name.

    Raises:
        ConfigError: there is such a name.
    """
    for name in mapping:
        if meant := _meant(name, mapping, source, NEAR_MISS):
            raise ConfigError(
                f"mapping.{name} is no canonical name (did you mean {meant}?). For an extra output of that name, compute it: "
                f"columns: {{computed: {{{name}: EXPRESSION}}}}."
            )


def notes_on_names(mapping: ColumnMapping, source: Collection[str]) -> list[str]:
    """Note the names that become extra outputs though they may stand for a canonical one, as `propensity` does.

    Arguments:
        source: as for `check_names`.
    """
    may_be = {name: _meant(name, mapping, source, LIKE) for name in mapping}
    return [
        f"mapping.{name} makes an extra output; if it is meant for the canonical column {meant}, call it so."
        for name, meant in may_be.items()
        if meant
    ]


def _meant(name: str, mapping: ColumnMapping, source: Collection[str], cutoff: float) -> str:
    """The canonical name, which is neither mapped nor in the source, that is meant by another one; "" if none is.

    Arguments:
        cutoff: how like the two names are, 1 at most.
    """
    if name in NAMES or name == mapping[name] or name[-1:].isdecimal():  # obs_2 is another one on purpose
        return ""
    free = [known for known in NAMES if known not in mapping and known not in source]
    synonyms = [role for role in free if plain(name) in SYNONYMS.get(role, ())] if cutoff < NEAR_MISS else []
    return next(iter([*synonyms, *closest(name, free, cutoff=cutoff)]), "")


def observed_action(mapping: ColumnMapping) -> str:
    """Say which column of actions is observed as well, why it cannot be, and what helps; "" if none is."""
    observed = sources_of(mapping, [columns.OBS]) if columns.OBS in mapping else []
    done = sources_of(mapping, [columns.ACTIONS]) if columns.ACTIONS in mapping else []
    action = next((action for action in done if action in observed), None)
    if action is None:
        return ""
    return (
        f"{action} is mapped to actions and to obs: a policy would see what it has to choose, and copy it. Leave it out of "
        f"obs. If it is the action before that counts, observe that: columns: {{in_episode: {{before: {{of: {as_sql(action)}, "
        "steps: 1, first: 0}}}, with before in obs."
    )


def map_columns(table: pa.Table, mapping: ColumnMapping) -> pa.Table:
    """Return the rows under canonical names.

    Raises:
        SchemaError: a mapped column is missing, or an unmapped one already has the name it was to get.
    """
    used = {*sources_of(mapping, mapping)}
    if missing := sorted(used - set(table.column_names)):
        close = difflib.get_close_matches(missing[0], table.column_names, n=1, cutoff=0.75)
        hint = f"did you mean {close[0]}? There" if close else "there"
        raise SchemaError(f"There is no column {', '.join(missing)} to map; {hint} are {', '.join(table.column_names)}.")
    result: dict[str, tuple[pa.Field, pa.ChunkedArray | pa.Array]] = {}

    def put(name: str, field: pa.Field, column: pa.ChunkedArray | pa.Array, *, source: str) -> None:
        if name in result:
            raise SchemaError(f"Column {source!r} would be a second {name!r}; map one of them to another name.")
        result[name] = (field.with_name(name), column)

    for name, sources in mapping.items():
        if name == columns.ACTION_PROB and isinstance(sources, str):
            logarithms = pc.ln(table[sources].cast(pa.float64()))
            put(columns.ACTION_LOGP, pa.field(name, logarithms.type), logarithms, source=sources)
        elif isinstance(sources, str):
            put(name, table.schema.field(sources), table[sources], source=sources)
        elif name == columns.EPS_ID:
            put(name, pa.field(name, pa.string()), joined_ids(table, sources), source=", ".join(sources))
        else:
            vector = _joined(table, sources)
            put(name, pa.field(name, vector.type), vector, source=", ".join(sources))
    for field in table.schema:
        if field.name in used:
            continue
        put(field.name, field, table[field.name], source=field.name)
    fields = [field for field, _ in result.values()]
    return pa.Table.from_arrays([column for _, column in result.values()], schema=pa.schema(fields, table.schema.metadata))


def ids(column: pa.ChunkedArray, name: str, *, nullable: bool) -> pa.Array:
    """Text out of whatever names episodes or agents; NaN, which some programs write for what is missing, is null."""
    values = column.combine_chunks()
    try:
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), None, values)
        names = values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"Column {name!r} has type {column.type}, which cannot be an id.") from error
    if not nullable and (names.null_count or pc.any(pc.equal(names, "")).as_py()):
        raise SchemaError(f"Column {name!r} is null, NaN or empty; every step has to belong to an episode.")
    return names


def joined_ids(table: pa.Table, sources: Collection[str]) -> pa.Array:
    """One id of the values of several columns, as `Adler/single`; null where one of them is missing or empty.

    Raises:
        SchemaError: A column has values that cannot be ids.
    """
    parts = [ids(table[source], source, nullable=True) for source in sources]
    if len(parts) == 1:
        return parts[0]
    for special, code in (("%", "%25"), ("/", "%2F")):  # so that no two pairs are one id
        parts = [pc.replace_substring(part, special, code) for part in parts]
    return pc.binary_join_element_wise(*(pc.if_else(pc.equal(part, ""), None, part) for part in parts), "/")


def _not_joined(source: str, kind: pa.DataType) -> str:
    """Say why a column is no part of a vector, and which of its fields may be."""
    said = f"Column {source!r} has type {kind}; a vector is joined from numbers and vectors."
    if not pa.types.is_struct(kind):
        return said
    fields = ", ".join(f"{source}.{field.name}" for field in kind)
    return f"{said} Name the fields in place of {source}: {fields}."


def _joined(table: pa.Table, sources: list[str]) -> pa.Array:
    parts = [read_column(table, source) for source in sources]
    for source, part in zip(sources, parts, strict=True):
        if not isinstance(part, np.ndarray) or part.ndim > 2 or part.dtype.kind not in "biuf":
            raise SchemaError(_not_joined(source, table[source].type))
    vectors = [
        part.reshape(len(part), -1) if isinstance(part, np.ndarray) and len(part) else np.empty((0, 1)) for part in parts
    ]
    return to_arrow(np.concatenate(vectors, axis=1), "+".join(sources))
