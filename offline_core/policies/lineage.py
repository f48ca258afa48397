"""The lineage of a dataset or policy, as a graph of its ancestors, as a Mermaid flowchart and as an outline."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.datasets.manifest import Manifest, Parent
from offline_core.data.store.location import Location
from offline_core.errors import OfflineError, StorageUnavailableError
from offline_core.policies.manifest import POLICY_FILE, PolicyManifest, read_policy_manifest
from offline_core.runtime.reporting.palette import mermaid_styles
from offline_core.runtime.units import count_text, number_text

NodeKind = Literal["dataset", "checkpoint", "files"]
State = Literal["found", "missing", "replaced", "imported", "unreachable"]
"""`replaced`: the URI holds another version by now; `imported`: files of other programs, which have no manifest."""

KINDS: Mapping[NodeKind, str] = {"dataset": "series-1", "checkpoint": "series-2", "files": "series-6"}
"""Colours of the kinds; a report's lineage (homepage/static/page.js) has the same."""
PLAYED = ("record", "mix")
"""What makes episodes of the policies that are among its parents, as they are."""
MAX_NODES = 40
MAX_NAME = 48
_ANY = ""
"""The fingerprint of the requested node: that of whatever its URI holds."""
_STATES = {
    "missing": "missing",
    "replaced": "replaced since",
    "imported": "imported files",
    "unreachable": "storage does not answer",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A dataset version, a checkpoint, or imported files."""

    kind: NodeKind
    uri: str
    version: int | None
    state: State
    operation: str | None = None
    """What made it; None: not known."""
    episodes: int | None = None
    steps: int | None = None
    mean_return: float | None = None
    created_at: datetime | None = None
    provenance: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    fingerprint: str | None = None
    """The fingerprint that its child recorded, whatever the URI holds now; None: not known."""
    forgotten_episodes: int = 0
    """The number of episodes that were removed for good, see `offline forget`."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Numbered nodes, the requested one first, and edges (parent, child)."""

    nodes: list[Node]
    edges: list[tuple[int, int]]
    is_whole: bool = True
    """False: the graph has more than `MAX_NODES` nodes."""


def lineage(uri: str, version: int | None = None) -> Lineage:
    """The ancestors of `uri`: a checkpoint, a dataset (its latest version if None), or else files.

    A parent is looked up at its URI. A missing or replaced one is a node without parents.
    """
    location = Location.of(uri)
    nodes: list[Node] = []
    edges: list[tuple[int, int]] = []
    numbers: dict[tuple[str, int | None, str], int] = {}
    is_whole = True
    kind: NodeKind = "checkpoint" if location.child(POLICY_FILE).is_file() else "dataset"
    first = Parent(kind=kind, uri=location.uri, version=version, fingerprint=_ANY)
    waiting: deque[tuple[Parent, int | None]] = deque([(first, None)])
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
            waiting.extend((parent, numbers[key]) for parent in parents)
        if child is not None and (edge := (numbers[key], child)) not in edges:
            edges.append(edge)
    return Lineage(nodes, edges, is_whole)


def episodes_in(graph: Lineage, *, beyond_splits: bool = True) -> list[Node]:
    """Return the requested node, and the datasets and files whose episodes it holds or has learned from; nearest first.

    The data that an initial policy has learned from counts. The data of a policy that recorded does not, nor the held-out
    data of a training, which is the second parent of its checkpoints.

    Arguments:
        beyond_splits: include the source of a split, which also holds the episodes of the other side.
    """
    numbers = [0]
    for child in numbers:  # the list grows in the loop
        parents = [parent for parent, made in graph.edges if made == child]
        if graph.nodes[child].kind == "checkpoint":
            parents = [*parents[:1], *(parent for parent in parents[1:] if graph.nodes[parent].kind == "checkpoint")]
        elif graph.nodes[child].operation == "split" and not beyond_splits:
            parents = []
        else:
            parents = [parent for parent in parents if graph.nodes[parent].kind != "checkpoint"]
        numbers += [parent for parent in parents if parent not in numbers]
    return [graph.nodes[number] for number in numbers]


def recorders_in(graph: Lineage) -> list[Node] | None:
    """Return the policies that played the episodes of the requested dataset; None: that of some episodes is not known.

    Recordings and mixtures name it. It is not known of imported files, of what a training recorded with a policy that still
    learned, and of a dataset that is gone.
    """
    recorders: list[Node] = []
    for node in episodes_in(graph):
        number = graph.nodes.index(node)
        parents = [graph.nodes[parent] for parent, child in graph.edges if child == number]
        played_by = [parent for parent in parents if parent.kind == "checkpoint"]
        if not parents or (played_by and node.operation not in PLAYED):
            return None
        recorders += [policy for policy in played_by if policy not in recorders]
    return recorders if graph.is_whole else None


def mermaid(graph: Lineage) -> str:
    """The graph as a Mermaid flowchart, from the oldest ancestor on the left to the requested node on the right."""
    lines = ["flowchart LR"]
    for number, node in enumerate(graph.nodes):
        opening, closing = {"dataset": ("[", "]"), "checkpoint": ("([", "])"), "files": ("[/", "/]")}[node.kind]
        text = "<br/>".join(map(_escaped, label(node)))
        lines.append(f'  n{number}{opening}"{text}"{closing}')
    lines += [f"  n{parent} --> n{child}" for parent, child in graph.edges]
    if not graph.is_whole:
        lines += ['  more["… and more"] --> ' + f"n{len(graph.nodes) - 1}"]
    for kind in KINDS:
        if members := [f"n{number}" for number, node in enumerate(graph.nodes) if node.kind == kind]:
            lines.append(f"  class {','.join(members)} {kind}")
    lines += mermaid_styles(KINDS)
    lost = [f"n{number}" for number, node in enumerate(graph.nodes) if node.state in ("missing", "replaced")]
    if lost:
        lines += ["  classDef lost stroke-dasharray: 4 3", f"  class {','.join(lost)} lost"]
    return "\n".join(lines) + "\n"


def outline(graph: Lineage) -> list[tuple[int, str]]:
    """Return (depth, text) of the requested node and, below it, of its ancestors; a shared ancestor is listed again."""
    lines: list[tuple[int, str]] = []
    shown: set[int] = set()
    waiting = [(0, 0)]
    while waiting:
        number, depth = waiting.pop()
        name, *more = label(graph.nodes[number])
        lines.append((depth, f"{name}, see above" if number in shown else ", ".join([name, *more])))
        if number not in shown:
            waiting += [(parent, depth + 1) for parent, child in reversed(graph.edges) if child == number]
        shown.add(number)
    return lines


def _look_up(named: Parent) -> tuple[Node, list[Parent]]:
    def without_parents(state: State, version: int | None = named.version) -> tuple[Node, list[Parent]]:
        return Node(named.kind, named.uri, version, state, fingerprint=named.fingerprint or None), []

    try:
        manifest = _manifest(named)
    except StorageUnavailableError:
        return without_parents("unreachable")
    except OfflineError:  # opening it says why
        return without_parents("missing")
    if manifest is None:
        return without_parents("imported")
    known = manifest.fingerprints if isinstance(manifest, Manifest) else [manifest.fingerprint]
    if named.fingerprint not in {_ANY, *known}:
        return without_parents("replaced", manifest.version if isinstance(manifest, Manifest) else None)
    return node_of(named.uri, manifest), list(manifest.parents)


def node_of(uri: str, manifest: Manifest | PolicyManifest) -> Node:
    """The node of a manifest that was read from `uri`."""
    dataset = manifest if isinstance(manifest, Manifest) else None
    return Node(
        "dataset" if dataset else "checkpoint",
        uri,
        dataset.version if dataset else None,
        "found",
        operation=manifest.operation.stage,
        episodes=dataset.statistics.episodes if dataset else None,
        steps=dataset.statistics.steps if dataset else None,
        mean_return=None if isinstance(manifest, Manifest) else manifest.metrics.get("episode_return_mean"),
        created_at=manifest.created_at,
        provenance=manifest.provenance,
        fingerprint=manifest.fingerprint,
        forgotten_episodes=sum(entry.episodes for entry in dataset.forgotten) if dataset else 0,
    )


def _manifest(named: Parent) -> Manifest | PolicyManifest | None:
    """The manifest at the URI; None: files, which have none."""
    if named.kind == "checkpoint":
        return read_policy_manifest(named.uri)
    if named.kind == "files" or named.version == 0 or (named.version is None and not versions(named.uri)):
        return None  # a folder of imported files is not read for this
    return open_dataset(named.uri, named.version).manifest


def _short(uri: str) -> str:
    """The last two names of a path; of a URI, its bucket as well."""
    scheme, slashes, path = uri.rstrip("/").rpartition("://")
    bucket, *folders = path.split("/")
    if not slashes:
        return "/".join(folders[-2:]) if folders else bucket
    return "/".join([f"{scheme}://{bucket}", *(["…"] if len(folders) > 2 else []), *folders[-2:]])


def label(node: Node) -> list[str]:
    """A node in a few short lines."""
    name = _short(node.uri)
    if len(name) > MAX_NAME:
        name = f"…{name[1 - MAX_NAME :]}"
    lines = [name if not node.version else f"{name} version {node.version}"]
    if node.operation is not None:
        lines.append(node.operation.replace("_", " "))
    if node.episodes is not None and node.steps is not None:
        lines.append(f"{count_text(node.episodes, 'episode')}, {count_text(node.steps, 'step')}")
    if node.forgotten_episodes:
        lines.append(f"{count_text(node.forgotten_episodes, 'episode')} forgotten")
    if node.mean_return is not None:
        lines.append(f"return {number_text(node.mean_return)}")
    if node.state != "found":
        is_networks = node.state == "imported" and node.uri.endswith(".safetensors")  # with which a fine-tuning goes on
        lines.append("networks of a training" if is_networks else _STATES[node.state])
    return lines


def _escaped(text: str) -> str:
    """Plain text inside a quoted Mermaid label: an underscore would begin Markdown, `<` HTML, and `style:` a style."""
    return "".join(c if c.isalpha() or c.isdigit() or c in " ,/-…" else f"#{ord(c)};" for c in text)
