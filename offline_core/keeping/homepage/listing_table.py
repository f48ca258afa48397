"""A table of texts as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offline_core.control_characters import visible_line

LEAST = 10
"""Characters of a column, however narrow the terminal is."""
MOST = 80
"""Characters of what a thing is or came to: a list has no room for the reasons of a decision."""
UNCUT = 3
"""Columns that a narrow terminal does not cut: when, kind and name."""


def lines_of(rows: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
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


def shortened(text: str) -> str:
    """A text of at most `MOST` characters: a longer one ends at a word, with …"""
    if len(text) <= MOST:
        return text
    return f"{text[: MOST - 1].rpartition(' ')[0].rstrip(' ,;:.') or text[: MOST - 1]}…"


def _fitted(cell: str, width: int) -> str:
    """A text that takes so many cells of a terminal, the end of a longer one cut."""
    from rich.cells import set_cell_size

    return set_cell_size(cell, width) if _cells(cell) <= width else f"{set_cell_size(cell, width - 1)}…"


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)
