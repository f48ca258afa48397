"""The command line: one verb a flow, and `inspect` to look at what is there.

Heavy imports happen inside the verbs, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, Literal

import typer

app = typer.Typer(
    help="Turns experience into policies: train an expert, record it or import what is there, prune, clone, evaluate.\n\n"
    "A folder is a path, or a URI as s3://bucket/runs, gs://bucket/runs or abfs://container/runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _place(uri: str) -> str:
    """Before anything runs, and so before Prefect keeps a parameter that may have credentials in it."""
    from offline_core.storage.location import Location

    Location.of(uri)
    return uri


def _sources(uris: list[str] | None) -> list[str] | None:
    """Others than we may know how to read them."""
    from offline_core.storage.location import refuse_credentials

    for uri in uris or []:
        refuse_credentials(uri)
    return uris


Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="NAME=VALUE", help="A parameter, such as -s optimizer.batch_size=2048. Repeat for more."
    ),
]
ConfigFile = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="FILE", help="Parameters as YAML or JSON, in one file.")
]
ShowConfig = Annotated[bool, typer.Option("--show-config", help="Print all parameters with what they mean, and stop.")]
Dataset = Annotated[str, typer.Argument(help="Folder of the dataset to read.", callback=_place)]
Output = Annotated[str, typer.Argument(help="Folder of the dataset to write.", callback=_place)]
Planned = Annotated[
    bool, typer.Option("--plan", help="Only say what would be read and written, and what it would take on this machine.")
]
Version = Annotated[int | None, typer.Option(help="Version of the dataset; the latest if none is given.")]


@app.command()
def expert_to_policy(
    root: Annotated[str, typer.Argument(help="Folder for everything the run makes.", callback=_place)] = "runs/demo",
    env: Annotated[str | None, typer.Option(help="Gymnasium id of the environment.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every stage.")] = 0,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """The whole chain: expert, recording, pruning, cloned policy, evaluation."""
    from flows.settings import arguments_of

    flow = _flow("expert_to_policy")
    values = _values(settings, config_file, f"expert.environment.id={env}" if env else None)
    arguments = arguments_of(flow.fn, values, show=show_config)
    result = _call(flow, root=root, seed=seed, **arguments)
    _print_chain("Expert to policy", result)


@app.command()
def logs_to_policy(
    source: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders or patterns with * or **; or the folder of one dataset.", callback=_sources),
    ] = None,
    root: Annotated[
        str, typer.Option("--root", "-o", help="Folder for everything the run makes.", callback=_place)
    ] = "runs/logs",
    seed: Annotated[int, typer.Option(min=0, help="Seed of every stage.")] = 0,
    test: Annotated[
        Literal["auto", "evaluate", "estimate"],
        typer.Option(help="Play the policy, estimate it, or as an environment is known."),
    ] = "auto",
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """The whole chain from logs: import or convert, check, prune, train, evaluate or estimate."""
    from flows.settings import arguments_of

    flow = _flow("logs_to_policy")
    arguments = arguments_of(flow.fn, _values(settings, config_file), show=show_config)
    paths = source or ["data"]
    result = _call(flow, source=paths[0] if len(paths) == 1 else paths, root=root, seed=seed, test=test, **arguments)
    _print_chain("Logs to policy", result)


@app.command()
def train_expert(
    output: Annotated[str, typer.Argument(help="Folder for the checkpoint.", callback=_place)] = "runs/expert",
    env: Annotated[str | None, typer.Option(help="Gymnasium id of the environment.")] = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Train an expert with PPO until it reaches a target return."""
    values = _values(settings, config_file, f"environment.id={env}" if env else None)
    _run("train_expert", values, show_config, output=output)


