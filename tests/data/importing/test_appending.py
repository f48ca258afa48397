"""Appends: day after day the same as everything at once, with an account of what each day brought."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import polars as pl
import pytest
import yaml

import offline_core as offline
from offline_core.data.datasets.dataset import Dataset, open_dataset, versions
from offline_core.data.datasets.verify import verify
from offline_core.data.episodes import Episode
from offline_core.data.importing import appending
from offline_core.data.importing.config import EpisodesConfig, ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.report import Findings, ImportResult, Late
from offline_core.data.importing.stored import Stored
from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.errors import ConfigError, EmptyDatasetError, EpisodeError, SchemaError, SpaceError
from offline_core.runtime.config import parse
from tests.cases import slow_but
from tests.data.importing.factories import Row, nonzero, parts, run_import, steps, summary, without, write_rows


def append(source: Path | list[str], output: Path, /, **config: Any) -> tuple[ImportResult, list[Episode]]:
    """The result of an append, and all episodes by id."""
    result, found = run_import(source, output, append=True, **config)
    return result, sorted(found, key=lambda e: e.eps_id)


def account(result: ImportResult) -> dict[str, int]:
    assert result.appended is not None
    return {name: count for name, count in result.appended.model_dump().items() if count}


def days(rows: Sequence[Row], count: int, seed: int) -> list[list[Row]]:
    """The rows spread over days by chance: most in order, some late, some twice."""
    random = np.random.default_rng(seed)
    place = np.sort(random.integers(0, count, len(rows)))
    late = random.random(len(rows)) < 0.2
    place[late] = random.integers(0, count, late.sum())
    found: list[list[Row]] = [[] for _ in range(count)]
    for row, day in zip(rows, place.tolist(), strict=True):
        found[day].append(row)
        if random.random() < 0.1:
            found[int(random.integers(0, count))].append(row)
    return found


ROWS = [
    *steps("a", 6),
    *steps("b", 5, end="X"),
    *steps("c", 4, end=""),
    *steps("d", 9),
    *steps("e", 1),
    *steps("f", 7, end="X")[2:],
    *(row for row in steps("g", 8) if row["t"] != 4),
]

RULES: dict[str, dict[str, Any]] = {
    "t": {},
    "table": {"format": "table"},
    "keep": {"episodes": {"incomplete": "keep"}},
    "drop": {"episodes": {"incomplete": "drop"}},
    "end": {"episodes": {"incomplete": "end"}},
    "end, last dropped": {"episodes": {"incomplete": "end", "last_new_obs": "drop"}},
    "end, limit": {"episodes": {"incomplete": "end", "time_limit_steps": 4}},
    "repeat": {"episodes": {"last_new_obs": "repeat"}},
    "last dropped": {"episodes": {"last_new_obs": "drop"}},
    "time": {"episodes": {"order": "time"}},
    "time, last dropped": {"episodes": {"order": "time", "last_new_obs": "drop"}},
    "limit": {"episodes": {"time_limit_steps": 6}},
    "parts": {"partitions": 3},
    "from one": {"episodes": {"first_t": 1}},
}
REPEATED = {"end", "end, last dropped", "last dropped", "time, last dropped", "limit"}
"""What others of them try, one with another."""


@pytest.mark.parametrize("rules", slow_but(RULES, *RULES.keys() - REPEATED))
@pytest.mark.parametrize("seed", slow_but(range(4), 0))
def test_day_after_day_is_the_same_as_all_at_once(tmp_path: Path, rules: str, seed: int) -> None:
    config = RULES[rules]
    rows = without(ROWS, "new_obs") if "last_new_obs" in config.get("episodes", {}) else ROWS
    rows = [row | {"t": row["t"] + 1} for row in rows] if rules == "from one" else rows
    given = days(rows, 5, seed)
    result: ImportResult | None = None
    for day, some in enumerate(given):
        if some:
            write_rows(tmp_path / f"in/{day}.parquet", some)
        if any(given[: day + 1]):
            before = None if result is None else result.dataset
            with contextlib.suppress(EmptyDatasetError):  # as long as all episodes are dropped
                result, found = append(tmp_path / "in", tmp_path / "out", **config)
            if before is not None and some:
                assert account(result)["files_new"] == 1
                assert result.counts.rows == len(some)
                assert result.dataset.steps - before.steps == account(result).get("steps_added", 0)
    _, expected = run_import(tmp_path / "in", tmp_path / "whole", **config)
    assert found == sorted(expected, key=lambda e: e.eps_id)
    statistics, whole = (open_dataset(str(tmp_path / name)).manifest.statistics for name in ("out", "whole"))
    assert_alike(statistics.model_dump(), whole.model_dump())
    assert all(not each.wrong for each in verify(str(tmp_path / "out")))


@pytest.mark.parametrize("incomplete", ["cut", "drop", "end"])
@pytest.mark.parametrize("is_one_file", [True, False], ids=["grows", "more files"])
@pytest.mark.parametrize("seed", slow_but(range(3), 0))
def test_no_append_bridges_what_an_earlier_one_could_not_read(
    tmp_path: Path, incomplete: str, is_one_file: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    rows = [row for step in zip(*(without(steps(name, 12), "new_obs") for name in "abcdef"), strict=True) for row in step]
    lost = [{"rewards": float("nan")}, {"rewards": None}, {"eps_id": None}]
    for number in random.choice(len(rows), 4, replace=False).tolist():
        rows[number] = rows[number] | lost[random.integers(2 + (number > 65))]
    config: dict[str, Any] = {
        "unreadable": "quarantine",
        "episodes": {"order": "time", "max_gap": 1e9, "last_new_obs": "repeat", "incomplete": incomplete},
    }
    for day, until in enumerate([20, 34, 58, len(rows)]):
        if is_one_file:
            write_rows(tmp_path / "in/log.parquet", rows[:until])
        else:
            write_rows(tmp_path / f"in/{day}.parquet", rows[[0, 20, 34, 58][day] : until])
        with contextlib.suppress(EmptyDatasetError):
            _, found = append(tmp_path / "in", tmp_path / "out", **config)
    _, expected = run_import(tmp_path / "in", tmp_path / "whole", **config)
    assert summary(found) == sorted(summary(expected))


@pytest.mark.parametrize(
    "files",
    [
        ["0 1 (2)", "1 3 4"],
        ["2", "0 (1) 4 5"],
        ["0 1 (2)", "3 4", "5"],
        ["0 (1) 2", "3 (4)", "5 6"],
        ["0 1", "1 (2) 3"],
        ["0 1 2", "2 (3) 4", "4 (5) 6"],
        ["0 1", "0 1 (2)", "3 4"],
    ],
    ids=["a repeat", "late rows", "a loss at the end", "twice", "behind a repeat", "behind repeats", "behind nothing new"],
)
def test_losses_between_files(tmp_path: Path, files: list[str]) -> None:
    """A step in brackets cannot be read."""
    rows = without(steps("a", 7), "new_obs")
    config: dict[str, Any] = {
        "unreadable": "quarantine",
        "action_space": {"space": "discrete", "n": 7},
        "episodes": {"order": "time", "max_gap": 1e9, "last_new_obs": "repeat"},
    }
    for day, told in enumerate(files):
        some = [rows[int(word.strip("()"))] | ({"rewards": None} if "(" in word else {}) for word in told.split()]
        write_rows(tmp_path / f"in/{day}.parquet", some)
        result, found = append(tmp_path / "in", tmp_path / "out", **config)
    assert sum("Steps are not joined over them" in note for note in result.notes) == 1
    _, expected = run_import(tmp_path / "in", tmp_path / "whole", **config)
    assert summary(found) == sorted(summary(expected))


def test_a_row_that_can_be_read_later_closes_the_gap(tmp_path: Path) -> None:
    rows = without(steps("a", 9), "new_obs")
    config: dict[str, Any] = {
        "unreadable": "quarantine",
        "episodes": {"order": "time", "max_gap": 1e9, "last_new_obs": "repeat"},
    }
    write_rows(tmp_path / "in/1.parquet", [*rows[:3], rows[3] | {"rewards": None}, *rows[4:7]])
    _, found = append(tmp_path / "in", tmp_path / "out", **config)
    assert parts(found) == [("a0 a1 a2", "X"), ("a4 a5 a6", "X")]
    write_rows(tmp_path / "in/2.parquet", rows[7:])
    _, found = append(tmp_path / "in", tmp_path / "out", **config)
    assert parts(found) == [("a0 a1 a2", "X"), ("a4 a5 a6 a7 a8", "T")]
    write_rows(tmp_path / "in/1.parquet", rows[:7])
    _, found = append(tmp_path / "in", tmp_path / "out", **config)
    assert parts(found) == [("a0 a1 a2 a3 a4 a5 a6 a7 a8", "T")]


def assert_alike(found: Any, expected: Any) -> None:
    """Equal but for the last digits of moments."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_alike(found[name], expected[name])
    elif isinstance(expected, list | float):
        np.testing.assert_allclose(np.array(found, float), np.array(expected, float), rtol=1e-9, atol=1e-9)
    else:
        assert found == expected


