"""Guess what the columns of a source mean, by their names, their types and what their values do."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.episodes import arrow, columns
from offline_core.data.episodes.action_masks import ACTION_MASK, NEW_ACTION_MASK
from offline_core.data.formats.sources.names import (
    ACTION_WORDS,
    CANONICAL,
    DENSITY_NAMES,
    ENDS,
    ID_WORDS,
    OUTCOME_WORDS,
    PROBABILITIES,
    PROBABILITY_NAMES,
    STEP_NAMES,
    SYNONYMS,
    THING_WORDS,
    TIME_WORDS,
    UNDERSTOOD,
    VECTORS,
    first_word,
    following,
    has_word,
    is_minimised,
    is_outcome,
    is_result,
    named,
    numbered_alike,
    parts_of,
    plain,
)
from offline_core.data.importing import column_values as values
from offline_core.data.importing.column_values import SampleRows
from offline_core.data.importing.mapping import REQUIRED
from offline_core.data.importing.masked import MASKS
from offline_core.data.importing.recognised import MIN_NAME, recognised

MAX_NULLS = 0.5
"""A column of which more of the values are missing is nothing that each step has."""
MOST_TOGETHER = 20
"""Of so many columns two together may be an id."""
KEPT = (columns.AGENT_ID, columns.MODULE_ID, columns.ACTION_DIST_INPUTS, columns.WEIGHTS_SEQ_NO)
"""Canonical names that no other program uses."""


_AMOUNT = r"^[-+]?\s?[$€£]?\s?\d+([.,']\d+)*\s?[%€$£]?$"


class Role(BaseModel):
    """What one column, or several as one vector, are taken for."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="The canonical name.")
    source: str | list[str] | None = Field(description="In the source; None: to decide.")
    reason: str
    candidates: list[str] = Field([], description="What it may be, too.")
    at_ends: list[str] = Field([], description="Of the sources and candidates, those that only last rows of episodes have.")
    is_given: bool = False
    is_sure: bool = Field(True, description="Its name says so, and it can be nothing else.")

    @property
    def sources(self) -> list[str]:
        """The columns of the source."""
        return [self.source] if isinstance(self.source, str) else self.source or []

    @property
    def needs_mapping(self) -> bool:
        """Whether it is guessed, and the column has another name; a mask of any name, for without a mapping it is none."""
        return not self.is_given and self.source is not None and (self.name in MASKS or self.source != self.name)


@dataclass
class Guess:
    """Roles so far; each column has one at most."""

    rows: SampleRows
    roles: dict[str, Role] = field(default_factory=dict)
    is_single: bool = False

    @property
    def left(self) -> list[str]:
        """Columns without a role."""
        taken = {source for role in self.roles.values() for source in role.sources}
        return [name for name in self.rows.table.column_names if name not in taken]

    def column(self, name: str) -> pa.ChunkedArray:
        return self.rows.table[name]

    def take(
        self, name: str, source: str | list[str] | None, reason: str, candidates: Iterable[str] = (), *, is_sure: bool = True
    ) -> None:
        self.roles[name] = Role(name=name, source=source, reason=reason, candidates=list(candidates), is_sure=is_sure)

    def source_of(self, name: str) -> str | None:
        role = self.roles.get(name)
        source = None if role is None else role.source
        return source if isinstance(source, str) and source in self.rows.table.column_names else None

    @property
    def t(self) -> np.ndarray | None:
        """(N,) what the column of t holds, times in nanoseconds; None if there is none, or it has no numbers and times."""
        time = self.source_of(columns.T)
        return None if time is None else values.numbers(self.column(time), may_be_time=True)


def guessed(
    rows: SampleRows, mapping: Mapping[str, str | list[str]], changed: Collection[str], *, is_single: bool = False
) -> Guess:
    """Return the roles that are mapped or guessed, and the others of `REQUIRED`, with candidates.

    Arguments:
        mapping: the declared roles.
        changed: columns that are computed or changed before the mapping.
        is_single: each row is declared an episode.
    """
    guess = Guess(_with_ids_inside(rows), is_single=is_single)
    for name, source in mapping.items():
        target = CANONICAL.get(name, name)
        guess.roles[target] = Role(name=target, source=source, reason="given", is_given=True)
    _by_canonical_name(guess)
    for name in SYNONYMS:
        if name not in guess.roles and name not in (*KEPT, *UNDERSTOOD):
            _by_name(guess, name)
    _understood(guess, changed)
    _inside_structs(guess)
    _time(guess)
    _ids(guess)
    _time(guess)  # the ids may tell which rows it counts
    _pairs(guess)
    _ends(guess)
    _probability(guess)
    _the_rest(guess)
    _masks(guess)
    if (reward := guess.roles.get(columns.REWARDS)) is not None:
        named_so = [name for name in (*reward.sources, *reward.candidates) if name in rows.table.column_names]
        at_ends = [name for name in named_so if _is_at_ends(guess, guess.column(name))]
        guess.roles[columns.REWARDS] = reward.model_copy(update={"at_ends": at_ends})
    return guess


