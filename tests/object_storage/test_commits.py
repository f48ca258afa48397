"""Processes that commit to one dataset at the same time: each version is one's alone, and none is skipped or lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.datasets.manifest import FileEntry, Operation
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.store import lease
from offline_core.data.store.location import Location
from offline_core.errors import VersionExistsError
from tests.keeping.retention.test_beside_writers import append, beside_a_writer
from tests.object_storage.processes import answers, talking

COMMITTERS = 3

COMMITTER = """
import sys
from tests.object_storage.test_commits import committed

print("ready", flush=True)
for line in sys.stdin:
    print(committed(*line.split(), who=sys.argv[1]), flush=True)
"""


def committed(uri: str, number: str, version: str, *, who: str) -> str:
    """The version that a committer got in this round, or "lost"."""
    file = FileEntry(path=f"part-{who}-{number}.parquet", rows=1, episodes=1, steps=1, bytes=1, sha256="0" * 64)
    Location.of(uri).child(file.path).write(b"x")
    try:
        made = commit(
            uri,
            [file],
            format="episodes",
            operation=Operation(name="test", config={"who": who, "round": number}),
            statistics=Statistics(episodes=1, steps=1),
            version=int(version) if version != "next" else None,
        )
        return str(made.ref.version)
    except VersionExistsError as error:
        assert "Your files are complete" in str(error)
        return "lost"


def authors(uri: str) -> list[str]:
    return [open_dataset(uri, version).manifest.operation.config["who"] for version in versions(uri)]


def prepared(bucket: str) -> tuple[str, str]:
    places = f"{bucket}/named", f"{bucket}/following"
    for uri in places:
        prepare_dataset(uri)
    return places


def check(named: str, following: str, winners: list[list[str]], all_won: list[list[str]]) -> None:
    """What came of rounds in which all wanted one version, and of rounds in which each took the next."""
    for number, came in enumerate(winners, 1):
        assert sorted(came) == sorted([str(number), *["lost"] * (COMMITTERS - 1)])
    assert versions(named) == list(range(1, len(winners) + 1))
    assert authors(named) == [str(came.index(str(number))) for number, came in enumerate(winners, 1)]
    given = {int(version): str(who) for came in all_won for who, version in enumerate(came)}
    assert sorted(given) == versions(following) == list(range(1, len(all_won) * COMMITTERS + 1))
    assert authors(following) == [given[version] for version in versions(following)]


def test_a_version_has_one_winner_and_the_others_get_the_next(bucket: str) -> None:
    named, following = prepared(bucket)
    with ThreadPoolExecutor(COMMITTERS) as pool:

        def answered(uri: str, number: int, version: str) -> list[str]:
            return [*pool.map(lambda who: committed(uri, str(number), version, who=str(who)), range(COMMITTERS))]

        winners = [answered(named, number, str(number)) for number in (1, 2)]
        all_won = [answered(following, number, "next") for number in (1, 2)]
    check(named, following, winners, all_won)
    again = [committed(following, "1", "next", who="0") for _ in range(2)]
    assert again == [all_won[0][0]] * 2, "a commit whose answer was lost adds no version when it is made again"


@pytest.mark.slow
def test_processes_that_commit_at_the_same_time_do_not_mix(bucket: str) -> None:
    named, following = prepared(bucket)
    with talking(COMMITTER, *((who,) for who in range(COMMITTERS))) as committers:  # all begin each round together
        winners = [answers(committers, f"{named} {n} {n}", first=n) for n in range(1, 13)]  # the first asked may win
        all_won = [answers(committers, f"{following} {n} next", first=n) for n in range(1, 13)]
    check(named, following, winners, all_won)
    assert len({*authors(named)}) > 1, "they did run at the same time"


def test_a_writer_is_left_alone_by_vacuum_and_forget(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its heartbeats, as there are no locks."""
    for name, seconds in (("HEARTBEAT_SECONDS", 0.02), ("POLL_SECONDS", 0.05)):
        monkeypatch.setattr(lease, name, seconds)
    beside_a_writer(str(tmp_path / "logs"), f"{bucket}/root/data", monkeypatch, append)
