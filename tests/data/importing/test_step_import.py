"""Importing steps from files: the same episodes however they lie, whatever engine and however many parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offline_core.data.datasets.damage import unusable_files
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode, episodes_to_table
from offline_core.data.episodes.spaces import space_to_json
from offline_core.data.formats.sources.scans import ParquetFile
from offline_core.data.importing import step_import, step_order
from offline_core.data.importing.report import ImportResult
from offline_core.data.importing.step_import import StepImport
from offline_core.data.store.location import Location
from offline_core.data.store.stores import Store
from offline_core.errors import EpisodeError
from tests.cases import examples
from tests.data.episodes.strategies import any_spaces, values
from tests.data.importing.factories import (
    ROWS,
    SEED_NAMES,
    TAGS,
    Row,
    nonzero,
    parts,
    renamed,
    run_import,
    scattered,
    shuffled,
    steps,
    summary,
    walk,
    without,
    write_rows,
)


@pytest.mark.parametrize("format", ["episodes", "table"])
@pytest.mark.parametrize("partitions", [1, 3, 20])
def test_shuffled_rows_in_many_files(tmp_path: Path, format: str, partitions: int) -> None:
    source = scattered(tmp_path / "in", ROWS, 4, seed=0)
    result, found = run_import(source, tmp_path / "out", format=format, partitions=partitions)
    assert sorted(parts(found)) == TAGS
    assert nonzero(result.counts) == {"rows": 21, "steps": 21, "episodes": 5}
    assert sorted(e.eps_id for e in found) == ["a", "b", "c", "d", "e"]
    statistics = open_dataset(result.dataset.uri).manifest.statistics
    assert (statistics.episodes, statistics.steps, statistics.terminated, statistics.truncated) == (5, 21, 3, 2)
    assert statistics.returns.max == sum(range(1, 9))


@pytest.mark.parametrize("partitions", [None, 1, 3])
def test_twice_the_same(tmp_path: Path, partitions: int | None) -> None:
    source = scattered(tmp_path / "in", ROWS, 3, seed=0)
    first, again = (run_import(source, tmp_path / name, partitions=partitions)[0].dataset for name in ("1", "2"))
    assert first.fingerprint == again.fingerprint
    third = run_import(source, tmp_path / "1", partitions=partitions)[0].dataset
    assert third == first, "reused"


def seed_rows(*episodes: Sequence[Row]) -> list[Row]:
    """Rows as in the external example of the seeds: no id and no t, names of their own, infos, log probabilities."""
    rows = without([row for episode in episodes for row in episode], "eps_id", "t", "truncateds")
    rows = [row | {"infos": {"lives": i}, "logprobs_t": -float(i)} for i, row in enumerate(rows)]
    return renamed(rows, SEED_NAMES)


@pytest.mark.parametrize(("files", "seed"), [(1, None), (1, 0), (3, 1), (4, 2)])
def test_the_seeds_example(tmp_path: Path, files: int, seed: int | None) -> None:
    """In order, or out of order over several files: the same episodes."""
    rows = seed_rows(*(steps(name, length) for name, length in (("a", 5), ("b", 3), ("c", 1), ("d", 8))))
    source = scattered(tmp_path / "in", rows, files, seed=seed)
    names = {name: source for name, source in SEED_NAMES.items() if name != "terminateds"} | {"dones": "d_t"}
    result, found = run_import(source, tmp_path / "out", mapping=names)
    assert nonzero(result.counts) == {"rows": 17, "steps": 17, "episodes": 4}
    by_tags = {tags: e for (tags, end), e in zip(parts(found), found, strict=True) if end == "T"}
    assert by_tags.keys() == {"a0 a1 a2 a3 a4", "b0 b1 b2", "c0", "d0 d1 d2 d3 d4 d5 d6 d7"}
    b = by_tags["b0 b1 b2"]
    assert [info.get("lives") for info in b.get_infos()] == [None, 5, 6, 7]
    assert b.extras["logprobs_t"].tolist() == [-5.0, -6.0, -7.0]
    assert b.rewards.tolist() == [1.0, 2.0, 3.0]
    assert b.actions.tolist() == [0, 1, 2]
    assert len(b.observations) == 4


def test_rows_in_order_are_read_as_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not held in memory: what is in order needs no linking."""
    monkeypatch.setattr("offline_core.data.importing.rows.chain", lambda *_: pytest.fail("linked"))
    source = scattered(tmp_path / "in", without(ROWS, "eps_id", "t"), 1)
    assert sorted(parts(run_import(source, tmp_path / "out")[1])) == TAGS


