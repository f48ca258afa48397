"""Prints what a dataset, a policy or a training is."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from flows.results import console_of_output, findings_table
from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.datasets.result_cache import RESULT_FILE, stored_result
from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes import space_from_json
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.quality.check import last_report
from offline_core.data.store.location import Location
from offline_core.judging.sweeps.result import SweepResult
from offline_core.keeping.homepage.facts import COLUMN_NUMBERS, column_rows, dataset_facts, made_by
from offline_core.policies.lineage import Lineage, lineage, outline
from offline_core.policies.manifest import POLICY_FILE, find_policy, read_policy_manifest
from offline_core.policies.registry.address import parse_address
from offline_core.policies.series import saved_in, series_of

MAX_FILES = 20
BEST, LAST = "best", "last"


def print_dataset_or_policy(uri: str, version: int | None) -> None:
    """What a folder holds: a dataset, a policy, or a training or sweep, whose policies are listed."""
    place, address = Location.of(uri), parse_address(uri)
    if (address is not None and address.exists) or place.child(POLICY_FILE).is_file():
        print_policy(uri)
    elif place.child(BEST).child(POLICY_FILE).is_file():
        print_policy(place.child(BEST).uri)
    elif (swept := stored_result(place.child(RESULT_FILE), SweepResult)) is not None:
        print_sweep(swept)
    elif saved_in(place):
        print_series(place)  # of a training that goes on
    else:
        print_dataset(uri, version)


def print_dataset(uri: str, version: int | None) -> None:
    """Versions, content, spaces, files and lineage of a dataset."""
    console = console_of_output()
    dataset = open_dataset(uri, version)
    manifest = dataset.manifest
    statistics = manifest.statistics
    facts = Table(show_header=False, box=None)
    facts.add_row("dataset", dataset.location.uri)
    facts.add_row("versions", ", ".join(map(str, versions(uri))) or "none: a folder of Parquet files")
    for name, text in dataset_facts(dataset).items():
        facts.add_row(name, text)
    console.print(facts)

    files = Table("file", "rows", "episodes", "steps", "bytes")
    for file in manifest.files[:MAX_FILES]:
        files.add_row(file.path, *(f"{number:,}" for number in (file.rows, file.episodes, file.steps, file.bytes)))
    if len(manifest.files) > MAX_FILES:
        files.add_row(f"… {len(manifest.files) - MAX_FILES:,} more")
    console.print(files)
    report = last_report(dataset)
    if known := statistics.columns or (report.statistics.columns if report else None):
        console.print(_columns_table(known, manifest.input_columns))
    elif not dataset.is_foreign:
        console.print("Statistics of columns are not known yet; 'offline check' computes them.")
    if report:
        console.print(findings_table(report))
    console.print(_tree(lineage(uri, manifest.version)))


def print_policy(uri: str) -> None:
    """Network, spaces, scores and lineage of a policy; with the best one, what else its training left."""
    console = console_of_output()
    uri, policy = find_policy(uri)
    facts = Table(show_header=False, box=None)
    facts.add_row("policy", Location.of(uri).uri)
    facts.add_row("shown", f"fingerprint {policy.fingerprint}, {policy.created_at:%Y-%m-%d %H:%M} UTC")
    for name, text in made_by(policy.operation, policy.provenance).items():
        facts.add_row(name, text)
    facts.add_row("environment", policy.environment.id if policy.environment else "not said")
    facts.add_row("observations", str(space_from_json(policy.observation_space)))
    facts.add_row("actions", str(space_from_json(policy.action_space)))
    facts.add_row("network", policy.network.model_dump_json())
    for name, value in policy.metrics.items():
        facts.add_row(name.replace("_", " "), f"{value:,.4g}")
    console.print(facts)
    if posixpath.basename(Location.of(uri).uri) == BEST:
        print_series(Location.of(uri).parent)
    console.print(_tree(lineage(uri)))


def print_series(training: Location) -> None:
    """The policies in the folder of a training, in order of their updates."""
    kept = [(str(number), each.checkpoint) for number, each in enumerate(series_of(training), start=1)]
    ends = [(name, training.child(name).uri) for name in (BEST, LAST) if training.child(name).child(POLICY_FILE).is_file()]
    if not kept and len(ends) < 2:
        return  # an expert leaves its best only
    table = _policies_table("updates", "return", "held-out loss")
    for name, uri in (*kept, *ends):
        metrics = read_policy_manifest(uri).metrics
        numbers = [metrics.get(metric) for metric in ("updates", "episode_return_mean", "held_out_loss")]
        table.add_row(name, *("–" if number is None else f"{number:,.6g}" for number in numbers), uri)
    console_of_output().print(table)


def print_sweep(sweep: SweepResult) -> None:
    """The policies of a sweep, the best setting first."""
    table = _policies_table("setting", "seed", sweep.score.replace("_", " "))
    runs = [(setting.name, run) for setting in sweep.settings for run in setting.runs]
    for number, (name, run) in enumerate(runs, start=1):
        table.add_row(str(number), name, str(run.seed), f"{run.score:,.4g}", run.checkpoint)
    console_of_output().print(table)


def _policies_table(*columns: str) -> Table:
    table = Table("policy", *columns, title="Policies to choose from")
    table.add_column("path", overflow="fold")
    return table


def _columns_table(statistics: Mapping[str, ColumnStatistics], made_of: InputColumns | None) -> Table:
    table = Table("column", *COLUMN_NUMBERS, "not finite", title="Steps")
    for label, numbers, lost in column_rows(statistics, made_of):
        table.add_row(label, *map(_number_text, numbers), f"{lost:,}" if lost else "")
    return table


def _number_text(number: float | str | None) -> str:
    if isinstance(number, str):
        return number
    return "–" if number is None else f"{number:,.4g}"


def _tree(graph: Lineage) -> Tree:
    """The first node of the graph and below it what it was made from."""
    branches: list[Tree] = []
    for depth, text in outline(graph):
        tree = Tree(escape(text))
        if depth:
            branches[depth - 1].add(tree)
        branches[depth:] = [tree]
    return branches[0]
