"""What every place has to do that datasets are committed to, whichever store it is."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.commit import prepare_dataset
from offline_core.data.datasets.dataset import Dataset, open_dataset, versions
from offline_core.data.store import lease
from offline_core.data.store import partial_files as leftovers
from offline_core.data.store.location import Location, temporary_folder
from offline_core.data.store.partial_files import remove_partial_files
from offline_core.data.store.temporary_names import TEMPORARY
from offline_core.errors import BusyError, DatasetNotFoundError, LocationError, StorageError, VersionExistsError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train
from offline_core.policies.checkpoint import load_policy
from tests.data.datasets import factories
from tests.data.datasets.factories import episode
from tests.e2e.orchestra import REPOSITORY
from tests.object_storage.processes import answers, talking
from tests.waiting import PATIENCE_SECONDS

ROUNDS = 30
_RACER = """
import sys
from offline_core.errors import VersionExistsError
from offline_core.data.store.location import Location
print("ready", flush=True)
for line in sys.stdin:
    try:
        Location.of(line.strip()).create(sys.argv[1].encode())
        print("won", flush=True)
    except VersionExistsError:
        print("lost", flush=True)
"""
_WRITER = """
import sys
from offline_core.data.store.location import Location
print("ready", flush=True)
for line in sys.stdin:
    Location.of(sys.argv[1]).child(line.strip()).write(b"x")
    print("written", flush=True)
"""


def write_dataset(uri: str, count: int = 6, **changes: Any) -> Dataset:
    return factories.write_dataset(uri, [episode(number, **changes) for number in range(count)])


class PlaceEssentials:
    """What depends on each store's own answers, by the fixture `place`, the URI of a folder that does not exist yet."""

    def test_files(self, place: str) -> None:
        root = Location.of(place)
        assert not root.is_folder()
        assert root.files() == []
        file = root.child("a/b c.txt")
        file.write(b"one")
        file.write(b"another")
        assert (file.read(), file.is_file(), file.is_folder()) == (b"another", True, False)
        assert root.is_folder() and not root.is_file()
        root.child("c.txt").write(b"")
        assert root.sizes() == {"a/b c.txt": 7, "c.txt": 0}
        assert root.files(recursive=False) == ["c.txt"]
        file.delete()
        assert not file.is_file()
        assert root.files() == ["c.txt"]

    def test_uris_lead_back(self, place: str) -> None:
        root = Location.of(place)
        file = root.child("a/b.txt")
        assert Location.of(file.uri) == file == pickle.loads(pickle.dumps(file))
        assert file.parent == root.child("a")
        assert Location.of(file.parent.parent.uri) == root
        assert os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "secret") not in repr(file) + str(pickle.dumps(file))

    def test_a_file_that_is_replaced_while_it_is_read_is_no_mixture(self, place: str) -> None:
        """Shorter, longer or as long: what was not fetched yet belongs to another file. What is opened later is the new one."""
        file = Location.of(place).child("x")
        for length in (5, 500, 1000, 2000):
            file.write(b"0" * 1000)
            with file.filesystem.open_input_file(file.path) as opened:
                assert opened.read(10) == b"0" * 10
                file.write(b"1" * length)
                with pytest.raises(OSError, match="it was replaced while it was read"):
                    opened.read()
            with file.filesystem.open_input_stream(file.path) as opened:
                file.write(b"2" * length)
                assert opened.read() == b"2" * length, "nothing of the other was read"
            assert file.read() == b"2" * length

    def test_one_of_two_creates(self, place: str) -> None:
        file = Location.of(place).child("v.json")
        file.create(b"first")
        file.create(b"first")  # sent again as its answer was lost
        with pytest.raises(VersionExistsError, match="another writer was first"):
            file.create(b"second")
        assert file.read() == b"first"

    def test_what_is_not_there(self, place: str) -> None:
        with pytest.raises(StorageError, match=r"nowhere: it does not exist\.$"):
            Location.of(place).child("nowhere").read()
        with pytest.raises(LocationError, match="whole bucket"):
            _ = Location.of(place[: place.index("/", place.index("://") + 3)]).parent


class ServedEssentials(PlaceEssentials):
    """And on those of a server, by the fixture `denied`, a location that may not be looked at."""

    def test_a_missing_bucket_is_named(self, place: str) -> None:
        uri = f"{place.partition('://')[0]}://nowhere-at-all/x"
        for ask in (lambda: Location.of(uri).write(b""), lambda: Location.of(uri).create(b"")):
            with pytest.raises(StorageError, match=f"Cannot write {uri}: the bucket does not exist: create it"):
                ask()
        for look in (prepare_dataset, open_dataset):
            with pytest.raises(StorageError, match="the bucket does not exist"):
                look(uri)

    def test_denied_access_is_not_taken_for_an_empty_folder(self, denied: Location) -> None:
        for ask in (denied.read, denied.files, denied.is_folder, denied.delete, denied.make_folder, lambda: denied.write(b"")):
            with pytest.raises(StorageError, match=rf"{denied.uri}[^:]*: (access|permission) denied"):
                ask()
        with pytest.raises(StorageError, match=denied.uri), denied.locked():
            pass


