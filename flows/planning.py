"""`--plan`: what a verb would read, write and take, on a page; nothing is written."""

from __future__ import annotations

import importlib
from typing import Any

from rich.console import Console
from rich.table import Table

from offline_core.plans.plan import Amount, Plan

PLANS = {
    "record_episodes": "recording.plan_recording",
    "import_dataset": "importing.plan_import",
    "convert_table": "conversion.plan_conversion",
    "compact_dataset": "conversion.plan_compaction",
    "train_policy": "training.plan_training",
}
"""By flow: module and function of `offline_core.plans`."""


def print_plan_of(flow: str, **arguments: Any) -> None:
    """What the flow would do with these arguments."""
    module, _, name = PLANS[flow].partition(".")
    plan: Plan = getattr(importlib.import_module(f"offline_core.plans.{module}"), name)(**arguments)
    amounts = Table("", "where", "files", "episodes", "steps", "bytes")
    for what, found in (("reads", plan.reads), ("writes", plan.writes)):
        for amount in found:
            amounts.add_row(what, *_cells(amount))
    facts = Table(show_header=False, box=None)
    facts.add_row("takes about", f"{_time(plan.seconds)}, {plan.memory_bytes / 2**20:,.0f} MiB of memory")
    for line in plan.measured:
        facts.add_row("measured", line)
    if plan.reused is not None:
        facts.add_row("is there", f"{plan.reused}: it would be reused, and nothing would be done")
    console = Console(highlight=False)
    console.print(amounts, facts, "Nothing was written.")


def _cells(amount: Amount) -> list[str]:
    numbers = (amount.files, amount.episodes, amount.steps, amount.bytes)
    return [amount.uri, *("–" if number is None else f"{number:,}" for number in numbers)]


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
