"""Prints which files are as they were written."""

from __future__ import annotations

from collections import Counter

from flows.results import console_of_output
from offline_core.data.datasets.verify import verify


def print_verified(uri: str, version: int | None) -> bool:
    """Whether all that is there is what was written; a line for each version and checkpoint, and for what is damaged."""
    console = console_of_output()
    counts: Counter[str] = Counter()
    damaged = 0
    for each in verify(uri, version):
        counts[each.what] += 1
        damaged += bool(each.wrong)
        for wrong in each.wrong:
            console.print(f"{each.name}: {wrong}", markup=False, highlight=False, soft_wrap=True)
        if not each.wrong and each.what != "result":
            console.print(f"{each.name}: ok", markup=False, highlight=False, soft_wrap=True)
    found = ", ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in sorted(counts.items()))
    console.print(f"Compared {found}: {f'{damaged:,} damaged' if damaged else 'all as written'}.", highlight=False)
    return not damaged
