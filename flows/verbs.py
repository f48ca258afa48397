"""How verbs of the command line are made: their arguments, parameters and help."""

from __future__ import annotations

import glob
import os
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from offline_core.control_characters import visible
from offline_core.policies.kind import is_location
from offline_core.runtime.stage import Argument

if TYPE_CHECKING:
    from pydantic import BaseModel

_as_json: ContextVar[bool] = ContextVar("as_json", default=False)
_verbose: ContextVar[bool] = ContextVar("verbose", default=False)


class Verbs(click.Group):
    """The verbs in the order in which people need them."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:  # it repeats what was typed, or what a shell put in its place
            raise click.UsageError(visible(error.format_message()), error.ctx) from None
        except KeyboardInterrupt:  # click would say "Aborted!" before `main` says what stopped it
            raise SystemExit(128 + signal.SIGINT) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]


EXIT_CODES = (
    "Exit codes: 0: done. 1: an error, or a gate or check that failed. 2: a wrong command. 130 and 143: stopped by SIGINT or "
    "SIGTERM."
)


def _print_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        from offline_core.runtime.provenance import provenance

        known = provenance()
        commit = f", commit {known['git']}" if "git" in known else ""
        click.echo(f"offline {known['offline-rl-pipeline']}{commit}, Python {known['python']}")
        context.exit()


@click.group(
    cls=Verbs,
    no_args_is_help=True,
    epilog=EXIT_CODES,
    context_settings={"show_default": True, "max_content_width": 120},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version, the commit if it is known, and Python's version.",
)
def app() -> None:
    """Turns experience into policies: train an expert, record it or import logs, prune, clone, evaluate.

    A folder is a path, or a URI as s3://bucket/runs, gs://bucket/runs or abfs://container/runs.
    """


class Verb(click.Command):
    """A command whose help describes its arguments too, and whose errors know its parameters."""

    arguments: Iterable[Argument] = ()
    parameters: Parameters | None = None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self.parameters is not None and not ctx.resilient_parsing:
            self._look(ctx, self.parameters, args)
        return super().parse_args(ctx, args)

    def _look(self, ctx: click.Context, parameters: Parameters, args: list[str]) -> None:
        """Shows the parameters on request, before a required argument is missed; refuses those that are given without -s."""
        try:
            options, more, _ = self.make_parser(ctx).parse_args([*args])
        except click.NoSuchOption as error:
            self._refuse_option(ctx, parameters, error, args)
            raise
        for argument in (parameter for parameter in self.params if isinstance(parameter, click.Argument)):
            value = options.get(argument.name or "")
            more += [value] if isinstance(value, str) else value if isinstance(value, tuple) else ()
        for text in more:
            name, equals, value = text.partition("=")
            if equals and name.isprintable() and "/" not in name and (meant := parameters.meant(name, value)) is not None:
                ctx.fail(f"{text} is a parameter, and no folder: {meant} (if it is a folder: ./{text})")
        self._refuse_output(ctx, options)
        if options.get("show_config"):
            parameters.show(options.get("settings") or (), options.get("config_files") or ())
            ctx.exit()

    def _refuse_output(self, ctx: click.Context, options: Mapping[str, Any]) -> None:
        """Says how to give the output where none is given and the last of the folders to read does not exist."""
        outputs = [argument.name for argument in self.arguments if argument.kind == "output" and argument.is_option]
        if not outputs or any(options.get(name) for name in outputs):
            return
        for argument in (argument for argument in self.arguments if argument.is_many):
            *others, last = words if isinstance(words := options.get(argument.name), tuple) and words else [""]
            if others and is_location(last) and "://" not in last and not glob.has_magic(last) and not os.path.exists(last):
                from offline_core.data.store.location import refuse_credentials

                for word in others:
                    refuse_credentials(word)
                line = shlex.join(["offline", str(ctx.info_name), *others, "-o", last])
                ctx.fail(f"There is nothing at {last} to read. If it is the output: {line}")

    def _refuse_option(self, ctx: click.Context, parameters: Parameters, error: click.NoSuchOption, args: list[str]) -> None:
        """Says how a parameter is given that was given as an option."""
        from offline_core.runtime.parameter_names import closest

        option = error.option_name
        if closest(option, (name for parameter in self.params for name in parameter.opts), cutoff=0.75):
            return  # click names it
        if (meant := parameters.meant(option.lstrip("-").replace("-", "_"), _value_of(option, args))) is not None:
            ctx.fail(f"{option} is a parameter, and no option: {meant}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if described := [_help_row(argument) for argument in self.arguments if not argument.is_option]:
            with formatter.section("Arguments"):
                formatter.write_dl(described)
        super().format_options(ctx, formatter)


def _value_of(option: str, args: list[str]) -> str:
    """What stands after an option that no verb has."""
    for text, following in zip(args, [*args[1:], "-"], strict=True):
        name, equals, value = text.partition("=")
        if name == option:
            return value if equals else "…" if following.startswith("-") else following
    return "…"


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
    parameters: Parameters | None = None,
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
        shown = [_flag(_as_json, ("--json",), JSON_HELP)] if has_json else []
        shown += [_flag(_verbose, ("-v", "--verbose"), VERBOSE_HELP)] if has_json or has_verbose else []
        params = [*map(_parameter, arguments), *options, *(parameters.options if parameters else ()), *shown]
        text = help or function.__doc__
        command = Verb(name, callback=function, params=params, help=text, short_help=text)
        command.arguments, command.parameters = arguments, parameters
        app.add_command(command)
        return function

    return decorate


def _flag(kept_in: ContextVar[bool], names: tuple[str, ...], help: str) -> click.Option:
    """An option that keeps whether it was given, wherever it stands."""

    def keep(_: click.Context, __: click.Parameter, is_given: bool) -> None:
        kept_in.set(is_given)

    return click.Option([*names], is_flag=True, is_eager=True, expose_value=False, callback=keep, help=help)


JSON_HELP = "Print the result, or the error, as one JSON document on stdout; all else goes to stderr."
VERBOSE_HELP = "Print the whole card: tables, details, lineage and the command that repeats the run."


def is_verbose() -> bool:
    """Whether the command that runs was given `-v`."""
    return _verbose.get()


def as_json() -> bool:
    """Whether the command that runs was given `--json`."""
    return _as_json.get()


class Parameters:
    """The parameters of a verb that `-s` and `-c` give: of configs, by the name of their group; the empty name stands for none.

    Arguments:
        defaults: the configs.
        optional: models of groups that are not there by default.
    """

    def __init__(
        self,
        defaults: Callable[[], Mapping[str, BaseModel]],
        optional: Callable[[], Mapping[str, type[BaseModel]]] = dict,
    ) -> None:
        self._defaults, self._optional = defaults, optional

    @property
    def models(self) -> dict[str, type[BaseModel]]:
        """All models."""
        return {name: type(config) for name, config in self._defaults().items()} | dict(self._optional())

    def configs(self, settings: Sequence[str], files: Sequence[str]) -> dict[str, BaseModel]:
        """The configs with what `-s` and `-c` say; optional ones only if they say something of them."""
        from flows.settings import configs_of, read_values
        from offline_core.errors import ConfigError

        if len(files) > 1:  # click would take the last one and ignore the others
            raise ConfigError(
                f"-c takes one file, not {', '.join(files)}. Put them into one, or set the rest by -s NAME=VALUE."
            )
        return configs_of(self._defaults(), self._optional(), read_values(settings, files[0] if files else None))

    def show(self, settings: Sequence[str], files: Sequence[str]) -> None:
        """Print them as YAML that `-c` takes."""
        from flows.settings import print_parameters

        print_parameters(self.configs(settings, files), self._optional())

    def meant(self, name: str, value: str) -> str | None:
        """Return how `-s` gives a value to the parameter that a name stands for; None if it stands for none."""
        from flows.settings import unused_of
        from offline_core.runtime.parameter_names import meant_parameters

        paths = meant_parameters(name, self.models, unused_of(self._defaults()))
        return " or ".join(f"-s {path}={value}" for path in paths) or None

    @property
    def options(self) -> tuple[click.Option, ...]:
        """`-s`, `-c` and `--show-config`."""

        def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
            from flows.settings import completions

            return [CompletionItem(name, help=text or None) for name, text in completions(self.models, incomplete).items()]

        return (
            click.Option(
                ["settings", "--set", "-s"],
                multiple=True,
                shell_complete=complete,
                metavar="NAME=VALUE",
                help="A parameter, such as -s optimizer.batch_size=2048. Repeat for more.",
            ),
            click.Option(
                ["config_files", "--config", "-c"],
                multiple=True,
                metavar="FILE",
                help="Parameters as YAML or JSON, in one file.",
            ),
            click.Option(
                ["--show-config"],
                is_flag=True,
                expose_value=False,
                help="Print the parameters that -s, -c and the defaults come to, with their descriptions, and stop.",
            ),
        )
