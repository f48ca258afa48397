"""Work out the columns of an import: their types from the first rows, categories and bins from all of them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.data.episodes import columns
from offline_core.data.episodes.action_masks import ACTION_MASK
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.formats.sources.scans import ScannedFile
from offline_core.data.formats.sources.step_reader import StepReader
from offline_core.data.importing.columns_config import ColumnsConfig, order_of
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.joins import OtherRows, first_in, may_be_other_dates, open_join
from offline_core.data.importing.mapping import sources_of
from offline_core.data.importing.preparation import Preparation
from offline_core.data.importing.row_columns import UNKNOWN, RowColumns
from offline_core.data.importing.texts import EITHER_FIRST, is_mostly_numbers
from offline_core.data.inputs.computing import stepped
from offline_core.data.inputs.encoding import MAX_CATEGORIES
from offline_core.data.inputs.frames import no_column, root_of
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import Kind, RowSteps, as_sql, names_in
from offline_core.errors import ConfigError, DataError, SchemaError


def preparation_of(
    config: ImportConfig, readers: Sequence[StepReader], listing: Listing, beside: Sequence[StepReader] = ()
) -> Preparation:
    """What turns the rows of these readers into canonical ones, columns that are made included.

    Arguments:
        beside: readers of other files of the source, which tell how dates are written where these do not.

    Raises:
        ConfigError: the parameters do not fit each other or the columns.
        DataError: the first rows, or the files of a join, cannot be read.
    """
    made, also = row_columns(config, readers, listing, beside), encoded_elsewhere(config)
    if computed := sorted(also & config.columns.made):
        raise ConfigError(
            f"{computed[0]} has categories or bins, and is mapped to more than obs and actions: compute it twice."
        )
    made = dataclasses.replace(made, as_read={name: f"{name} (as read)" for name in also})
    mapping = dict(config.mapping)
    for role in mapping.keys() - {*_INPUTS}:
        names = [made.as_read.get(name, name) for name in sources_of(mapping, [role])]
        mapping[role] = names[0] if isinstance(mapping[role], str) else names
    declared = config.source.arguments.get("schema_overrides")
    kinds = declared if isinstance(declared, Mapping) else {}
    texts = frozenset(name for name, kind in kinds.items() if kind in ("String", pl.String))
    return Preparation(mapping, with_choices(config.spaces(), made), config.recorded_action_range, made, texts=texts)


def encoded_elsewhere(config: ImportConfig) -> set[str]:
    """The columns with categories or bins that are mapped to more than obs and actions, which needs them as in the source."""
    encoded = {*config.columns.encode, *config.columns.discretise}
    return encoded & {*sources_of(config.mapping, config.mapping.keys() - {*_INPUTS})}


def row_columns(
    config: ImportConfig, readers: Sequence[StepReader], listing: Listing, beside: Sequence[StepReader] = ()
) -> RowColumns:
    """Return what is done with the rows of these readers before the mapping.

    Arguments:
        listing: looks up the files of joins.
        beside: as in `preparation_of`.

    Raises:
        ConfigError: an expression needs a column that does not exist, or computes one that does.
        DataError: the first rows, or the files of a join, cannot be read.
    """
    declared, mapped = config.columns, sources_of(config.mapping, config.mapping)
    dotted = {name for name in mapped if "." in name}
    if declared == ColumnsConfig() and not dotted:
        return _idle(config)
    first = next(_tables(readers), None)
    if first is None or (declared == ColumnsConfig() and dotted <= {*first[0].column_names}):
        return _idle(config)
    table, uri = first
    others = [OtherRows.read(join, open_join(join, listing)) for join in declared.joins]
    wanted = declared.needed(sources_of(config.mapping, _INPUTS))
    chosen = None if config.source.columns is None else frozenset(config.source.columns)
    made = RowColumns(RowSteps(columns=dict.fromkeys(wanted, "any")), joins=others, mapped=frozenset(mapped), chosen=chosen)
    sample: dict[str, pl.Series] = {series.name: series for series in made.raw(table, uri)}
    sample |= {series.name: series for other in others for series in other.rows.select(other.join.columns)}
    _check(declared, table.column_names, sample)
    _check_late(config, table.column_names)
    steps = _steps(config, sample)
    made = dataclasses.replace(made, steps=steps, before=_before(declared, steps))
    made = _with_first_in_dates(made, (readers, beside), table, uri)
    made = _with_data(made, declared, readers, table.column_names)
    labels = _labels(config, made.steps)
    inputs = _inputs(config, made.steps, labels)
    obs = sources_of(config.mapping, [columns.OBS])
    if (late := [name for name in obs if name in declared.in_episode]) and any(
        sample[name].dtype.is_nested() for name in obs if name in sample
    ):
        raise ConfigError(
            f"{late[0]} (columns.in_episode) can be a number of obs beside other numbers, and not beside lists or structs: "
            "name their fields, or make their numbers columns of their own."
        )
    return dataclasses.replace(made, inputs=inputs, labels=labels, late=declared.in_episode)


def _idle(config: ImportConfig) -> RowColumns:
    """What leaves rows as they are, and knows the columns that a vector of observations is joined from."""
    names = config.mapping.get(columns.OBS)
    if not isinstance(names, list):
        return RowColumns()
    return RowColumns(inputs=InputColumns(steps=RowSteps(columns=dict.fromkeys(names, "number")), obs=names))


def with_choices(declared: StoredSpaces, made: RowColumns) -> StoredSpaces:
    """The declared spaces, with that of actions which are categories or bins.

    Raises:
        ConfigError: another one is declared for them.
    """
    if made.labels is None:
        return declared
    choices: gym.Space[Any] = gym.spaces.Discrete(len(made.labels))
    if declared[1] is not None and declared[1] != choices:
        raise ConfigError(
            f"The actions have {len(made.labels)} categories or bins, so their space is {choices}, not {declared[1]}."
        )
    return declared[0], choices


_INPUTS = (columns.OBS, columns.ACTIONS)


def _tables(readers: Sequence[StepReader], names: Sequence[str] | None = None) -> Iterator[tuple[pa.Table, str]]:
    """The tables of readers with their URIs, of files only these columns if there are any."""
    for reader in readers:
        if names and isinstance(reader, ScannedFile):
            reader = dataclasses.replace(reader, columns=tuple(names))
        for batch in reader.batches():
            if isinstance(batch, pa.Table) and batch.num_rows:
                yield (batch.drop_columns([SOURCE_ROW]) if SOURCE_ROW in batch.column_names else batch), reader.uri


def _check(declared: ColumnsConfig, in_source: Sequence[str], sample: Mapping[str, pl.Series]) -> None:
    """Raises:
    ConfigError: a column is missing, or a new one is there already.
    """
    if taken := sorted(declared.made & {*in_source}):
        raise ConfigError(
            f"The source has columns {', '.join(taken)} already: give those of joins and expressions other names."
        )
    there = [*dict.fromkeys([*in_source, *sample, *declared.made])]
    needs = {f"The computed column {name!r}": names_in(text) for name, text in declared.of_rows.items()}
    needs |= {f"The join with {', '.join(join.paths)}": join.key_columns for join in declared.joins}
    needs |= {f"columns.{field}": [*getattr(declared, field)] for field in ("fill", "encode", "discretise")}
    for what, names in needs.items():
        if missing := [name for name in names if name not in sample and name not in declared.made]:
            raise ConfigError(f"{what} needs {', '.join(missing)}. {no_column(missing, there)}")


def _check_late(config: ImportConfig, in_source: Sequence[str]) -> None:
    """Raises:
    ConfigError: columns of earlier rows are mapped to more than obs, or there are new_obs, which would need them, too.
    """
    late = config.columns.in_episode.keys()
    others = {*sources_of(config.mapping, [name for name in config.mapping if name != columns.OBS])} | {*columns.STEP_COLUMNS}
    if wrong := sorted(late & others):
        raise ConfigError(f"{wrong[0]} (columns.in_episode) can be a part of obs, or an extra column, and nothing else.")
    if late and config.episodes.order == "single_step":
        raise ConfigError(
            f"{min(late)} (columns.in_episode) needs earlier rows of its episode, and with episodes.order single_step each row "
            "is an episode: it would have no value but `first`. Leave the column out, or set a value where one is missing: "
            "columns.fill."
        )
    obs = sources_of(config.mapping, [columns.OBS])
    if twice := [name for name in late if obs.count(name) > 1]:
        raise ConfigError(f"{twice[0]} (columns.in_episode) can be one number of obs, and not several: name it there once.")
    space = config.spaces()[0] if config.columns.late_with_gaps else None
    if isinstance(space, gym.spaces.Box) and (dtype := np.dtype(space.dtype)) not in (np.float32, np.float64):
        raise ConfigError(
            f"{config.columns.late_with_gaps[0]} (columns.in_episode, last_known) has gaps, which {dtype} has no number "
            "for: declare an observation space of float32 or float64, or none."
        )
    if late and ACTION_MASK in config.mapping:
        raise ConfigError(
            "columns.in_episode makes numbers of obs after a mask of actions has joined them: leave one of the two out, or "
            "compute the columns of earlier rows before the data is logged."
        )
    if late and columns.NEW_OBS in {*config.mapping, *in_source}:
        raise ConfigError(
            "columns.in_episode makes parts of obs, and new_obs would lack them: leave new_obs out of the source."
        )


def _steps(config: ImportConfig, sample: Mapping[str, pl.Series]) -> RowSteps:
    """Return the steps, with the categories and bins that need no data.

    Raises:
        ConfigError: an expression does not fit the types of the columns.
    """
    declared = config.columns
    computed = {name: declared.of_rows[name] for name in order_of(declared.of_rows)}
    every = RowSteps(columns=dict.fromkeys(sample, "any"), computed=computed)
    obs = sources_of(config.mapping, [columns.OBS])
    inputs = every.of(sources_of(config.mapping, _INPUTS)).columns
    kinds = {name: _kind(name, values, declared, name in inputs, name in obs) for name, values in sample.items()}
    read = {
        *declared.encode,
        *declared.discretise,
        *declared.fill,
        *(name for text in computed.values() for name in names_in(text)),
    }
    read |= {name for name in obs if name in inputs}
    gaps = {name for late in declared.late_with_gaps for name in names_in(declared.in_episode[late].of)}
    kinds |= {name: "number" for name in gaps & kinds.keys() if is_mostly_numbers(sample[name])}
    fill = declared.fill | dict.fromkeys(declared.late_with_gaps, UNKNOWN)
    steps = RowSteps(columns={name: kinds[name] for name in kinds if name in read}, fill=fill, computed=computed)
    empty = pl.DataFrame(schema={name: values.dtype for name, values in sample.items()})
    for name in computed:
        own = steps.of([name])
        try:
            stepped(own, empty)
        except SchemaError as error:
            numbers = {column: "number" for column in own.columns if is_mostly_numbers(sample[column])}
            steps = steps.model_copy(update={"columns": steps.columns | numbers})
            try:
                stepped(steps.of([name]), empty)
            except SchemaError:
                raise ConfigError(str(error)) from error
    known = {name: encoding for name, encoding in declared.encode.items() if encoding.categories != "auto"}
    bins = {name: binning.bins(np.empty(0)) for name, binning in declared.discretise.items() if not binning.needs_data}
    return steps.model_copy(update={"encode": known, "bins": bins})


def _before(declared: ColumnsConfig, steps: RowSteps) -> RowSteps:
    """Return the steps that compute the keys of joins.

    Raises:
        ConfigError: a key needs a column that a join adds.
    """
    key_steps = steps.of(name for join in declared.joins for name in join.key_columns)
    for join in declared.joins:
        if late := sorted(key_steps.columns.keys() & {*join.columns}):
            raise ConfigError(f"A key of a join is computed from {', '.join(late)}, which a join adds; joins come before that.")
    return key_steps.model_copy(update={"encode": {}, "bins": {}})


def _kind(name: str, values: pl.Series, declared: ColumnsConfig, is_input: bool, is_obs: bool) -> Kind:
    dtype = values.dtype
    is_text = dtype in (pl.String, pl.Categorical, pl.Enum)
    if (encoding := declared.encode.get(name)) is not None:
        return "text" if encoding.is_text or (encoding.categories == "auto" and is_text) else "number"
    if name in declared.discretise:
        return "number"
    if not is_input:
        return "number" if dtype.is_float() else "any"
    if is_text:
        return "number" if is_obs else "text"
    if dtype == pl.Boolean:
        return "flag"
    is_number = dtype.is_numeric() or dtype == pl.Null or (is_obs and isinstance(dtype, pl.List | pl.Array))
    return "number" if is_number else "any"


def _with_first_in_dates(
    made: RowColumns, readers: tuple[Sequence[StepReader], Sequence[StepReader]], table: pa.Table, uri: str
) -> RowColumns:
    """Return `made` with what comes first in dates that rows are joined by: the day or the month, as all rows together tell.

    All rows are read only if those of the first table need that.

    Arguments:
        readers: of the rows, and others that tell where these do not.
    """
    first = {join.asof: EITHER_FIRST for join in (other.join for other in made.joins) if join.asof is not None}
    plain = RowSteps(columns=dict.fromkeys((name for name in first if name not in made.before.computed), "any"))
    reading = dataclasses.replace(made, steps=plain, joins=(), mapped=frozenset())
    try:
        keys, *_ = reading.frame(table, uri)
    except DataError:  # the import reports it
        return made
    first = {name: said for name, said in first.items() if may_be_other_dates(keys[name])}
    if not first:
        return made
    there = dict.fromkeys(table.column_names)
    roots = {root_of(there, name) for name in {*plain.columns, *made.before.columns}}
    for number, reader in enumerate([*readers[0], *readers[1]]):
        if number >= len(readers[0]) and EITHER_FIRST not in first.values():
            break
        with contextlib.suppress(DataError):  # the import reports them
            for rows, of in _tables([reader], [name for name in there if name in roots]):
                keys, *_ = reading.frame(rows, of)
                first = {name: said & first_in(keys[name]) for name, said in first.items()}
    joins = [dataclasses.replace(each, first=first.get(each.join.asof or "", each.first)) for each in made.joins]
    return dataclasses.replace(made, joins=joins)


def _with_data(
    made: RowColumns, declared: ColumnsConfig, readers: Sequence[StepReader], in_source: Sequence[str]
) -> RowColumns:
    """Return `made` with the categories and bins of all rows. Rows that cannot be read are skipped: the import reports them."""
    auto = [name for name, encoding in declared.encode.items() if encoding.categories == "auto"]
    binned = [name for name, binning in declared.discretise.items() if binning.needs_data]
    if not auto and not binned:
        return made
    plain = made.steps.model_copy(update={"encode": {}, "bins": {}}).of([*auto, *binned])
    reading = dataclasses.replace(made, steps=plain, mapped=frozenset())
    roots = {root_of(dict.fromkeys(in_source), name) for name in declared.needed([])}
    names = [name for name in in_source if name in roots]
    categories: dict[str, set[Any]] = {name: set() for name in auto}
    numbers: dict[str, list[np.ndarray]] = {name: [] for name in binned}
    for reader in readers:
        with contextlib.suppress(DataError):
            for table, uri in _tables([reader], names):
                frame, *_ = reading.frame(table, uri)
                for name in auto:
                    values = frame[name] if frame[name].dtype == pl.String else frame[name].cast(pl.Float64)
                    categories[name] |= {*values.drop_nulls().unique().to_list()}
                    if len(categories[name]) > MAX_CATEGORIES:
                        raise ConfigError(
                            f"Column {name!r} has more than {MAX_CATEGORIES} different values: too many for categories. Name "
                            "those that matter, with other: true for the rest, or compute coarser ones."
                        )
                for name in binned:
                    column = frame[name].cast(pl.Float64).drop_nulls().to_numpy()
                    numbers[name].append(column[np.isfinite(column)])
    if empty := [name for name in auto if not categories[name]]:
        raise ConfigError(f"Column {empty[0]!r} has no values to find categories in.")
    encode = {
        n: e.model_copy(update={"categories": sorted(categories[n])}) if n in categories else e
        for n, e in declared.encode.items()
    }
    bins = {name: declared.discretise[name].bins(np.concatenate([*parts, np.empty(0)])) for name, parts in numbers.items()}
    steps = made.steps.model_copy(update={"encode": encode, "bins": made.steps.bins | bins})
    return dataclasses.replace(made, steps=steps)


def _inputs(config: ImportConfig, steps: RowSteps, labels: list[str] | list[float] | None) -> InputColumns | None:
    names = sources_of(config.mapping, [columns.OBS])
    if not all(steps.columns.get(name, "any") != "any" or name in {*steps.computed, *steps.encode} for name in names):
        return None  # structs, which no steps look into
    late = config.columns.in_episode.keys()
    computed = {name: text for name, text in steps.computed.items() if name not in late}
    kinds = steps.columns | dict.fromkeys((name for name in names if name in late), "number")
    fill = {name: value for name, value in steps.fill.items() if name not in late}
    steps = steps.model_copy(update={"computed": computed, "columns": kinds, "fill": fill})
    action = sources_of(config.mapping, [columns.ACTIONS])
    return InputColumns(
        steps=steps.of(names),
        obs=names,
        action=action[0] if labels is not None and len(action) == 1 else None,
        labels=labels,
        of_earlier={name: value.in_words for name, value in config.columns.in_episode.items() if name in names},
    )


def _labels(config: ImportConfig, steps: RowSteps) -> list[str] | list[float] | None:
    """What each choice of an action is called in the source; None if actions are no choices made here.

    Raises:
        ConfigError: they cannot be such choices.
    """
    names = sources_of(config.mapping, [columns.ACTIONS])
    made = [name for name in names if name in {*steps.encode, *steps.bins}]
    if not made:
        return None
    if len(names) > 1:
        both = " || ' ' || ".join(map(as_sql, names))
        raise ConfigError(
            f"Actions of several columns cannot be categories or bins, as {', '.join(made)} is. Make one choice of them: "
            f"columns: {{computed: {{choice: {json.dumps(both)}}}, encode: {{choice: {{form: index}}}}}}, mapping: {{actions: "
            "choice}. Of a number make a few choices first, such as case when dose > 0.3 then 'high' else 'low' end."
        )
    if (encoding := steps.encode.get(made[0])) is None:
        return steps.bins[made[0]].values
    if encoding.form != "index" or encoding.other:
        raise ConfigError(f"The categories of actions ({made[0]}) need form: index, and cannot have an 'other' one.")
    return encoding.known