@app.command()
def record(
    policy: Annotated[str, typer.Argument(help="Checkpoint of the policy to play.", callback=_place)] = "runs/expert/best",
    output: Annotated[str, typer.Argument(help="Folder of the dataset to write.", callback=_place)] = "runs/recording",
    plan: Planned = False,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Record complete episodes of a policy as the next version of a dataset, with -s export.format=… and -s export.output=…
    also in another format."""
    values = _values(settings, config_file)
    given = values.pop("export", None)
    also = {} if given is None or plan else {"export": _export(given)}
    _run("record_episodes", values, show_config, plan=plan, policy=policy, output=output, **also)


def _export(given: Any) -> Any:
    from offline_core.config import parse
    from offline_core.recording.config import RecordingExport

    return parse(RecordingExport, given)


@app.command("import")
def import_(
    source: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders or patterns with * or **, of RLlib, tables, Minari, D4RL, CSV …", callback=_sources
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Folder of the dataset to write.", callback=_place)
    ] = "runs/imported",
    plan: Planned = False,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Take experience of any kind into a dataset: -s mapping.obs=o_t -s mapping.dones=d_t, and so on."""
    _run("import_dataset", _values(settings, config_file), show_config, plan=plan, source=source or ["data"], output=output)


@app.command()
def convert(
    dataset: Dataset = "runs/recording",
    output: Output = "runs/converted",
    version: Version = None,
    plan: Planned = False,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Write a dataset an episode a row, or with -s format=table a step a row."""
    _run(
        "convert_table", _values(settings, config_file), show_config, plan=plan, dataset=dataset, output=output, version=version
    )


@app.command()
def check(
    dataset: Dataset = "runs/recording",
    version: Version = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Hold every step of a dataset against the rules of quality; exit code 1 if it fails."""
    from flows.inspection import print_findings
    from flows.settings import arguments_of

    flow = _flow("check_dataset")
    config = arguments_of(flow.fn, {"config": _values(settings, config_file)}, show=show_config)
    print_findings(_call(flow, dataset=dataset, version=version, **config))


@app.command()
def prune(
    dataset: Dataset = "runs/recording",
    output: Output = "runs/pruned",
    version: Version = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be kept, from the metadata alone.")] = False,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Keep the episodes that meet some conditions, such as -s where='return >= 400'."""
    values = _values(settings, config_file)
    if plan and not show_config:
        from flows.inspection import print_plan

        print_plan(dataset, version, values)
        return
    _run("prune_dataset", values, show_config, dataset=dataset, output=output, version=version)


@app.command()
def compact(
    dataset: Dataset = "runs/recording",
    output: Output = "runs/compacted",
    version: Version = None,
    plan: Planned = False,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Copy a dataset into files of another size, such as -s files.max_bytes_per_file=268435456."""
    _run(
        "compact_dataset",
        _values(settings, config_file),
        show_config,
        plan=plan,
        dataset=dataset,
        output=output,
        version=version,
    )


@app.command()
def split(
    dataset: Dataset = "runs/recording",
    output: Annotated[
        str, typer.Argument(help="Folder for the two datasets, train and held_out.", callback=_place)
    ] = "runs/split",
    version: Version = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Split a dataset by episode into train and held_out, with the same spread of returns."""
    _run("split_dataset", _values(settings, config_file), show_config, dataset=dataset, output=output, version=version)


@app.command()
def merge(
    datasets: Annotated[list[str], typer.Argument(help="Folders of the datasets to read.", callback=_sources)],
    output: Annotated[
        str, typer.Option("--output", "-o", help="Folder of the dataset to write.", callback=_place)
    ] = "runs/merged",
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Copy the episodes of several datasets, each once, into one."""
    _run("merge_datasets", _values(settings, config_file), show_config, datasets=datasets, output=output)


@app.command()
def mix(
    output: Output = "runs/mixture",
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Write episodes of datasets and playing policies by weight: -s 'datasets={runs/a: 0.7, runs/b: 0.3}'."""
    _run("mix_datasets", _values(settings, config_file), show_config, output=output)


@app.command()
def export(
    dataset: Dataset = "runs/recording",
    output: Annotated[
        str, typer.Argument(help="Folder to write; an export that is there is replaced, nothing else is.", callback=_place)
    ] = "runs/export",
    version: Version = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Write a dataset for Minari, or by -s format=… for LeRobot, RLlib (sample_batch), D4RL or a writer of your own."""
    _run("export_dataset", _values(settings, config_file), show_config, dataset=dataset, output=output, version=version)


@app.command()
def train(
    dataset: Annotated[
        str, typer.Argument(help="Folder of the dataset, or of RLlib's episode files.", callback=_place)
    ] = "runs/recording",
    output: Annotated[str, typer.Argument(help="Folder for checkpoints and metrics.", callback=_place)] = "runs/policy",
    version: Version = None,
    plan: Planned = False,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Learn a policy from recorded experience."""
    _run(
        "train_policy", _values(settings, config_file), show_config, plan=plan, dataset=dataset, output=output, version=version
    )


@app.command()
def evaluate(
    policy: Annotated[str, typer.Argument(help="Checkpoint of the policy to play.", callback=_place)] = "runs/policy/best",
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Play a policy on start states that no other stage has seen."""
    _run("evaluate_policy", _values(settings, config_file), show_config, policy=policy)


@app.command()
def estimate(
    policy: Annotated[str, typer.Argument(help="Checkpoint of the policy to estimate.", callback=_place)] = "runs/policy/best",
    dataset: Dataset = "runs/recording",
    version: Version = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Estimate a policy's return from recorded episodes; with -s require_return=… stop if it is too little."""
    _run("estimate_policy", _values(settings, config_file), show_config, policy=policy, dataset=dataset, version=version)


@app.command()
def export_policy(
    policy: Annotated[str, typer.Argument(help="Checkpoint of the policy to export.", callback=_place)] = "runs/policy/best",
    output: Annotated[
        str, typer.Argument(help="Folder for the models; an export that is there is replaced.", callback=_place)
    ] = "runs/exported",
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Write a policy as ONNX, or with -s 'formats=[torch_export]' for Torch, and show that it does the same there."""
    _run("export_policy", _values(settings, config_file), show_config, policy=policy, output=output)


@app.command()
def inspect(
    place: Annotated[str, typer.Argument(help="Folder of the dataset or policy.", callback=_place)],
    version: Version = None,
) -> None:
    """Show a dataset (versions, files, spaces, statistics) or a policy, and what it was made from."""
    from flows.inspection import print_what_is_there

    print_what_is_there(place, version)


@app.command()
def verify(
    place: Annotated[str, typer.Argument(help="Folder of a dataset or policy, or one that holds some.", callback=_place)],
    version: Version = None,
) -> None:
    """Compare all files with the hashes they were written with; exit code 1 if one is damaged or missing."""
    from flows.inspection import print_verified

    if not print_verified(place, version):
        raise typer.Exit(1)


def _run(name: str, values: dict[str, Any], show_config: bool, *, plan: bool = False, **arguments: Any) -> None:
    from flows.settings import arguments_of, print_result

    flow = _flow(name)
    config = arguments_of(flow.fn, {"config": values}, show=show_config)
    if plan:
        from flows.planning import print_plan_of

        print_plan_of(name, **arguments, **config)
        return
    print_result(_call(flow, **arguments, **config))


def _flow(name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(f"flows.{name}"), name)


def _call(flow: Any, **arguments: Any) -> Any:
    from flows.prefect_server import wait_for_database, watched
    from flows.ui import use_preferred_ui

    wait_for_database()
    use_preferred_ui()
    with watched(flow) as call:
        return call(**arguments)


def _values(settings: list[str] | None, config_file: list[str] | None, more: str | None = None) -> dict[str, Any]:
    from flows.settings import read_values
    from offline_core.errors import ConfigError

    if config_file and len(config_file) > 1:  # a list only so that none is passed over without a word
        raise ConfigError(
            f"-c takes one file, not {', '.join(config_file)}. Put them into one, or set the rest by -s NAME=VALUE."
        )
    return read_values([*(settings or []), *([more] if more else [])], config_file[0] if config_file else None)


def _print_chain(title: str, result: Any) -> None:
    from flows.settings import print_chain

    print_chain(title, result)


def main() -> None:
    """Runs a verb. Exit codes: 0; 1 after an error; 2 for a wrong command; 130 and 143 when SIGINT or SIGTERM stopped it.

    Our own errors are one readable message; everything else is a bug and shows itself.
    """
    from flows.stopping import Stopping

    sys.path.append(os.getcwd())  # for code of one's own; behind ours, for there may be a tasks.py
    stopping = Stopping()
    try:
        _run_verb()
    except BaseException:
        if stopping.signal is None:
            raise
        _fail(stopping.sentence, code=stopping.code)


def _run_verb() -> None:
    from offline_core.errors import OfflineError
    from tasks.crash import Crash

    try:
        app()
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
    typer.secho(f"\n{message}", fg="red", err=True)
    sys.exit(code)
