"""Lineage: three generations, what is gone or another by now, files of others; and its picture, whatever the names are."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.environments.vector_env import spaces_of
from offline_core.errors import StorageUnavailableError
from offline_core.policies import lineage as module
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.lineage import Lineage, Node, episodes_in, label, lineage, mermaid, recorders_in
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.runtime.config import EnvironmentSpec
from tests.data.datasets.factories import episode, write_dataset, write_files


def dataset(folder: Path, operation: str, parents: Sequence[Parent] = (), *, episodes: int = 2) -> Dataset:
    """Version 1, or the next one, of a dataset of episodes of 7 steps each."""
    prepare_dataset(str(folder))
    writer = write_files(folder, [episode(i) for i in range(episodes)], "episodes")
    done = Operation(name=operation)
    return commit(
        str(folder), writer.files, format="episodes", operation=done, statistics=writer.statistics, parents=list(parents)
    )


def policy(folder: Path, operation: str, parents: Sequence[Parent] = (), *, environment: str = "CartPole-v1") -> Parent:
    spaces = spaces_of(EnvironmentSpec(id=environment))
    metrics = {"episode_return_mean": 321.06}
    uri = str(folder)
    save_policy(Policy(*spaces), uri, operation=Operation(name=operation), parents=list(parents), metrics=metrics)
    return read_policy_manifest(uri).parent_entry(uri)


def chain(root: Path) -> str:
    """expert → recorded → pruned → clone."""
    expert = policy(root / "expert" / "best", "train_expert")
    recorded = dataset(root / "recorded", "record", [expert], episodes=5)
    pruned = dataset(root / "pruned", "prune", [recorded.parent_entry])
    return policy(root / "policy" / "best", "train", [pruned.parent_entry]).uri


def drawn(graph: Lineage) -> dict[str, list[str]]:
    """Lines of the label of each node, as Mermaid shows them."""
    labels = re.findall(r'^  (n\d+)\W+"(.*)"\W+$', mermaid(graph), flags=re.M)
    return {name: [unescaped(line) for line in label.split("<br/>")] for name, label in labels}


def unescaped(text: str) -> str:
    return re.sub(r"#(\d+);", lambda found: chr(int(found[1])), text)


def test_a_policy_goes_back_to_the_expert(tmp_path: Path) -> None:
    uri = chain(tmp_path)
    graph = lineage(uri)
    assert [node.operation for node in graph.nodes] == ["train", "prune", "record", "train_expert"]
    assert {node.state for node in graph.nodes} == {"found"}
    assert graph.edges == [(1, 0), (2, 1), (3, 2)] and graph.is_whole
    assert list(drawn(graph).values()) == [
        ["policy/best", "train", "return 321.1"],
        [f"{tmp_path.name}/pruned version 1", "prune", "2 episodes, 14 steps"],
        [f"{tmp_path.name}/recorded version 1", "record", "5 episodes, 35 steps"],
        ["expert/best", "train expert", "return 321.1"],
    ]
    assert graph.nodes[0].created_at is not None and "python" in graph.nodes[0].provenance


def test_what_is_gone_is_shown_and_leads_no_further(tmp_path: Path) -> None:
    uri = chain(tmp_path)
    shutil.rmtree(tmp_path / "recorded")
    graph = lineage(uri)
    assert [node.state for node in graph.nodes] == ["found", "found", "missing"]
    assert drawn(graph)["n2"] == [f"{tmp_path.name}/recorded version 1", "missing"]
    assert "class n2 lost" in mermaid(graph)


def test_a_checkpoint_that_was_replaced_is_not_taken_for_the_parent(tmp_path: Path) -> None:
    uri = chain(tmp_path)
    grandparent = dataset(tmp_path / "other", "import")
    policy(tmp_path / "expert" / "best", "train", [grandparent.parent_entry], environment="Pendulum-v1")
    graph = lineage(uri)
    assert graph.nodes[-1].state == "replaced" and graph.nodes[-1].operation is None
    assert drawn(graph)["n3"] == ["expert/best", "replaced since"]


def test_files_of_others_are_leaves_and_are_not_read(tmp_path: Path) -> None:
    files = Parent(kind="files", uri="/somewhere/a.json, /somewhere/b.json", fingerprint="f")
    imported = dataset(tmp_path / "imported", "import", [files])
    graph = lineage(imported.location.uri)
    assert [node.state for node in graph.nodes] == ["found", "imported"]

    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "part.parquet").write_bytes(b"no Parquet at all")
    assert [node.state for node in lineage(str(tmp_path / "foreign")).nodes] == ["imported"]


def test_whose_episodes_are_in_it_and_whose_it_has_learned_from(tmp_path: Path) -> None:
    """Not the data of a policy that recorded, and not what a training only measured its loss on."""
    before = dataset(tmp_path / "before", "import")
    recorder = policy(tmp_path / "recorder", "train", [before.parent_entry])
    recorded = dataset(tmp_path / "recorded", "record", [recorder], episodes=5)
    train, held_out = (
        dataset(tmp_path / side, "split", [recorded.parent_entry], episodes=count)
        for side, count in (("train", 4), ("held_out", 1))
    )
    trained = policy(tmp_path / "trained", "train", [train.parent_entry, held_out.parent_entry])
    tuned = policy(tmp_path / "tuned", "train_expert", [trained])

    def found(uri: str) -> list[str]:
        return [Path(node.uri).name for node in episodes_in(lineage(uri))]

    assert found(tuned.uri) == ["tuned", "trained", "train", "recorded"]
    assert found(held_out.location.uri) == ["held_out", "recorded"]
    assert [node.operation for node in episodes_in(lineage(trained.uri), beyond_splits=False)] == [
        "train",
        "split",
    ]
    mixed = dataset(tmp_path / "mixed", "mix", [held_out.parent_entry, before.parent_entry, recorder])
    assert found(mixed.location.uri) == ["mixed", "held_out", "before", "recorded"]


def test_who_recorded_is_known_of_all_episodes_or_of_none(tmp_path: Path) -> None:
    one, other = (policy(tmp_path / name, "train", []) for name in ("one", "other"))
    by_one, by_other = (dataset(tmp_path / f"by_{Path(of.uri).name}", "record", [of]) for of in (one, other))
    imported = dataset(tmp_path / "imported", "import", [Parent(kind="files", uri="/rows.csv", fingerprint="f")])
    unnamed = dataset(tmp_path / "unnamed", "record")
    learning = dataset(tmp_path / "learning", "train_expert", [one])

    def found(name: str, operation: str, *parents: Parent) -> list[str] | None:
        recorders = recorders_in(lineage(dataset(tmp_path / name, operation, [*parents]).location.uri))
        return None if recorders is None else [Path(recorder.uri).name for recorder in recorders]

    assert found("split", "split", by_one.parent_entry) == ["one"]
    assert found("merged", "merge", by_one.parent_entry, by_other.parent_entry) == ["one", "other"]
    assert found("played", "mix", one, other) == ["one", "other"]
    assert found("dataset_and_other", "mix", by_one.parent_entry, other) == ["other", "one"]
    assert found("dataset_and_same", "mix", by_one.parent_entry, one) == ["one"]
    for number, whose in enumerate([imported, unnamed, learning]):
        assert found(f"unknown_{number}", "merge", by_one.parent_entry, whose.parent_entry) is None


def test_a_node_says_what_it_was_when_something_was_made_of_it(tmp_path: Path) -> None:
    source = dataset(tmp_path / "source", "record")
    made = dataset(tmp_path / "made", "compact", [source.parent_entry], episodes=3)
    known = [made.manifest.fingerprint, source.manifest.fingerprint]
    assert [node.fingerprint for node in lineage(made.location.uri).nodes] == known
    shutil.rmtree(tmp_path / "source")
    assert [node.fingerprint for node in lineage(made.location.uri).nodes] == known


def test_any_version_and_a_shared_ancestor_once(tmp_path: Path) -> None:
    source = dataset(tmp_path / "source", "record")
    left = dataset(tmp_path / "left", "split", [source.parent_entry])
    right = dataset(tmp_path / "right", "split", [source.parent_entry], episodes=3)
    merged = dataset(tmp_path / "merged", "merge", [left.parent_entry, right.parent_entry])
    later = dataset(tmp_path / "merged", "compact", [merged.parent_entry], episodes=4)
    graph = lineage(merged.location.uri, 1)
    assert len(graph.nodes) == 4 and graph.edges == [(1, 0), (2, 0), (3, 1), (3, 2)]
    whole = lineage(later.location.uri)
    assert [(node.version, node.operation) for node in whole.nodes[:2]] == [(2, "compact"), (1, "merge")]


def test_a_long_history_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NODES", 3)
    uri = chain(tmp_path)
    graph = lineage(uri)
    assert len(graph.nodes) == 3 and not graph.is_whole
    assert '  more["… and more"] --> n2' in mermaid(graph)


@pytest.mark.parametrize(
    "name",
    [
        '"]; click n0',
        "a|b",
        "x;y",
        "<b>bold",
        "style:a_b",
        "`code`",
        "two\nlines",
        "end",
        "größe 🎲",
        "%%",
        "#quot;",
        "a&lt;b",
    ],
)
def test_no_name_is_more_than_text_in_a_label(name: str) -> None:
    graph = Lineage([Node("dataset", f"/data/{name}", 3, "found", f"op {name}", 1, 2)], [])
    first, *rest = mermaid(graph).splitlines()
    rest = [line for line in rest if not line.startswith(("  class", "  linkStyle"))]
    assert first == "flowchart LR" and len(rest) == 1
    label = re.fullmatch(r'  n0\["(.*)"\]', rest[0])
    assert label is not None
    assert set(re.sub(r"#\d+;|<br/>", "", label[1])) <= set("abcdefghijklmnopqrstuvwxyzöß0123456789 ,/-")
    assert unescaped(label[1].split("<br/>")[0]) == f"data/{name} version 3"


def test_a_long_name_shows_its_end() -> None:
    (lines,) = drawn(Lineage([Node("dataset", f"/data/{'x' * 99}end", 1, "found")], [])).values()
    assert lines == [f"…{'x' * 44}end version 1"]


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("/data/runs/demo/pruned", "demo/pruned"),
        ("s3://lake", "s3://lake"),
        ("s3://lake/pruned", "s3://lake/pruned"),
        ("gs://lake/demo/pruned", "gs://lake/demo/pruned"),
        ("s3://lake/team/demo/pruned", "s3://lake/…/demo/pruned"),
    ],
)
def test_a_label_says_in_which_bucket(uri: str, name: str) -> None:
    assert label(Node(uri=uri, version=None, kind="dataset", state="found"))[0] == name


def test_what_cannot_be_reached_is_not_said_to_be_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def silent(uri: str, version: int | None = None) -> Dataset:
        raise StorageUnavailableError("not now")

    place = str(write_dataset(tmp_path / "data", [episode(0)]).location.uri)
    monkeypatch.setattr(module, "open_dataset", silent)
    [node] = lineage(place, 1).nodes
    assert node.state == "unreachable" and label(node)[-1] == "storage does not answer"