def test_what_a_day_brought(tmp_path: Path) -> None:
    a, b, c = steps("a", 4), steps("b", 5), steps("c", 2)
    write_rows(tmp_path / "in/1.parquet", [*a, *b[:2]])
    first, found = append(tmp_path / "in", tmp_path / "out")
    assert summary(found) == [("a", "a0 a1 a2 a3", "T"), ("b", "b0 b1", "X")] and first.appended is None
    corrected = a[1] | {"rewards": 50.0}
    write_rows(tmp_path / "in/2.parquet", [a[0], corrected, *b[3:], *c])
    second, found = append(tmp_path / "in", tmp_path / "out")
    assert summary(found) == [("a", "a0 a1 a2 a3", "T"), ("b", "b0 b1", "X"), ("b@3", "b3 b4", "T"), ("c", "c0 c1", "T")]
    assert found[0].rewards.tolist() == [1, 50, 3, 4]
    assert account(second) == {
        "files_seen": 1,
        "files_new": 1,
        "episodes_added": 1,
        "episodes_completed": 1,
        "episodes_corrected": 1,
        "steps_added": 4,
        "steps_corrected": 1,
    }
    # Six rows came. One was known; three of a and two of b were put together with the others again.
    assert nonzero(second.counts) == {
        "rows": 6,
        "stored_rows": 5,
        "steps": 10,
        "episodes": 4,
        "duplicates": 1,
        "gaps": 1,
        "open_ends": 1,
    }
    write_rows(tmp_path / "in/3.parquet", [b[2]])
    third, found = append(tmp_path / "in", tmp_path / "out")
    assert summary(found)[1] == ("b", "b0 b1 b2 b3 b4", "T")
    assert account(third) == {"files_seen": 2, "files_new": 1, "episodes_completed": 1, "steps_added": 1}
    assert [len(list(open_dataset(str(tmp_path / "out"), version).episodes())) for version in (1, 2, 3)] == [2, 4, 3]