class PlaceContract:
    """What is built on these: one code for all stores, by the fixture `place`."""

    def test_leftovers_go_by_their_age(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Which is that of the file, as the server has it."""
        root = Location.of(place)
        root.child(f"{TEMPORARY}{'a' * 32}/x").write(b"1")
        root.child("kept").write(b"1")
        remove_partial_files(root)
        assert len(root.files()) == 2
        monkeypatch.setattr(leftovers, "MIN_AGE_DAYS", -1)
        remove_partial_files(root)
        assert root.files() == ["kept"]

    def test_folders(self, place: str) -> None:
        root = Location.of(place).make_folder()
        assert root.is_folder()
        with temporary_folder(root) as folder:
            folder.child("x").write(b"1")
            assert len([name for name in root.files() if name.endswith("/x")]) == 1
        assert not [name for name in root.files() if name.endswith("/x")]

    def test_large_files_come_whole(self, place: str) -> None:
        """In parts over the wire, and by several requests at a time."""
        data = os.urandom(2**20) * 36
        file = Location.of(place).child("large")
        spooled = file.store.new_file(file.path)
        spooled.write(data)
        file.store.put_file(spooled, file.path)
        assert spooled.closed
        assert file.read() == data
        with file.filesystem.open_input_file(file.path) as stream:
            stream.seek(2**20 * 30 + 7)
            assert stream.read(100) == data[2**20 * 30 + 7 :][:100]

    def test_a_file_that_is_given_up_is_nowhere(self, place: str) -> None:
        file = Location.of(place).child("given-up")
        spooled = file.store.new_file(file.path)
        spooled.write(b"half")
        file.store.discard(spooled)
        assert file.parent.files() == []

    def test_exactly_one_of_those_at_the_same_time_creates(self, place: str) -> None:
        def created(who: int) -> bool:
            try:
                file.create(str(who).encode())
                return True
            except VersionExistsError:
                return False

        with ThreadPoolExecutor(3) as pool:
            for number in range(4):
                file = Location.of(f"{place}/{number:06d}.json")
                won = [*pool.map(created, range(3))]
                assert sum(won) == 1 and file.read() == str(won.index(True)).encode()

    def test_leases(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.2)
        root = Location.of(place)
        for _ in range(2):
            with root.locked(), pytest.raises(BusyError, match="Another run is writing to"), root.locked():
                pass

    def test_a_dataset_lives_there(self, place: str) -> None:
        """Written, committed, opened, pruned and trained on."""
        with pytest.raises(DatasetNotFoundError):
            open_dataset(place)
        made = write_dataset(f"{place}/made")
        assert open_dataset(made.location.uri).ref == made.ref
        assert [e.eps_id for e in open_dataset(f"{place}/made").episodes()] == [f"episode-{n:04}" for n in range(6)]
        assert write_dataset(f"{place}/made").ref == made.ref
        assert versions(f"{place}/made") == [1]
        write_dataset(f"{place}/made", 7)
        assert versions(f"{place}/made") == [1, 2]
        pruned = prune(PruningConfig(keep_top_fraction=0.5), dataset=f"{place}/made", version=1, output=f"{place}/pruned")
        kept = open_dataset(pruned.dataset.uri)
        assert kept.ref.episodes == 3
        assert kept.manifest.parents[0].uri == f"{place}/made"
        config = TrainingConfig.model_validate({"optimizer": {"batch_size": 8, "max_epochs": 1}})
        trained = train(config, dataset=pruned.dataset.uri, output=f"{place}/policy")
        assert trained.checkpoint.startswith(f"{place}/policy/")
        load_policy(trained.checkpoint)
        assert train(config, dataset=pruned.dataset.uri, output=f"{place}/policy").reused


class ServedContract(PlaceContract):
    """And what other processes see that reach the store, too."""

    def test_what_is_listed_is_what_is_there(self, place: str) -> None:
        """By another process, too, after this one has listed."""
        root = Location.of(place)
        with talking(_WRITER, (place,)) as [writer]:
            for number in range(3):
                assert writer.ask(str(number)) == "written"
                assert root.files() == [str(each) for each in range(number + 1)]
        root.child("0").delete()
        assert root.files() == ["1", "2"]

    @pytest.mark.slow
    def test_exactly_one_of_two_processes_creates(self, place: str) -> None:
        wins = [0, 0]
        with talking(_RACER, (0,), (1,)) as racers:
            for number in range(ROUNDS):
                uri = f"{place}/{number:06d}.json"
                said = answers(racers, uri)
                assert sorted(said) == ["lost", "won"], f"round {number}"
                winner = said.index("won")
                wins[winner] += 1
                assert Location.of(uri).read() == str(winner).encode()
        assert sum(wins) == ROUNDS

    @pytest.mark.slow
    def test_a_dead_holder_is_followed(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        script = f"""
import os
from offline_core.data.store.location import Location
with Location.of({place!r}).locked():
    os.kill(os.getpid(), 9)
"""
        killed = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=False, timeout=PATIENCE_SECONDS)
        assert killed.returncode == -9
        monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)
        with Location.of(place).locked():
            pass
