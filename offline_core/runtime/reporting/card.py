"""A card: what a stage came to, said once, and shown as a page, as Markdown, in a notebook and on a terminal."""

from __future__ import annotations

import base64
import dataclasses
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from offline_core.control_characters import visible_line
from offline_core.errors import OfflineError
from offline_core.runtime.reporting import palette
from offline_core.secrets import masked, masked_text

if TYPE_CHECKING:
    from offline_core.runtime.reporting.figures import Drawing

Verdict = Literal["good", "fair", "bad", "grey"]
"""good: what was asked for. fair: done, and worth a look. bad: not what was asked for. grey: nothing was asked for."""
MARKS: Mapping[Verdict, str] = {"good": "[ok]", "fair": "[!]", "bad": "[x]", "grey": "[-]"}
"""Marks in place of colours, where there are none; every font has them."""
MOST_NOTES = 3
"""Notes that a terminal shows, unless all are asked for."""
MIN_LAST = 20
"""Letters of the last column of a table that a terminal has to have room for; it is folded there."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A word with the colour of a verdict, in a cell of a table."""

    word: str
    verdict: Verdict

    def __str__(self) -> str:
        return self.word


@dataclass(frozen=True, slots=True)
class Section:
    """Sentences, or a table, under a title; one without either is not shown."""

    title: str
    sentences: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran: the operation, those of its parameters that are not at their defaults, and versions of code by name."""

    operation: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    command: str = ""
    """Repeats the run."""

    @property
    def yaml(self) -> str:
        """The operation and its parameters, as in a file of parameters."""
        import yaml

        text: str = yaml.safe_dump({self.operation: masked(self.parameters)}, sort_keys=False, allow_unicode=True)
        return text if self.parameters else f"{self.operation}:  # all parameters at their defaults\n"


@dataclass(frozen=True, slots=True)
class Card:
    """What a stage came to, for people. A result makes one without reading anything; its pictures are drawn when shown."""

    title: str
    facts: Mapping[str, object] = field(default_factory=dict)
    """What came out: at most eight."""
    verdict: Verdict = "grey"
    word: str = ""
    """The verdict in a word or a few: "Target reached"."""
    sentence: str = ""
    """What matters most."""
    warnings: Sequence[str] = ()
    """What speaks against the result; a good verdict with warnings is a fair one."""
    notes: Sequence[str] = ()
    """What is worth knowing and speaks against nothing."""
    sections: Sequence[Section] = ()
    draw: Callable[[], Drawing] | None = None
    """Gives the pictures, the same at each call; see `figures.drawn`."""
    advice: str = ""
    """What comes next, in sentences; if there is a command as well, it is one of those steps."""
    next: str = ""
    """The command, or the line of Python, that comes next."""
    details: Mapping[str, object] = field(default_factory=dict)
    """Everything else that is worth keeping."""
    about: tuple[str, int | None] = ("", None)
    """URI, and version of a dataset, of what was made, or else of what was looked at."""
    places: Sequence[str] = ()
    """URIs at which the files of the card belong, without `.html`, `.md` and `.png`."""
    ran: Ran | None = None
    lineage: str = ""
    """The lineage of the result, as Mermaid."""
    ancestors: Sequence[tuple[int, str]] = ()
    """The lineage as lines, each with its depth."""
    root: str = ""
    """The folder that holds all that the result was made from: pages name what is in it relative to it."""

    def __post_init__(self) -> None:
        if self.verdict == "good" and self.warnings:
            more = "a warning" if len(self.warnings) == 1 else f"{len(self.warnings):,} warnings"
            object.__setattr__(self, "verdict", "fair")
            object.__setattr__(self, "word", f"{self.word}, with {more}")

    @property
    def headline(self) -> str:
        """The verdict and the sentence in one line."""
        return ": ".join(filter(None, (self.word, text_of(self.sentence))))

    def drawable(self) -> Card:
        """Return this card, or one without pictures if what they show cannot be read any more."""
        try:
            self.drawing()
        except OfflineError:
            return dataclasses.replace(self, draw=None)
        return self

    def drawing(self) -> Drawing | None:
        """The pictures."""
        return None if self.draw is None else self.draw()

    def terminal(self, *, verbose: bool = False) -> str:
        """The verdict, the facts, warnings, notes, and what comes next, in a few lines; or all that there is, without pictures.

        Control characters of names are written out.
        """
        lines = [f"{MARKS[self.verdict]} {self.headline or text_of(self.title)}", *_aligned(self.facts)]
        lines += [f"  ! {text_of(warning)}" for warning in self.warnings]
        shown = self.notes if verbose else self.notes[:MOST_NOTES]
        lines += [f"  note: {text_of(note)}" for note in shown]
        if left := len(self.notes) - len(shown):
            lines.append(f"  note: {left:,} more; -v shows them.")
        if verbose:
            lines += ["", "Details", *_aligned(self.details)] if self.details else []
            for section in self.sections:
                lines += _plain(section)
            if self.ancestors:
                lines += ["", "Lineage", *(f"  {'  ' * depth}{text_of(text)}" for depth, text in self.ancestors)]
            if self.ran is not None:
                lines += ["", "What ran", *(f"  {line}" for line in self.ran.yaml.splitlines())]
        if self.ran is not None and self.ran.command and verbose:
            lines.append(f"again: {self.ran.command}")
        lines += [f"card: {uri}.html" for uri in self.places[:1]]
        lines += [f"next: {following}" for following in (self.advice, self.next) if following]
        return below_here("\n".join(map(visible_line, lines)))

    def markdown(self, link: str | None = None) -> str:
        """The card as Markdown; the picture is in the text itself unless a link to it is given."""
        card = self._below_root()
        parts = [f"# {_text(card.title)}"]
        if card.word:
            parts.append(f"**{MARKS[card.verdict]} {_text(card.word)}.** {_text(card.sentence)}")
        if card.warnings:
            parts.append("\n".join(f"- **Warning:** {_text(warning)}" for warning in card.warnings))
        if card.facts:
            parts.append(_table(["", ""], card.facts.items()))
        if card.notes:
            parts.append("\n".join(f"- Note: {_text(note)}" for note in card.notes))
        if (drawing := card.drawing()) is not None:
            link = link or f"data:image/png;base64,{_base64(drawing.together)}"
            parts.append(f"![{_text(card.title)}]({link})")
        for section in card.sections:
            if section.sentences or section.rows:
                parts.append(f"## {_text(section.title)}")
            if section.sentences:
                parts.append("\n".join(f"- {_line(sentence)}" for sentence in section.sentences))
            if section.rows:
                parts.append(_table(section.columns, section.rows))
        if card.advice or card.next:
            parts += ["## Next", _text(card.advice), _fenced("console", card.next) if card.next else ""]
        if card.details:
            parts += ["## Details", _table(["", ""], card.details.items())]
        if card.lineage:
            parts += ["## Lineage", _fenced("mermaid", card.lineage)]
        if card.ran is not None:
            parts += ["## What ran", _fenced("yaml", card.ran.yaml)]
            parts += [_fenced("console", card.ran.command)] if card.ran.command else []
            if card.ran.versions:
                parts.append(", ".join(f"{_text(name)} {_text(version)}" for name, version in card.ran.versions.items()))
        return "\n\n".join(filter(None, parts)) + "\n"

    def html(self, *, is_page: bool = True) -> str:
        """The card as HTML, with the pictures inside and all that a name or a value holds as text: no script, nothing
        fetched, light or dark as the reader's browser is.

        Arguments:
            is_page: a page of its own; otherwise a part of one, as notebooks show it.
        """
        import jinja2

        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
        environment.filters |= {"text": text_of, "zip": zip}
        environment.tests["mark"] = lambda value: isinstance(value, Mark)
        card, drawing = self._below_root(), self.drawing()
        pictures = [] if drawing is None else [_base64(picture) for picture in drawing.pictures]
        style = palette.css(":root" if is_page else ".offline-card") + _STYLE
        body = environment.from_string(_BODY).render(card=card, pictures=pictures, style=style)
        return environment.from_string(_PAGE).render(title=card.title, body=body) if is_page else body

    def files(self, name: str) -> dict[str, bytes]:
        """The card as files of one folder: `<name>.png`, if it has pictures, `<name>.html` and `<name>.md`."""
        drawing = self.drawing()
        pictures = {} if drawing is None else {f"{name}.png": drawing.together}
        return pictures | {f"{name}.html": self.html().encode(), f"{name}.md": self.markdown(f"{name}.png").encode()}

    def _below_root(self) -> Card:
        if not self.root:
            return self

        def short(value: object) -> object:
            return value if isinstance(value, Mark) else text_of(value).replace(f"{self.root}/", "")

        return dataclasses.replace(
            self,
            sentence=str(short(self.sentence)),
            facts={name: short(value) for name, value in self.facts.items()} | {"Root": self.root},
            details={name: short(value) for name, value in self.details.items()},
            warnings=[str(short(warning)) for warning in self.warnings],
            notes=[str(short(note)) for note in self.notes],
            sections=[
                dataclasses.replace(section, rows=[[short(cell) for cell in row] for row in section.rows])
                for section in self.sections
            ],
        )


def text_of(value: object) -> str:
    """A value as one line of text, without secrets; numbers with three digits or thousands."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    return masked_text(" ".join(str(value).split()))


