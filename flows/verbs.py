"""How verbs of the command line are made: their arguments, parameters and help."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

import click
from click.shell_completion import CompletionItem

from offline_core.runtime.stage import Argument

_as_json: ContextVar[bool] = ContextVar("as_json", default=False)
_verbose: ContextVar[bool] = ContextVar("verbose", default=False)


class Verbs(click.Group):
    """The verbs in the order in which people need them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]


EXIT_CODES = (
    "Exit codes: 0: done. 1: an error, or a gate or check that failed. 2: a wrong command. 130 and 143: stopped by SIGINT or "
    "SIGTERM."
)


@click.group(
    cls=Verbs,
    no_args_is_help=True,
    epilog=EXIT_CODES,
    context_settings={"show_default": True, "max_content_width": 120},
)
def app() -> None:
    """Turns experience into policies: train an expert, record it or import logs, prune, clone, evaluate.

    A folder is a path, or a URI as s3://bucket/runs, gs://bucket/runs or abfs://container/runs.
    """


class Verb(click.Command):
    """A command whose help describes its arguments too."""

    arguments: Iterable[Argument] = ()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if described := [_help_row(argument) for argument in self.arguments if not argument.is_option]:
            with formatter.section("Arguments"):
                formatter.write_dl(described)
        super().format_options(ctx, formatter)


def _help_row(argument: Argument) -> tuple[str, str]:
    default = _default(argument)
    default = default if isinstance(default, str) else " ".join(default or ())
    return argument.name.upper(), f"{argument.help}  [{f'default: {default}' if default else 'required'}]"


def _default(argument: Argument) -> Any:
    return None if argument.is_required else argument.default


def _parameter(argument: Argument) -> click.Parameter:
    if not argument.is_option:
        many = -1 if argument.is_many else 1
        return click.Argument(
            [argument.name], default=_default(argument), nargs=many, required=_default(argument) is None, type=click.Path()
        )
    if argument.kind == "switch":
        return click.Option([f"--{argument.name}"], is_flag=True, help=argument.help)
    names = [argument.name, f"--{argument.name}", *(["-o"] if argument.kind == "output" else [])]
    return click.Option(names, default=argument.default, help=argument.help, type=int if argument.kind == "version" else str)


def verb(
    name: str,
    arguments: Iterable[Argument],
    *options: click.Option,
    help: str | None = None,
    has_json: bool = False,
    has_verbose: bool = False,
) -> Callable[..., Any]:
    """Adds a function of these arguments and options to the command line.

    Arguments:
        has_json: `--json` and `-v` are options; `as_json` and `is_verbose` say whether they were given.
        has_verbose: of these two, only `-v` is.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        shown = [*([_json()] if has_json else []), *([_verbosely()] if has_json or has_verbose else [])]
        params = [*map(_parameter, arguments), *options, *shown]
        text = help or function.__doc__
        command = Verb(name, callback=function, params=params, help=text, short_help=text)
        command.arguments = arguments
        app.add_command(command)
        return function

    return decorate


def _json() -> click.Option:
    def keep(_: click.Context, __: click.Parameter, is_wanted: bool) -> None:
        _as_json.set(is_wanted)

    text = "Print the result, or the error, as one JSON document on stdout; all else goes to stderr."
    return click.Option(["--json"], is_flag=True, is_eager=True, expose_value=False, callback=keep, help=text)


def _verbosely() -> click.Option:
    def keep(_: click.Context, __: click.Parameter, is_wanted: bool) -> None:
        _verbose.set(is_wanted)

    text = "Print the whole card: tables, details, lineage and the command that repeats the run."
    return click.Option(["-v", "--verbose"], is_flag=True, is_eager=True, expose_value=False, callback=keep, help=text)


def is_verbose() -> bool:
    """Whether the command that runs was given `-v`."""
    return _verbose.get()


def as_json() -> bool:
    """Whether the command that runs was given `--json`."""
    return _as_json.get()


def config_options(models: Callable[[], Any], optional: Callable[[], Any] = dict) -> tuple[click.Option, ...]:
    """-s, -c and --show-config, which shows the parameters of `models()`, classes by the name of their group if they have one.

    Arguments:
        optional: likewise of groups that are not there by default.
    """

    def show(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
        if is_wanted:
            from flows.settings import print_parameters

            print_parameters(models(), optional())
            context.exit()

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from flows.settings import parameter_names

        names = parameter_names(models() | optional()).items()
        return [CompletionItem(f"{name}=", help=text) for name, text in names if name.startswith(incomplete)]

    return (
        click.Option(
            ["settings", "--set", "-s"],
            multiple=True,
            shell_complete=complete,
            metavar="NAME=VALUE",
            help="A parameter, such as -s optimizer.batch_size=2048. Repeat for more.",
        ),
        click.Option(
            ["config_files", "--config", "-c"], multiple=True, metavar="FILE", help="Parameters as YAML or JSON, in one file."
        ),
        click.Option(
            ["--show-config"],
            is_flag=True,
            is_eager=True,  # before required arguments are missed
            expose_value=False,
            callback=show,
            help="Print all parameters with their descriptions, and stop.",
        ),
    )