def test_a_truncation_of_the_source_stays_one(tmp_path: Path) -> None:
    rows = steps("a", 4, end="")
    rows[1]["truncateds"] = True
    write_rows(tmp_path / "in/1.parquet", [*rows[:2], *steps("b", 2, end="")])
    declared = {"action_space": {"space": "discrete", "n": 3}}
    append(tmp_path / "in", tmp_path / "out", **declared)
    write_rows(tmp_path / "in/2.parquet", [*rows[2:], *steps("b", 4)[2:]])
    assert summary(append(tmp_path / "in", tmp_path / "out", **declared)[1]) == [
        ("a", "a0 a1", "X"),
        ("a@2", "a2 a3", "X"),
        ("b", "b0 b1 b2 b3", "T"),
    ]


def test_only_files_with_replaced_episodes_are_written_again(tmp_path: Path) -> None:
    one_a_file = {"files": {"max_rows_per_file": 1}}
    write_rows(tmp_path / "in/1.parquet", [*steps("a", 3), *steps("b", 3)[:2], *steps("c", 3)])
    append(tmp_path / "in", tmp_path / "out", **one_a_file)
    before = open_dataset(str(tmp_path / "out")).manifest.files
    write_rows(tmp_path / "in/2.parquet", [steps("b", 3)[2], *steps("d", 2)])
    append(tmp_path / "in", tmp_path / "out", **one_a_file)
    after = open_dataset(str(tmp_path / "out")).manifest.files
    assert [file in after for file in before] == [True, False, True] and len(after) == 4


def test_files_that_were_read_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(3):
        write_rows(tmp_path / f"in/{day}.parquet", steps(f"e{day}", 3))
    run_import(tmp_path / "in", tmp_path / "out")  # without append: it may follow
    nothing, _ = append(tmp_path / "in", tmp_path / "out")
    assert nothing.reused and account(nothing) == {"files_seen": 3} and versions(str(tmp_path / "out")) == [1]
    assert nothing.notes == [
        "Nothing is new, so version 1 stays the latest: 3 files read before, 0 new; episodes: none; 0 steps added, 0 corrected."
    ]
    write_rows(tmp_path / "in/3.parquet", steps("e3", 3))
    some, _ = append(tmp_path / "in", tmp_path / "out")
    assert account(some) == {"files_seen": 3, "files_new": 1, "episodes_added": 1, "steps_added": 3}
    os.utime(tmp_path / "in/3.parquet", (1, 1))  # other times, the same content
    assert append(tmp_path / "in", tmp_path / "out")[0].reused
    os.utime(tmp_path / "in/0.parquet", (1, 1))  # the first import took no hashes: it is read, and brings nothing
    again, found = append(tmp_path / "in", tmp_path / "out")
    assert account(again) == {"files_seen": 3, "files_new": 1, "files_changed": 1, "episodes_unchanged": 1}
    assert nonzero(again.counts) == {"rows": 3, "duplicates": 3} and len(found) == 4
    assert append(tmp_path / "in", tmp_path / "out")[0].reused