def test_files_out_of_order_behind_one_in_order(tmp_path: Path) -> None:
    """From where rows do not lie in order they are linked, those before them being on disk already."""
    rows = without(ROWS, "eps_id", "t")
    write_rows(tmp_path / "in/0.parquet", rows[:10])
    write_rows(tmp_path / "in/1.parquet", shuffled(rows[10:], 1))
    result, found = run_import(tmp_path / "in", tmp_path / "out")
    assert sorted(parts(found)) == TAGS
    assert nonzero(result.counts) == {"rows": 21, "steps": 21, "episodes": 5}


@pytest.mark.parametrize("order", ["auto", "stored", "linked"])
def test_an_episode_goes_on_in_the_next_file(tmp_path: Path, order: str) -> None:
    source = scattered(tmp_path / "in", without(ROWS, "eps_id", "t"), 4)
    assert sorted(parts(run_import(source, tmp_path / "out", episodes={"order": order})[1])) == TAGS


def test_single_steps_are_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offline_core.data.formats.sources.scans.BATCH_BYTES", 300)  # a few rows
    held: list[int] = []
    assemble = step_import.assemble
    monkeypatch.setattr(step_import, "assemble", lambda table, *a, **b: held.append(table.num_rows) or assemble(table, *a, **b))
    source = scattered(tmp_path / "in", without(ROWS, "eps_id", "t"), 2)
    result, found = run_import(source, tmp_path / "out", episodes={"order": "single_step"})
    assert [tags for tags, _ in parts(found)] == [row["tag"] for row in ROWS]
    assert len({e.eps_id for e in found}) == result.counts.episodes == 21
    assert max(held) < 11 < sum(held)


@pytest.mark.parametrize("left_out", [("eps_id", "t"), ("eps_id",), ("t",), ()])
def test_episodes_that_span_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: tuple[str, ...]) -> None:
    monkeypatch.setattr("offline_core.data.formats.sources.scans.BATCH_BYTES", 300)  # a few rows
    source = scattered(tmp_path / "in", without(ROWS, *left_out), 1)
    assert sorted(parts(run_import(source, tmp_path / "out", partitions=2)[1])) == TAGS


def test_what_has_no_end_ends_with_its_file(tmp_path: Path) -> None:
    source = scattered(tmp_path / "in", without(ROWS, "eps_id", "t", "new_obs"), 4)
    result, found = run_import(source, tmp_path / "out", episodes={"last_new_obs": "repeat"})
    expected = ["a0 a1 a2 a3 a4", "b0", "b1 b2", "c0", "d0 d1", "d2 d3 d4 d5 d6", "d7", "e0 e1 e2 e3"]
    assert [tags for tags, _ in parts(found)] == expected
    assert (result.counts.open_ends, result.counts.episodes, result.counts.steps) == (3, 8, 21)


@pytest.mark.parametrize("left_out", [("eps_id", "t"), ("eps_id",)])
def test_pieces_out_of_order_are_linked(tmp_path: Path, left_out: tuple[str, ...]) -> None:
    """Each piece is in order, as minibatches cut from episodes are, the pieces are not; t without ids does not help."""
    rows = without(ROWS, *left_out)
    pieces = [rows[i : i + 3] for i in range(0, len(rows), 3)]
    lying = [row for i in np.random.default_rng(0).permutation(len(pieces)) for row in pieces[i]]
    result, found = run_import(scattered(tmp_path / "in", lying, 2), tmp_path / "out")
    assert sorted(parts(found)) == TAGS
    assert result.counts.open_ends == 0


