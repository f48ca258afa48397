"""Complete the parameters of an import, step by step, each tried by the import's own code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import columns
from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.names import ENDS, ID_WORDS, PROBABILITY_NAMES, has_word, named, plain
from offline_core.data.formats.sources.scans import FILE_PATHS
from offline_core.data.importing import column_values as values
from offline_core.data.importing.column_values import SampleRows
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.episode_ids import SOURCE_FILE
from offline_core.data.importing.mapping import REQUIRED, sources_of
from offline_core.data.importing.planning import episodes
from offline_core.data.importing.planning.result import Decision
from offline_core.data.importing.planning.sample import SourceSample, rows_of
from offline_core.data.importing.planning.schema import Column, columns_of, fields_of
from offline_core.data.importing.planning.trial import MAX_REFUSED_SHARE, Trial, lengths, prepared, tried, tried_files
from offline_core.data.importing.resolving import encoded_elsewhere, row_columns
from offline_core.data.importing.roles import Guess, Role, guessed, has_single_steps, may_be_chance, same_episode
from offline_core.data.importing.row_columns import FILE, FOLDER, UNKNOWN, RowColumns
from offline_core.data.importing.step_order import says_where_episodes_end
from offline_core.data.importing.stray_actions import few_of_range, few_values
from offline_core.data.importing.texts import date_formats, read_dates, read_numbers, swapped_format
from offline_core.data.inputs.encoding import MAX_CATEGORIES
from offline_core.data.inputs.row_steps import names_in

READ_TIME = "iso_time"
"""The column of the times that are read from dates of another form."""
SCANNED = ("parquet", "csv", "ndjson", "ipc")
MIN_ROW_IDS = 20
CHOICE_WORDS = (
    *("ticket", "order", "request", "transaction", "event", "impression", "offer", "quote", "claim", "case", "call", "lead"),
    *("application", "message", "decision"),
)
"""In the names of what numbers choices that may have nothing to do with one another."""
EACH_FILE = "each file"
"""The answer that the rows of a file follow one another."""
LIMIT_SHARE = 0.25
"""So many ends at the very same, largest step look like a time limit."""


@dataclass
class Proposal:
    """The parameters so far, and what was found on the way."""

    config: ImportConfig
    columns: list[Column] = field(default_factory=list)
    roles: dict[str, Role] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    trial: Trial | None = None

    def set(self, name: str, value: Any, reason: str) -> None:
        """Set a parameter such as `format` or `episodes.order`, unless it is declared."""
        group, _, last = name.rpartition(".")
        inner = getattr(self.config, group) if group else self.config
        if last in inner.model_fields_set and name not in self.chosen:
            return
        self.config = self.config.having(name, value)
        self.chosen[name] = reason

    def add(self, name: str, more: Mapping[str, Any], reason: str) -> None:
        """Add columns to a parameter such as `columns.fill`, which may be declared for others."""
        self.config = self.config.adding(name, more)
        self.chosen[name] = reason

    def take(self, name: str, choice: episodes.Choice | None) -> bool:
        """Set a choice, if there is one; return whether the parameters changed."""
        before = self.config
        if choice is not None:
            self.set(name, *choice)
        return self.config != before


def of_episodes(config: ImportConfig, sample: SourceSample) -> Proposal:
    """The parameters for files that hold whole episodes."""
    plan = Proposal(config)
    _set_format(plan, sample)
    plan.trial = tried_files(sample.episode_files, config)
    _quarantine(plan, plan.trial)
    return plan


def _set_format(plan: Proposal, sample: SourceSample) -> None:
    plan.set("source.format", sample.format, "by the names of the files and what is in them")


def _quarantine(plan: Proposal, trial: Trial) -> None:
    if trial.findings.unreadable and trial.episodes and not trial.wrong_columns:
        rows, of = trial.counts.quarantined_rows, trial.counts.rows
        if rows > MAX_REFUSED_SHARE * of:  # which a person decides
            return
        plan.set("unreadable", "quarantine", f"{rows:,} of {of:,} rows that were read cannot be imported")


def proposed(config: ImportConfig, sample: SourceSample, *, is_taken: bool) -> Proposal:
    """Propose parameters for the columns of a sample, and for those that are computed from them.

    Arguments:
        is_taken: the import goes on with it unseen, so that whole numbers of actions stay as they are.
    """
    first = rows_of(sample.readers)
    before = _with_read_dates(_encoded(config, first, is_taken=is_taken, is_whole=sample.is_whole), first)
    before = _with_read_numbers(before, first)
    config = before.config
    made = row_columns(config, sample.readers, Listing())
    seen = tuple(_with_made(reader, made) for reader in sample.readers)
    rows = rows_of(seen)
    rows = _with_gaps(rows, config.columns.late_with_gaps)
    plan = Proposal(config, columns_of(seen, rows), chosen=before.chosen, decisions=before.decisions)
    for name in encoded_elsewhere(config):  # as it is in the source
        if name in rows.table.column_names and name in first.table.column_names:
            table = rows.table.set_column(rows.table.column_names.index(name), name, first.table[name])
            rows = SampleRows(table, rows.file)
    rows = rows.with_values
    guess = guessed(rows, config.mapping, made.changed, is_single=config.episodes.order == "single_step")
    roles = plan.roles = guess.roles
    plan.columns += fields_of(dict.fromkeys(name for role in roles.values() for name in role.candidates), seen, rows)
    _set_format(plan, sample)
    _fill_flags(plan, guess)
    is_one_table = len(sample.readers) == 1  # each of several files may be an episode
    if columns.ACTION_PROB in roles and is_one_table and has_single_steps(roles) and config.episodes.order == "auto":
        reason = "a row has the probability of what was done, and neither an episode nor a time: each is a choice by itself"
        plan.set("episodes.order", "single_step", reason)
    plan.notes += _no_probabilities(plan)
    sign = _sign_of_choices(guess, sample)
    readers = sample.readers if sign is not None else _with_file_ids(plan, sample, guess)
    mapping = {role.name: role.source for role in roles.values() if role.needs_mapping}
    if mapping:
        plan.config = plan.config.having("mapping", {**mapping, **config.mapping})
    if not says_where_episodes_end(roles) and plan.config.episodes.order != "single_step":
        if not _counts_anew(guess):
            plan.decisions.append(_ends_to_decide(sign, values.id_candidates(guess.rows, guess.left, None)))
            return plan
        step = roles[columns.T].sources[0]
        plan.notes.append(f"Nothing else says where an episode ends, so one begins wherever {step} begins anew.")
    stand_ins = _stand_ins(plan)
    if stand_ins is None or (columns.EPS_ID in roles and roles[columns.EPS_ID].source is None):
        return plan
    if stand_ins:
        _with_stand_ins(plan, sample, readers, stand_ins)
        return plan
    _declare_mixed_types(plan, readers)
    _complete_episodes(plan, sample, readers)
    return plan


def _fill_flags(plan: Proposal, guess: Guess) -> None:
    """Fill flags of ends and first rows with false where they are null, if they are written there only, or only if true."""
    filled = dict[str, Any]()
    same = same_episode(guess)
    for name in [source for role in (*ENDS, columns.IS_FIRST) if (source := guess.source_of(role)) is not None]:
        column = guess.column(name)
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if not (is_number or pa.types.is_boolean(column.type)) or not 0 < column.null_count < len(column):
            continue
        written = column.is_valid().to_numpy()
        in_last_rows = same is not None and bool(np.append(~same, True)[written].all())
        if values.is_flag(column) and (in_last_rows or pc.all(column.drop_null().cast(pa.bool_())).as_py()):
            filled[name] = 0 if is_number else False
    filled = {name: value for name, value in filled.items() if name not in plan.config.columns.fill}
    if filled:
        reason = f"{', '.join(filled)} has values where an episode ends or begins and nowhere else: there it is false"
        plan.add("columns.fill", filled, reason)


def _with_gaps(rows: SampleRows, names: Iterable[str]) -> SampleRows:
    """Return rows with nulls where these columns get their last known value once rows are in order."""
    table = rows.table
    for name in names:
        if name in table.column_names:
            is_unknown = pc.equal(table[name], UNKNOWN)
            gaps = pc.if_else(is_unknown, pa.scalar(None, table[name].type), table[name])
            table = table.set_column(table.column_names.index(name), name, gaps)
    return SampleRows(table, rows.file)


def _encoded(config: ImportConfig, rows: SampleRows, *, is_taken: bool, is_whole: bool) -> Proposal:
    """Encode the texts of a column that is named like actions, and of columns mapped to observations, as numbers.

    Whole numbers of actions are encoded, too, where they are few of those up to the largest, as discounts of 0, 5 and 10 are;
    real ones of few values become these, if all rows were looked at: others would become the nearest.
    Columns with a declared space or encoding stay as they are.
    """
    plan = Proposal(config)
    mapped, there = config.mapping.get(columns.ACTIONS), rows.table.column_names
    actions = named(columns.ACTIONS, there)[:1] if mapped is None else [mapped] if isinstance(mapped, str) else []
    observed = config.mapping.get(columns.OBS)  # a single column of text is an observation as it is
    is_declared = config.environment is not None
    forms = {name: "index" for name in actions if not (is_declared or config.action_space)}
    if isinstance(observed, list) and not (is_declared or config.observation_space):
        forms |= dict.fromkeys(observed, "one_hot")
    new, reasons, guesses = dict[str, Any](), [], dict[str, str]()
    for name, form in forms.items():
        column = None if name in {*config.columns.made, *config.columns.encode} else values.column_at(rows.table, name)
        if column is None:
            continue
        is_free = is_whole and not is_taken and name not in config.columns.discretise
        if form == "index" and is_free and (levels := few_values(column)):
            plan.add("columns.discretise", {name: {"values": levels}}, f"{name} has few values: each is a choice")
            continue
        if not (
            _names_few(column) or (few_of_range(column) and not is_taken) if form == "index" else values.is_category(column)
        ):
            continue
        known = {"categories": sorted(pc.unique(column.drop_null()).to_pylist())} if config.append else {}
        if form == "one_hot":
            new[name] = {**known, "other": True} if column.null_count else "auto"
            reasons.append(f"the texts of {name} become a place each in the observations")
            continue
        new[name] = {**known, "form": form}
        if values.is_text(column):
            reasons.append(f"the texts of {name} name actions, each of which gets a number")
        else:
            guesses[f"columns.encode.{name}"] = f"{name} has few of the numbers up to its largest: each is a choice"
    if new:
        plan.add("columns.encode", new, "; ".join(reasons))
        plan.chosen = {name: reason for name, reason in (plan.chosen | guesses).items() if reason}
    return plan


def _no_probabilities(plan: Proposal) -> list[str]:
    """Note the columns that are named like the probability of an action, but have other values."""
    if {columns.ACTION_PROB, columns.ACTION_LOGP} & plan.roles.keys():
        return []
    used = {name for role in plan.roles.values() for name in role.sources}
    return [
        f"Column {column.name} is an extra output: it is named like a probability, and its values run from {column.minimum} to "
        f"{column.maximum}. If it is that of what was done, correct it and set mapping.action_prob: {column.name}."
        for column in plan.columns
        if plain(column.name) in PROBABILITY_NAMES and column.name not in used and column.is_number
    ]


def _names_few(column: pa.ChunkedArray) -> bool:
    """Whether it holds texts of a few kinds."""
    return values.is_text(column) and 1 < pc.count_distinct(column).as_py() <= MAX_CATEGORIES


def _with_read_dates(plan: Proposal, rows: SampleRows) -> Proposal:
    """Add an expression that reads dates that are not written by ISO 8601 as times, unless another one reads them."""
    names, computed = rows.table.column_names, plan.config.columns.computed
    if {columns.T, READ_TIME} & plan.config.mapping.keys() or READ_TIME in {*names, *computed}:
        return plan
    if columns.T in names and not values.is_unread_time(rows.table[columns.T]):
        return plan
    read = {name for expression in computed.values() for name in names_in(expression)}
    dated = [name for name in names if name not in read and values.is_unread_time(rows.table[name])]
    for name in [*named(columns.T, dated), *dated]:
        if not (forms := date_formats(rows.table[name])):
            continue
        plan.add("columns.computed", {READ_TIME: read_dates(name, forms[0])}, f"{name} holds dates, which it reads as times")
        if name == columns.T:  # the texts need another name, or there would be two columns of that one
            mapping = {columns.T: READ_TIME, f"{columns.T}_as_text": columns.T, **plan.config.mapping}
            plan.set("mapping", mapping, "the times are read from the texts of t")
        if len(forms) > 1 and forms[1] == swapped_format(forms[0]):
            question = (
                f"the dates of {name} may begin with the day or the month; computed reads them as {forms[0]}: %d is the day"
            )
            plan.decisions.append(Decision(name="dates", question=question, candidates=forms[:2]))
        break
    return plan


def _with_read_numbers(plan: Proposal, rows: SampleRows) -> Proposal:
    """Add expressions that read texts such as `86,80 €` as numbers, where these can be nothing else."""
    names, declared = rows.table.column_names, plan.config.columns
    used = {name for expression in declared.computed.values() for name in names_in(expression)} | {*declared.encode}
    ids = {*named(columns.EPS_ID, names), *sources_of(plan.config.mapping, [columns.EPS_ID])}
    read = dict[str, str]()
    for name in names:
        made = f"{name}_number"
        column = rows.table[name]
        if (
            name in used
            or name in ids
            or has_word(name, ID_WORDS)
            or made in {*names, *declared.made}
            or not values.is_other_number(column)
        ):
            continue
        if (expression := read_numbers(column, name)) is not None:
            read[made] = expression
    if not read:
        return plan
    reason = f"the texts of {', '.join(made.removesuffix('_number') for made in read)} are numbers"
    plan.add("columns.computed", read, "; ".join(filter(None, (plan.chosen.get("columns.computed"), reason))))
    mapping = dict(plan.config.mapping)
    for role in REQUIRED:
        name = next(iter(named(role, names)), "")
        if role not in mapping and f"{name}_number" in read:
            mapping |= {role: f"{name}_number"} | ({f"{name}_as_text": name} if name == role else {})
            plan.chosen[f"mapping.{role}"] = f"{name} holds texts, of which it has the numbers"
            if name == role:
                plan.chosen[f"mapping.{name}_as_text"] = "its texts are numbers"
    if mapping != plan.config.mapping:
        plan.config = plan.config.having("mapping", mapping)
    return plan


def _stand_ins(plan: Proposal) -> dict[str, str] | None:
    """Choose stand-ins for undecided obs, actions and rewards: any column does, as order, ids and gaps do not need them."""
    kinds = {column.name: column for column in plan.columns}
    stand_ins = {}
    for name in [name for name in REQUIRED if plan.roles[name].source is None]:
        fit = [
            candidate
            for candidate in plan.roles[name].candidates
            if candidate in kinds and not kinds[candidate].nulls and kinds[candidate].is_uniform
        ]
        if not fit:
            return None
        numbers = [column.name for column in plan.columns if column.is_number and column.is_uniform and not column.nulls]
        stand_ins[name] = min([*fit, *numbers], key=lambda candidate: kinds[candidate].type == "text")
        if name == columns.ACTIONS:  # no action is observed
            seen = {stand_ins.get(columns.OBS), *plan.roles[columns.OBS].sources}
            if not (others := [other for other in (*fit, *numbers) if other not in seen]):
                return None
            stand_ins[name] = min(others, key=lambda candidate: kinds[candidate].type == "text")
    return stand_ins


def _with_stand_ins(plan: Proposal, sample: SourceSample, readers: Sequence[FirstRows], stand_ins: dict[str, str]) -> None:
    mapping = plan.config.mapping
    plan.config = plan.config.model_copy(update={"mapping": {**mapping, **stand_ins}})
    _complete_episodes(plan, sample, readers)
    plan.config = plan.config.model_copy(update={"mapping": mapping})
    if plan.trial is not None:
        plan.trial.spaces = (None, None)


def _grows_in_each_file(guess: Guess) -> bool:
    """Whether t grows with each row but for a few that are there twice; so it does where rows lie in order and have none."""
    if (t := guess.t) is None:
        return columns.T not in guess.roles
    inside = np.diff(guess.rows.file) == 0
    if not inside.any():
        return True
    return bool((np.diff(t)[inside] >= 0).all()) and values.grows(t, inside)


def _with_file_ids(plan: Proposal, sample: SourceSample, guess: Guess) -> Sequence[FirstRows]:
    """Each file an episode, if nothing else says where one ends and t begins anew in none of them."""
    readers: Sequence[FirstRows] = sample.readers
    known = {columns.EPS_ID, *ENDS, columns.IS_FIRST} & plan.roles.keys()
    is_scanned = sample.format in SCANNED
    if known or plan.config.source.arguments or plan.config.episodes.order == "single_step":
        return readers
    if not _grows_in_each_file(guess) or not (is_scanned or len(readers) > 1):
        return readers
    name = name_of_files(column.name for column in plan.columns)
    if is_scanned:
        plan.set("source.arguments", {FILE_PATHS: name}, "the path of each row's file, as a column")
        readers = [_with_column(reader, name) for reader in readers]
    elif name not in plan.config.columns.computed:
        plan.add("columns.computed", {name: f"{FOLDER} || '/' || {FILE}"}, "the path of each row's file, as a column")
    plan.roles[columns.EPS_ID] = Role(
        name=columns.EPS_ID,
        source=name,
        reason="no column names the episodes, and none says where one ends: each file is taken for one, up to gaps in time",
        is_sure=is_scanned,
    )
    return readers


def name_of_files(names: Iterable[str]) -> str:
    """The name of a column with the path of each row's file, beside columns of these names."""
    return "source_file" if "file" in names else "file"


