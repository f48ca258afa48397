"""Parameters of an import from the answers to what its plan cannot know."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from offline_core.data.episodes import columns
from offline_core.data.importing.columns_config import InEpisode
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.planning.plan import plan_import
from offline_core.data.importing.planning.result import Decision, ImportPlan
from offline_core.data.inputs.row_steps import as_sql
from offline_core.runtime.config import parse

LAST_READING = "the last reading of the episode"
ALL = "all of these"
"""As the answer of what is a vector: all candidates."""
LEAVE_OUT, KEEP_OUT = "leave these rows out", "stop here"
MAX_ROUNDS = 20
"""Of questions: each plan may ask what the one before could not know."""


def asked(config: ImportConfig, paths: list[str], ask: Callable[[str, list[str]], str]) -> ImportPlan:
    """Return a plan of which nothing is left to decide, as far as answers can say it.

    Arguments:
        ask: is given a question and the candidates, the likeliest first, and returns the answer: one of them, several with
            commas between them, or other names of columns.

    Raises:
        OfflineError: the source cannot be planned.
    """
    plan = plan_import(config, source=paths)
    for _ in range(MAX_ROUNDS):
        undecided = [each for each in plan.decisions if each.name not in ("rows", "columns", "parameters")]
        config = _asked_of(plan)
        gaps = plan.gaps if config.unreadable == "fail" else {}
        if undecided:
            decision = undecided[0]
            answer = _answer(decision, ask)
            config = _with_answer(config, decision, answer, [column.name for column in plan.columns])
        elif gaps:
            name, rows = next(iter(gaps.items()))
            seen = config.mapping.get(columns.OBS, [])
            is_reading = isinstance(seen, list) and name in seen
            candidates = [*([LAST_READING] if is_reading else []), "0", LEAVE_OUT]
            answer = ask(f"{name}: {rows:,} of the rows that were read have no value there; what to put in", candidates)
            if answer == LAST_READING and is_reading:
                column = next(each for each in plan.columns if each.name == name)
                least = str(column.minimum or 0)
                first = ask(f"{name}: what stands before the first reading of an episode", [least, str(column.maximum or 0)])
                config = _with_last_reading(config, name, first)
            else:
                config = _with_filled(config, name, answer)
        elif any(each.name == "rows" for each in plan.decisions) and config.unreadable == "fail":
            answer = ask("rows: some cannot be imported, for the reasons on the page of the plan", [LEAVE_OUT, KEEP_OUT])
            if answer != LEAVE_OUT:
                break
            config = _with(config, unreadable="quarantine")
        else:
            break
        plan = plan_import(config, source=paths)
    return plan


def _answer(decision: Decision, ask: Callable[[str, list[str]], str]) -> str:
    """The answer to one question: for observations all candidates are the likeliest, as the YAML of a plan proposes them."""
    if decision.name != columns.OBS or len(decision.candidates) < 2:
        return ask(f"{decision.name}: {decision.question}", decision.candidates)
    question = f"{decision.name}: {decision.question}; several names have commas between them"
    answer = ask(question, [ALL, *decision.candidates])
    return ", ".join(decision.candidates) if answer == ALL else answer


def _asked_of(plan: ImportPlan) -> ImportConfig:
    """The plan's parameters, of which it is for a person to say whether rows are left out, and so which one is the first."""
    given = {name: getattr(plan.config, name) for name in plan.config.model_fields_set}
    if "unreadable" in plan.chosen:
        del given["unreadable"]
    if "episodes.first_t" in plan.chosen:
        episodes = plan.config.episodes
        given["episodes"] = {name: getattr(episodes, name) for name in episodes.model_fields_set - {"first_t"}}
    return parse(ImportConfig, given)


def _with_answer(config: ImportConfig, decision: Decision, answer: str, known: list[str]) -> ImportConfig:
    """The parameters with an answer; as they are where it names no column, which is asked for again."""
    is_one = answer.strip() in {*known, *decision.candidates}
    names = [answer.strip()] if is_one else [each.strip() for each in answer.split(",") if each.strip()]
    is_open = decision.name in ("ids_per", "dates") or names == ["single_step"]
    if not names or not (is_open or {*names} <= {*known, *decision.candidates}):
        return config
    match decision.name:
        case "ids_per":
            return _with(config, episodes=config.episodes.model_copy(update={"ids_per": names[0]}))
        case "episodes" if names[0] == "single_step":
            return _with(config, episodes=config.episodes.model_copy(update={"order": "single_step"}))
        case "episodes":
            return _with(config, mapping={**config.mapping, columns.EPS_ID: names[0]})
        case "dates":
            computed = {name: re.sub("'[^']*'", f"'{names[0]}'", each) for name, each in config.columns.computed.items()}
            return _with(config, columns=config.columns.model_copy(update={"computed": computed}))
        case name:
            is_vector = name == columns.OBS or len(names) > 1
            return _with(config, mapping={**config.mapping, name: names if is_vector else names[0]})


def _with_last_reading(config: ImportConfig, name: str, first: str) -> ImportConfig:
    """The parameters with the last known value of an observed column; as they are where the answer is no number."""
    try:
        late = InEpisode(of=as_sql(name), how="last_known", first=float(first))
    except ValueError:
        return config
    made = f"{name}_known"
    obs = [made if each == name else each for each in config.mapping[columns.OBS]]
    config = _with(config, mapping={**config.mapping, columns.OBS: obs})
    return _with(config, columns=config.columns.model_copy(update={"in_episode": {**config.columns.in_episode, made: late}}))


def _with_filled(config: ImportConfig, name: str, answer: str) -> ImportConfig:
    if answer == LEAVE_OUT:
        return _with(config, unreadable="quarantine")
    try:
        value: float | str = float(answer)
    except ValueError:
        value = answer
    return _with(config, columns=config.columns.model_copy(update={"fill": {**config.columns.fill, name: value}}))


def _with(config: ImportConfig, **changes: Any) -> ImportConfig:
    given = {name: getattr(config, name) for name in config.model_fields_set}
    return parse(ImportConfig, {**given, **changes})