def test_bad_files(tmp_path: Path) -> None:
    """The same file twice, one that grew, one that shrank, one that ends too early, one without a row."""
    place = tmp_path / "in"
    write_rows(place / "1.parquet", steps("a", 5)[:3])
    append(place, tmp_path / "out")
    write_rows(place / "copy.parquet", steps("a", 5)[:3])
    assert account(append(place, tmp_path / "out")[0]) == {"files_seen": 1, "files_new": 1, "episodes_unchanged": 1}
    write_rows(place / "1.parquet", steps("a", 5))
    grown, found = append(place, tmp_path / "out")
    assert account(grown) == {"files_seen": 1, "files_new": 1, "files_changed": 1, "episodes_completed": 1, "steps_added": 2}
    assert summary(found) == [("a", "a0 a1 a2 a3 a4", "T")]
    write_rows(place / "1.parquet", steps("a", 5)[:1])
    shrunk, found = append(place, tmp_path / "out")  # what was read is not taken back
    assert (
        account(shrunk) == {"files_seen": 1, "files_new": 1, "files_changed": 1, "episodes_unchanged": 1} and len(found[0]) == 5
    )
    whole = write_rows(place / "2.parquet", steps("b", 50)).read_bytes()
    (place / "2.parquet").write_bytes(whole[:-100])
    lost, found = append(place, tmp_path / "out", unreadable="quarantine")
    assert lost.counts.quarantined_files == 1 and [e.eps_id for e in found] == ["a"]
    (place / "2.parquet").write_bytes(whole)
    assert [e.eps_id for e in append(place, tmp_path / "out", unreadable="quarantine")[1]] == ["a", "b"]
    before = versions(str(tmp_path / "out"))
    (place / "3.parquet").write_bytes(whole[:-100])
    with pytest.raises(Exception, match=r"3\.parquet"):
        append(place, tmp_path / "out")
    assert versions(str(tmp_path / "out")) == before


def test_a_day_without_rows(tmp_path: Path) -> None:
    names = list(steps("a", 1)[0])
    rows = [{name: row[name] for name in names if name not in ("obs", "new_obs")} | {"obs": row["t"]} for row in steps("a", 3)]

    def write(name: str, rows: Sequence[Row]) -> None:
        lines = [",".join(rows[0] if rows else ["eps_id"]), *(",".join(map(str, row.values())) for row in rows)]
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / f"in/{name}.csv").write_text("\n".join(lines) + "\n" if rows else "")

    write("1", rows)
    options = {"episodes": {"last_new_obs": "repeat"}}
    append(tmp_path / "in", tmp_path / "out", **options)
    write("2", [])
    empty, found = append(tmp_path / "in", tmp_path / "out", **options)
    assert account(empty) == {"files_seen": 1, "files_new": 1} and len(found) == 1
    assert append(tmp_path / "in", tmp_path / "out", **options)[0].reused


def test_an_id_of_two_days_is_two_episodes_if_it_is_said(tmp_path: Path) -> None:
    for day in (1, 2):
        write_rows(tmp_path / f"in/{day}.parquet", [row | {"rewards": float(day)} for row in steps("a", 3)])
        _, found = append(tmp_path / "in", tmp_path / "out", episodes={"ids_per": "file"})
    assert sorted(e.return_ for e in found) == [3.0, 6.0]
    write_rows(tmp_path / "in/2.parquet", [row | {"rewards": 5.0} for row in steps("a", 3)])
    changed, found = append(tmp_path / "in", tmp_path / "out", episodes={"ids_per": "file"})
    assert sorted(e.return_ for e in found) == [3.0, 15.0] and account(changed)["episodes_corrected"] == 1