def _with_made(reader: FirstRows, made: RowColumns) -> FirstRows:
    """Return the rows with computed columns, as the mapping sees them; batches that cannot be computed stay as they are."""
    return reader.changed(lambda rows: made(rows, reader.uri)[0])


def _with_column(reader: FirstRows, name: str) -> FirstRows:
    uri = pa.scalar(reader.uri, pa.large_string())
    return reader.changed(lambda rows: rows.append_column(name, pa.repeat(uri, rows.num_rows)))


def _counts_anew(guess: Guess) -> bool:
    """Whether t counts the steps of each file in order, again and again from the same number."""
    if (t := guess.t) is None or np.isnan(t).any():
        return False
    run = values.runs(t, guess.rows.file)
    return len(np.unique(run)) > 1 and values.counted_from(t, run, guess.rows.file) is not None


def _sign_of_choices(guess: Guess, sample: SourceSample) -> str | None:
    """What says that each row may be a choice by itself, as the first half of a sentence; None if nothing does.

    That is an id of its own, or what may be the probability of what was done: rows of a trajectory have none as a rule.
    """
    if (row_id := _row_id(guess, sample)) is not None:
        return f"each row has its own {row_id}"
    known = guess.source_of(columns.ACTION_PROB)
    chance = known or next((name for name in guess.left if may_be_chance(guess, name)), None)
    return None if chance is None else f"{chance} may be the probability of what was done"


