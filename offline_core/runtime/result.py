"""What stages return, and how a notebook shows it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from pydantic import BaseModel, ConfigDict, Field

MAX_SHOWN = 200
"""Characters of a value in a table."""


class Result(BaseModel):
    """Base of what a stage returns: frozen, stored as JSON beside what was made, shown as a table in a notebook."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reused: bool = Field(False, description="An existing version, made by the same operation from the same data, was returned.")

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, dict(self))


class PolicyResult(Result):
    """What a stage returns that trained, played or estimated a policy."""

    checkpoint: str = Field(description="URI of the policy.")


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """An HTML table of two columns, escaped; long values are cut."""

    def cell(value: object) -> str:
        text = str(value)
        return escape(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…")

    lines = "".join(f"<tr><th>{escape(name)}</th><td>{cell(value)}</td></tr>" for name, value in rows.items())
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"
