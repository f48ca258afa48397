"""Rows that are there more than once, over folders that repeat one another."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from offline_core.conversion.duplicates import distinct_rows


def kept(rows: str, folders: str) -> str:
    """The rows (a letter each) that are kept, in folders by digit."""
    values = np.array([[ord(letter)] for letter in rows], np.uint8)
    mask = distinct_rows(values, np.array([int(folder) for folder in folders]))
    return "".join(letter for letter, keep in zip(rows, mask, strict=True) if keep)


def test_a_folder_that_repeats_another() -> None:
    assert kept("abcabc", "000111") == "abc"


def test_the_folder_that_has_more_adds_what_is_new() -> None:
    assert kept("abababab", "00111122") == "abab"
    assert kept("aababc", "000111") == "aabc"


def test_rows_of_one_folder_are_no_duplicates() -> None:
    assert kept("aaab", "0000") == "aaab"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), min_size=1, max_size=20))
def test_as_often_as_the_folder_that_has_most(rows: list[tuple[str, int]]) -> None:
    letters, folders = "".join(row[0] for row in rows), "".join(str(row[1]) for row in rows)
    most = {letter: max(Counter(f for r, f in rows if r == letter).values()) for letter in set(letters)}
    result = kept(letters, folders)
    assert Counter(result) == Counter(most)
    firsts = [i for i, (letter, _) in enumerate(rows) if letters[:i].count(letter) < most[letter]]
    assert result == "".join(letters[i] for i in firsts), "the first ones, in their order"
