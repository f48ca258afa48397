"""JSON lines with checksums: a flipped bit is found wherever it is, and what a killed writer left is no damage."""

from __future__ import annotations

import pytest

from offline_core.data.store.json_files import line_of, read_lines, whole_lines
from offline_core.errors import CorruptFileError

RECORDS = [{"updates": number, "loss": 0.5 * number} for number in range(4)]
DATA = b"".join(map(line_of, RECORDS))


def test_lines_come_back() -> None:
    assert read_lines(DATA, "x") == RECORDS


@pytest.mark.parametrize("data", [DATA, line_of(RECORDS[1])], ids=["several", "one"])
def test_each_flipped_bit_is_an_error(data: bytes) -> None:
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptFileError, match=r"^x is not what was written: line \d is damaged"):
            read_lines(bytes(flipped), "x")


def test_a_line_that_was_cut_off_is_of_a_writer_that_was_killed() -> None:
    for cut in range(1, len(line_of(RECORDS[3]))):
        assert read_lines(DATA[:-cut], "x") == (RECORDS if cut == 1 else RECORDS[:3])


def test_a_line_without_a_checksum_is_damaged() -> None:
    assert list(whole_lines(b'{"updates": 3}\n' + line_of({"updates": 4}))) == [None, {"updates": 4}]
