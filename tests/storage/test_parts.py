"""Parts of one episode are recognised, and whole episodes are not taken for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from offline_core.storage.episode_index import episode_index
from offline_core.storage.manifest import Format
from offline_core.storage.parts import first_parts
from tests.storage.factories import FORMATS, episode, write_dataset


def test_what_comes_under_one_id_is_of_one_episode_until_it_terminates() -> None:
    names = ["a@5", "a", "a@5@7", "a@20-00000000", "a@9", "b@home", "c@home", "b@00112233aabbccdd", "d@3", "d@8"]
    terminated = [False, False, True, False, False, False, False, False, True, False]
    index = pl.DataFrame({"eps_id": names, "t_started": [0] * 10, "terminated": terminated})
    assert first_parts(index).tolist() == [1, 1, 1, 4, 4, 5, 6, 7, 8, 9]


def test_the_step_at_which_it_begins_decides_where_ids_are_the_same() -> None:
    index = pl.DataFrame({"eps_id": ["a", "b", "a"], "t_started": [4, 0, 0], "terminated": [True, True, False]})
    assert first_parts(index).tolist() == [2, 1, 2]


@pytest.mark.parametrize("format", FORMATS)
def test_of_a_dataset(tmp_path: Path, format: Format) -> None:
    some = [episode(i, 8) for i in range(3)]
    parts = [some[1].slice(0, 3), replace(some[1].slice(5, 8), eps_id=f"{some[1].eps_id}@5")]
    dataset = write_dataset(tmp_path, [some[0], *parts[::-1], some[2]], format)
    assert first_parts(episode_index(dataset)).tolist() == [0, 2, 2, 3]
