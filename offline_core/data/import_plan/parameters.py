"""The parameters of a plan as YAML with their reasons as comments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from offline_core.data.import_plan.result import ImportPlan

WIDTH = 120
"""A comment that makes a line longer stands above it."""


def yaml_of(plan: ImportPlan) -> str:
    """What `-c` takes: all that is given or chosen. What is to decide is in comments."""
    return "".join(f"{line}\n" for line in _lines(plan))


def _lines(plan: ImportPlan) -> Iterator[str]:
    values = plan.config.model_dump(mode="json", exclude_unset=True)
    yield f"# {plan.verdict}"
    yield f"# {plan.command()}"
    for group in ("source", "mapping", "episodes"):
        inner = list(_mapping(plan, values) if group == "mapping" else _group(plan, group, values.pop(group, {})))
        if any(not line.lstrip().startswith("#") for line in inner):
            yield f"{group}:"
            yield from inner
        elif inner:
            yield f"# {group}:"
            yield from (f"# {line.replace('# ', '', 1)}" for line in inner)
    for name, space in (("observation_space", plan.observation_space), ("action_space", plan.action_space)):
        if space is not None and name not in values and "environment" not in values:
            yield f"# {name}: {_one_line(space)}   # inferred from the rows; declare it to have another one"
    for name, value in values.items():
        yield from _line("", name, value, plan.chosen.get(name, "given"))


def _group(plan: ImportPlan, group: str, values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield from _line("  ", name, value, plan.chosen.get(f"{group}.{name}", "given"))
    if group == "episodes":
        if plan.order not in ("", "episodes") and "order" not in values:
            yield f"  # order: {plan.order}, by auto"
        yield from (_undecided(each.name, each.question, each.candidates) for each in plan.decisions if each.name == "ids_per")


def _mapping(plan: ImportPlan, values: dict[str, Any]) -> Iterator[str]:
    given = dict(values.pop("mapping", {}))
    for role in plan.roles:
        if role.source is None:
            yield _undecided(role.name, role.reason, role.candidates)
        elif role.needs_mapping and not role.is_given:
            given.pop(role.name, None)
            yield from _line("  ", role.name, role.source, role.reason)
    for name, source in given.items():
        yield from _line("  ", name, source, "given")


def _undecided(name: str, question: str, candidates: list[str]) -> str:
    several = candidates[0] if len(candidates) == 1 else candidates
    return "  " + _one_line(f"# {name}: {_flow(several) if several else '?'}   # to decide: {question}")


def _line(indent: str, name: str, value: Any, reason: str) -> Iterator[str]:
    text = f"{indent}{_flow(name)}: {_flow(value)}"
    comment = f"# {_one_line(reason)}"
    if len(text) + len(comment) + 3 <= WIDTH:
        yield f"{text}   {comment}"
    else:
        yield f"{indent}{comment}"
        yield text


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _one_line(text: str) -> str:
    return " ".join(text.split())