def test_rows_that_contradict_each_other_leave_what_is_stored(tmp_path: Path) -> None:
    a = steps("a", 3)
    write_rows(tmp_path / "in/1.parquet", a)
    append(tmp_path / "in", tmp_path / "out")
    write_rows(tmp_path / "in/2.parquet", [a[1] | {"rewards": 7.0}, a[1] | {"rewards": 8.0}, *steps("b", 2)])
    with pytest.raises(EpisodeError, match="Two different rows claim to be step 1 of episode a"):
        append(tmp_path / "in", tmp_path / "out")
    result, found = append(tmp_path / "in", tmp_path / "out", unreadable="quarantine")
    assert summary(found) == [("a", "a0 a1 a2", "T"), ("b", "b0 b1", "T")] and found[0].return_ == 6.0
    assert nonzero(result.counts) == {"rows": 4, "steps": 2, "episodes": 1, "quarantined_rows": 2}


def test_without_ids_rows_cannot_be_late(tmp_path: Path) -> None:
    rows = without([*steps("a", 3), *steps("b", 4)], "eps_id", "t")
    write_rows(tmp_path / "in/1.parquet", rows[:5])
    append(tmp_path / "in", tmp_path / "out")
    write_rows(tmp_path / "in/2.parquet", without(steps("c", 2), "eps_id", "t"))
    added, found = append(tmp_path / "in", tmp_path / "out")
    assert account(added)["episodes_added"] == 1 and sorted(map(len, found)) == [2, 2, 3]
    write_rows(tmp_path / "in/1.parquet", rows)
    with pytest.raises(EpisodeError, match="Only rows with an id and a t, or a time, can be merged"):
        append(tmp_path / "in", tmp_path / "out")
    kept, found = append(tmp_path / "in", tmp_path / "out", unreadable="quarantine")
    assert sorted(map(len, found)) == [2, 2, 3] and kept.counts.quarantined_rows == 4 and kept.counts.duplicates == 3


def test_an_import_of_before_the_oldest_version_is_not_appended_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write_rows(tmp_path / "in/1.parquet", steps("a", 3)).parent
    append(place, tmp_path / "out")
    monkeypatch.setattr(appending, "OLDEST", 99)
    with pytest.raises(ConfigError, match=r"imported by an earlier version of this package.* Import all of the source again"):
        append(place, tmp_path / "out")


def test_what_cannot_be_appended_to(tmp_path: Path) -> None:
    place = write_rows(tmp_path / "in/1.parquet", steps("a", 3)).parent
    write_rows(tmp_path / "foreign/x.parquet", steps("a", 3))
    with pytest.raises(ConfigError, match="Parquet files and no committed version"):
        append(place, tmp_path / "foreign")
    append(place, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"imported with episodes\.order 'auto', not 'time'"):
        append(place, tmp_path / "out", episodes={"order": "time"})
    with pytest.raises(ConfigError, match=r"imported with mapping\.obs None, not 'o_t'"):
        append(place, tmp_path / "out", mapping={"obs": "o_t"})
    from offline_core.data.curation.config import PruningConfig
    from offline_core.data.curation.prune import prune

    prune(PruningConfig(), dataset=str(tmp_path / "out"), output=str(tmp_path / "pruned"))
    with pytest.raises(ConfigError, match="made by prune; only imports are appended to"):
        append(place, tmp_path / "pruned")


def test_what_an_earlier_version_imported_is_appended_to(tmp_path: Path) -> None:
    """It kept all parameters, those at their defaults too, but for a few that were newer."""
    place = write_rows(tmp_path / "in/1.parquet", steps("a", 3)).parent
    declared = {"mapping": {"rewards": "rewards"}, "columns": {"computed": {"more": "rewards + 1"}, "encode": {}}}
    append(place, tmp_path / "out", **declared)
    file = tmp_path / "out/_versions/000001.json"
    manifest = json.loads(without_checksum(file.read_bytes(), ""))
    everything = parse(ImportConfig, declared | {"append": True}).model_dump(mode="json", exclude={"engine"})
    del everything["source"]["max_expansion"]
    manifest["operation"] |= {"name": "import_dataset", "config": everything}
    file.write_bytes(with_checksum(json.dumps(manifest)))
    with pytest.raises(ConfigError, match=r"imported with episodes\.incomplete 'cut', not 'drop'"):
        append(place, tmp_path / "out", **declared, episodes={"incomplete": "drop"})
    write_rows(tmp_path / "in/2.parquet", steps("b", 3))
    result, found = append(place, tmp_path / "out", **declared)
    assert account(result)["episodes_added"] == 1 and [each.eps_id for each in found] == ["a", "b"]