def _with_ids_inside(rows: SampleRows) -> SampleRows:
    """The rows with the ids inside structs as columns, by their dotted names, as `match.id`."""
    table = rows.table
    for name in table.column_names:
        kind = table.schema.field(name).type
        for number, child in enumerate(kind if pa.types.is_struct(kind) else ()):
            dotted = f"{name}.{child.name}"
            is_taken = "." in child.name or dotted in table.column_names
            if has_word(child.name, ID_WORDS) and not is_taken and not pa.types.is_nested(child.type):
                table = table.append_column(dotted, pc.struct_field(table[name], number))
    return SampleRows(table, rows.file)


def in_order(roles: Mapping[str, Role]) -> list[Role]:
    """Sort roles: first those that every import has."""
    order = (columns.EPS_ID, columns.T, *REQUIRED, columns.NEW_OBS, *ENDS)
    return sorted(roles.values(), key=lambda role: order.index(role.name) if role.name in order else len(order))


def _masks(guess: Guess) -> None:
    """Drop guessed masks that an import would refuse, as one of `obs` and `new_obs` would have none."""
    needed = {ACTION_MASK, NEW_ACTION_MASK} if columns.NEW_OBS in guess.roles else {ACTION_MASK}
    masks = {name for name in MASKS if name in guess.roles}
    for name in masks if masks < needed else masks - needed:
        if not guess.roles[name].is_given:
            del guess.roles[name]


def _understood(guess: Guess, changed: Collection[str]) -> None:
    """Ends, first rows and next observations, as an import takes them by their names."""
    known = {
        name: role.source
        for name, role in guess.roles.items()
        if role.source is not None and (role.is_given or name not in MASKS)  # a mask that is found yields to next observations
    }
    mapping, _ = recognised(guess.rows.table, known, changed, least=1)
    for name, source in mapping.items():
        if name not in guess.roles:
            guess.take(name, source, "as its name says")
    if columns.IS_LAST in guess.roles and not guess.roles[columns.IS_LAST].is_given:
        reason = "as in RLDS: such a row is no step, and holds the observation after the last one"
        guess.take(columns.IS_LAST, guess.roles[columns.IS_LAST].source, reason)


def _by_canonical_name(guess: Guess) -> None:
    for name in (*SYNONYMS, *KEPT):
        if name in guess.left and name not in guess.roles and not _is_of_fields(guess, name, guess.column(name)):
            guess.take(name, name, "has the canonical name")


def _by_name(guess: Guess, name: str) -> None:
    left = guess.left
    if name == columns.OBS:
        later = {*named(columns.NEW_OBS, left), *parts_of(columns.NEW_OBS, left), *following(left).values()}
        left = [column for column in left if column not in later]
    matches = [
        column
        for column in named(name, left)
        if _fits(name, guess.column(column)) and not _is_of_fields(guess, name, guess.column(column))
    ]
    if name == columns.T and len(matches) > 1:  # what numbers the steps before what times them
        matches.sort(key=lambda column: not values.is_whole(guess.column(column)))
        steps = [column for column in matches if plain(column) in STEP_NAMES]
        times = [column for column in matches if column not in steps]
        if matches[0] in steps and values.is_whole(guess.column(matches[0])) and _grow_with(guess, matches[0], times):
            matches = steps  # a time beside it is an extra output
    if matches:
        guess.take(name, matches[0], f"another name for {name}", matches[1:], is_sure=len(plain(matches[0])) >= MIN_NAME)
    elif name in VECTORS and (parts := [part for part in parts_of(name, left) if _is_number(guess.column(part))]):
        joined = parts[0] if len(parts) == 1 else parts
        reason = f"the name{'s' * (len(parts) > 1)} begin{'s' * (len(parts) == 1)} with another one for {name}"
        guess.take(name, joined, reason, is_sure=all(part[-1].isdecimal() for part in parts))


