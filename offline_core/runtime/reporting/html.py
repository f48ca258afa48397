"""A card as one HTML file: no script, nothing fetched, light or dark as the reader's browser is."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import jinja2

from offline_core.runtime.reporting import palette
from offline_core.runtime.reporting.values import text_of

if TYPE_CHECKING:
    from offline_core.runtime.reporting.card import Card

STYLE = (
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

TEMPLATE = """<!doctype html>
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


def html_of(card: Card) -> str:
    """The card as a page; all that a name or a value holds is text in it."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["text"] = text_of
    picture = None if card.picture is None else base64.b64encode(card.picture).decode()
    return environment.from_string(TEMPLATE).render(card=card, picture=picture, style=STYLE)