def test_columns_and_spaces_are_those_of_the_version_before(tmp_path: Path) -> None:
    write_rows(tmp_path / "in/1.parquet", steps("a", 4))
    append(tmp_path / "in", tmp_path / "out")
    write_rows(tmp_path / "in/2.parquet", [row | {"action_logp": 1.0} for row in steps("b", 3)])
    with pytest.raises(SchemaError, match="also action_logp"):
        append(tmp_path / "in", tmp_path / "out")
    rows = steps("b", 3)
    rows[1]["actions"] = 7
    write_rows(tmp_path / "in/2.parquet", rows)
    with pytest.raises(SpaceError, match=r"'actions' holds 7, which is not in Discrete\(3\)"):
        append(tmp_path / "in", tmp_path / "out")
    result, found = append(tmp_path / "in", tmp_path / "out", unreadable="quarantine")
    assert summary(found) == [("a", "a0 a1 a2 a3", "T"), ("b", "b0", "X"), ("b@2", "b2", "T")]
    assert result.counts.quarantined_rows == 1


def test_two_runs_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one run is about to commit, another one does: with the same file, and with one more."""
    write_rows(tmp_path / "in/1.parquet", steps("a", 3))
    append(tmp_path / "in", tmp_path / "out")
    write_rows(tmp_path / "in/2.parquet", steps("b", 3))
    write_rows(tmp_path / "late/3.parquet", steps("c", 3))
    original, others = appending.next_version, iter(["in", "late"])

    def overtaken(location: Any, base: Dataset | None) -> int:
        if (other := next(others, None)) is not None:
            import_data(ImportConfig(append=True), source=str(tmp_path / other), output=str(tmp_path / "out"))
        return original(location, base)

    monkeypatch.setattr(appending, "next_version", overtaken)
    result, found = append([str(tmp_path / "in"), str(tmp_path / "late")], tmp_path / "out")
    assert [e.eps_id for e in found] == ["a", "b", "c"] and result.reused
    assert versions(str(tmp_path / "out")) == [1, 2, 3]


@pytest.mark.parametrize("at", ["files_without", "_merged", "next_version", "commit"])
def test_the_same_bits_again_after_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def run(name: str, *, dies: bool) -> list[str]:
        write_rows(tmp_path / name / "in/1.parquet", [*steps("a", 4)[:2], *steps("b", 3)])
        append(tmp_path / name / "in", tmp_path / name / "out")
        write_rows(tmp_path / name / "in/2.parquet", [*steps("a", 4)[2:], *steps("c", 3)[:2]])
        if dies:
            with monkeypatch.context() as patched:
                patched.setattr(appending, at, die)
                with pytest.raises(KeyboardInterrupt):
                    append(tmp_path / name / "in", tmp_path / name / "out")
            assert versions(str(tmp_path / name / "out")) == [1]
        append(tmp_path / name / "in", tmp_path / name / "out")
        return [file.sha256 for file in open_dataset(str(tmp_path / name / "out")).manifest.all_files]

    assert run("one", dies=False) == run("other", dies=True)


def test_workers_get_the_version_before_and_give_back_what_they_found(tmp_path: Path) -> None:
    """As Ray sends them."""
    write_rows(tmp_path / "in/1.parquet", [*steps("a", 4)[:2], *steps("b", 3)])
    append(tmp_path / "in", tmp_path / "out")
    stored = Stored.of(open_dataset(str(tmp_path / "out")), EpisodesConfig())
    there = cloudpickle.loads(cloudpickle.dumps(stored))
    assert there.rows(["a", "b"]) == stored.rows(["a", "b"]) and there.known == {"a", "b"}
    lost = Findings("fail", late=Late(completed={"a"}), cuts=stored.imported.cuts)
    assert cloudpickle.loads(cloudpickle.dumps(lost)) == lost


@pytest.mark.slow
def test_files_of_episodes(rllib_recordings: Path, tmp_path: Path) -> None:
    files = sorted((rllib_recordings / "cartpole_episodes").rglob("*.parquet")) or sorted(
        path for path in (rllib_recordings / "cartpole_episodes").rglob("*") if path.is_file()
    )
    assert len(files) > 1
    for number, some in enumerate(itertools.accumulate([file] for file in files)):
        result, found = append([str(file) for file in some], tmp_path / "out")
        assert number == 0 or account(result)["files_seen"] == number
    assert found == sorted(run_import([str(file) for file in files], tmp_path / "all")[1], key=lambda e: e.eps_id)


def test_made_columns(tmp_path: Path) -> None:
    made = {"columns": {"computed": {"double": "2 * speed"}}, "mapping": {"obs": ["speed", "double"]}}
    rows = [without([row], "obs", "new_obs")[0] | {"speed": float(row["t"])} for row in [*steps("a", 4), *steps("b", 3)]]
    config = {**made, "episodes": {"last_new_obs": "repeat"}, "action_space": {"space": "discrete", "n": 3}}
    write_rows(tmp_path / "in/1.parquet", rows[:2])
    append(tmp_path / "in", tmp_path / "out", **config)
    write_rows(tmp_path / "in/2.parquet", rows[2:])
    result, found = append(tmp_path / "in", tmp_path / "out", **config)
    assert account(result)["episodes_completed"] == 1 and summary(found)[0] == ("a", "a0 a1 a2 a3", "T")
    assert found == sorted(run_import(tmp_path / "in", tmp_path / "all", **config)[1], key=lambda e: e.eps_id)
    one, other = (open_dataset(str(tmp_path / name)).manifest for name in ("out", "all"))
    assert one.input_columns == other.input_columns is not None
    with pytest.raises(ConfigError, match=r"imported with columns\.computed\.double '2 \* speed', not '3 \* speed'"):
        append(tmp_path / "in", tmp_path / "out", **{**config, "columns": {"computed": {"double": "3 * speed"}}})
    with pytest.raises(ConfigError, match="found in the data, which grows: name them"):
        append(tmp_path / "in", tmp_path / "new", **{**config, "columns": {"encode": {"tag": {}}}})
    lagged = {"columns": {"in_episode": {"before": {"of": "speed", "first": 0}}}, "mapping": {"obs": ["speed", "before"]}}
    with pytest.raises(ConfigError, match="needs earlier rows, which a stored episode has not"):
        append(tmp_path / "in", tmp_path / "new", **{**config, **lagged})


def test_an_append_names_the_categories_that_the_first_import_found(tmp_path: Path) -> None:
    """And the error has the YAML that names them."""
    names = ["Cut", "Hold"] * 4
    rows = [
        {"ship": ship, "t": t, "route": route, "step": names[t], "eur": 1.5}
        for ship, route in (("a", "Hook"), ("b", "Hull"))
        for t in range(6)
    ]
    mapping = {"eps_id": "ship", "obs": ["route"], "actions": "step", "rewards": "eur"}
    given: dict[str, Any] = {"mapping": mapping, "columns": {"encode": {"route": "auto", "step": {"form": "index"}}}}
    pl.DataFrame(rows).write_parquet(tmp_path / "one.parquet")
    pl.DataFrame([row | {"ship": "c"} for row in rows[:6]]).write_parquet(tmp_path / "two.parquet")
    run_import(tmp_path / "one.parquet", tmp_path / "out", **given)
    both = [str(tmp_path / name) for name in ("one.parquet", "two.parquet")]
    with pytest.raises(ConfigError, match="categories of route, step are found in the data") as raised:
        append(both, tmp_path / "out", **given)
    given["columns"] = yaml.safe_load(str(raised.value).partition(" columns: ")[2])
    assert given["columns"]["encode"]["step"] == {"form": "index", "categories": ["Cut", "Hold"]}
    _, found = append(both, tmp_path / "out", **given)
    assert len(found) == 3


def test_an_append_keeps_the_categories_of_columns_that_were_not_declared(tmp_path: Path) -> None:
    rows = [{"ship": ship, "t": t, "route": "HA"[t % 2], "step": t % 2, "eur": 1.5} for ship in ("a", "b") for t in range(6)]
    mapping = {"eps_id": "ship", "t": "t", "obs": ["route"], "actions": "step", "rewards": "eur"}
    pl.DataFrame(rows).write_parquet(tmp_path / "one.parquet")
    pl.DataFrame([row | {"ship": "c", "route": "H"} for row in rows[:6]]).write_parquet(tmp_path / "two.parquet")
    _, first = append([str(tmp_path / "one.parquet")], tmp_path / "out", mapping=mapping)
    both = [str(tmp_path / name) for name in ("one.parquet", "two.parquet")]
    _, grown = append(both, tmp_path / "out", mapping=mapping)
    assert (len(first), len(grown)) == (2, 3)
    assert grown[0].observations.shape == grown[2].observations.shape == (7, 2)


@pytest.mark.parametrize("fill", [{}, {"rewards": 0}])
def test_rows_wait_for_the_file_of_a_join(tmp_path: Path, fill: dict[str, float]) -> None:
    """Each night brings a file of steps and one of rewards; of the first night's, three rewards come a night late."""
    join = {"source": str(tmp_path / "more"), "on": ["eps_id", "t"], "columns": ["rewards"]}
    config: dict[str, Any] = {"columns": {"joins": [join], "fill": fill}, "unreadable": "quarantine"}

    config["action_space"] = {"space": "discrete", "n": 3}

    def night(number: int, rows: Sequence[Row], rewarded: Sequence[Row]) -> dict[str, int]:
        nonlocal found
        if rows:
            write_rows(tmp_path / f"in/{number}.parquet", without(rows, "rewards"))
        write_rows(tmp_path / f"more/{number}.parquet", [{name: row[name] for name in columns} for row in rewarded])
        result, found = append(tmp_path / "in", tmp_path / "out", **config)
        return {} if result.appended is None else account(result)

    found: list[Episode] = []
    columns = ["eps_id", "t", "rewards"]
    a, b, c = steps("a", 5), steps("b", 3), steps("c", 4)
    night(1, a, a[:2])
    assert [e.rewards.tolist() for e in found] == ([[1, 2, 0, 0, 0]] if fill else [[1, 2]])
    how = {"episodes_corrected": 1, "steps_corrected": 3} if fill else {"episodes_completed": 1, "steps_added": 3}
    assert night(2, [], a[2:]) == {"files_read_again": 1, **how}
    assert [e.rewards.tolist() for e in found] == [[1, 2, 3, 4, 5]]
    new = {"files_new": 1, "episodes_added": 1}
    assert night(3, b, b) == {"files_seen": 1, "steps_added": 3, **new}  # none waits, so none is read again
    assert night(4, c, c) == {"files_seen": 2, "steps_added": 4, **new}
    b[1]["rewards"] = 9.0
    changed = {"files_read_again": 3, "episodes_unchanged": 2, "episodes_corrected": 1, "steps_corrected": 1}
    assert night(3, [], b) == changed
    _, expected = run_import(tmp_path / "in", tmp_path / "all", **config)
    assert found == sorted(expected, key=lambda e: e.eps_id)
    assert append(tmp_path / "in", tmp_path / "out", **config)[0].reused