def _grow_with(guess: Guess, steps: str, times: list[str]) -> bool:
    """Whether no time falls as the step index grows within an id; without ids, from row to row more often than not."""
    source = guess.source_of(columns.EPS_ID)
    file, index = guess.rows.file, values.numbers(guess.column(steps))
    for name in times:
        time = values.numbers(guess.column(name), may_be_time=True)
        if index is None or time is None:
            return False
        known = ~(np.isnan(index) | np.isnan(time))
        run = file if source is None else values.runs(index, file, guess.column(source))
        order = np.arange(len(index)) if source is None else np.lexsort((time, index, run))
        order = order[known[order]]
        moves = np.sign(np.diff(index[order])) * np.sign(np.diff(time[order])) * (np.diff(run[order]) == 0)
        falls = np.count_nonzero(moves < 0)
        if falls and (source is not None or falls >= np.count_nonzero(moves > 0)):
            return False
    return True


def _inside_structs(guess: Guess) -> None:
    for column in guess.left:
        kind = guess.column(column).type
        for child in kind if pa.types.is_struct(kind) else ():
            for name, known in SYNONYMS.items():
                may_be = name in (*VECTORS, columns.INFOS) or not pa.types.is_struct(child.type)
                if may_be and plain(child.name) in known and name not in guess.roles:
                    guess.take(name, f"{column}.{child.name}", f"another name for {name}, inside {column}")


def _time(guess: Guess) -> None:
    if columns.T in guess.roles:
        return
    if times := [name for name in guess.left if values.is_time(guess.column(name))]:
        guess.take(columns.T, times[0], "the values are times", times[1:])
        return
    eps_id = guess.source_of(columns.EPS_ID)
    ids = None if eps_id is None else guess.column(eps_id)
    for name in guess.left:
        if (first := values.numbers_rows(guess.column(name), guess.rows.file, ids)) is not None:
            guess.take(columns.T, name, f"the values count by one, from {first:.0f} in each run")
            return


def _ids(guess: Guess) -> None:
    if columns.EPS_ID in guess.roles:
        return
    time, t = guess.source_of(columns.T), guess.t
    candidates = values.id_candidates(guess.rows, guess.left, t)
    named_so = [name for name in guess.left if has_word(name, (*ID_WORDS, *THING_WORDS))]
    if not candidates and len(of_files := values.one_in_each_file(guess.rows, named_so)) == 1:
        guess.take(columns.EPS_ID, of_files[0], "one in each file, another in nearly each, and named like an id", is_sure=False)
        return
    if not candidates and t is not None:  # one after another in time
        if len(candidates := values.id_candidates(guess.rows, named_so, None)) == 1:
            guess.take(columns.EPS_ID, candidates[0], "comes in runs, none of them twice, and is named like an id")
            return
        texts = [name for name in guess.left if arrow.is_text(guess.column(name).type)]
        runs = [
            name
            for name in values.id_candidates(guess.rows, texts, None)
            if pc.count_distinct(guess.column(name)).as_py() >= values.CHANCES
        ]
        if len(runs) == 1:
            guess.take(columns.EPS_ID, runs[0], "a text that comes in many runs, none of them twice", is_sure=False)
            return
        candidates = []
    why = (
        "stays the same while t grows, and changes where t begins anew"
        if t is not None
        else "comes in runs, none of them twice"
    )
    ends = {*ENDS} & guess.roles.keys()
    if len(candidates) == 1 and (t is not None or not ends):
        guess.take(columns.EPS_ID, candidates[0], why)
    elif candidates and not ends:
        both = [] if t is None else _together(guess, candidates, t)
        reason = "these together tell apart the rows of one time" if both else f"each {why}"
        guess.take(columns.EPS_ID, None, f"several columns may name the episode of a row: {reason}", [*both, *candidates])
    elif time is not None and t is not None and values.is_time(guess.column(time)):
        apart = [name for (name,) in values.apart_at_one_time(guess.rows, guess.left, t) if not is_outcome(name)]
        may_name = [name for name in guess.left if _is_name(guess.column(name)) or name in named_so]
        if len(apart) == 1 and apart[0] in may_name:
            guess.take(columns.EPS_ID, apart[0], "tells apart the rows of one time", is_sure=False)
        elif both := _together(guess, may_name, t):
            reason = "no column names the episode of a row: these together tell apart the rows of one time"
            guess.take(columns.EPS_ID, None, reason, [*both, *apart])
        elif apart:
            one = "a column" if len(apart) == 1 else "several columns"
            reason = (
                f"{one} may name the episode of a row: {'it' if len(apart) == 1 else 'each'} tells apart the rows of one time"
            )
            guess.take(columns.EPS_ID, None, reason, apart)


