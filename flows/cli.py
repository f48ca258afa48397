"""The command line: one verb for each flow, made from the table of stages, and some that look at or look after what was made.

A verb imports what it needs when it runs: `--help` loads only click, and `--show-config` only the models of the parameters.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import click

from flows.server_settings import api_url
from flows.verbs import Parameters, app, as_json, is_verbose, verb
from offline_core.policies.kind import is_location
from offline_core.runtime.stage import CANDIDATES, DATASET, ENVIRONMENT, STAGES, VERSION, Argument, Stage, load

OBJECTS_UNTIL_GC = 20_000
"""Imports make hundreds of thousands of objects that stay; by Python's 700, a tenth of their time goes into collecting."""


STEPS_SHOWN = 20
"""Most steps that 'offline explain' prints; a notebook shows more, and --json all."""
ROOT_HELP = "Folder for everything that the run makes."
SOURCE = Argument("source", "Files, folders or patterns with * or **; or the folder of one dataset.", ["data"], kind="sources")


def _add_chain(name: str, help: str, arguments: list[Argument], *options: click.Option) -> None:
    """Adds the verb of a chain."""
    attribute = name.replace("-", "_")

    def defaults() -> Any:
        from flows.settings import defaults_of

        return defaults_of(_flow(attribute).fn)

    seed = click.Option(["--seed"], type=click.IntRange(min=0), default=0, help="Seed of every stage.")
    parameters = Parameters(defaults)

    @verb(name, arguments, seed, *options, parameters=parameters, help=help, has_json=True)
    def run(settings: tuple[str, ...], config_files: tuple[str, ...], env: str | None = None, **parsed: Any) -> None:
        more = [f"expert.environment.id={env}"] * bool(env)
        flow, configs = _flow(attribute), parameters.configs([*settings, *more], config_files)
        values = parsed | _checked(arguments, parsed)
        if len(sources := values.get("source", ())) == 1:  # which may be a dataset
            values["source"] = sources[0]
        _shown(lambda: _call(flow, **values, **configs), is_chain=True)


_add_chain(
    "expert-to-policy",
    "The whole chain: expert, recording, pruning, cloned policy, evaluation.",
    [Argument("root", ROOT_HELP, "runs/demo"), ENVIRONMENT],
)
_add_chain(
    "logs-to-policy",
    "The whole chain from logs: import or convert, check, prune, train, evaluate or estimate.",
    [SOURCE, Argument("root", ROOT_HELP, "runs/logs", "output", is_option=True)],
    click.Option(
        ["--test"],
        type=click.Choice(["auto", "evaluate", "estimate"]),
        default="auto",
        help="Play the policy, or estimate its return; auto plays it if an environment is known.",
    ),
)
_add_chain(
    "improve-policy",
    "From new logs to a better policy: import, check, split, prune, train candidates, decide, promote or say why not.",
    [
        SOURCE,
        Argument("root", ROOT_HELP, "runs/improve", "output", is_option=True),
        Argument("registry", "Folder of the registry and name of the policy.", "runs/registry/policy", is_option=True),
        Argument(
            "approval",
            "Pause before a promotion, until it is approved in the form of the run.",
            False,
            "switch",
            is_option=True,
        ),
    ],
)


def _add_stage(stage: Stage[..., Any]) -> None:
    """Adds the verb of a stage."""
    server = click.Option(["--server"], is_flag=True, help="Run it as a flow of Prefect, also where no server is set.")
    plan = click.Option(["--plan"], is_flag=True, help=stage.plan_help)
    serving = [
        click.Option(["--serve"], is_flag=True, help="Serve the page to browsers of this machine, live, and write no file."),
        click.Option(["--port"], type=click.IntRange(0, 65535), default=0, help="Port that --serve takes; 0: a free one."),
    ]
    ask = click.Option(["--ask"], is_flag=True, help="Ask what a plan cannot know, and write the YAML for -c.")

    parameters = Parameters(
        lambda: {"": load(stage.config)()}, lambda: {name: load(path) for name, path in stage.groups.items()}
    )

    @verb(
        stage.title,
        stage.arguments,
        *([plan] if stage.plan else []),
        *([ask] if stage.name == "import" else []),
        *(serving if stage.name == "report" else []),
        server,
        parameters=parameters,
        help=stage.help,
        has_json=True,
    )
    def run(
        server: bool,
        plan: bool = False,
        ask: bool = False,
        serve: bool = False,
        port: int = 0,
        env: str | None = None,
        append: bool = False,
        **parsed: Any,
    ) -> None:
        more = [f"environment.id={env}"] * bool(env) + ["append=true"] * append
        groups = parameters.configs([*parsed["settings"], *more], parsed["config_files"])
        arguments = _checked(stage.arguments, parsed) | {"config": groups.pop("")}
        if plan:
            from flows.results import print_plan

            print_plan(stage, **arguments)
        elif ask:
            from flows.asking import ask_for_import

            ask_for_import(**arguments)
        elif serve:
            _serve(arguments["root"], arguments["config"], port)
        else:
            has_server = server or api_url() is not None
            _shown(lambda: _run_stage(stage, has_server=has_server, **arguments, **groups))