def test_a_version_that_is_written_again_meanwhile_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a run holds the dataset, an episode of the version that it appends to is forgotten."""
    write_rows(tmp_path / "in/1.parquet", [*steps("a", 3), *steps("b", 3)])
    append(tmp_path / "in", tmp_path / "runs/out")
    write_rows(tmp_path / "in/2.parquet", steps("c", 3))
    original, others = appending.prepared, iter([tmp_path / "runs"])

    def overtaken(uri: str) -> Any:
        if (root := next(others, None)) is not None:
            offline.forget(root, "eps_id = 'a'", delete=True)
        return original(uri)

    monkeypatch.setattr(appending, "prepared", overtaken)
    _, found = append(tmp_path / "in", tmp_path / "runs/out")
    assert [e.eps_id for e in found] == ["b", "c"]
    assert all(not each.wrong for each in verify(str(tmp_path / "runs/out")))


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("has_ends", [False, True])
def test_what_was_there_is_no_loss_of_an_append(is_copied: bool, has_ends: bool, tmp_path: Path) -> None:
    header = "eps_id,obs,actions,rewards" + ",terminateds" * has_ends
    rows = [f"e{row // 5 if has_ends else row},{row}.5,{row % 2},{row}" for row in range(60)]
    rows = [f"{row},{int(number % 5 == 4)}" for number, row in enumerate(rows)] if has_ends else rows
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.csv").write_text("\n".join([header, *rows[:30]]))
    config = {} if has_ends else {"episodes": EpisodesConfig(order="single_step")}
    append(tmp_path / "source", tmp_path / "out", **config)
    (tmp_path / "source" / ("b.csv" if is_copied else "a.csv")).write_text("\n".join([header, *rows]))
    result, found = append(tmp_path / "source", tmp_path / "out", **config)
    assert len(found) == (12 if has_ends else 60) and result.counts.duplicates == 30
    assert result.counts.terminations == (6 if has_ends else 30)
    assert not any("are in no episode" in note for note in result.notes)
    assert result.notes[0].startswith("1 file read before, 1 new; " if is_copied else "0 files read before, 0 new, 1 changed; ")