def _is_name(column: pa.ChunkedArray) -> bool:
    """Text whose values are not all amounts, such as `2,195` or `1.200,50 €`; digits alone may be a code."""
    if not arrow.is_text(column.type):
        return False
    is_amount = pc.match_substring_regex(column, _AMOUNT)
    return not pc.all(is_amount).as_py() or not pc.any(pc.match_substring_regex(column, "[.,'%€$£]")).as_py()


def _together(guess: Guess, names: Sequence[str], t: np.ndarray) -> list[str]:
    """Pairs of columns that tell apart the rows of one time where neither does, as a mapping names them."""
    if values.apart_at_one_time(guess.rows, names, t):
        return []
    likely = {*sorted(names, key=lambda name: not has_word(name, (*ID_WORDS, *THING_WORDS)))[:MOST_TOGETHER]}
    pairs = values.apart_at_one_time(guess.rows, [name for name in names if name in likely], t, several=2)
    return [f"[{', '.join(map(_quoted, both))}]" for both in pairs]


def _quoted(name: str) -> str:
    """As an item of a list in YAML."""
    return name if re.fullmatch(r"[A-Za-z_][\w .-]*", name) else json.dumps(name, ensure_ascii=False)


def _pairs(guess: Guess) -> None:
    """Guess the id and the step number of rows that lie in no order."""
    if not has_single_steps(guess.roles):
        return
    pairs = values.numbered_in_any_order(guess.rows, guess.left)
    named_so = [pair for pair in pairs if has_word(pair[1], TIME_WORDS) and not has_word(pair[0], TIME_WORDS)]
    if len(pairs) != 1 and len(named_so) != 1:
        return
    ((eps_id, t),) = named_so if len(pairs) != 1 else pairs
    guess.take(columns.EPS_ID, eps_id, f"no two of its rows have the same {t}, in whatever order rows lie", is_sure=False)
    guess.take(columns.T, t, f"numbers the rows of each {eps_id}, in whatever order rows lie", is_sure=False)


def same_episode(guess: Guess) -> np.ndarray | None:
    """(N-1,) bool: the next row goes on with the episode; None if neither ids nor times say so."""
    eps_id, t = guess.source_of(columns.EPS_ID), guess.t
    if eps_id is not None:
        same = values.same_run(guess.column(eps_id), guess.rows.file)
        return same if t is None else same & (np.diff(t) != 0)  # a last row may be there twice
    if t is not None:
        return (np.diff(guess.rows.file) == 0) & (np.diff(t) > 0)  # type: ignore[no-any-return]
    return None


def _ends(guess: Guess) -> None:
    if {*ENDS} & guess.roles.keys():
        return
    if (same := same_episode(guess)) is None:
        return
    if candidates := values.end_candidates(guess.rows, guess.left, same):
        reason = "true in last rows of episodes and nowhere else"
        guess.take(columns.TERMINATEDS, candidates[0], reason, candidates[1:], is_sure=False)


def _probability(guess: Guess) -> None:
    """Guess the column of action probabilities by its name and values.

    Densities count only in a log of single steps: elsewhere things have densities, too, and `p` may be a pressure.
    """
    if {columns.ACTION_PROB, columns.ACTION_LOGP} & guess.roles.keys():
        return
    actions = guess.source_of(columns.ACTIONS)
    is_choice = actions is not None and (values.is_text(guess.column(actions)) or values.is_whole(guess.column(actions)))
    is_single = guess.is_single or has_single_steps(guess.roles)
    known = [([*PROBABILITY_NAMES] if is_single else [name for name in PROBABILITY_NAMES if len(name) > 1], 1.0)]  # p: pressure
    known += [([*DENSITY_NAMES], np.inf)] * (is_single and not is_choice)
    for names, most in known:
        of_action = [] if actions is None else [f"{plain(actions)}_{word}" for word in names if len(word) > 1]
        for name in [name for name in guess.left if plain(name) in (*names, *of_action)]:
            numbers = values.numbers(guess.column(name))
            if numbers is not None and len(numbers) and ((numbers > 0) & (numbers <= most)).all():
                what = "probability" if most == 1 else "density"
                guess.take(columns.ACTION_PROB, name, f"named like a {what}, and all values may be one", is_sure=False)
                return


