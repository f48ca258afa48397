"""Marks of bad episodes: one file beside a dataset, and a pruning drops what it names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import offline_core as offline
from offline_core.data.datasets.marks import FILE, FOLDER, EpisodeName, Marks, forget_marks, mark_episode, read_marks
from offline_core.data.store.location import Location
from offline_core.errors import BusyError, CorruptFileError
from tests.data.datasets.factories import FORMATS, episode, garble, write_dataset


def marked(place: Location) -> list[str]:
    return [each.eps_id for each in read_marks(place).marks]


def test_marks_are_read_as_they_were_written_until_they_are_taken_away(tmp_path: Path) -> None:
    place = write_dataset(tmp_path / "data", [episode(i) for i in range(3)]).location
    assert read_marks(place) == Marks()
    for number in (1, 2, 1):
        mark_episode(place, EpisodeName(f"episode-{number:04}", 0), is_bad=True)
    assert marked(place) == ["episode-0001", "episode-0002"]
    [first, _] = read_marks(place).marks
    assert first.marked_by and first.marked_at.tzinfo is not None
    mark_episode(place, EpisodeName("episode-0001", 7), is_bad=False)  # another piece of it
    mark_episode(place, EpisodeName("episode-0001", 0), is_bad=False)
    assert marked(place) == ["episode-0002"]
    forget_marks(place, {"episode-0002"})
    assert marked(place) == []


def test_of_many_who_mark_at_once_none_is_lost_in_silence(tmp_path: Path) -> None:
    place = Location.of(str(tmp_path / "data"))

    def mark(number: int) -> bool:
        try:
            mark_episode(place, EpisodeName(str(number), 0), is_bad=True)
        except BusyError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        done = [*pool.map(mark, range(40))]
    assert sorted(marked(place), key=int) == [str(number) for number, is_done in enumerate(done) if is_done]
    assert any(done)


def test_damaged_marks_are_refused(tmp_path: Path) -> None:
    place = write_dataset(tmp_path / "data", [episode(0)]).location
    mark_episode(place, EpisodeName("episode-0000", 0), is_bad=True)
    garble(tmp_path / "data" / FOLDER / FILE, 30, 40)
    with pytest.raises(CorruptFileError, match=FILE):
        read_marks(place)


@pytest.mark.parametrize("format", FORMATS)
def test_a_pruning_drops_marked_episodes_where_it_is_asked_to(tmp_path: Path, format: str) -> None:
    data = write_dataset(tmp_path / "data", [episode(i) for i in range(6)], format)  # type: ignore[arg-type]
    for number in (1, 4):
        mark_episode(data.location, EpisodeName(f"episode-{number:04}", 0), is_bad=True)
    assert offline.prune(data, output=tmp_path / "all").result.dropped_episodes == 0
    pruned = offline.prune(data, output=tmp_path / "good", marked="drop", where="length > 0")
    assert pruned.result.dropped == {"marked": 2, "where": 0}
    assert [each.eps_id for each in pruned.episodes()] == [f"episode-{i:04}" for i in (0, 2, 3, 5)]
    assert offline.prune(data, output=tmp_path / "good", marked="drop", where="length > 0").result.reused
    mark_episode(data.location, EpisodeName("episode-0005", 0), is_bad=True)
    again = offline.prune(data, output=tmp_path / "good", marked="drop", where="length > 0")
    assert (again.result.reused, again.result.dropped["marked"]) == (False, 3)
