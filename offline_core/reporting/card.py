"""A card: what a stage did, on one page of Markdown."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran: the operation, those of its parameters that are not at their defaults, and versions of code by name."""

    operation: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Card:
    """What a stage did, for people."""

    title: str
    rows: Mapping[str, object]
    """What came out."""
    picture: bytes | None = None
    """PNG."""
    ran: Ran | None = None
    lineage: str = ""
    """The lineage of the result, as Mermaid."""

    def markdown(self, picture: str | None = None) -> str:
        """The card as Markdown; the picture is in the text itself unless a link to it is given."""
        parts = [f"# {_text(self.title)}", _table(self.rows)]
        if self.picture is not None:
            link = picture or f"data:image/png;base64,{base64.b64encode(self.picture).decode()}"
            parts.append(f"![{_text(self.title)}]({link})")
        if self.lineage:
            parts += ["## Lineage", _fenced("mermaid", self.lineage)]
        if self.ran is not None:
            parts += ["## What ran", _fenced("yaml", _yaml(self.ran))]
            if self.ran.versions:
                parts.append(", ".join(f"{_text(name)} {_text(version)}" for name, version in self.ran.versions.items()))
        return "\n\n".join(parts) + "\n"

    def files(self, name: str) -> dict[str, bytes]:
        """The card as files of one folder: `<name>.png`, if it has a picture, and `<name>.md`."""
        picture = {} if self.picture is None else {f"{name}.png": self.picture}
        return picture | {f"{name}.md": self.markdown(f"{name}.png").encode()}


def links(addresses: Mapping[str, str], *, hours: float) -> str:
    """A section of Markdown that leads to files, by name; not for what lasts longer than the links.

    Arguments:
        hours: how long the links are valid.
    """
    lines = [f"- [{_text(name)}](<{address}>)" for name, address in addresses.items()]
    return "\n".join(["## Files", "", *lines, "", f"These links open without a login for {hours:g} hours."]) + "\n"


def _table(rows: Mapping[str, object]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {_text(name)} | {_text(value)} |" for name, value in rows.items())])


def _yaml(ran: Ran) -> str:
    import yaml

    text: str = yaml.safe_dump({ran.operation: dict(ran.parameters)}, sort_keys=False, allow_unicode=True)
    return text if ran.parameters else f"{ran.operation}:  # all parameters at their defaults\n"


def _fenced(language: str, text: str) -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)  # what is inside cannot end it
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    return _escaped(" ".join(str(value).split()))  # a line break would end the table's row


def _number(value: float) -> str:
    if value == 0 or not abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.3g}"


def _escaped(text: str) -> str:
    """Nothing but text: no cell, link, picture or emphasis comes of a name."""
    return re.sub(r"[\\`*\[\]<|~&$]|(?<![^\W_])_|_(?![^\W_])", lambda found: f"\\{found[0]}", text)
