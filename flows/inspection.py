"""Shows people what a dataset is."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from offline_core.errors import OfflineError
from offline_core.storage.dataset import Dataset, open_dataset, versions
from offline_core.storage.manifest import Parent, Summary
from offline_core.storage.reader import schema_of, spaces_of

MAX_FILES = 20


def print_dataset(uri: str, version: int | None) -> None:
    """Versions, content, spaces, files and lineage of a dataset."""
    console = Console()
    dataset = open_dataset(uri, version)
    manifest = dataset.manifest
    statistics = manifest.statistics
    observation_space, action_space = spaces_of(dataset)
    facts = Table(show_header=False, box=None)
    facts.add_row("dataset", dataset.location.uri)
    facts.add_row("versions", ", ".join(map(str, versions(uri))) or "none: a folder of Parquet files")
    facts.add_row(
        "shown", f"version {manifest.version}, fingerprint {manifest.fingerprint}, {manifest.created_at:%Y-%m-%d %H:%M} UTC"
    )
    facts.add_row("format", manifest.format)
    facts.add_row("made by", f"{manifest.operation.name} {_code(dataset)}")
    if dataset.is_foreign:
        facts.add_row("rows", f"{sum(file.rows for file in manifest.files):,}")
    else:
        facts.add_row(
            "episodes", f"{statistics.episodes:,} ({statistics.terminated:,} terminated, {statistics.truncated:,} truncated)"
        )
        facts.add_row("steps", f"{statistics.steps:,}")
        facts.add_row("return", _summary(statistics.returns))
        facts.add_row("length", _summary(statistics.lengths))
    facts.add_row("observations", str(observation_space or "not said"))
    facts.add_row("actions", str(action_space or "not said"))
    facts.add_row("columns", ", ".join(schema_of(dataset).names))
    console.print(facts)

    files = Table("file", "rows", "episodes", "steps", "bytes")
    for file in manifest.files[:MAX_FILES]:
        files.add_row(file.path, *(f"{number:,}" for number in (file.rows, file.episodes, file.steps, file.bytes)))
    if len(manifest.files) > MAX_FILES:
        files.add_row(f"… {len(manifest.files) - MAX_FILES:,} more")
    console.print(files)
    console.print(_lineage(dataset.ref.uri, manifest.version, manifest.operation.name, manifest.parents))


def _lineage(uri: str, version: int | None, operation: str, parents: list[Parent]) -> Tree:
    tree = Tree(f"{uri}{'' if version is None else f' version {version}'} [dim]({operation})[/dim]")
    for parent in parents:
        tree.add(_ancestors(parent))
    return tree


def _ancestors(parent: Parent) -> Tree:
    """The parent's own lineage, as far as it is still there."""
    try:
        if parent.kind == "checkpoint":
            from offline_core.policies.checkpoint import read_policy_manifest

            policy = read_policy_manifest(parent.uri)
            changed = "" if policy.fingerprint == parent.fingerprint else ", since replaced by another"
            return _lineage(parent.uri, None, f"policy, {policy.operation.name}{changed}", policy.parents)
        manifest = open_dataset(parent.uri, parent.version).manifest
        return _lineage(parent.uri, parent.version, manifest.operation.name, manifest.parents)
    except OfflineError:
        return Tree(f"{parent.uri} [dim](gone; fingerprint {parent.fingerprint})[/dim]")


def _summary(summary: Summary) -> str:
    return f"{summary.mean:,.1f} ± {summary.std:,.1f} ({summary.min:,.1f} to {summary.max:,.1f})"


def _code(dataset: Dataset) -> str:
    versions_of = dataset.manifest.provenance
    return f"(code {versions_of.get('git', versions_of['offline-rl-pipeline'])})"
