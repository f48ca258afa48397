"""Prints what was, or would be, deleted or forgotten: a sentence first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.markup import escape
from rich.table import Table

from flows.results import console_of_output
from offline_core.keeping.retention.forget import ForgetResult
from offline_core.keeping.retention.vacuum import VacuumResult


def print_vacuumed(result: VacuumResult) -> None:
    """Versions that go, and those that stay for another reason than their age."""
    verb = "Deleted" if result.deleted else "Would delete"
    again = "" if result.deleted or not result.freed_bytes + len(result.removed) else " Do it with -s delete=true."
    _say(
        f"{verb} {len(result.removed):,} versions and {len(result.leftovers):,} files of no version below {result.root}: "
        f"{result.freed_bytes:,} bytes; {len(result.kept):,} versions stay.{again}"
    )
    rows = [
        *((each, "goes" if not result.deleted else "gone") for each in result.removed),
        *((each, "stays") for each in result.kept),
    ]
    _table(
        ("version", "made", "bytes", "", "because"),
        (
            [f"{each.uri} {each.version}", f"{each.created_at:%Y-%m-%d}", f"{each.bytes:,}", fate, each.reason]
            for each, fate in rows
        ),
    )
    _listed(
        {
            "Files of no version": [f"{uri} ({size:,} bytes)" for uri, size in result.leftovers.items()],
            "Datasets that other runs are writing, of which nothing went; do it again when they are done": result.busy,
        }
    )


def print_forgotten(result: ForgetResult) -> None:
    """Versions that lose episodes, and what else to do."""
    verb = "Forgot" if result.deleted else "Would forget"
    again = "" if result.deleted or not result.ids else " Do it with --delete."
    _say(f"{verb} {result.ids:,} episodes in {len(result.versions):,} versions below {result.root}.{again}")
    _table(
        ("version", "episodes", "steps"),
        ([f"{each.uri} {each.version}", f"{each.episodes:,}", f"{each.steps:,}"] for each in result.versions),
    )
    _listed(
        {
            "Policies that learned from them; train these again, then delete them": result.policies,
            "Aliases that name such a policy; promote another one there": result.addresses,
            "Checks, cards, exports, estimates and decisions of these versions, which go; make them again": result.removed,
            "Texts in which their names are replaced": result.texts,
            "Other files that name them, or cannot be read; delete these by hand": result.left,
        }
    )


def _say(text: str) -> None:
    console_of_output().print(text, markup=False, highlight=False, soft_wrap=True)


def _listed(lists: Mapping[str, Iterable[str]]) -> None:
    for title, names in lists.items():
        if found := [*names]:
            _say("\n".join([f"{title}:", *(f"  {name}" for name in found)]))


def _table(titles: Iterable[str], rows: Iterable[list[str]]) -> None:
    table = Table(box=None)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    if table.row_count:
        console_of_output().print(table)
