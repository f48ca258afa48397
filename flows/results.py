"""What commands print of results: cards, plans, lists, or all of them as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from flows.console import say
from flows.verbs import as_json
from offline_core.data.store.location import Location
from offline_core.runtime.reporting.card import Card, Verdict
from offline_core.runtime.stage import Stage, load
from offline_core.secrets import masked

if TYPE_CHECKING:
    from offline_core.data.importing.planning.result import ImportPlan
    from offline_core.keeping.homepage.listing import RootListing

PARAMETER_FILES = (".yaml", ".yml")
COLORS: Mapping[Verdict, str | None] = {"good": "green", "fair": "yellow", "bad": "red", "grey": None}


def print_card(card: Card, *, verbose: bool = False) -> None:
    """The card in a few lines, the first of them in its colour; or all of it."""
    first, _, rest = card.terminal(verbose=verbose).partition("\n")
    say(first, color=COLORS[card.verdict], bold=True)
    if rest:
        say(rest)


def print_json(result: BaseModel) -> None:
    """The whole result as one JSON document. JSON has no infinity and no NaN: they are texts in it."""
    sys.stdout.write(json.dumps(masked(json.loads(result.model_dump_json(), parse_constant=str))) + "\n")


def print_plan(stage: Stage[..., Any], **arguments: Any) -> None:
    """Prints the plan of a stage with these arguments."""
    assert stage.plan is not None
    if stage.name == "prune":  # planned from metadata alone, whatever the output
        del arguments["output"]
    plan = load(stage.plan)(**arguments)
    if as_json():
        print_json(plan)
    elif stage.name == "import":
        _print_import(plan, arguments["output"])
    else:
        print_card(plan.card(), verbose=True)


def _print_import(plan: ImportPlan, output: str) -> None:
    """The page and the YAML; where the output is a file or a pipe, the page as comments, so that all of it is YAML."""
    if output.endswith(PARAMETER_FILES):
        command = plan.command(parameters=output)
        Location.of(output).write(_as_comments(plan, command).encode())
        say(f"{plan.page}\nThe parameters are in {output}; go on with: {command}")
    else:
        sys.stdout.write(str(plan) if sys.stdout.isatty() else _as_comments(plan, plan.command()))


def _as_comments(plan: ImportPlan, command: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in plan.page.splitlines()) + f"\n{plan.yaml_for(command)}"


def print_listing(listing: RootListing) -> None:
    """A line for each thing, cut where the terminal ends; what cannot be read is told on stderr."""
    sys.stdout.write(f"{listing.table()}\n")
    for file, why in listing.problems:
        say(f"{file} is not listed: {why}", err=True)