def _number(value: float) -> str:
    if value == 0 or not abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.3g}"


def command(*words: object) -> str:
    """A command as one types it: each word quoted for a shell where it needs that."""
    return shlex.join(str(word) for word in words)


def links(addresses: Mapping[str, str], *, hours: float) -> str:
    """A section of Markdown that leads to files, by name; not for what lasts longer than the links.

    Arguments:
        hours: how long the links are valid.
    """
    lines = [f"- [{_text(name)}](<{address}>)" for name, address in addresses.items()]
    return "\n".join(["## Files", "", *lines, "", f"These links open without a login for {hours:g} hours."]) + "\n"


_STYLE = """
.offline-card { margin: 0 auto; max-width: 62rem; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
.offline-card h1 { font-size: 1.5rem; margin: 0 0 1rem; } .offline-card h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.offline-card .headline { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; padding: 1rem;
  border: 1px solid var(--line); border-left: .5rem solid var(--tone); border-radius: .4rem; background: var(--band);
  font-size: 1.1rem; }
.offline-card .word { background: var(--tone); color: var(--page); border-radius: 1rem; padding: .1rem .8rem;
  font-weight: 600; }
.offline-card td .word { white-space: nowrap; }
.offline-card .good { --tone: var(--good); } .offline-card .fair { --tone: var(--fair); }
.offline-card .bad { --tone: var(--bad); } .offline-card .grey { --tone: var(--grey); }
.offline-card .warnings { list-style: none; padding: 0; }
.offline-card .warnings li { border-left: .3rem solid var(--fair); padding: .2rem 1rem; margin: .4rem 0; }
.offline-card .notes { color: var(--quiet); font-size: .9rem; }
.offline-card .wide { overflow-x: auto; }
.offline-card table { border-collapse: collapse; margin: 1rem 0; width: 100%; background: none; }
.offline-card th, .offline-card td { border-bottom: 1px solid var(--line); padding: .3rem .8rem .3rem 0; text-align: left;
  vertical-align: top; font-variant-numeric: tabular-nums; background: none; overflow-wrap: break-word; }
.offline-card .facts :is(th, td) { overflow-wrap: anywhere; }
.offline-card .many th, .offline-card .many td { min-width: 3.5rem; }
.offline-card th { color: var(--quiet); font-weight: 500; } .offline-card .facts th { width: 30%; }
@media (max-width: 45rem) {
  .offline-card .facts th { width: 38%; } .offline-card .wide td { overflow-wrap: anywhere; }
  .offline-card .many thead, .offline-card .many td:empty { display: none; }
  .offline-card .many :is(table, tbody, tr) { display: block; }
  .offline-card .many tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .offline-card .many td { display: grid; grid-template-columns: 30% 1fr; gap: .8rem; border: 0; padding: .1rem 0;
    overflow-wrap: anywhere; justify-items: start; }
  .offline-card .many td::before { content: attr(data-column); color: var(--quiet); }
}
.offline-card .pictures { display: flex; flex-wrap: wrap; gap: .5rem; }
.offline-card img { max-width: 100%; height: auto; }
.offline-card pre { background: var(--band); color: var(--ink); border-radius: .4rem; padding: 1rem;
  white-space: pre-wrap; font-size: .85rem; }
.offline-card .command { user-select: all; }
.offline-card summary { cursor: pointer; margin-top: 2rem; font-weight: 600; }
.offline-card .lineage { list-style: none; padding: 0; } .offline-card .versions { color: var(--quiet); font-size: .85rem; }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{{ title | text }}</title>
</head>
<body style="margin: 0; background: var(--page)">
{{ body | safe }}
</body>
</html>
"""