def _row_id(guess: Guess, sample: SourceSample) -> str | None:
    """A column that numbers choices, as those of tickets and orders do: another value in each row; None if there is none.

    Of several files each may be an episode, and of a log without probabilities a name has to say what is numbered.
    """
    if len(sample.readers) > 1 or len(guess.rows) < MIN_ROW_IDS:
        return None
    words = (*CHOICE_WORDS, *ID_WORDS) if columns.ACTION_PROB in guess.roles else CHOICE_WORDS
    for name in guess.left:
        column = guess.column(name)
        if column.null_count or not has_word(name, words):
            continue
        is_id = values.is_text(column) and not (values.is_time(column) or values.is_unread_time(column))
        if (is_id or values.is_whole(column)) and pc.count_distinct(column).as_py() == len(column):
            return name
    return None


def _ends_to_decide(sign: str | None, in_runs: list[str]) -> Decision:
    """Ask where episodes end.

    Arguments:
        sign: of choices.
        in_runs: columns that may name episodes: the rows of each value follow one another.
    """
    if sign is None:
        question = "nothing says where an episode ends: map a column to eps_id, or to dones; or set episodes.order: single_step"
        return Decision(name="episodes", question=question, candidates=in_runs)
    question = (
        f"{sign}, and nothing says which rows follow one another: single_step if each row is a choice by itself; each file if "
        "its rows follow one another; or the column that names their episodes"
    )
    return Decision(name="episodes", question=question, candidates=["single_step", EACH_FILE, *in_runs])


