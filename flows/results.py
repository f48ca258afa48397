"""Prints results on the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.store.location import Location
from offline_core.secrets import masked

if TYPE_CHECKING:
    from offline_core.data.quality.result import QualityReport
    from offline_core.judging.ranking.result import OutlierResult
    from offline_core.judging.sweeps.result import SweepResult

_LEFT_OUT = ("columns",)
"""Statistics of columns are for 'offline inspect'."""


def print_result(result: BaseModel) -> None:
    """The numbers and names in a result, as a table; long lists stay out."""
    table = Table(show_header=False, box=None)
    for name, value in _plain(masked(result.model_dump(mode="json"))):
        table.add_row(name, f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value))
    console = Console()
    console.print(table)
    for ref in (value for _, value in result if isinstance(value, DatasetRef) and value.latest is not None):
        console.print(
            f"{ref.uri}: version {ref.version} is reused; the latest is version {ref.latest}. "
            f"Give the next command --version {ref.version}, for without it the latest is read.",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )


def print_json(result: BaseModel) -> None:
    """The whole result as one JSON document. JSON has no infinity and no NaN: they are texts in it."""
    sys.stdout.write(json.dumps(masked(json.loads(result.model_dump_json(), parse_constant=str))) + "\n")


def print_chain(title: str, result: Any, *, root: str) -> None:
    """What each stage of a chain took and came to, with names below `root`, and where its card is."""
    table = Table("stage", "seconds", "result", title=title)
    table.columns[1].justify = "right"
    folder = Location.of(root).uri
    for stage in result.stages:
        outcome = ("reused: " if stage.reused else "") + stage.outcome.replace(f"{folder}/", "")
        table.add_row(stage.name, f"{stage.seconds:.1f}", outcome)
    table.add_section()
    table.add_row("all", f"{result.seconds:.1f}", "Ray's start and end included")
    console = console_of_output(100)
    console.print(table)
    console.print(f"Card: {folder}/card.html", soft_wrap=True, markup=False, highlight=False)


def print_settings(result: SweepResult) -> None:
    """The settings of a sweep, the best first."""
    found = result.table()
    table = Table(*found.columns, title=f"by {result.score}; intervals of the interquartile mean")
    for row in found.rows():
        table.add_row(*("–" if each is None else f"{each:.4g}" if isinstance(each, float) else str(each) for each in row))
    console_of_output().print(table, f"best: {result.best}")


def print_findings(report: QualityReport) -> None:
    """What the rules say of a dataset."""
    console_of_output().print(str(report.dataset), findings_table(report))


def print_outliers(result: OutlierResult) -> None:
    """The episodes that are unlike the others, and what the data speaks for."""
    console = console_of_output()
    table = Table("episode", "id", "score", "reason", title=f"{result.count:,} outliers, score {result.threshold:g} or more")
    for each in result.outliers:
        table.add_row(f"{each.episode:,}", each.eps_id, f"{each.score:.1f}", each.reason)
    console.print(str(result.dataset), table, *result.advice.sentences, *result.notes, sep="\n", markup=False)
    console.print(f"Advice: {result.advice}", f"Scores: {result.scores}", sep="\n", markup=False)


def findings_table(report: QualityReport) -> Table:
    table = Table("rule", "verdict", "finding", title=f"Quality: {report.verdict}")
    for finding in report.findings:
        if finding.verdict != "pass":
            table.add_row(finding.rule, finding.verdict, f"{finding.message} {finding.advice}".strip())
    for outcome in ("pass", "not applicable"):
        if count := sum(finding.outcome == outcome for finding in report.findings):
            table.add_row(f"{count} rules", outcome, "")
    return table


def console_of_output(width: int = 160) -> Console:
    """A console as wide as the terminal, or as tables need where the output is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=width)


def _plain(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if name in _LEFT_OUT:
            continue
        if isinstance(item, dict):
            yield from _plain(item, f"{prefix}{name}.")
        elif not isinstance(item, list) and not (prefix == "counts." and not item):
            yield f"{prefix}{name}", item