_BODY = """{% macro facts(values) -%}
<div class="wide facts"><table><tbody>
{% for name, value in values.items() -%}
<tr><th scope="row">{{ name | text }}</th><td>{{ value | text }}</td></tr>
{% endfor -%}
</tbody></table></div>
{%- endmacro -%}
<style>{{ style | safe }}</style>
<div class="offline-card">
<h1>{{ card.title | text }}</h1>
{% if card.word -%}
<p class="headline {{ card.verdict }}"><span class="word">{{ card.word | text }}</span>
<span>{{ card.sentence | text }}</span></p>
{% endif -%}
{% if card.warnings -%}
<ul class="warnings">{% for warning in card.warnings %}<li>{{ warning | text }}</li>{% endfor %}</ul>
{% endif -%}
{% if card.facts %}{{ facts(card.facts) }}{% endif %}
{% if card.notes -%}
<ul class="notes">{% for note in card.notes %}<li>{{ note | text }}</li>{% endfor %}</ul>
{% endif -%}
{% if pictures -%}
<div class="pictures">
{% for picture in pictures -%}
<img src="data:image/png;base64,{{ picture }}" alt="{{ card.title | text }}">
{% endfor -%}
</div>
{% endif -%}
{% for section in card.sections if section.sentences or section.rows -%}
<h2>{{ section.title | text }}</h2>
{% if section.sentences -%}
<ul>{% for sentence in section.sentences %}<li>{{ sentence | text }}</li>{% endfor %}</ul>
{% endif -%}
{% if section.rows -%}
<div class="wide{{ " many" if section.columns | length > 2 }}"><table>
<thead><tr>{% for column in section.columns %}<th scope="col">{{ column | text }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in section.rows -%}
<tr>{% for column, cell in section.columns | zip(row) -%}
<td data-column="{{ column | text }}"
{%- if cell is mark %} class="{{ cell.verdict }}"><span class="word">{{ cell | text }}</span>
{%- else %}>{{ cell | text }}{% endif %}</td>
{%- endfor %}</tr>
{% endfor -%}
</tbody></table></div>
{% endif -%}
{% endfor -%}
{% if card.advice or card.next -%}
<h2>Next</h2>
{% if card.advice %}<p>{{ card.advice | text }}</p>
{% endif -%}
{% if card.next %}<pre class="command">{{ card.next }}</pre>
{% endif -%}
{% endif -%}
{% if card.details or card.ancestors or card.ran -%}
<details>
<summary>Details</summary>
{% if card.details %}{{ facts(card.details) }}{% endif %}
{% if card.ancestors -%}
<h2>Lineage</h2>
<ul class="lineage">
{% for depth, label in card.ancestors -%}
<li style="padding-left: {{ [1.5 * depth, 9] | min }}rem">{{ "← " if depth }}{{ label | text }}</li>
{% endfor -%}
</ul>
{% endif -%}
{% if card.ran -%}
<h2>What ran</h2>
{% if card.ran.command %}<pre class="command">{{ card.ran.command }}</pre>
{% endif -%}
<pre>{{ card.ran.yaml }}</pre>
<p class="versions">
{%- for name, version in card.ran.versions.items() -%}
{{ ", " if not loop.first }}{{ name | text }} {{ version | text }}
{%- endfor -%}
</p>
{% endif -%}
</details>
{% endif -%}
</div>
"""


