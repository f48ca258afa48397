"""Every JSON file of ours notices that it is not what was written."""

from __future__ import annotations

import json

import pytest

from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.errors import CorruptFileError

TEXTS = {
    "one line": '{"a": 1, "b": [2.5, "\u00e9"]}',
    "indented": json.dumps({"a": {"b": []}}, indent=2),
    "infinite": '{"a": NaN}',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_it_comes_back_as_it_was(text: str) -> None:
    data = with_checksum(text)
    assert repr(json.loads(without_checksum(data, "x"))) == repr(json.loads(text))
    assert list(json.loads(data)) == [*json.loads(text), "checksum"], "which other programs may read as well"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_flipped_bit_gives_another_object(text: str) -> None:
    data, whole = with_checksum(text), json.loads(text)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            read = json.loads(without_checksum(bytes(flipped), "x"))
        except (CorruptFileError, ValueError):
            continue
        assert repr({name: read[name] for name in whole}) == repr(whole)


def test_a_file_without_a_checksum_is_taken_as_it_is() -> None:
    assert without_checksum(b'{"a": 1}', "x") == b'{"a": 1}'


def test_an_edited_file_says_what_to_do() -> None:
    edited = with_checksum('{"a": 1}').replace(b"1,", b"2,", 1)
    with pytest.raises(CorruptFileError, match=r"x is not what was written: .* delete its last field, checksum"):
        without_checksum(edited, "x")