def may_be_chance(guess: Guess, name: str) -> bool:
    """Whether a column may hold the probability of what was done, or of a real number its density, by its name and values."""
    numbers = values.numbers(guess.column(name)) if plain(name) in (*PROBABILITIES, *DENSITY_NAMES) else None
    if numbers is None or not len(numbers) or not (numbers > 0).all():
        return False
    if plain(name) not in DENSITY_NAMES:
        return bool((numbers <= 1).all())
    action = guess.source_of(columns.ACTIONS)  # elsewhere things have densities, too
    return action is not None and pa.types.is_floating(guess.column(action).type)


def has_single_steps(roles: Collection[str]) -> bool:
    """Whether nothing says which rows belong together."""
    return not {columns.EPS_ID, columns.T, *ENDS, columns.IS_FIRST, columns.NEW_OBS} & {*roles}


def _the_rest(guess: Guess) -> None:
    """List candidates for the roles that an import needs and no name tells; only lone vectors are guessed as observations."""
    after = {*following(guess.rows.table.column_names).values()}
    left = [
        name
        for name in guess.left
        if not (has_word(name, PROBABILITIES) or may_be_chance(guess, name) or name in after or _tells_apart(guess, name))
    ]
    vectors = [name for name in left if _fits(columns.OBS, guess.column(name)) and values.is_sure_vector(guess.column(name))]
    if columns.OBS not in guess.roles and len(vectors) == 1 and not pa.types.is_struct(guess.column(vectors[0]).type):
        guess.take(columns.OBS, vectors[0], "the only vectors that have no other meaning", is_sure=False)
        left.remove(vectors[0])
    kinds = dict[str, pa.ChunkedArray]()
    for name in left:
        if not ("." in name and pa.types.is_struct(guess.column(name).type)):
            kinds |= _fields(name, guess.column(name))
    taken = {source for role in guess.roles.values() for source in role.sources}
    left = [name for name in kinds if name not in taken and kinds[name].null_count <= MAX_NULLS * len(guess.rows)]
    at_ends = [name for name in kinds if name not in {*taken, *left} and is_outcome(name) and _is_at_ends(guess, kinds[name])]
    vectors = [name for name in left if name in vectors or ("." in name and values.is_sure_vector(kinds[name]))]
    done = [name for name in left if "." not in name or plain(name.partition(".")[0]) not in SYNONYMS[columns.OBS]]
    single = [name for name in done if _is_number(kinds[name])]
    words = [name for name in done if values.is_choice(kinds[name]) or pa.types.is_boolean(kinds[name].type)]
    categories = [name for name in left if values.is_category(kinds[name])]
    seen = [name for name in left if name in {*vectors, *categories} or _is_number(kinds[name])]
    no_reward = columns.REWARDS not in guess.roles  # else only what has the very name of an outcome is none
    seen = [name for name in seen if not ((no_reward and is_outcome(_read_from(guess, name))) or is_result(name))] or seen
    likeliest: list[str] = []
    for name, reason, pool, likely in (
        (columns.REWARDS, "no name says which column is the reward", [*single, *at_ends], OUTCOME_WORDS),
        (columns.ACTIONS, "no name says which columns are the action", [*words, *vectors, *single], ACTION_WORDS),
        (columns.OBS, "no name says what a policy observes", seen, ()),
    ):
        if name in guess.roles:
            continue
        if name == columns.OBS:
            acts = [each for each in guess.roles[columns.ACTIONS].sources or likeliest if has_word(each, ACTION_WORDS)]
            others = {other: one for one in acts for other in numbered_alike(one, [*acts, *pool]) if other not in acts}
            if {*pool} - {*others, *likeliest}:  # the other numbers of what acts are no state, if there is another one
                likeliest += others
                reason += "".join(f"; {other} is named as {one} is, which acts" for other, one in [*others.items()][:1])
        candidates = sorted(
            (column for column in pool if column not in likeliest),
            key=lambda column: (
                (len(likely), True) if (at := first_word(column, likely)) is None else (at, plain(column) != likely[at])
            ),
        )
        if name == columns.REWARDS and candidates and is_minimised(candidates[0]):
            reason += f"; {candidates[0]} is named like something to be minimised, which is a reward once it is turned round"
        if name != columns.OBS and (
            sure := [column for column in candidates if has_word(column, likely)] or words * (name == columns.ACTIONS)
        ):
            likeliest += sure[:1]
            alike = numbered_alike(sure[0], candidates) if name == columns.ACTIONS and has_word(sure[0], likely) else []
            if alike:
                reason += f"; {' and '.join(alike[:2])} are named alike, and may be one: actions: [{', '.join(alike)}]"
        guess.take(name, None, reason, [*dict.fromkeys(candidates)])


