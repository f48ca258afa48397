"""Ask for the parameters of an import that no plan can know: one question a line."""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence

import click

from flows.console import say
from offline_core.control_characters import visible_line
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.planning.answers import asked
from offline_core.data.store.location import Location

LOOK_SECONDS = 0.1
"""Between two looks at a terminal for an answer."""


def ask_for_import(config: ImportConfig, *, source: str | Sequence[str], output: str) -> None:
    """Ask on the terminal, write the YAML beside the output, and say what to type next; after Ctrl-C, by the answers so far.

    Raises:
        SystemExit: with 1, where something is left to decide.
    """
    paths = [source] if isinstance(source, str) else list(source)
    plan = None
    try:
        for after_answer in asked(config, paths, _ask):
            plan = after_answer
    except (click.Abort, KeyboardInterrupt):  # by Ctrl-C, or at the end of what answers come from
        if plan is None:
            raise
        say("")
    assert plan is not None
    yaml_file = Location.of(output if output.endswith((".yaml", ".yml")) else f"{output.rstrip('/')}.yaml")
    data = output.removesuffix(".yaml").removesuffix(".yml")
    command = plan.command(data, yaml_file.uri)
    yaml_file.write(plan.yaml_for(command).encode())
    say(plan.verdict)
    for decision in plan.decisions:
        say(f"  {decision.name}: {decision.question}")
    for line in plan.refusals:
        say(f"  {line}")
    for note in plan.notes:
        say(f"  note: {note}")
    if not plan.is_ready:
        say(f"The answers so far are in {yaml_file.uri}: complete it, or ask again with -c {yaml_file.uri} and --ask.")
        raise SystemExit(1)
    say(f"The parameters are in {yaml_file.uri}; go on with: {command}")


def _ask(question: str, candidates: list[str]) -> str:
    if candidates:
        say(f"{question}. Candidates, the likeliest first: {', '.join(candidates)}.")
    else:
        say(f"{question}.")
    likeliest = candidates[0] if candidates else ""
    shown = f" [{visible_line(likeliest)}]" if candidates else ""
    while True:
        click.echo(f"  Yours{shown}: ", nl=False)
        if not (line := _next_line()):
            raise click.Abort
        if answer := line.strip() or likeliest:
            return answer
        say("  There is no candidate to take: write an answer, or end with Ctrl-C.")


def _next_line() -> str:
    """A line of what answers come from; empty at its end."""
    while sys.stdin.isatty() and not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
        pass  # Polars lets a read go on after Ctrl-C, which Python sees between two looks
    return sys.stdin.readline()
