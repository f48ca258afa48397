"""Parameters of an import from the answers to what its plan cannot know."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from offline_core.data.episodes import columns
from offline_core.data.formats.sources.names import REWARD_WORDS, has_word, is_minimised
from offline_core.data.formats.sources.scans import FILE_PATHS
from offline_core.data.importing.columns_config import last_reading
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.mapping import ColumnMapping, observed_action
from offline_core.data.importing.notes import negated
from offline_core.data.importing.planning.plan import plan_import
from offline_core.data.importing.planning.proposal import EACH_FILE, READ_TIME, name_of_files
from offline_core.data.importing.planning.result import Decision, ImportPlan
from offline_core.data.inputs.frames import no_column
from offline_core.data.inputs.row_steps import names_in
from offline_core.errors import ConfigError
from offline_core.runtime.config import parse
from offline_core.runtime.units import count_text

LAST_READING = "the last reading of the episode"
ALL = "all of these"
"""As the answer of what is a vector: all candidates."""
LEAVE_OUT, KEEP_OUT = "leave these rows out", "stop here"
BREAKS_OFF, IS_OVER = "more that was not recorded", "nothing"
LARGER, SMALLER = "larger is better", "smaller is better"
MAX_REASONS = 3
"""In a question."""
MAX_ROUNDS = 20
"""Of questions: each plan may ask what the one before could not know."""


def asked(config: ImportConfig, paths: list[str], ask: Callable[[str, list[str]], str]) -> Iterator[ImportPlan]:
    """Yield a plan, and a new one after each answer: the last has nothing left to decide, as far as answers can settle it.

    Arguments:
        ask: is given a question and the candidates, the likeliest first, and returns the answer: one of them, several with
            commas between them, or other names of columns.

    Raises:
        OfflineError: the source cannot be planned.
    """
    plan = plan_import(config, source=paths)
    refused, reasons = "", _reasons(plan)
    yield plan
    for _ in range(MAX_ROUNDS):
        undecided = [decision for decision in plan.decisions if decision.name not in ("rows", "columns", "parameters")]
        config = _asked_of(plan)
        gaps = plan.gaps if config.unreadable == "fail" else {}
        if undecided:
            decision = next((each for each in undecided if each.name == "dates"), undecided[0])  # later it counts as given
            if decision.name == columns.OBS:  # after the actions, which are not observed
                decision = next((other for other in undecided if other.name == columns.ACTIONS), decision)
            answer = _answer(decision, refused, ask)
            known = [*dict.fromkeys([*(column.name for column in plan.columns), *_single(decision)])]
            structs = {column.name for column in plan.columns if column.type.startswith("struct of")}
            refused = _why_not(decision, answer, known, structs, config.mapping)
            if not refused:
                config = _with_answer(config, decision, answer, known)
            if not refused and decision.name == columns.REWARDS and not _is_expression(decision, answer, known):
                config = _with_sign(config, plan, ask)
        elif gaps:
            name, rows = next(iter(gaps.items()))
            seen = config.mapping.get(columns.OBS, [])
            is_reading = isinstance(seen, list) and name in seen and plan.order != "single_step"
            numbers = ["0"] if name in plan.fills else []
            candidates = [*([LAST_READING] if is_reading else []), *numbers, LEAVE_OUT]
            answer = ask(f"{name}: {rows:,} of the rows that were read have no value there; what to put in", candidates)
            if answer == LAST_READING and is_reading:
                column = next(column for column in plan.columns if column.name == name)
                usual = [value for value in (column.median, column.minimum, column.maximum) if value is not None] or ["0"]
                first = ask(f"{name}: what stands before the first reading of an episode", [*dict.fromkeys(usual)])
                config = _with_last_reading(config, name, first)
            else:
                config = _with_filled(config, name, answer)
        elif any(decision.name == "rows" for decision in plan.decisions) and config.unreadable == "fail":
            is_all = plan.counts.quarantined_rows == plan.counts.rows
            answer = ask(
                f"rows: some cannot be imported; {_why_refused(plan)}",
                [KEEP_OUT, LEAVE_OUT] if is_all else [LEAVE_OUT, KEEP_OUT],
            )
            if answer != LEAVE_OUT:
                break
            config = config.having("unreadable", "quarantine")
        elif plan.ends_are_unknown:
            question = "episodes: no column says how they end; what comes after the last row of each"
            incomplete = "end" if _choice(question, [BREAKS_OFF, IS_OVER], ask) == IS_OVER else "cut"
            config = config.having("episodes.incomplete", incomplete)
        else:
            break
        answered = _parameters(config).items() - _parameters(_asked_of(plan)).items()
        plan = plan_import(config, source=paths)
        reasons = _reasons(plan) | reasons | {name: "your answer" for name, _ in answered}
        yield plan.model_copy(update={"chosen": reasons | plan.chosen})


def _why_refused(plan: ImportPlan) -> str:
    """The most frequent reasons for which rows cannot be imported."""
    return "; ".join(f"{count_text(each.rows, 'row')}: {each.reason.rstrip('.')}" for each in plan.refused[:MAX_REASONS])


def _reasons(plan: ImportPlan) -> dict[str, str]:
    """Why the plan sets each of its parameters, by their names."""
    roles = [role for role in plan.roles if role.needs_mapping]
    return {f"mapping.{role.name}": role.reason for role in roles} | plan.chosen


def _parameters(config: ImportConfig) -> dict[str, str]:
    """The parameters that are set, each as JSON, by their names."""
    values: dict[str, Any] = {}
    for name, value in config.model_dump(mode="json", exclude_unset=True).items():
        values |= {f"{name}.{inner}": held for inner, held in value.items()} if isinstance(value, dict) else {name: value}
    return {name: json.dumps(value) for name, value in values.items()}


def _answer(decision: Decision, refused: str, ask: Callable[[str, list[str]], str]) -> str:
    """The answer to one question: for observations all candidates are the likeliest, as the YAML of a plan proposes them."""
    question = f"{f'{refused} ' if refused else ''}{decision.name}: {decision.question}"
    if decision.name == "dates":
        return _choice(question, decision.candidates, ask)
    if decision.name == columns.REWARDS:
        question += "; or an expression, such as revenue - cost"
    if decision.name in (columns.OBS, columns.ACTIONS, columns.EPS_ID) and len(decision.candidates) > 1:
        question += "; several names have commas between them"
    if decision.name != columns.OBS or len(decision.candidates) < 2:
        return ask(question, decision.candidates)
    answer = ask(question, [ALL, *decision.candidates])
    return ", ".join(decision.candidates) if answer == ALL else answer


def _single(decision: Decision) -> list[str]:
    """The candidates that name one column."""
    is_pair = decision.name == columns.EPS_ID  # such as [hotel, room]
    return [name for name in decision.candidates if name != "single_step" and not (is_pair and name.startswith("["))]


def _choice(question: str, candidates: list[str], ask: Callable[[str, list[str]], str]) -> str:
    """The candidate that is answered; another answer is asked again.

    Raises:
        ConfigError: no answer is a candidate.
    """
    again = ""
    for _ in range(MAX_ROUNDS):
        if (answer := ask(f"{again}{question}", candidates).strip()) in candidates:
            return answer
        again = "That is none of them. "
    raise ConfigError(f"{question}: the answer has to be {' or '.join(candidates)}.")


def _asked_of(plan: ImportPlan) -> ImportConfig:
    """Return the plan's parameters without the choices that a person has to make: which rows are left out, and the first t."""
    parameters = {name: getattr(plan.config, name) for name in plan.config.model_fields_set}
    if "unreadable" in plan.chosen:
        del parameters["unreadable"]
    if "episodes.first_t" in plan.chosen:
        episodes = plan.config.episodes
        parameters["episodes"] = {name: getattr(episodes, name) for name in episodes.model_fields_set - {"first_t"}}
    return parse(ImportConfig, parameters)


