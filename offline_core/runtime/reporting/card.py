"""A card: what a stage did, on one page of Markdown or HTML."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import jinja2

from offline_core.runtime.reporting import palette
from offline_core.runtime.reporting.values import text_of
from offline_core.secrets import masked

Tone = Literal["good", "bad", "warning", "neutral"]
"""good: what was asked for. bad: not that. warning: done, and worth a look. neutral: nothing was asked for."""
MARKS: Mapping[Tone, str] = {"good": "🟢", "bad": "🔴", "warning": "🟠", "neutral": "⚪"}
"""What Markdown has for a colour; the word is next to it."""


_STYLE = (
    f"""{palette.css()}
@media (prefers-color-scheme: dark) {{ img {{ filter: invert(.91) hue-rotate(180deg); }} }}
"""
    + """
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.headline { display: flex; gap: 1rem; align-items: baseline; padding: 1rem; border: 1px solid var(--line);
  border-left: .5rem solid var(--tone); border-radius: .4rem; background: var(--band); font-size: 1.1rem; }
.word { white-space: nowrap; background: var(--tone);
  color: var(--page); border-radius: 1rem; padding: .1rem .8rem; font-weight: 600; }
.good { --tone: var(--good); } .bad { --tone: var(--bad); }
.warning { --tone: var(--warning); } .neutral { --tone: var(--neutral); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
thead th, thead ~ tbody td, thead ~ tr td { overflow-wrap: normal; }
th { color: var(--quiet); font-weight: 500; } tbody th { width: 13rem; }
img { max-width: 100%; border-radius: .4rem; }
pre { background: var(--band); border-radius: .4rem; padding: 1rem; overflow-x: auto; font-size: .85rem; }
.lineage { list-style: none; padding: 0; } .versions { color: var(--quiet); font-size: .85rem; overflow-wrap: anywhere; }
"""
)

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{{ card.title | text }}</title>
<style>{{ style | safe }}</style>
</head>
<body>
<h1>{{ card.title | text }}</h1>
{% if card.headline -%}
<p class="headline {{ card.headline.tone }}"><span class="word">{{ card.headline.word | text }}</span>
<span>{{ card.headline.sentence | text }}</span></p>
{% endif -%}
<div class="wide"><table><tbody>
{% for name, value in card.rows.items() -%}
<tr><th scope="row">{{ name | text }}</th><td>{{ value | text }}</td></tr>
{% endfor -%}
</tbody></table></div>
{% if picture -%}
<img src="data:image/png;base64,{{ picture }}" alt="{{ card.title | text }}">
{% endif -%}
{% for section in card.sections if section.sentences or section.rows -%}
<h2>{{ section.title | text }}</h2>
{% if section.sentences -%}
<ul>{% for sentence in section.sentences %}<li>{{ sentence | text }}</li>{% endfor %}</ul>
{% endif -%}
{% if section.rows -%}
<div class="wide"><table>
<thead><tr>{% for column in section.columns %}<th scope="col">{{ column | text }}</th>{% endfor %}</tr></thead>
{% for row in section.rows -%}
<tr>{% for cell in row %}<td>{{ cell | text }}</td>{% endfor %}</tr>
{% endfor -%}
</table></div>
{% endif -%}
{% endfor -%}
{% if card.ancestors -%}
<h2>Lineage</h2>
<ul class="lineage">
{% for depth, label in card.ancestors -%}
<li style="padding-left: {{ 1.5 * depth }}rem">{{ "← " if depth }}{{ label | text }}</li>
{% endfor -%}
</ul>
{% endif -%}
{% if card.ran -%}
<h2>What ran</h2>
<pre>{{ card.ran.yaml }}</pre>
<p class="versions">
{%- for name, version in card.ran.versions.items() -%}
{{ ", " if not loop.first }}{{ name | text }} {{ version | text }}
{%- endfor -%}
</p>
{% endif -%}
</body>
</html>
"""


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
        """The card as one page of HTML, with the picture inside and all that a name or a value holds as text: no script,
        nothing fetched, light or dark as the reader's browser is."""
        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
        environment.filters["text"] = text_of
        picture = None if self.picture is None else base64.b64encode(self.picture).decode()
        return environment.from_string(_TEMPLATE).render(card=self, picture=picture, style=_STYLE)

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
