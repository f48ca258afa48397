"""The store of local files: whole or not at all, and only once."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offline_core.data.store.stores import LocalStore
from tests.data.datasets.factories import found

STORE = LocalStore()


def test_only_one_of_many_creates(tmp_path: Path) -> None:
    def create(number: int) -> bool:
        try:
            STORE.create(f"{tmp_path}/v/1", str(number).encode())
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(40)))
    assert won.count(True) == 1
    assert (tmp_path / "v/1").read_bytes() == str(won.index(True)).encode()
    assert found(tmp_path) == ["v/1"]


def test_a_new_file_is_seen_when_it_is_put(tmp_path: Path) -> None:
    file = STORE.new_file(f"{tmp_path}/data/x")
    file.write(b"rows")
    assert [Path(name).name.startswith(".tmp-") for name in found(tmp_path)] == [True]
    STORE.put_file(file, f"{tmp_path}/data/x-0123")
    assert found(tmp_path) == ["data/x-0123"] and file.closed
    assert (tmp_path / "data/x-0123").read_bytes() == b"rows"


def test_a_discarded_file_is_gone_however_often(tmp_path: Path) -> None:
    file = STORE.new_file(f"{tmp_path}/data/x")
    for _ in range(2):
        STORE.discard(file)
    assert found(tmp_path) == []


def test_what_is_deleted_is_gone_however_often(tmp_path: Path) -> None:
    STORE.put(f"{tmp_path}/x", b"1")
    for _ in range(2):
        STORE.delete(f"{tmp_path}/x")
    assert found(tmp_path) == []


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    with STORE.lock(str(tmp_path)), pytest.raises(BlockingIOError), STORE.lock(str(tmp_path)):
        pass
    with STORE.lock(str(tmp_path)):
        pass


def test_it_can_be_sent_and_has_no_links(tmp_path: Path) -> None:
    assert pickle.loads(pickle.dumps(STORE)) == STORE
    assert STORE.link(f"{tmp_path}/x") is None
    assert STORE.abort_uploads(str(tmp_path), older_than_days=0) == 0