for _stage in STAGES.values():
    _add_stage(_stage)


def _serve(root: str, config: Any, port: int) -> None:
    """Serves the page of a root until it is stopped."""
    from flows.console import say
    from flows.server_settings import ui_url
    from offline_core.keeping.homepage.serving import ReportServer

    if not config.runs_url and (url := ui_url()):
        config = config.model_copy(update={"runs_url": f"{url.rstrip('/')}/runs"})
    server = ReportServer(root, config, port=port)
    say(f"The report of {root} is at {server.address}\nCtrl-C ends it.")
    with contextlib.suppress(KeyboardInterrupt):
        server.run()


@verb(
    "ls",
    [
        Argument("root", "Folder with all that was made.", "runs"),
        Argument("kind", "Only this kind: dataset, policy, training, sweep, decision, …", is_option=True),
    ],
    has_json=True,
)
def list_root(root: str, kind: str | None) -> None:
    """List the datasets, policies and results below a folder: what, when, from what; the newest last."""
    from flows.results import print_json, print_listing
    from offline_core.keeping.homepage.listing import list_root

    listing = list_root(_place(root), kind=kind)
    if as_json():
        print_json(listing)
    else:
        print_listing(listing)


@verb("inspect", [Argument("place", "Folder of the dataset, policy, training or sweep."), VERSION])
def inspect(place: str, version: int | None) -> None:
    """Show a dataset (versions, files, spaces, statistics), a policy, or what a training or sweep left; and the lineage."""
    from flows.results import print_card
    from offline_core.keeping.inspection import card_at

    print_card(card_at(_place(place), version), verbose=True)


@verb(
    "explain",
    [DATASET, Argument("policies", CANDIDATES, kind="candidates", is_required=True), VERSION],
    click.Option(["--episode"], metavar="ID", help="Of the episode; if none is given the first, or many of a log of one step."),
    click.Option(
        ["--noise"], type=float, metavar="NUMBER", help="Standard deviation of what answers one action of a Box, in its units."
    ),
    has_json=True,
)
def explain(dataset: str, policies: tuple[str, ...], version: int | None, episode: str | None, noise: float | None) -> None:
    """Show an episode step by step: what was done, and what each policy, rule or function would have done."""
    from flows.results import print_card, print_json
    from offline_core.door import explain

    explanation = explain(_place(dataset), policies, episode=episode, version=version, noise=noise)
    if as_json():
        print_json(explanation)
    else:
        print_card(explanation.card(most=STEPS_SHOWN), verbose=True)


@verb(
    "card",
    [Argument("place", "Folder of the result, dataset or policy, or file of the result."), VERSION],
    click.Option(["--open"], is_flag=True, help="Open the page of the card in a browser."),
    has_verbose=True,
)
def card(place: str, version: int | None, open: bool) -> None:
    """Show the card of what is in a folder in a few lines, and where its page is."""
    from flows.results import print_card
    from offline_core.keeping.inspection import card_at

    folder_card = card_at(_place(place), version)
    print_card(folder_card, verbose=is_verbose())
    if open and folder_card.places:
        click.launch(f"{folder_card.places[0]}.html")


