"""A card: what a stage did, on one page of Markdown or HTML."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from offline_core.runtime.reporting.html import html_of
from offline_core.runtime.reporting.values import text_of
from offline_core.secrets import masked

Tone = Literal["good", "bad", "warning", "neutral"]
"""good: what was asked for. bad: not that. warning: done, and worth a look. neutral: nothing was asked for."""
MARKS: Mapping[Tone, str] = {"good": "🟢", "bad": "🔴", "warning": "🟠", "neutral": "⚪"}
"""What Markdown has for a colour; the word is next to it."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran: the operation, those of its parameters that are not at their defaults, and versions of code by name."""

    operation: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def yaml(self) -> str:
        """The operation and its parameters, as in a file of parameters."""
        import yaml

        text: str = yaml.safe_dump({self.operation: masked(self.parameters)}, sort_keys=False, allow_unicode=True)
        return text if self.parameters else f"{self.operation}:  # all parameters at their defaults\n"


@dataclass(frozen=True, slots=True)
class Headline:
    """What matters most, in one word and one sentence."""

    word: str
    sentence: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Section:
    """Sentences, or a table, under a title; one without either is not shown."""

    title: str
    sentences: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """What a stage did, for people."""

    title: str
    rows: Mapping[str, object]
    """What came out."""
    draw: Callable[[], bytes] | None = None
    """Gives the picture as PNG, the same at each call; a card that nobody reads draws none."""
    ran: Ran | None = None
    lineage: str = ""
    """The lineage of the result, as Mermaid."""
    ancestors: Sequence[tuple[int, str]] = ()
    """The same as lines, each with its depth."""
    headline: Headline | None = None
    sections: Sequence[Section] = ()

    @property
    def picture(self) -> bytes | None:
        """PNG."""
        return None if self.draw is None else self.draw()

    def markdown(self, link: str | None = None) -> str:
        """The card as Markdown; the picture is in the text itself unless a link to it is given."""
        parts = [f"# {_text(self.title)}"]
        if self.headline is not None:
            mark, word, sentence = MARKS[self.headline.tone], self.headline.word, self.headline.sentence
            parts.append(f"{mark} **{_text(word)}** {_text(sentence)}")
        parts.append(_table(["", ""], self.rows.items()))
        if self.picture is not None:
            link = link or f"data:image/png;base64,{base64.b64encode(self.picture).decode()}"
            parts.append(f"![{_text(self.title)}]({link})")
        for section in self.sections:
            if section.sentences or section.rows:
                parts.append(f"## {_text(section.title)}")
            if section.sentences:
                parts.append("\n".join(f"- {_line(sentence)}" for sentence in section.sentences))
            if section.rows:
                parts.append(_table(section.columns, section.rows))
        if self.lineage:
            parts += ["## Lineage", _fenced("mermaid", self.lineage)]
        if self.ran is not None:
            parts += ["## What ran", _fenced("yaml", self.ran.yaml)]
            if self.ran.versions:
                parts.append(", ".join(f"{_text(name)} {_text(version)}" for name, version in self.ran.versions.items()))
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        """The card as one page of HTML, with the picture inside."""
        return html_of(self)

    def files(self, name: str) -> dict[str, bytes]:
        """The card as files of one folder: `<name>.png`, if it has a picture, `<name>.html` and `<name>.md`."""
        picture = {} if self.picture is None else {f"{name}.png": self.picture}
        return picture | {f"{name}.html": self.html().encode(), f"{name}.md": self.markdown(f"{name}.png").encode()}


def links(addresses: Mapping[str, str], *, hours: float) -> str:
    """A section of Markdown that leads to files, by name; not for what lasts longer than the links.

    Arguments:
        hours: how long the links are valid.
    """
    lines = [f"- [{_text(name)}](<{address}>)" for name, address in addresses.items()]
    return "\n".join(["## Files", "", *lines, "", f"These links open without a login for {hours:g} hours."]) + "\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [[_text(cell) for cell in row] for row in (columns, *rows)]
    head, *body = [f"| {' | '.join(line)} |" if any(line) else "|" + " |" * len(line) for line in lines]
    return "\n".join([head, "|" + "---|" * len(columns), *body])


def _fenced(language: str, text: str) -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)  # what is inside cannot end it
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _text(value: object) -> str:
    return _escaped(text_of(value))


def _line(value: object) -> str:
    """Text that begins a line: no heading, list or quote."""
    return re.sub(r"^(\d*)([#>+=.)-])", r"\1\\\2", _text(value))


def _escaped(text: str) -> str:
    """Nothing but text: no cell, link, picture or emphasis comes of a name."""
    return re.sub(r"[\\`*\[\]<|~&$]|(?<![^\W_])_|_(?![^\W_])", lambda found: f"\\{found[0]}", text)
