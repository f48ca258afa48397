"""`--plan`: what a verb would read, write and cost, on one page; nothing is written but the file that is asked for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from flows.results import print_card, print_json
from flows.verbs import as_json
from offline_core.data.store.location import Location
from offline_core.runtime.stage import Stage, load

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
    elif stage.name == "import":
        _print_import(plan, arguments["output"])
    else:
        print_card(plan.card(), verbose=True)


def _print_import(plan: ImportPlan, output: str) -> None:
    """The page and the YAML; where the output is a file or a pipe, the page as comments, so that all of it is YAML."""
    if output.endswith(PARAMETER_FILES):
        Location.of(output).write(_as_comments(plan).encode())
        sys.stdout.write(f"{plan.page}\nThe parameters are in {output}; go on with: {plan.command(parameters=output)}\n")
    else:
        sys.stdout.write(str(plan) if sys.stdout.isatty() else _as_comments(plan))


def _as_comments(plan: ImportPlan) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in plan.page.splitlines()) + f"\n{plan.yaml}"
