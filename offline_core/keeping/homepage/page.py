"""The page: data as JSON, drawn by a script of its own; nothing is fetched, and nothing that data holds can run."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

import jinja2

from offline_core.keeping.homepage.values import dumps
from offline_core.runtime.reporting import palette

SCRIPTS = ("charts.js", "tables.js", "episodes.js", "page.js")
"""In this order; each uses those before it."""


def page_of(title: str, data: dict[str, Any]) -> str:
    """One HTML file. Its policy allows this very script and no other, no request, and no picture from elsewhere."""
    static = files("offline_core.keeping.homepage") / "static"
    script = "\n".join((static / name).read_text("utf-8") for name in SCRIPTS)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string((static / "page.html").read_text("utf-8")).render(
        title=title,
        data=dumps(data),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        style=palette.css() + (static / "page.css").read_text("utf-8"),
    )
