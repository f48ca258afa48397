"""The command line: one verb a flow, and `inspect` to look at what is there.

Heavy imports happen inside the verbs, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Turns experience into policies: train an expert, record it, prune, clone, evaluate.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="NAME=VALUE", help="A parameter, such as -s optimizer.batch_size=2048. Repeat for more."
    ),
]
ConfigFile = Annotated[str | None, typer.Option("--config", "-c", metavar="FILE", help="Parameters as YAML or JSON.")]
ShowConfig = Annotated[bool, typer.Option("--show-config", help="Print all parameters with what they mean, and stop.")]
Version = Annotated[int | None, typer.Option(help="Version of the dataset; the latest if none is given.")]


@app.command()
def expert_to_policy(
    root: Annotated[str, typer.Argument(help="Folder for everything the run makes.")] = "runs/demo",
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
    result = flow(root=root, seed=seed, **arguments)
    _print_chain(result)


@app.command()
def train_expert(
    output: Annotated[str, typer.Argument(help="Folder for the checkpoint.")] = "runs/expert",
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
    policy: Annotated[str, typer.Argument(help="Checkpoint of the policy to play.")] = "runs/expert/best",
    output: Annotated[str, typer.Argument(help="Folder of the dataset to write.")] = "runs/recording",
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Record complete episodes of a policy as the next version of a dataset."""
    _run("record_episodes", _values(settings, config_file), show_config, policy=policy, output=output)


@app.command()
def prune(
    dataset: Annotated[str, typer.Argument(help="Folder of the dataset to read.")] = "runs/recording",
    output: Annotated[str, typer.Argument(help="Folder of the dataset to write.")] = "runs/pruned",
    version: Version = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Keep the episodes that meet some conditions, such as -s where='return >= 400'."""
    _run("prune_dataset", _values(settings, config_file), show_config, dataset=dataset, output=output, version=version)


@app.command()
def train(
    dataset: Annotated[str, typer.Argument(help="Folder of the dataset, or of RLlib's episode files.")] = "runs/recording",
    output: Annotated[str, typer.Argument(help="Folder for checkpoints and metrics.")] = "runs/policy",
    version: Version = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Learn a policy from recorded experience."""
    _run("train_policy", _values(settings, config_file), show_config, dataset=dataset, output=output, version=version)


@app.command()
def evaluate(
    policy: Annotated[str, typer.Argument(help="Checkpoint of the policy to play.")] = "runs/policy/best",
    settings: Settings = None,
    config_file: ConfigFile = None,
    show_config: ShowConfig = False,
) -> None:
    """Play a policy on start states that no other stage has seen."""
    _run("evaluate_policy", _values(settings, config_file), show_config, policy=policy)


@app.command()
def inspect(
    dataset: Annotated[str, typer.Argument(help="Folder of the dataset.")],
    version: Version = None,
) -> None:
    """Show a dataset: versions, files, spaces, statistics and what it was made from."""
    from flows.inspection import print_dataset

    print_dataset(dataset, version)


def _run(name: str, values: dict[str, Any], show_config: bool, **arguments: Any) -> None:
    from flows.settings import arguments_of, print_result

    flow = _flow(name)
    config = arguments_of(flow.fn, {"config": values}, show=show_config)
    print_result(flow(**arguments, **config))


def _flow(name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(f"flows.{name}"), name)


def _values(settings: list[str] | None, config_file: str | None, more: str | None = None) -> dict[str, Any]:
    from flows.settings import read_values

    return read_values([*(settings or []), *([more] if more else [])], config_file)


def _print_chain(result: Any) -> None:
    from flows.settings import print_chain

    print_chain(result)


def main() -> None:
    """Runs a verb; our own errors are one readable message and exit code 1, everything else is a bug and shows itself."""
    from offline_core.errors import OfflineError

    try:
        app()
    except OfflineError as error:
        typer.secho(f"\n{type(error).__name__}: {error}", fg="red", err=True)
        sys.exit(1)
