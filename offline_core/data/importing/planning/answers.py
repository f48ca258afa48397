"""Parameters of an import from the answers to what its plan cannot know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offline_core.data.episodes import columns
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.planning.plan import plan_import
from offline_core.data.importing.planning.result import Decision, ImportPlan
from offline_core.errors import ConfigError
from offline_core.runtime.config import parse

LEAVE_OUT = "leave these rows out"
MAX_ROUNDS = 20
"""Of questions: each plan may ask what the one before could not know."""


def asked(config: ImportConfig, paths: list[str], ask: Callable[[str, list[str]], str]) -> ImportPlan:
    """Return a plan of which nothing is left to decide, as far as answers can say it.

    Arguments:
        ask: is given a question and the candidates, the likeliest first, and returns the answer: one of them, several with
            commas between them, or other names of columns.

    Raises:
        ConfigError: an answer cannot be used.
        OfflineError: the source cannot be planned.
    """
    plan = plan_import(config, source=paths)
    for _ in range(MAX_ROUNDS):
        if (decision := next((each for each in plan.decisions if _can_be_asked(each)), None)) is None:
            break
        candidates = [LEAVE_OUT] if decision.name == "rows" else decision.candidates
        answer = ask(f"{decision.name}: {decision.question}", candidates)
        plan = plan_import(_with_answer(plan.config, decision, answer), source=paths)
    return plan


def _can_be_asked(decision: Decision) -> bool:
    return decision.name != "parameters"


def _with_answer(config: ImportConfig, decision: Decision, answer: str) -> ImportConfig:
    names = [each.strip() for each in answer.split(",") if each.strip()]
    if not names:
        raise ConfigError(f"{decision.name} is still to decide: {decision.question}.")
    match decision.name:
        case "rows":
            change: dict[str, Any] = {"unreadable": "quarantine"}
        case "ids_per":
            change = {"episodes": config.episodes.model_copy(update={"ids_per": names[0]})}
        case "episodes" if names[0] == "single_step":
            change = {"episodes": config.episodes.model_copy(update={"order": "single_step"})}
        case "episodes":
            change = {"mapping": {**config.mapping, columns.EPS_ID: names[0]}}
        case name:
            is_vector = name == columns.OBS or len(names) > 1
            change = {"mapping": {**config.mapping, name: names if is_vector else names[0]}}
    given = {name: getattr(config, name) for name in config.model_fields_set}
    return parse(ImportConfig, {**given, **change})
