"""Processes that commit to one dataset at the same time: each version is one's alone, and none is skipped or lost."""

from __future__ import annotations

from offline_core.datasets.commit import prepare_dataset
from offline_core.datasets.dataset import open_dataset, versions
from tests.object_storage.processes import answers, talking

ROUNDS = 12
COMMITTERS = 3

COMMITTER = """
import sys
from offline_core.errors import VersionExistsError
from offline_core.datasets.commit import commit
from offline_core.datasets.manifest import FileEntry, Operation, Statistics

uri, who, numbered, rounds = sys.argv[1], sys.argv[2], sys.argv[3] == "numbered", int(sys.argv[4])
print("ready", flush=True)
for n in range(1, rounds + 1):
    sys.stdin.readline()
    file = FileEntry(path=f"part-{who}-{n:04d}.parquet", rows=1, episodes=1, steps=1, bytes=1, sha256="0" * 64)
    try:
        made = commit(
            uri, [file], format="episodes", operation=Operation(name="test", config={"who": who, "round": n}),
            statistics=Statistics(episodes=1, steps=1), version=n if numbered else None,
        )
        print(made.ref.version, flush=True)
    except VersionExistsError as error:
        assert "Your files are complete" in str(error)
        print("lost", flush=True)
"""


def committed(uri: str, *, numbered: bool) -> list[list[str]]:
    """The answers of each committer, by round; they begin every round together."""
    kind = "numbered" if numbered else "next"
    with talking(COMMITTER, *((uri, who, kind, ROUNDS) for who in range(COMMITTERS))) as committers:
        return [answers(committers, first=number) for number in range(ROUNDS)]  # the one asked first may win


def authors(uri: str) -> list[str]:
    return [open_dataset(uri, version).manifest.operation.config["who"] for version in versions(uri)]


def test_a_numbered_version_has_one_winner(bucket: str) -> None:
    uri = f"{bucket}/runs/x"
    prepare_dataset(uri)
    rounds = committed(uri, numbered=True)
    for number, came in enumerate(rounds, 1):
        assert sorted(came) == sorted([str(number), *["lost"] * (COMMITTERS - 1)])
    assert versions(uri) == list(range(1, ROUNDS + 1))
    assert authors(uri) == [str(came.index(str(number))) for number, came in enumerate(rounds, 1)]
    assert len({*authors(uri)}) > 1, "they did run at the same time"


def test_the_second_committer_gets_the_next_version(bucket: str) -> None:
    uri = f"{bucket}/runs/x"
    prepare_dataset(uri)
    rounds = committed(uri, numbered=False)
    given = [int(version) for came in rounds for version in came]
    assert sorted(given) == versions(uri) == list(range(1, ROUNDS * COMMITTERS + 1))
    by_version = {int(version): str(who) for came in rounds for who, version in enumerate(came)}
    assert authors(uri) == [by_version[version] for version in versions(uri)]


def test_the_same_again_adds_no_version(bucket: str) -> None:
    """As a flow does that is run again after its commit, the answer to which was lost."""
    uri = f"{bucket}/runs/x"
    prepare_dataset(uri)
    for _ in range(2):
        with talking(COMMITTER, (uri, 0, "next", 2)) as [committer]:
            assert [committer.ask(), committer.ask()] == ["1", "2"]
    assert versions(uri) == [1, 2]
