"""Prints which files are as they were written."""

from __future__ import annotations

from collections import Counter

import click

from offline_core.data.datasets.verify import verify


def print_verified(uri: str, version: int | None) -> bool:
    """Whether all that is there is what was written; a line for each version and checkpoint, and for what is damaged."""
    counts: Counter[str] = Counter()
    damaged = 0
    for each in verify(uri, version):
        counts[each.what] += 1
        damaged += bool(each.wrong)
        for wrong in each.wrong:
            click.echo(f"{each.name}: {wrong}")
        if not each.wrong and each.what != "result":
            click.echo(f"{each.name}: ok")
    found = ", ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in sorted(counts.items()))
    click.echo(f"Compared {found}: {f'{damaged:,} damaged' if damaged else 'all as written'}.")
    return not damaged
