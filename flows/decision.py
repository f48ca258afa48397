"""Prints a decision: the verdict, the candidates, and what the first of them is like."""

from __future__ import annotations

from collections.abc import Iterator

from offline_core.judging.decisions.words import in_words
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from offline_core.judging.decisions.result import Candidate, DecisionResult

WIDTH = 100
MOST_ROWS = 20
MOST_EPISODES = 3
STYLES = {"promote": "bold green", "test": "bold blue", "collect": "bold cyan", "keep": "bold", "refused": "bold yellow"}


def print_decision(result: DecisionResult) -> None:
    """In at most 100 columns, whatever the terminal."""
    console = Console(highlight=False)
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    console.print(Text.assemble((result.verdict, STYLES[result.verdict]), f": {result.sentence}"))
    table = Table("candidate", "difference", "effective", "overlap", "guardrails", "why not")
    for number, ratio in ((0, 3), (5, 5)):
        table.columns[number].ratio, table.columns[number].overflow = ratio, "fold"
    for number in (2, 3):
        table.columns[number].justify = "right"
    for each in result.candidates[:MOST_ROWS]:
        table.add_row(*map(escape, _cells(each)))
    if (left := len(result.candidates) - MOST_ROWS) > 0:
        table.add_row(f"… {left:,} more")
    console.print(table)
    for line in _explanations(result):
        console.print(Text(f"  {line}"))
    console.print(Text(f"card: {result.uri}/card.html"), soft_wrap=True)


def _cells(each: Candidate) -> tuple[str, ...]:
    judged = each.judged
    if judged is None:
        return each.name, "no finalist", "–", "–", "–", "; ".join(each.reasons)
    held = sum(finding.passed for finding in each.guardrails)
    return (
        each.name,
        f"{judged.value:+.4g}\n({judged.low:+.4g} to {judged.high:+.4g})",
        f"{judged.effective_episodes:,.1f}",
        f"{100 * each.overlap:.0f} %",
        f"{held} of {len(each.guardrails)} hold" if each.guardrails else "–",
        "; ".join(each.reasons),
    )


def _explanations(result: DecisionResult) -> Iterator[str]:
    first = result.first
    yield from in_words(result)
    yield from result.warnings
    yield from (f"{first.name} acts otherwise than what acted where {where}" for where in first.differs_where)
    yield from (f"The log has little of what {first.name} does where {where}" for where in first.unsupported_where)
    if first.carried_by:
        most = list(first.carried_by.items())[:MOST_EPISODES]
        told = ", ".join(f"{name} ({100 * share:.1f} %)" for name, share in most)
        yield f"Most of the evidence on {first.name} is in the episodes {told}."
