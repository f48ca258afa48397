"""Rows that are there more than once: which are copies, and which are steps that were taken twice."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_core.data.episodes.index import id_in_source
from offline_core.data.importing.episode_ids import id_of_date, id_of_part, unique_id
from offline_core.data.importing.linking import copied, distinct_rows


def kept(*files: str) -> str:
    """The rows that are kept of files `<folder>: <rows>`, all of one id; a row is two states, with an ! if nothing follows."""
    rows = [
        (folder, number, row)
        for number, (folder, _, held) in enumerate(f.partition(": ") for f in files)
        for row in held.split()
    ]
    names, same = np.unique([row for *_, row in rows], return_inverse=True)
    states = [ord(row[0]) for *_, row in rows], [-1 if row.endswith("!") else ord(row[1]) for *_, row in rows]
    mask = distinct_rows(
        same,
        np.zeros(len(rows), np.int64),
        file=np.array([number for _, number, _ in rows]),
        folder=np.unique([folder for folder, *_ in rows], return_inverse=True)[1],
        missing=np.zeros(len(rows), np.int64),
        states=lambda: (np.array(states[0]), np.array(states[1])),
    )
    return " ".join(names[same[mask]])


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["x: ab bc cd!", "y: ab bc cd!"], "ab bc cd!"),
        (["x: ab bc", "y: ab bc cd!"], "ab bc cd!"),
        (["x: ab", "x: bc cd!", "y: bc", "y: ab"], "ab bc cd!"),
        (["x: aa aa", "y: aa aa aa ab!"], "aa aa aa ab!"),
        (["x: ab ba", "y: ab ba", "z: ab ba ab bc!"], "ab ba ab bc!"),
    ],
    ids=["all of it", "its beginning", "in other files", "steps taken twice", "again and again"],
)
def test_a_folder_that_repeats_another(files: list[str], expected: str) -> None:
    assert kept(*files) == expected


def test_a_step_taken_again_is_no_copy() -> None:
    assert kept("day1: ab ba", "day2: ab bc!") == "ab ba ab bc!"
    assert kept("x: ab ba", "x: ab bc!") == "ab ba ab bc!", "in another file"
    assert kept("x: aa", "x: aa ab!") == "aa aa ab!", "which another file holds"
    assert kept("x: aa aa ab!") == "aa aa ab!"


def test_a_file_that_was_copied_within_its_folder() -> None:
    assert kept("x: ab bc cd!", "x: ab bc cd!") == "ab bc cd!"
    assert kept("x: aa ab bc!", "x: aa ab bc!") == "aa ab bc!"


def test_files_that_overlap() -> None:
    assert kept("x: ab bc cd", "y: bc cd de ef!") == "ab bc cd de ef!"


def reference(rows: list[tuple[int, int, int]]) -> list[bool]:
    """The slow and obvious way, of rows (content, id, folder)."""
    held: dict[tuple[int, int], Counter[int]] = {}
    for content, id, folder in rows:
        held.setdefault((id, folder), Counter())[content] += 1
    return [
        any(
            held[id, folder] < other or (held[id, folder] == other and elsewhere < folder)
            for (its, elsewhere), other in held.items()
            if its == id and elsewhere != folder
        )
        for _, id, folder in rows
    ]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=24))
def test_as_a_slow_and_obvious_program_does_it(rows: list[tuple[int, int, int]]) -> None:
    content, id, folder = np.array(rows).T
    assert copied(content * 2 + id, id, folder).tolist() == reference(rows)


def test_the_id_in_the_source_is_known_from_what_imports_make_only() -> None:
    made = [unique_id("run@0001", "x"), id_of_date("run@0001", "2024-01-31"), id_of_part("run@0001", 7)]
    made += [id_of_part(unique_id("run@0001", "x"), 12)]
    assert {*map(id_in_source, made)} == {"run@0001"}
    others = ["run@0001", "a@beef", "a@host-cafe", "a@2024-01-31", "a@1-01234567\n", "a@0123456789ABCDEF"]
    assert [*map(id_in_source, others)] == others
