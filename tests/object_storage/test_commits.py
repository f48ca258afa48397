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

who = sys.argv[1]
print("ready", flush=True)
for line in sys.stdin:
    uri, n, version = line.split()
    file = FileEntry(path=f"part-{who}-{n}.parquet", rows=1, episodes=1, steps=1, bytes=1, sha256="0" * 64)
    try:
        made = commit(
            uri, [file], format="episodes", operation=Operation(name="test", config={"who": who, "round": n}),
            statistics=Statistics(episodes=1, steps=1), version=int(version) if version != "next" else None,
        )
        print(made.ref.version, flush=True)
    except VersionExistsError as error:
        assert "Your files are complete" in str(error)
        print("lost", flush=True)
"""


def authors(uri: str) -> list[str]:
    return [open_dataset(uri, version).manifest.operation.config["who"] for version in versions(uri)]


def test_a_version_has_one_winner_and_the_others_get_the_next(bucket: str) -> None:
    named, following = f"{bucket}/named", f"{bucket}/following"
    for uri in (named, following):
        prepare_dataset(uri)
    with talking(COMMITTER, *((who,) for who in range(COMMITTERS))) as committers:  # all begin each round together
        winners = [answers(committers, f"{named} {n} {n}", first=n) for n in range(1, ROUNDS + 1)]  # the first asked may win
        all_won = [answers(committers, f"{following} {n} next", first=n) for n in range(1, ROUNDS + 1)]
        again = [committers[0].ask(f"{following} 1 next") for _ in range(2)]

    for number, came in enumerate(winners, 1):
        assert sorted(came) == sorted([str(number), *["lost"] * (COMMITTERS - 1)])
    assert versions(named) == list(range(1, ROUNDS + 1))
    assert authors(named) == [str(came.index(str(number))) for number, came in enumerate(winners, 1)]
    assert len({*authors(named)}) > 1, "they did run at the same time"

    given = {int(version): str(who) for came in all_won for who, version in enumerate(came)}
    assert sorted(given) == versions(following) == list(range(1, ROUNDS * COMMITTERS + 1))
    assert authors(following) == [given[version] for version in versions(following)]
    assert again == [all_won[0][0]] * 2, "a commit whose answer was lost adds no version when it is made again"
