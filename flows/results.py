"""What commands print of results: cards, plans, lists, or all of them as JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
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
    from offline_core.keeping.homepage.listing import RootListing

PARAMETER_FILES = (".yaml", ".yml")
LEAST = 10
"""Characters of a column of a list, however narrow the terminal is."""
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


def print_listing(listing: RootListing) -> None:
    """A line for each thing, cut where the terminal ends; what cannot be read is told on stderr."""
    rows = [("when (UTC)", "kind", "name", "what", "from")]
    for each in listing.entries:
        when = "" if each.made is None else each.made.isoformat(" ", "minutes")[:16]
        name = " ".join([each.name, *(f"@{tag}" for tag in each.tags)]) if each.tags else each.name
        rows.append((when, each.kind, name, each.what, each.source))
    if listing.entries:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write("\n".join([*_lines(rows, width), ""]))
    else:
        say(f"There is nothing of this pipeline below {listing.root}.")
    for file, why in listing.problems:
        say(f"{file} is not listed: {why}", err=True)


def _lines(rows: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """The rows with columns one below the other; those after `UNCUT` share what is left of the width, None: all they need.

    A list may have 10^5 rows, so what is true of a whole row or column is asked once.
    """
    cells = [row if "".join(row).isprintable() else [*map(visible_line, row)] for row in rows]
    columns = [*zip(*cells, strict=True)]
    widths = [max(map(len if "".join(column).isascii() else _cells, column)) for column in columns]
    if width is not None:
        left = max(2 * LEAST, width - sum(widths[:UNCUT]) - 2 * (len(widths) - 1))
        first, second = widths[UNCUT:]
        second = min(second, max(left // 2, left - first))
        widths[UNCUT:] = [min(first, left - second), second]
    line = "  ".join(f"{{:<{at}}}" for at in widths)
    for row in cells:
        if width is None and "".join(row).isascii():
            yield line.format(*row).rstrip()
        else:
            yield "  ".join(map(_fitted, row, widths)).rstrip()


def _fitted(cell: str, width: int) -> str:
    """A text that takes so many cells of a terminal, the end of a longer one cut."""
    from rich.cells import set_cell_size

    return set_cell_size(cell, width) if _cells(cell) <= width else f"{set_cell_size(cell, width - 1)}…"


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)
