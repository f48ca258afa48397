"""Processes that commit to one dataset at the same time: each version is one's alone, and none is skipped or lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from offline_core.storage.committing import prepare_dataset
from offline_core.storage.dataset import open_dataset, versions

HERE = Path(__file__).parents[2]
ROUNDS = 12
COMMITTERS = 3

COMMITTER = """
import sys
from offline_core.errors import VersionExistsError
from offline_core.storage.committing import commit
from offline_core.storage.manifest import FileEntry, Operation, Statistics

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
        assert "What you wrote is not lost" in str(error)
        print("lost", flush=True)
"""


def committed(uri: str, *, numbered: bool) -> list[list[str]]:
    """What each committer came to, round by round; they begin every round together."""
    command = [sys.executable, "-c", COMMITTER, uri]
    kind = "numbered" if numbered else "next"
    processes = [
        subprocess.Popen(
            [*command, str(who), kind, str(ROUNDS)], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for who in range(COMMITTERS)
    ]
    try:
        assert [line(process) for process in processes] == ["ready"] * COMMITTERS
        rounds = []
        for number in range(ROUNDS):
            for process in processes[number % COMMITTERS :] + processes[: number % COMMITTERS]:  # who is told first may win
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            rounds.append([line(process) for process in processes])
        return rounds
    finally:
        for process in processes:
            process.communicate(timeout=30)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def authors(uri: str) -> list[str]:
    return [open_dataset(uri, version).manifest.operation.config["who"] for version in versions(uri)]


def test_who_wants_one_version_gets_it_or_is_told(bucket: str) -> None:
    uri = f"{bucket}/runs/x"
    prepare_dataset(uri)
    rounds = committed(uri, numbered=True)
    for number, came in enumerate(rounds, 1):
        assert sorted(came) == sorted([str(number), *["lost"] * (COMMITTERS - 1)])
    assert versions(uri) == list(range(1, ROUNDS + 1))
    assert authors(uri) == [str(came.index(str(number))) for number, came in enumerate(rounds, 1)]
    assert len({*authors(uri)}) > 1, "they did run at the same time"


def test_who_comes_second_becomes_the_next_version(bucket: str) -> None:
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
    rounds = [committed_alone(uri) for _ in range(2)]
    assert rounds[0] == rounds[1] == ["1", "2"]
    assert versions(uri) == [1, 2]


def committed_alone(uri: str) -> list[str]:
    command = [sys.executable, "-c", COMMITTER, uri, "0", "next", "2"]
    done = subprocess.run(command, cwd=HERE, input="go\ngo\n", capture_output=True, text=True, check=True)
    return done.stdout.split()[1:]
