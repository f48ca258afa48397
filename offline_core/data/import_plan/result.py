"""The plan of an import: what was read, what it is taken for, and the parameters to continue with."""

from __future__ import annotations

import shlex
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.import_plan.roles import Role
from offline_core.data.import_plan.schema import Column
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.report import Counts
from offline_core.runtime.result import html_table


class Decision(BaseModel):
    """Something that the data does not say."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="The parameter, or the canonical column.")
    question: str
    candidates: list[str] = []


class Refused(BaseModel):
    """Rows that the import could not read, and why."""

    model_config = ConfigDict(frozen=True)

    rows: int
    reason: str
    first: str = Field(description="The place of the first one.")


class ImportPlan(BaseModel):
    """What an import of a source would do, told from the first rows of a few files. Nothing is written by making one."""

    model_config = ConfigDict(frozen=True)

    source: list[str]
    format: str
    files: int
    bytes: int
    files_read: int = Field(description="Of which the first rows were read.")
    is_whole: bool = Field(description="All rows of all files were read.")
    first_rows: list[dict[str, str]] = Field(description="As they lie in the first file.")
    columns: list[Column]
    roles: list[Role]
    left_out: dict[str, str] = Field(description="Columns that are not mapped and cannot be kept, and why.")
    chosen: dict[str, str] = Field(description="Parameters that the plan sets, and why.")
    decisions: list[Decision] = Field(description="What is left to decide; empty: ready to import.")
    order: str = Field(description="Which rule puts the steps in order; empty: not known yet.")
    counts: Counts = Field(description="What became of the rows that were read.")
    lengths: tuple[int, int, int] | None = Field(description="Steps of an episode: the least, the median, the most.")
    eps_ids: list[str] = Field(description="Of the first episodes.")
    observation_space: str | None
    action_space: str | None
    refused: list[Refused]
    notes: list[str]
    config: ImportConfig = Field(description="The parameters to continue with.")

    @property
    def is_ready(self) -> bool:
        """Nothing is left to decide."""
        return not self.decisions

    @property
    def verdict(self) -> str:
        """The first sentence."""
        if not self.decisions:
            rows = self.counts.quarantined_rows
            return f"Ready to import; {rows:,} of {self.counts.rows:,} rows would be left out." if rows else "Ready to import."
        names = ", ".join(decision.name for decision in self.decisions)
        return f"{len(self.decisions)} {'thing' if len(self.decisions) == 1 else 'things'} to decide: {names}."

    @property
    def yaml(self) -> str:
        """The parameters with their reasons as comments, for `offline import SOURCE -c FILE`."""
        from offline_core.data.import_plan.parameters import yaml_of

        return yaml_of(self)

    @property
    def page(self) -> str:
        """What was read and what it is taken for, as text."""
        from offline_core.data.import_plan.page import page_of

        return page_of(self)

    def command(self, output: str = "runs/imported", parameters: str = "plan.yaml") -> str:
        """What to type next."""
        sources = " ".join(map(shlex.quote, self.source))
        return f"offline import {sources} -o {shlex.quote(output)} -c {shlex.quote(parameters)}"

    def __str__(self) -> str:
        return f"{self.page}\n{self.yaml}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows: dict[str, Any] = {"verdict": self.verdict, "source": ", ".join(self.source), "format": self.format}
        rows |= {role.name: f"{role.source} ({role.reason})" for role in self.roles}
        rows |= {decision.name: decision.question for decision in self.decisions}
        return html_table("ImportPlan", rows)
