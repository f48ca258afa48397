"""`--plan`: what a verb would read, write and cost, on one page; nothing is written but the file that is asked for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from flows.results import print_json
from flows.verbs import as_json
from offline_core.data.curation.plan import QUANTILES, PruningPlan
from offline_core.data.store.location import Location
from offline_core.plans.plan import Amount, Plan
from offline_core.runtime.stage import Stage, load
from offline_core.runtime.units import duration_text, size_text

if TYPE_CHECKING:
    from offline_core.data.import_plan.result import ImportPlan

PARAMETER_FILES = (".yaml", ".yml")


def print_plan(stage: Stage[..., Any], **arguments: Any) -> None:
    """Prints the plan of a stage with these arguments."""
    assert stage.plan is not None
    if stage.name == "prune":  # planned from metadata alone, whatever the output
        del arguments["output"]
    plan = load(stage.plan)(**arguments)
    if as_json():
        print_json(plan)
    elif stage.name == "prune":
        _print_pruning(plan)
    elif stage.name == "import":
        _print_import(plan, arguments["output"])
    else:
        _print_costs(plan)


def _print_import(plan: ImportPlan, output: str) -> None:
    """The page and the YAML; where the output is a file or a pipe, the page as comments, so that all of it is YAML."""
    if output.endswith(PARAMETER_FILES):
        Location.of(output).write(_as_comments(plan).encode())
        sys.stdout.write(f"{plan.page}\nThe parameters are in {output}; go on with: {plan.command(parameters=output)}\n")
    else:
        sys.stdout.write(str(plan) if sys.stdout.isatty() else _as_comments(plan))


def _as_comments(plan: ImportPlan) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in plan.page.splitlines()) + f"\n{plan.yaml}"


def _print_costs(plan: Plan) -> None:
    amounts = Table("", "where", "files", "episodes", "steps", "bytes")
    for what, found in (("reads", plan.reads), ("writes", plan.writes)):
        for amount in found:
            amounts.add_row(what, *_cells(amount))
    facts = Table(show_header=False, box=None)
    facts.add_row("takes about", f"{duration_text(plan.seconds)}, {size_text(plan.memory_bytes)} of memory")
    for line in plan.measured:
        facts.add_row("measured", line)
    if plan.reused is not None:
        facts.add_row("exists", f"{plan.reused}: it would be reused, and nothing would be done")
    Console(highlight=False).print(amounts, facts, "Nothing was written.")


def _print_pruning(plan: PruningPlan) -> None:
    facts = Table(show_header=False, box=None)
    facts.add_row("dataset", str(plan.source))
    facts.add_row("would keep", f"{plan.episodes:,} episodes, {plan.steps:,} steps, about {plan.bytes:,} bytes")
    for rule, episodes in plan.dropped.items():
        facts.add_row(f"dropped by {rule}", f"{episodes:,} episodes")
    if plan.unplanned:
        facts.add_row("may keep less", f"{', '.join(plan.unplanned)}: looks at the data itself")
    returns = Table("return", "mean", *(f"{share:.0%}" for share in QUANTILES))
    for name, found in (("now", plan.before), ("then", plan.after)):
        if found is not None:
            returns.add_row(name, *(f"{number:,.4g}" for number in (found.mean, *found.quantiles)))
    console = Console()
    wide = console if console.is_terminal else Console(width=160)  # as tables need where the output is a file or a pipe
    wide.print(facts, returns, "Nothing was written.")


def _cells(amount: Amount) -> list[str]:
    numbers = (amount.files, amount.episodes, amount.steps, amount.bytes)
    return [amount.uri, *("–" if number is None else f"{number:,}" for number in numbers)]
