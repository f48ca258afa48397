"""Prints what is below a root."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from offline_core.keeping.homepage.listing import Listing

WIDEST = 10_000
"""Characters of a line where the output is a file or a pipe."""
UNCUT = 3
"""Columns that a narrow terminal does not cut: when, kind and name."""


def print_listing(listing: Listing) -> None:
    """A line for each thing, cut where the terminal ends; what cannot be read is told on stderr."""
    table = Table("when (UTC)", "kind", "name", "what", "from", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for each in listing.entries:
        when = "" if each.made is None else f"{each.made:%Y-%m-%d %H:%M}"
        name = " ".join([each.name, *(f"@{tag}" for tag in each.tags)])
        table.add_row(when, *(Text(cell) for cell in (each.kind, name, each.what, each.source)))
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
        console.print(f"There is nothing of this pipeline below {listing.root}.", markup=False, soft_wrap=True)
    for file, why in listing.problems:
        sys.stderr.write(f"{file} is not listed: {why}\n")
