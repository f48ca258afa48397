"""Prints results on the terminal: the card of each, or all of it as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import click
from pydantic import BaseModel

from offline_core.runtime.reporting.card import Card, Verdict
from offline_core.secrets import masked

COLORS: Mapping[Verdict, str | None] = {"good": "green", "fair": "yellow", "bad": "red", "grey": None}


def print_card(card: Card, *, verbose: bool = False) -> None:
    """The card in a few lines, the first of them in its colour; or all of it."""
    first, _, rest = card.terminal(verbose=verbose).partition("\n")
    click.secho(first, fg=COLORS[card.verdict], bold=True)
    if rest:
        click.echo(rest)


def print_json(result: BaseModel) -> None:
    """The whole result as one JSON document. JSON has no infinity and no NaN: they are texts in it."""
    sys.stdout.write(json.dumps(masked(json.loads(result.model_dump_json(), parse_constant=str))) + "\n")