def _names(answer: str, known: list[str]) -> list[str]:
    """What an answer names: one, though its name may have commas, or several, as a list of YAML, too."""
    if (one := answer.strip()) in known:
        return [one]
    if one.startswith("[") and one.endswith("]"):
        with contextlib.suppress(yaml.YAMLError):
            return [str(part) for part in yaml.safe_load(one)]
    return [part.strip() for part in one.split(",") if part.strip()]


def _is_expression(decision: Decision, answer: str, known: list[str]) -> bool:
    """Whether rewards are computed of columns."""
    if decision.name != columns.REWARDS or answer.strip() in known:
        return False
    with contextlib.suppress(ConfigError):
        return bool(of := names_in(answer)) and {*of} <= {*known}
    return False


def _why_not(decision: Decision, answer: str, known: list[str], structs: set[str], mapping: ColumnMapping) -> str:
    """Say why an answer settles nothing, so that the question is asked again; empty if it does.

    Arguments:
        known: names that may be given.
        structs: those of columns with fields inside.
        mapping: what is decided already.
    """
    names = _names(answer, known)
    if not names:
        return "That names nothing."
    if decision.name in ("ids_per", "dates") or names == ["single_step"] or _is_expression(decision, answer, known):
        return ""
    if missing := [name for name in names if name not in known]:
        return no_column(missing, known)
    if said := observed_action({**mapping, decision.name: names}):
        return said
    is_vector = decision.name == columns.OBS or len(names) > 1
    within = ([other for other in known if other.startswith(f"{name}.")] for name in names if name in structs)
    inside = next((fields for fields in within if fields and is_vector), None)
    return f"A vector is joined from numbers: name {', '.join(inside)}." if inside else ""


