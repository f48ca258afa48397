"""The page: values as JSON, drawn by a script of its own; nothing that data holds can run.

One file holds the values, and asks for nothing. A page that is served holds none, and asks its server for each.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import jinja2

from offline_core.keeping.homepage.values import dumps
from offline_core.runtime.reporting import palette

SCRIPTS = ("charts.js", "tables.js", "values.js", "episodes.js", "experiments.js", "page.js")
"""In this order; each uses those before it."""
_STATIC = files("offline_core.keeping.homepage") / "static"


def page_of(title: str, values: Mapping[str, Any] | None, *, made: str = "") -> str:
    """The HTML.

    Arguments:
        values: of one file, by the parts of their names; None: it is served.
        made: when the values were read.
    """
    script, style = _script(), _style()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string((_STATIC / "page.html").read_text("utf-8")).render(
        title=title,
        data=dumps({"made": made, "values": values}),
        script=script,
        policy=security_policy(is_served=values is None),
        style=style,
    )


def security_policy(*, is_served: bool) -> str:
    """What the page may do: run this very script and no other, show pictures that it holds, and ask its own server, if any."""
    asks = " connect-src 'self';" if is_served else ""
    return (
        f"default-src 'none'; script-src '{_hash(_script())}'; style-src '{_hash(_style())}';{asks} "
        "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )


def title_of(root: str) -> str:
    """Of the page of a root."""
    return f"{root.rpartition('/')[2] or root} · report"


def _script() -> str:
    return "\n".join((_STATIC / name).read_text("utf-8") for name in SCRIPTS)


def _style() -> str:
    return palette.css() + (_STATIC / "page.css").read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