def _aligned(values: Mapping[str, object]) -> list[str]:
    """Names and values as lines of a terminal."""
    width = max(map(len, values), default=0)
    return [f"  {name:{width}}  {text_of(value)}" for name, value in values.items()]


def below_here(text: str) -> str:
    """Text whose paths are relative to the current folder."""
    here = os.getcwd().rstrip("/")
    return text.replace(f"{here}/", "") if here else text


def _plain(section: Section) -> list[str]:
    """A section as lines of a terminal; of a table that is much wider than it, each row as names and values."""
    if not section.sentences and not section.rows:
        return []
    lines = ["", section.title, *(f"  {text_of(sentence)}" for sentence in section.sentences)]
    rows = [[below_here(text_of(cell)) for cell in row] for row in section.rows]
    widths = [max(map(len, column)) for column in zip(section.columns, *rows, strict=True)]
    if sum(widths[:-1]) + 2 * len(widths) + MIN_LAST <= shutil.get_terminal_size((120, 24)).columns:
        table = [section.columns, *rows] if rows else []
        return lines + [
            f"  {'  '.join(f'{cell:{size}}' for cell, size in zip(row, widths, strict=True))}".rstrip() for row in table
        ]
    for first, *others in rows:
        named = {name: cell for name, cell in zip(section.columns[1:], others, strict=True) if cell}
        lines += [f"  {first}", *(f"  {line}" for line in _aligned(named))]
    return lines


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


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
    return re.sub(r"[\\`*\[\]<|~&$]|(?<![^\W_])_|_(?![^\W_])", lambda match: f"\\{match[0]}", text)