@verb("registry", [Argument("place", "Folder of a registry, or of one name in it.", "runs/registry")], has_json=True)
def registry(place: str) -> None:
    """Show what the aliases of a registry name, since when and why; of one name, its history too."""
    from flows.results import print_card, print_json
    from offline_core.keeping.inspection import registered, registry_card

    if as_json():
        print_json(registered(_place(place)))
    else:
        print_card(registry_card(_place(place)), verbose=True)


@verb("verify", [Argument("place", "Folder of a dataset or policy, or one that holds some."), VERSION], has_verbose=True)
def verify(place: str, version: int | None) -> None:
    """Compare all files with the hashes they were written with; exit code 1 if one is damaged or missing."""
    from flows.results import print_card
    from offline_core.keeping.inspection import verification_card

    card = verification_card(_place(place), version)
    print_card(card, verbose=is_verbose())
    if card.verdict == "bad":
        sys.exit(1)


@verb(
    "tag",
    [DATASET, Argument("name", "A word, such as audited; runs/recording@audited is that version.")],
    click.Option(["--version"], type=int, help="Version to tag; the latest if none is given."),
    click.Option(["--remove"], is_flag=True, help="Remove the tag; the version stays."),
)
def tag(dataset: str, name: str, version: int | None, remove: bool) -> None:
    """Let a name stand for a version of a dataset; tagged versions stay when old ones are deleted."""
    from flows.console import say
    from offline_core.door import tag
    from offline_core.runtime.reporting.card import below_here

    ref = tag(_place(dataset), name, version=version, remove=remove)
    say(f"{below_here(str(ref))} {'has lost the tag' if remove else 'is tagged'} {name}.")


@verb(
    "about",
    [Argument("place", "Folder of a dataset, of a training, or of another result.")],
    click.Option(["--author"], help="Who made it."),
    click.Option(["--license"], help="Under which it may be used: CC-BY-4.0."),
    click.Option(["--description"], help="What it is, in words."),
    click.Option(["--source"], help="Where it is from: a link, a paper, a plant."),
)
def about(place: str, **said: str | None) -> None:
    """Say who made a dataset, its license, what it is and where it is from, or what a run is; without options, show it."""
    from flows.console import say
    from offline_core.door import about

    facts = about(_place(place), **said).facts
    say("\n".join(f"{name}: {text}" for name, text in facts.items()) or f"Nothing is said of {place}.")


@verb(
    "forget",
    [Argument("root", "Folder of a dataset, or one that holds some.")],
    click.Option(["--where"], required=True, metavar="SQL", help="Which episodes, such as \"subject = 'p-17'\"."),
    click.Option(["--delete"], is_flag=True, help="Do it; otherwise only say what would be forgotten."),
)
def forget(root: str, where: str, delete: bool) -> None:
    """Take episodes out of all versions of all datasets below a folder, for good; list the policies that learned from them."""
    from flows.results import print_card
    from offline_core.keeping.retention.config import ForgetConfig
    from offline_core.keeping.retention.forget import forget
    from offline_core.runtime.config import parse

    print_card(forget(parse(ForgetConfig, {"where": where, "delete": delete}), root=_place(root)).card(), verbose=True)


@verb("completion", [Argument("shell", "bash, zsh or fish.", "bash")])
def completion(shell: str) -> None:
    """Print what makes a shell complete verbs, options and parameters: offline completion bash >> ~/.bashrc"""
    from flows.completion import script_of

    click.echo(script_of(shell, app))


def _shown(call: Callable[[], Any], *, is_chain: bool = False) -> None:
    """Runs a stage or a chain, and shows the card of each stage as soon as that is kept, which is before a gate refuses it."""
    from flows.results import print_card, print_json
    from offline_core.errors import OfflineError
    from offline_core.keeping.cards import REUSED, observe_cards
    from offline_core.runtime.reporting.card import Card

    if as_json():
        print_json(call())
        return
    shown: list[Card] = []

    def show(card: Card) -> None:
        again = {name: fact for name, fact in card.facts.items() if name == REUSED}
        is_short = is_chain and not is_verbose()
        print_card(dataclasses.replace(card, facts=again, advice="", next="") if is_short else card, verbose=is_verbose())
        shown.append(card)

    with observe_cards(show):
        try:
            result = call()
        except OfflineError as error:
            if not shown or shown[-1].verdict != "bad":
                raise
            warnings, lines = shown[-1].warnings, [*map(str.strip, str(error).splitlines())]
            if any(lines[0].rstrip(":.") in warning for warning in warnings):
                raise type(error)(f"{shown[-1].word}, as told above") from None
            left = [line for line in lines if line not in warnings] if is_chain else lines[:1]  # the card says what is next
            raise type(error)("\n".join(line.rstrip(":") for line in left)) from None
    if is_chain:  # whose stages have told the rest
        print_card(dataclasses.replace(result.card(), facts={}, warnings=()), verbose=is_verbose())