def test_a_walk_among_few_states_comes_back_whole(tmp_path: Path) -> None:
    rows = without([*walk("a", "sssabsg"), *walk("b", "sabbbg")], "t")
    _, found = run_import(scattered(tmp_path / "in", rows, 2, seed=3), tmp_path / "out", partitions=2)
    assert sorted((e.eps_id, len(e), e.terminated) for e in found) == [("a", 6, True), ("b", 5, True)]


def test_rows_left_out_are_no_bridge(tmp_path: Path) -> None:
    """With neither ids nor t nor new_obs only the place of a row says that another one is missing before it."""
    source = scattered(tmp_path / "in", without(ROWS, "eps_id", "t", "new_obs"), 1)
    rules = {"last_new_obs": "repeat"}
    result, found = run_import(source, tmp_path / "out", source={"where": "tag NOT IN ('d2', 'a0')"}, episodes=rules)
    assert parts(found)[:2] == [("a1 a2 a3 a4", "T"), ("b0 b1 b2", "X")]
    assert parts(found)[3:5] == [("d0 d1", "X"), ("d3 d4 d5 d6 d7", "T")]
    assert (result.counts.rows, result.counts.open_ends) == (19, 1)


def test_without_new_obs_the_last_one_is_repeated_and_said_or_dropped(tmp_path: Path) -> None:
    source = scattered(tmp_path / "in", without(ROWS, "new_obs"), 2)
    result, _ = run_import(source, tmp_path / "out")
    assert (result.counts.steps, result.counts.repeated_last_obs) == (21, 5)
    assert any("the one before is repeated" in note for note in result.notes)
    result, found = run_import(source, tmp_path / "out", episodes={"last_new_obs": "drop"}, partitions=2)
    assert (result.counts.steps, result.counts.dropped_last_steps, result.counts.open_ends) == (19, 2, 0)
    assert sorted(end for _, end in parts(found)) == ["T", "T", "T", "X", "X"]


def test_single_steps_that_were_declared_are_noted_and_no_warning(tmp_path: Path) -> None:
    source = scattered(tmp_path / "in", without(ROWS, "new_obs", "terminateds", "truncateds"), 1)
    result, _ = run_import(source, tmp_path / "out", episodes={"order": "single_step"})
    assert not result.warnings and any("an episode each that terminates" in note for note in result.recognised)


