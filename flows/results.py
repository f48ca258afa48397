"""What commands print of results: cards, plans, lists, or all of them as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from flows.console import say
from flows.verbs import as_json
from offline_core.control_characters import visible_line
from offline_core.data.store.location import Location
from offline_core.runtime.reporting.card import Card, Verdict
from offline_core.runtime.stage import Stage, load
from offline_core.secrets import masked

if TYPE_CHECKING:
    from offline_core.data.importing.planning.result import ImportPlan
    from offline_core.keeping.homepage.listing import Listing

PARAMETER_FILES = (".yaml", ".yml")
WIDEST = 10_000
"""Characters of a line of a list where the output is a file or a pipe."""
UNCUT = 3
"""Columns of a list that a narrow terminal does not cut: when, kind and name."""
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
        Location.of(output).write(_as_comments(plan).encode())
        say(f"{plan.page}\nThe parameters are in {output}; go on with: {plan.command(parameters=output)}")
    else:
        sys.stdout.write(str(plan) if sys.stdout.isatty() else _as_comments(plan))


def _as_comments(plan: ImportPlan) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in plan.page.splitlines()) + f"\n{plan.yaml}"


def print_listing(listing: Listing) -> None:
    """A line for each thing, cut where the terminal ends; what cannot be read is told on stderr."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("when (UTC)", "kind", "name", "what", "from", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for each in listing.entries:
        when = "" if each.made is None else f"{each.made:%Y-%m-%d %H:%M}"
        name = " ".join([each.name, *(f"@{tag}" for tag in each.tags)])
        table.add_row(when, *(Text(visible_line(cell)) for cell in (each.kind, name, each.what, each.source)))
    for number, column in enumerate(table.columns):
        column.no_wrap, column.overflow = True, "ellipsis"
        if number < UNCUT:
            column.min_width = max(len(str(cell)) for cell in (column.header, *column.cells))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDEST)
    if listing.entries:
        console.print(table)
    else:
        say(f"There is nothing of this pipeline below {listing.root}.")
    for file, why in listing.problems:
        say(f"{file} is not listed: {why}", err=True)
