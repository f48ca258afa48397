"""What a dataset or policy came from, as far back as it can be told: a graph, and its picture in Mermaid."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from offline_core.errors import OfflineError, StorageUnavailableError
from offline_core.policies.checkpoint import POLICY_FILE, PolicyManifest, read_policy_manifest
from offline_core.storage.dataset import open_dataset, versions
from offline_core.storage.location import Location
from offline_core.storage.manifest import Manifest, Parent

State = Literal["there", "gone", "replaced", "foreign", "unreachable"]
"""`replaced`: something else is there by now, of which nothing is told; `foreign`: other people's files, which tell nothing."""

MAX_NODES = 40
MAX_NAME = 48
_STATES = {
    "gone": "gone",
    "replaced": "something else is there now",
    "foreign": "files of others",
    "unreachable": "its place does not answer",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A dataset version, a checkpoint, or other people's files."""

    kind: Literal["dataset", "checkpoint", "files"]
    uri: str
    version: int | None
    state: State
    operation: str | None = None
    """What made it; None if that is not told."""
    episodes: int | None = None
    steps: int | None = None
    mean_return: float | None = None
    created_at: datetime | None = None
    provenance: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    fingerprint: str | None = None
    """Of what it was when something was made of it, whatever is there now; None if nobody says."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Nodes by number, the one asked for first, and what was made of what: (parent, child)."""

    nodes: list[Node]
    edges: list[tuple[int, int]]
    is_whole: bool = True
    """False: there is more than `MAX_NODES` nodes."""


def lineage(uri: str, version: int | None = None) -> Lineage:
    """The ancestors of what is at `uri`: a checkpoint, a dataset (its latest version if None), or else files.

    A parent is looked up where it was. One that has gone, or is another by now, is a node that leads no further.
    """
    place = Location.of(uri)
    nodes: list[Node] = []
    edges: list[tuple[int, int]] = []
    numbers: dict[tuple[str, int | None, str | None], int] = {}
    is_whole = True
    kind: Literal["dataset", "checkpoint"] = "checkpoint" if place.child(POLICY_FILE).is_file() else "dataset"
    waiting: deque[tuple[_Named, int | None]] = deque([(_Named(kind, place.uri, version, None), None)])
    while waiting:
        named, child = waiting.popleft()
        key = (named.uri, named.version, named.fingerprint)
        if key not in numbers:
            if len(nodes) == MAX_NODES:
                is_whole = False
                continue
            numbers[key] = len(nodes)
            node, parents = _look_up(named)
            nodes.append(node)
            waiting.extend((_Named(p.kind, p.uri, p.version, p.fingerprint), numbers[key]) for p in parents)
        if child is not None and (edge := (numbers[key], child)) not in edges:
            edges.append(edge)
    return Lineage(nodes, edges, is_whole)


def episodes_in(graph: Lineage, *, beyond_splits: bool = True) -> list[Node]:
    """What was asked for, and the datasets and files whose episodes are in it, or that it has learned from; nearest first.

    Not what lies behind a policy that recorded: its episodes are others. Nor what a training only measured its loss on,
    which is the second parent of its checkpoints.

    Arguments:
        beyond_splits: also what a split was made of, where the episodes of its other side are, too.
    """
    found = [0]
    for child in found:  # it grows meanwhile
        parents = [parent for parent, made in graph.edges if made == child]
        if graph.nodes[child].kind == "checkpoint":
            parents = parents[:1]
        elif graph.nodes[child].operation == "split_dataset" and not beyond_splits:
            parents = []
        else:
            parents = [parent for parent in parents if graph.nodes[parent].kind != "checkpoint"]
        found += [parent for parent in parents if parent not in found]
    return [graph.nodes[number] for number in found]


def mermaid(graph: Lineage) -> str:
    """The graph as a Mermaid flowchart, from the oldest ancestor on the left to what was asked for on the right."""
    lines = ["flowchart LR"]
    for number, node in enumerate(graph.nodes):
        opening, closing = {"dataset": ("[", "]"), "checkpoint": ("([", "])"), "files": ("[/", "/]")}[node.kind]
        text = "<br/>".join(map(_escaped, label(node)))
        lines.append(f'  n{number}{opening}"{text}"{closing}')
    lines += [f"  n{parent} --> n{child}" for parent, child in graph.edges]
    if not graph.is_whole:
        lines += ['  more["… and more"] --> ' + f"n{len(graph.nodes) - 1}"]
    lost = [f"n{number}" for number, node in enumerate(graph.nodes) if node.state in ("gone", "replaced")]
    if lost:
        lines += ["  classDef lost stroke-dasharray: 4 3", f"  class {','.join(lost)} lost"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Named:
    """A node as its child names it; without a fingerprint, whatever is there."""

    kind: Literal["dataset", "checkpoint", "files"]
    uri: str
    version: int | None
    fingerprint: str | None


def _look_up(named: _Named) -> tuple[Node, list[Parent]]:
    try:
        manifest = _manifest(named)
    except StorageUnavailableError:
        return Node(named.kind, named.uri, named.version, "unreachable", fingerprint=named.fingerprint), []
    except OfflineError:  # whoever wants to use it is told why
        return Node(named.kind, named.uri, named.version, "gone", fingerprint=named.fingerprint), []
    if manifest is None:
        return Node(named.kind, named.uri, named.version, "foreign", fingerprint=named.fingerprint), []
    version = manifest.version if isinstance(manifest, Manifest) else None
    if named.fingerprint not in (None, manifest.fingerprint):
        return Node(named.kind, named.uri, version, "replaced", fingerprint=named.fingerprint), []
    node = Node(
        named.kind,
        named.uri,
        version,
        "there",
        operation=manifest.operation.name,
        episodes=manifest.statistics.episodes if isinstance(manifest, Manifest) else None,
        steps=manifest.statistics.steps if isinstance(manifest, Manifest) else None,
        mean_return=None if isinstance(manifest, Manifest) else manifest.metrics.get("episode_return_mean"),
        created_at=manifest.created_at,
        provenance=manifest.provenance,
        fingerprint=manifest.fingerprint,
    )
    return node, list(manifest.parents)


def _manifest(named: _Named) -> Manifest | PolicyManifest | None:
    """What is there says of itself; None of files, which say nothing."""
    if named.kind == "checkpoint":
        return read_policy_manifest(named.uri)
    if named.kind == "files" or named.version == 0 or (named.version is None and not versions(named.uri)):
        return None  # a folder of other people's files is not read through for this
    return open_dataset(named.uri, named.version).manifest


def _short(uri: str) -> str:
    """The last two names of a path; of a URI, its bucket as well."""
    scheme, slashes, path = uri.rstrip("/").rpartition("://")
    bucket, *folders = path.split("/")
    if not slashes:
        return "/".join(folders[-2:]) if folders else bucket
    return "/".join([f"{scheme}://{bucket}", *(["…"] if len(folders) > 2 else []), *folders[-2:]])


def label(node: Node) -> list[str]:
    """What a node is, in a few short lines."""
    name = _short(node.uri)
    if len(name) > MAX_NAME:
        name = f"…{name[1 - MAX_NAME :]}"
    lines = [name if not node.version else f"{name} version {node.version}"]
    if node.operation is not None:
        lines.append(node.operation.replace("_", " "))
    if node.episodes is not None:
        lines.append(f"{node.episodes:,} episodes, {node.steps:,} steps")
    if node.mean_return is not None:
        lines.append(f"return {node.mean_return:.1f}")
    if node.state != "there":
        lines.append(_STATES[node.state])
    return lines


def _escaped(text: str) -> str:
    """Text that is nothing but text inside a quoted label, wherever Mermaid is drawn.

    An underscore would be taken for Markdown, `<` for HTML, and a colon for the end of the word "style".
    """
    return "".join(c if c.isalpha() or c.isdigit() or c in " ,/-…" else f"#{ord(c)};" for c in text)