def _with_answer(config: ImportConfig, decision: Decision, answer: str, known: list[str]) -> ImportConfig:
    """Return the parameters with an answer."""
    names = _names(answer, known)
    if _is_expression(decision, answer, known):
        made = next(name for name in ("reward", "computed_reward", "reward_of_answer") if name not in known)
        return config.adding("columns.computed", {made: answer}).adding("mapping", {columns.REWARDS: made})
    match decision.name:
        case "ids_per":
            return config.having("episodes.ids_per", names[0])
        case "episodes" if names[0] == "single_step":
            return config.having("episodes.order", "single_step")
        case "episodes" if names[0] == EACH_FILE:
            name = name_of_files(known)
            return config.adding("source.arguments", {FILE_PATHS: name}).adding("mapping", {columns.EPS_ID: name})
        case "episodes":
            return config.adding("mapping", {columns.EPS_ID: names[0]})
        case "dates":
            expression = re.sub("'[^']*'", f"'{names[0]}'", config.columns.computed[READ_TIME])
            return config.adding("columns.computed", {READ_TIME: expression})
        case name:
            is_vector = name == columns.OBS or len(names) > 1
            return config.adding("mapping", {name: names if is_vector else names[0]})


def _with_sign(config: ImportConfig, plan: ImportPlan, ask: Callable[[str, list[str]], str]) -> ImportConfig:
    """Return the parameters with the reward turned round where smaller values are better, unless its name says which are."""
    source = config.mapping[columns.REWARDS]
    if not isinstance(source, str) or (has_word(source, REWARD_WORDS) and not is_minimised(source)):
        return config
    candidates = [SMALLER, LARGER] if is_minimised(source) else [LARGER, SMALLER]
    if _choice(f"{source}: which values of the reward are better", candidates, ask) != SMALLER:
        return config
    computed = negated(source, {column.name for column in plan.columns})
    return config.adding("mapping", {columns.REWARDS: next(iter(computed))}).adding("columns.computed", computed)


def _with_last_reading(config: ImportConfig, name: str, first: str) -> ImportConfig:
    """Return the parameters with the gaps of an observed column filled by its last value; unchanged without a number."""
    try:
        late = last_reading(name, float(first))
    except ValueError:
        return config
    [made] = late
    obs = [made if column == name else column for column in config.mapping[columns.OBS]]
    return config.adding("mapping", {columns.OBS: obs}).adding("columns.in_episode", late)


def _with_filled(config: ImportConfig, name: str, answer: str) -> ImportConfig:
    if answer == LEAVE_OUT:
        return config.having("unreadable", "quarantine")
    try:
        value: float | str = float(answer)
    except ValueError:
        value = answer
    return config.adding("columns.fill", {name: value})
