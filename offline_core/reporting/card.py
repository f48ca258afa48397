"""A card: a title, a table of numbers, a picture."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Card:
    """What a stage did, for people."""

    title: str
    rows: Mapping[str, object]
    picture: bytes | None = None
    """PNG."""

    def markdown(self) -> str:
        """One Markdown text with the picture inside it, for places that keep no files."""
        lines = [f"# {self.title}", "", "| | |", "|---|---|"]
        lines += [f"| {_text(name)} | {_text(value)} |" for name, value in self.rows.items()]
        if self.picture is not None:
            lines += ["", f"![{self.title}](data:image/png;base64,{base64.b64encode(self.picture).decode()})"]
        return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) < 1e6 else f"{value:.3g}"
    return " ".join(str(value).split("\n")).replace("|", "\\|")  # a line break would end the table's row
