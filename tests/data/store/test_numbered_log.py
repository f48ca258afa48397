"""Numbered logs: one writer gets a number, and what is missing or edited is found."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offline_core.data.store.json_files import with_checksum
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.errors import CorruptFileError, VersionExistsError


@pytest.fixture
def log(tmp_path: Path) -> NumberedLog:
    """Three entries."""
    made = NumberedLog(Location.of(str(tmp_path)), "log")
    for number in range(3):
        made.append({"value": 10 * number}, after=number)
    return made


def edit(log: NumberedLog, number: int, **fields: object) -> None:
    """As by a program that knows how checksums are made."""
    values = {name: value for name, value in json.loads(log.file(number).read()).items() if name != "checksum"}
    log.file(number).write(with_checksum(json.dumps(values | fields)))


def test_entries_are_read_in_order_and_from_the_end(log: NumberedLog) -> None:
    assert log.count() == 3
    assert [each["value"] for each in log.entries()] == [0, 10, 20]
    assert [each["value"] for each in log.newest_first()] == [20, 10, 0]


def test_an_entry_is_added_where_the_writer_looked(log: NumberedLog) -> None:
    with pytest.raises(VersionExistsError, match="another writer was first"):
        log.append({"value": 0}, after=2)
    assert log.append({"value": 30}, after=3) == 4 and len(log.entries()) == 4


def test_an_entry_that_was_edited_is_found_by_the_next(log: NumberedLog) -> None:
    edit(log, 2, value=11)
    for read in (log.entries, lambda: list(log.newest_first())):
        with pytest.raises(CorruptFileError, match=r"000003\.json does not follow from \S+/000002\.json: one of the two"):
            read()
    assert next(log.newest_first())["value"] == 20


def test_an_entry_of_an_earlier_version_among_later_ones_is_read(log: NumberedLog) -> None:
    """An earlier version of this package, which chains nothing, was still in use somewhere."""
    log.file(4).create(with_checksum(json.dumps({"value": 30, "number": 4})))
    log.append({"value": 40}, after=4)
    assert [each["value"] for each in log.entries()] == [0, 10, 20, 30, 40]
    assert [each["value"] for each in log.newest_first()] == [40, 30, 20, 10, 0]
    edit(log, 4, value=31)
    with pytest.raises(CorruptFileError, match=r"000005\.json does not follow from \S+/000004\.json"):
        log.entries()


def test_an_entry_that_was_edited_is_found_though_its_own_hash_is_left_out(log: NumberedLog) -> None:
    log.file(2).write(with_checksum(json.dumps({"value": 12, "number": 2})))
    with pytest.raises(CorruptFileError, match=r"000003\.json does not follow from"):
        log.entries()


def test_a_gap_a_copy_and_damage_are_found(log: NumberedLog) -> None:
    whole = log.file(2).read()
    log.file(2).delete()
    with pytest.raises(CorruptFileError, match=r"000002\.json is missing: the log has had 3 entries"):
        log.count()
    log.file(2).write(log.file(1).read())
    with pytest.raises(CorruptFileError, match=r"000002\.json is a copy of entry 1"):
        log.entries()
    log.file(2).write(whole.replace(b"10", b"11"))
    with pytest.raises(CorruptFileError, match="checksum is missing or differs"):
        log.entries()


def test_the_last_entry_is_missed_as_well(log: NumberedLog) -> None:
    log.file(3).delete()
    with pytest.raises(CorruptFileError, match=r"000003\.json is missing: the log has had 3 entries"):
        log.count()


def test_of_many_writers_each_gets_numbers_of_its_own(tmp_path: Path) -> None:
    log, start = NumberedLog(Location.of(str(tmp_path)), "log"), threading.Barrier(4)

    def write(writer: int) -> None:
        start.wait()
        for _ in range(5):
            while True:
                try:
                    log.append({"writer": writer}, after=log.count())
                    break
                except VersionExistsError:
                    continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert sorted(each["writer"] for each in log.entries()) == sorted([0, 1, 2, 3] * 5)


def test_numbers_of_deleted_entries_stay_used(log: NumberedLog) -> None:
    log.file(3).delete()
    log.folder.child("notes.txt").write(b"theirs")
    found = log.listed()
    assert (found.numbers, found.marks, found.highest, found.others) == ([1, 2], [3], 3, ["notes.txt"])
    log.mark_used(2, found.marks)
    assert log.listed().marks == [3]