def _checked(arguments: Iterable[Argument], parsed: dict[str, Any]) -> dict[str, Any]:
    """Return the values of arguments, checked before Prefect stores a parameter that may have credentials in it."""
    values = {argument.name: parsed[argument.name] for argument in arguments if argument.name in parsed}
    for argument in arguments:
        if argument.is_many:
            values[argument.name] = [*values[argument.name]]
            _refuse_credentials(values[argument.name])
        elif argument.is_place and values[argument.name] is not None and is_location(values[argument.name]):
            _place(values[argument.name])
    return values


def _place(uri: str) -> str:
    from offline_core.data.store.location import Location

    Location.of(uri)
    return uri


def _refuse_credentials(uris: Iterable[str]) -> None:
    """Checks what user readers may know how to read, and this pipeline not."""
    from offline_core.data.store.location import refuse_credentials

    for uri in uris:
        refuse_credentials(uri)


def _flow(name: str) -> Any:
    from flows.stages import flow_of

    return flow_of(name)


def _run_stage(stage: Stage[..., Any], *, has_server: bool, **arguments: Any) -> Any:
    """The result of a stage: of a flow run, or of a call in this process."""
    if has_server:
        return _call(_flow(stage.attribute), **arguments)
    from flows.in_process import run_in_process

    return run_in_process(stage, **arguments)


def _call(flow: Any, **arguments: Any) -> Any:
    from flows.prefect_server import check_answer
    from flows.ui import use_preferred_ui

    if url := api_url():
        check_answer(url)
        use_preferred_ui()
    return flow(**arguments)


def main() -> None:
    """Runs a verb. Exit codes: 0; 1 after an error; 2 for a wrong command; 130 and 143 when SIGINT or SIGTERM stopped it.

    An error of the pipeline is one readable message. Any other exception is a bug and keeps its traceback.
    """
    from flows.stopping import Stopping

    sys.excepthook = _show
    gc.set_threshold(OBJECTS_UNTIL_GC)
    atexit.register(gc.freeze)  # at the end nothing needs to be collected any more
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_CLASS", "flows.console.ConsoleHandler")
    sys.path.append(os.getcwd())  # for user code; last, for the folder may have a tasks.py
    stopping = Stopping()
    try:
        _run_verb()
    except BaseException as error:
        is_done = isinstance(error, SystemExit) and error.code == 0  # as of a server, which a signal is to end
        if stopping.signal is None or is_done:
            raise
        _fail(stopping.sentence, code=stopping.code)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The traceback of a bug, which may repeat what was given."""
    from flows.console import say
    from offline_core.secrets import masked_text

    say(masked_text("".join(traceback.format_exception(kind, error, trace))).rstrip(), err=True)


def _run_verb() -> None:
    from offline_core.errors import OfflineError
    from tasks.crash import Crash

    try:
        app(prog_name="offline")
    except OfflineError as error:
        _fail(f"{type(error).__name__}: {error}")
    except Crash as error:
        _fail(str(error))
    except Exception as error:
        from flows.prefect_server import trouble

        if (message := trouble(error)) is None:
            raise
        _fail(message)


def _fail(message: str, code: int = 1) -> None:
    from flows.console import say
    from offline_core.secrets import masked_text

    message = masked_text(message)
    if as_json():
        kind, colon, rest = message.partition(": ")
        named = (kind, rest) if colon and kind.isidentifier() else ("Error", message)
        click.echo(json.dumps({"error": dict(zip(("type", "message"), named, strict=True))}))
    say(f"\n{message}", err=True, color="red")
    sys.exit(code)
