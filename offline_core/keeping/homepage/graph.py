"""The lineage of everything below a root, laid out from what was there first, on the left, to what was made last."""

from __future__ import annotations

from collections import Counter
from typing import Any

from offline_core.data.datasets.manifest import Parent
from offline_core.keeping.homepage.page_contents import PageContents
from offline_core.policies.lineage import Node, State, label, node_of
from offline_core.runtime.units import count_text

MAX_NODES = 300
MOST_ALIKE = 4
"""More policies made by the same operation from the same parents, of which nothing else was made, are one node."""


def graph_of(contents: PageContents) -> dict[str, Any]:
    """Nodes with their column, row, lines of text and kind, and edges between their numbers."""
    nodes, parents = _nodes(contents)
    names = {key: i for i, key in enumerate(nodes)}
    for key in [*names]:
        for parent in parents.get(key, ()):
            if _key(parent) not in names:  # of another root, or deleted
                names[_key(parent)] = len(names)
                lines = _lines(contents, _outside(parent))
                nodes[_key(parent)] = {"kind": parent.kind, "lines": lines, "is_outside": True, "page": None}
    shown = dict([*nodes.items()][:MAX_NODES])
    edges = [
        [names[_key(parent)], names[key]]
        for key, of in parents.items()
        for parent in of
        if key in shown and _key(parent) in shown
    ]
    places = _places(len(shown), edges)
    laid = [{**node, "column": column, "row": row} for node, (column, row) in zip(shown.values(), places, strict=True)]
    return {"nodes": laid, "edges": edges, "left_out": len(nodes) - len(shown)}


def _key(parent: Parent) -> str:
    return parent.fingerprint


def _outside(parent: Parent) -> Node:
    state: State = "imported" if parent.kind == "files" else "missing"
    return Node(parent.kind, parent.uri, parent.version, state)


def _lines(contents: PageContents, node: Node) -> list[str]:
    """As `label`, with names as lists have them."""
    name = contents.called(contents.name_of(node.uri))
    return [f"{name} version {node.version}" if node.version else name, *label(node)[1:]]


def _nodes(contents: PageContents) -> tuple[dict[str, dict[str, Any]], dict[str, list[Parent]]]:
    """(node, parents) by fingerprint; what has the same content as another is the same node."""
    nodes: dict[str, dict[str, Any]] = {}
    parents: dict[str, list[Parent]] = {}
    for name, versions in contents.datasets.items():
        for dataset in versions:
            key = dataset.manifest.fingerprint
            made = node_of(contents.catalogue.location(name).uri, dataset.manifest)
            page = ["dataset", name or "."]
            nodes[key] = {"kind": "dataset", "lines": _lines(contents, made), "is_outside": False, "page": page}
            parents[key] = list(dataset.manifest.parents)
    made_of = [*parents.values(), *(policy.parents for policy in contents.policies.values())]
    used = {_key(parent) for of in made_of for parent in of}  # each of these is a node of its own, for it has a child
    alike = {
        name: (policy.operation.stage, *(_key(parent) for parent in policy.parents))
        for name, policy in contents.policies.items()
        if policy.fingerprint not in used
    }
    counts = Counter(alike.values())
    for name, policy in contents.policies.items():
        group = alike.get(name, ())
        if counts[group] > MOST_ALIKE:
            key = "/".join(group)
            lines = [count_text(counts[group], "policy", "policies"), policy.operation.stage.replace("_", " ")]
            page = ["policies"]
        else:
            key, lines = policy.fingerprint, _lines(contents, node_of(contents.catalogue.location(name).uri, policy))
            page = ["policy", name or "."]
        nodes.setdefault(key, {"kind": "policy", "lines": lines, "is_outside": False, "page": page})
        parents.setdefault(key, list(policy.parents))
    return nodes, parents


def _places(count: int, edges: list[list[int]]) -> list[tuple[int, float]]:
    """(column, row) of each node: a column after all its parents, and rows near theirs."""
    above: list[list[int]] = [[] for _ in range(count)]
    for parent, child in edges:
        above[child].append(parent)
    column = [0] * count
    for _ in range(count):  # as many rounds as the longest path has nodes; manifests that name each other end it
        before = list(column)
        for parent, child in edges:
            column[child] = min(count, max(column[child], column[parent] + 1))
        if column == before:
            break
    rows: list[float] = [0.0] * count
    used: Counter[int] = Counter()
    for node in sorted(range(count), key=lambda number: column[number]):
        wanted = sum(rows[parent] for parent in above[node]) / len(above[node]) if above[node] else 0.0
        rows[node] = max(float(used[column[node]]), float(int(wanted)))
        used[column[node]] = int(rows[node]) + 1
    return list(zip(column, rows, strict=True))