def _read_from(guess: Guess, name: str) -> str:
    """The column whose texts a plan reads as numbers in this one; else its own name."""
    text = name.removesuffix("_number")
    return text if text in guess.rows.table.column_names else name


def _fields(name: str, column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """The numbers, vectors and categories inside a struct, by their dotted names; any other column by its own."""
    if not pa.types.is_struct(column.type):
        return {name: column}
    fields = dict[str, pa.ChunkedArray]()
    for number, child in enumerate(column.type):
        inside = pc.struct_field(column, number)
        if "." in child.name:  # its dotted name would be that of another field
            continue
        is_observed = _is_number(inside) or values.is_sure_vector(inside) or values.is_category(inside)
        if pa.types.is_struct(child.type) or is_observed:
            fields |= _fields(f"{name}.{child.name}", inside)
    return fields


def _tells_apart(guess: Guess, name: str) -> bool:
    """Whether a column is an id of rows or things, by its name and its values."""
    column = guess.column(name)
    return has_word(name, ID_WORDS) and (arrow.is_text(column.type) or values.is_whole(column)) and not values.is_flag(column)


def _fits(role: str, column: pa.ChunkedArray) -> bool:
    """Whether the type is one that the role may have."""
    match role:
        case columns.EPS_ID:
            return not pa.types.is_nested(column.type) and not values.is_time(column)
        case columns.T:
            return (
                values.is_time(column)
                or pa.types.is_temporal(column.type)
                or (not pa.types.is_boolean(column.type) and values.numbers(column) is not None)
            )
        case columns.TERMINATEDS | columns.TRUNCATEDS | columns.DONES | columns.IS_LAST | columns.IS_FIRST:
            return values.is_flag(column)
        case columns.REWARDS | columns.ACTION_LOGP | columns.ACTION_PROB:
            return values.numbers(column) is not None or values.is_vector(column)
        case columns.OBS | columns.NEW_OBS | columns.ACTIONS:
            return _is_number(column) or values.is_vector(column)
        case columns.INFOS:
            return pa.types.is_nested(column.type) or arrow.is_text(column.type) or pa.types.is_large_binary(column.type)
    return role in MASKS and values.is_vector(column)


def _is_at_ends(guess: Guess, column: pa.ChunkedArray) -> bool:
    """Whether last rows of episodes have it and no others, as who has won, whatever the order of the rows."""
    known = column.is_valid().to_numpy()
    if known.all() or not known.any() or not (_is_number(column) or values.is_flag(column.drop_null())):
        return False
    eps_id, t = guess.source_of(columns.EPS_ID), guess.t
    if eps_id is not None and t is not None and len(t) == len(known):
        ids = guess.column(eps_id).combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        order = np.lexsort((t, ids))
        last = np.zeros(len(known), bool)
        last[order] = np.append(np.diff(ids[order]) != 0, True)
        return bool(last[known].all())
    same = same_episode(guess)
    return same is not None and bool(np.append(~same, True)[known].all())


def _is_of_fields(guess: Guess, role: str, column: pa.ChunkedArray) -> bool:
    """Whether a state has a text inside, so that its fields are observed one by one; not where the next state is there, too."""
    follows = {*named(columns.NEW_OBS, guess.rows.table.column_names), *following(guess.rows.table.column_names).values()}
    return role == columns.OBS and not follows and _holds_text(column.type)


def _holds_text(kind: pa.DataType) -> bool:
    """Whether a struct has a text inside, which is no number."""
    return pa.types.is_struct(kind) and any(arrow.is_text(child.type) or _holds_text(child.type) for child in kind)


def _is_number(column: pa.ChunkedArray) -> bool:
    return values.numbers(column) is not None