def _declare_mixed_types(plan: Proposal, readers: Sequence[FirstRows]) -> None:
    """Declare a Box of floats for columns that are whole numbers in some files and floats in others."""
    if plan.config.environment is not None:
        return
    kinds = {column.name: column.types for column in plan.columns}
    for name, parameter in ((columns.OBS, "observation_space"), (columns.ACTIONS, "action_space")):
        sources = plan.roles[name].sources
        column_types = [kinds.get(source, {}) for source in sources]
        is_mixed = any({"float" in kind for kind in types} == {True, False} for types in column_types)
        always = any(len(types) == 1 and "float" in next(iter(types)) for types in column_types)
        if not is_mixed or (always and len(sources) > 1) or getattr(plan.config, parameter) is not None:
            continue
        if (table := prepared(readers[:1], plan.config)) is None:
            continue
        first = read_column(table, name)
        if isinstance(first, np.ndarray):
            space = {"space": "box", "low": float("-inf"), "high": float("inf"), "shape": list(first.shape[1:])}
            plan.set(parameter, space | {"dtype": "float64"}, "whole numbers in some files, real ones in others")


def _complete_episodes(plan: Proposal, sample: SourceSample, readers: Sequence[FirstRows]) -> None:
    table = prepared(readers, plan.config)
    clock = None if table is None else episodes.OrderedRows.of(table, readers, sample.numbers)
    if clock is not None:
        has_ids = columns.EPS_ID in plan.roles
        for name, choice in episodes.order_and_first_t(clock, has_ids).items():
            plan.take(f"episodes.{name}", choice)
    trial = tried(readers, plan.config)
    is_open = trial.error is None and "ids_per" not in plan.config.episodes.model_fields_set
    if is_open and table is not None and columns.EPS_ID in table.column_names:
        if plan.take("episodes.ids_per", episodes.ids_per(clock, readers, plan.config, trial)):
            trial = tried(readers, plan.config)
        elif _is_shared(table) and not {*ENDS} & plan.roles.keys() and trial.order == "stored":
            question = "ids come again in other files, and neither t, ends nor new_obs say whether an episode goes on there"
            plan.decisions.append(Decision(name="ids_per", question=question, candidates=["source", "file", "folder"]))
    _quarantine(plan, trial)
    undecided = {name for role in plan.roles.values() if role.source is None for name in role.candidates}
    plan.left_out = {name: why for name, why in trial.findings.extras.items() if name not in undecided}
    _note_time_limit(plan, trial)
    plan.trial = trial


def _is_shared(table: pa.Table) -> bool:
    """Whether an id occurs in several files."""
    ids = table[columns.EPS_ID].combine_chunks().dictionary_encode().indices.to_numpy()
    pairs = np.unique(np.stack([ids, table[SOURCE_FILE].to_numpy()]), axis=1)
    return len(pairs.T) > len(np.unique(ids))


def _note_time_limit(plan: Proposal, trial: Trial) -> None:
    """One flag for both ends, and many episodes end at the same step: that may be a limit."""
    if columns.TRUNCATEDS in plan.roles or plan.config.episodes.time_limit_steps is not None:
        return
    ended = lengths(trial)[[episode.terminated for episode in trial.episodes]] if trial.episodes else np.zeros(0, int)
    if len(ended) < 4 or len(np.unique(ended)) < 2:
        return
    longest = int(ended.max())
    count = int((ended == longest).sum())
    if count >= LIMIT_SHARE * len(ended):
        plan.notes.append(
            f"{count:,} of {len(ended):,} episodes end at exactly {longest:,} steps, and none is longer. If that is a time "
            f"limit, set episodes.time_limit_steps: {longest}: their ends are truncations then."
        )