@pytest.fixture
def no_scattering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are looked at, and read by tasks of two; rows that are scattered are a failure."""
    monkeypatch.setattr(step_order, "MIN_LOOKED_BYTES", 1)
    monkeypatch.setattr(step_import, "FILES_PER_TASK", 2)
    monkeypatch.setattr(step_import, "RUN_BYTES", 1)
    monkeypatch.setattr(StepImport, "_scatter", lambda *_: pytest.fail("scattered"))


def one_id_a_run(folder: Path, *missing: str) -> list[list[Row]]:
    """Three files with all rows of an id together, those of one in disorder where t says what their order is."""
    files = []
    for number, names in enumerate(("a", "bc", "de")):
        runs = [[row for row in ROWS if row["eps_id"] == name] for name in names]
        files.append(without([row for run in runs for row in (run if "t" in missing else shuffled(run))], *missing))
        write_rows(folder / f"{number}.parquet", files[-1])
    return files


def imported_both_ways(source: Path, root: Path, **config: Any) -> list[tuple[ImportResult, list[Episode]]]:
    """With all rows at once, and as they are read; the same counts and episodes."""
    one, many = (run_import(source, root / name, partitions=count, **config) for name, count in (("one", 1), ("many", 3)))
    assert one[0].counts == many[0].counts
    assert sorted(one[1], key=lambda e: e.eps_id) == sorted(many[1], key=lambda e: e.eps_id)
    return [one, many]


@pytest.mark.usefixtures("no_scattering")
@pytest.mark.parametrize("missing", [(), ("t",), ("new_obs",), ("t", "new_obs")])
def test_ids_in_runs_are_not_scattered(tmp_path: Path, missing: tuple[str, ...]) -> None:
    """A task reads the first two files, another the third."""
    one_id_a_run(tmp_path / "in", *missing)
    imported_both_ways(tmp_path / "in", tmp_path)


@pytest.mark.usefixtures("no_scattering")
def test_rows_in_runs_that_cannot_be_read(tmp_path: Path) -> None:
    files = one_id_a_run(tmp_path / "in", "t", "new_obs")
    files[0][2]["rewards"] = float("nan")
    write_rows(tmp_path / "in/0.parquet", files[0])
    one, many = imported_both_ways(tmp_path / "in", tmp_path, unreadable="quarantine")
    assert one[0].counts.quarantined_rows == 1
    assert sum(e.eps_id.startswith("a") for e in many[1]) == 2, "cut where the row was"


@pytest.mark.usefixtures("no_scattering")
def test_an_extra_that_later_runs_lack_is_in_no_file(tmp_path: Path) -> None:
    """The first files had it when they were written, and are written again."""
    files = one_id_a_run(tmp_path / "in")
    write_rows(tmp_path / "in/2.parquet", [row | {"tag": {"name": row["tag"]}} for row in files[2]])
    one, many = (run_import(tmp_path / "in", tmp_path / name, partitions=count) for name, count in (("one", 1), ("many", 3)))
    assert one[0].counts == many[0].counts
    assert not any("tag" in episode.extras for episode in many[1])
    folder = Location.of(many[0].dataset.uri)
    listed = {file.path for file in open_dataset(many[0].dataset.uri).manifest.files}
    assert {name for name in folder.files() if not name.startswith("_versions")} == listed


@pytest.mark.usefixtures("no_scattering")
def test_an_id_that_goes_on_in_files_of_another_task_is_scattered(tmp_path: Path) -> None:
    for number, names in enumerate((["a"], ["b"], ["a"])):
        rows = [row for row in ROWS if row["eps_id"] in names]
        write_rows(tmp_path / f"in/{number}.parquet", rows[number : number + 2])
    with pytest.raises(pytest.fail.Exception, match="scattered"):
        run_import(tmp_path / "in", tmp_path / "out", partitions=3)


@pytest.mark.usefixtures("no_scattering")
def test_more_ids_than_are_held_in_memory_are_scattered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_id_a_run(tmp_path / "in")
    monkeypatch.setattr(step_order, "MAX_IDS", 3)
    with pytest.raises(pytest.fail.Exception, match="scattered"):
        run_import(tmp_path / "in", tmp_path / "out", partitions=3)


@pytest.mark.usefixtures("no_scattering")
def test_remote_files_are_not_copied_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParquetFile, "batches", lambda _: pytest.fail("read"))
    readers = [ParquetFile(Location(f"s3://bucket/{number}.parquet", Store(), "")) for number in range(2)]
    assert not step_order.ids_lie_in_runs(readers, [2**20] * 2, [range(2)], "eps_id")


@pytest.mark.usefixtures("ray_up", "no_scattering")
def test_ray_writes_the_same_bytes_of_runs(tmp_path: Path) -> None:
    one_id_a_run(tmp_path / "in")
    local, ray = (run_import(tmp_path / "in", tmp_path / e, engine=e, partitions=3)[0].dataset for e in ("local", "ray"))
    assert local.fingerprint == ray.fingerprint


@pytest.mark.usefixtures("ray_up")
def test_ray_writes_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_import, "FILES_PER_TASK", 2)
    monkeypatch.setattr(step_import, "PARTS_PER_TASK", 2)
    source = scattered(tmp_path / "in", [*ROWS, *ROWS[:4]], 5, seed=0)
    for format in ("episodes", "table"):
        config = {"partitions": 6, "format": format}
        local, ray = (run_import(source, tmp_path / engine / format, engine=engine, **config) for engine in ("local", "ray"))
        assert local[0].dataset.fingerprint == ray[0].dataset.fingerprint
        assert local[0].counts == ray[0].counts
        assert local[0].counts.duplicates == 4
        assert sorted(parts(ray[1])) == TAGS
    write_rows(tmp_path / "in/9.parquet", [ROWS[0] | {"rewards": 7.0}])
    with pytest.raises(EpisodeError, match="step 0 of episode a"):
        run_import(source, tmp_path / "again", engine="ray", partitions=6)


# Spaces of all kinds.


def played(number: int, length: int, observation_space: Any, action_space: Any, rng: np.random.Generator) -> Episode:
    return Episode(
        eps_id=f"e{number}",
        observations=values(observation_space, length + 1, rng),
        actions=values(action_space, length, rng),
        rewards=rng.integers(-4, 4, length) / 4,
        infos=[{}, *({"t": t} for t in range(length))] if number % 2 else None,
        terminated=bool(number % 2),
        truncated=not number % 2,
        observation_space=observation_space,
        action_space=action_space,
    )


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(any_spaces(), any_spaces(), st.integers(0, 2**32 - 1), st.sampled_from([1, 3]))
def test_episodes_of_any_space_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    observation_space: Any,
    action_space: Any,
    seed: int,
    partitions: int,
) -> None:
    """episodes → table → rows shuffled over two files → episodes."""
    rng, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("any")
    whole = [played(i, int(rng.integers(1, 5)), observation_space, action_space, rng) for i in range(3)]
    table = episodes_to_table(whole)
    lying = rng.permutation(table.num_rows)
    for number, rows in enumerate(np.array_split(lying, 2)):
        if len(rows):
            pq.write_table(table.take(rows), folder / f"{number}.parquet")
    declared = {"observation_space": space_to_json(observation_space), "action_space": space_to_json(action_space)}
    result, found = run_import(folder, folder / "out", partitions=partitions, **declared)
    assert sorted(found, key=lambda e: e.eps_id) == whole
    dataset = open_dataset(result.dataset.uri)
    assert (dataset.observation_space, dataset.action_space) == (observation_space, action_space)


def test_ids_that_come_back_in_every_file(tmp_path: Path) -> None:
    for name in "xy":
        write_rows(tmp_path / f"in/{name}.parquet", [row | {"tag": name + row["tag"]} for row in ROWS])
    results = [
        run_import(tmp_path / "in", tmp_path / f"out{partitions}", episodes={"ids_per": "file"}, partitions=partitions)
        for partitions in (1, 4)
    ]
    for result, found in results:
        assert (result.counts.episodes, result.counts.duplicates) == (10, 0)
        assert len({e.eps_id for e in found}) == 10
    assert sorted(summary(results[0][1])) == sorted(summary(results[1][1]))


@pytest.mark.usefixtures("no_scattering")
@pytest.mark.parametrize("missing", [(), ("eps_id", "t", "new_obs")])
def test_an_import_of_a_folder_that_grew_takes_nothing_from_the_version_before(
    tmp_path: Path, missing: tuple[str, ...]
) -> None:
    """The new file lacks an extra column. What was written before that was seen is what the version before has."""
    one_id_a_run(tmp_path / "in", *missing)
    rules = {"partitions": 3, "files": {"max_rows_per_file": 1}, "episodes": {"last_new_obs": "repeat"}}
    before, episodes_before = run_import(tmp_path / "in", tmp_path / "out", **rules)
    assert "tag" in episodes_before[0].extras
    rows = [row | {"eps_id": "z"} for row in ROWS if row["eps_id"] == "a"]
    write_rows(tmp_path / "in/3.parquet", without(rows, "tag", *missing))
    after, found = run_import(tmp_path / "in", tmp_path / "out", **rules)
    assert after.dataset.version == 2 and len(found) == 6 and "tag" not in found[0].extras
    assert unusable_files(open_dataset(before.dataset.uri, 1)) == {}
