"""Importing as a whole: RLlib's recordings counted by other means, interruption, full disks, and what is reused."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from offline_core.data.curation.compact import compact
from offline_core.data.curation.config import CompactionConfig, MergeConfig, PruningConfig, SplitConfig
from offline_core.data.curation.converting import convert
from offline_core.data.curation.merge import merge
from offline_core.data.curation.prune import prune
from offline_core.data.curation.split import split
from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.episodes import Episode, encode
from offline_core.data.formats.exporting import ExportConfig, export
from offline_core.data.formats.packed import unpack_column
from offline_core.data.importing.config import ConversionConfig
from offline_core.data.store.temporary_names import TEMPORARY
from offline_core.errors import ConfigError, DatasetNotFoundError, EmptyDatasetError, SchemaError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train
from offline_core.policies.recording.mixing import MixtureConfig, mix
from offline_core.runtime.config import parse
from tests.cases import slow_but
from tests.data.datasets.factories import (
    copy_tree,
    episode,
    found,
    in_small_filesystem,
    rllib_states,
    write_dataset,
    write_items,
)
from tests.data.importing.factories import nonzero, run_import, shuffled, steps, write_rows

Fact = tuple[int, float, bool, bool]
"""(length, return, terminated, truncated)"""


def facts(given: list[Episode]) -> dict[str, Fact]:
    return {e.eps_id: (len(e), round(e.return_, 3), e.terminated, e.truncated) for e in given}


def facts_of_states(folder: Path) -> dict[str, Fact]:
    """As the libraries that RLlib uses read its episode files."""
    return {
        state["id_"]: (
            len(state["rewards"]["data"]),
            round(float(np.sum(state["rewards"]["data"])), 3),
            bool(state["is_terminated"]),
            bool(state["is_truncated"]),
        )
        for state in rllib_states(folder)
    }


def facts_of_json(folder: Path) -> list[Fact]:
    """Plain lines of JSON; rewards, flags and ids are lists of numbers, packed or not."""
    of_id: dict[int, list[tuple[float, bool, bool]]] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        for line in path.read_text().splitlines():
            batch = {
                name: unpack_column(value).tolist() if isinstance(value, str) and name != "type" else value
                for name, value in json.loads(line).items()
                if name in ("eps_id", "rewards", "terminateds", "truncateds")
            }
            for eps_id, *step in zip(batch["eps_id"], batch["rewards"], batch["terminateds"], batch["truncateds"], strict=True):
                of_id[eps_id].append((step[0], step[1], step[2]))
    return sorted(
        (len(s), round(sum(r for r, *_ in s), 3), any(te for _, te, _ in s), any(tr for *_, tr in s)) for s in of_id.values()
    )


@pytest.mark.parametrize("format", ["episodes", "table"])
@pytest.mark.parametrize(("name", "count", "steps"), [("cartpole_episodes", 60, 23_486), ("pendulum_episodes", 20, 4_000)])
def test_rllibs_episodes(rllib_recordings: Path, tmp_path: Path, name: str, count: int, steps: int, format: str) -> None:
    source = rllib_recordings / name
    result, imported = run_import(source, tmp_path, format=format)
    clipped = {"clipped_actions": 1508} if "pendulum" in name else {}
    assert nonzero(result.counts) == {"rows": steps, "steps": steps, "episodes": count} | clipped
    assert facts(imported) == facts_of_states(source)
    by_id = {state["id_"]: state for state in rllib_states(source)}
    for e in imported[::7]:
        actions = np.array(by_id[e.eps_id]["actions"]["data"])
        np.testing.assert_array_equal(e.observations, np.array(by_id[e.eps_id]["observations"]["data"]))
        np.testing.assert_array_equal(e.actions, 2 * np.clip(actions, -1, 1) if clipped else actions)


@pytest.mark.parametrize(("name", "count"), [("cartpole_json_plain", 40), ("cartpole_json_packed", 40)])
def test_rllibs_sample_batches(rllib_recordings: Path, tmp_path: Path, name: str, count: int) -> None:
    source = rllib_recordings / name
    result, imported = run_import(source, tmp_path)
    expected = facts_of_json(source)
    assert sorted(facts(imported).values()) == expected
    assert result.counts.episodes == len(expected) == count
    assert result.counts.steps == result.counts.rows == sum(length for length, *_ in expected)


def test_what_is_committed(rllib_recordings: Path, tmp_path: Path) -> None:
    source = rllib_recordings / "pendulum_episodes"
    result, imported = run_import(source, tmp_path, files={"max_rows_per_file": 6})
    manifest = open_dataset(str(tmp_path)).manifest
    assert [file.rows for file in manifest.files] == [6, 6, 6, 2]
    assert manifest.statistics.returns.mean == pytest.approx(np.mean([e.return_ for e in imported]))
    [parent] = manifest.parents
    assert (parent.kind, parent.uri, parent.version) == ("files", str(source), None)
    assert manifest.operation.name == "import"
    assert manifest.report["counts"] == result.counts.model_dump()
    assert "engine" not in manifest.operation.config
    assert manifest.operation == Operation.model_validate_json(manifest.operation.model_dump_json())


def test_more_episodes_than_are_written_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offline_core.data.importing.writing.EPISODES_AT_A_TIME", 3)
    some = [episode(i) for i in range(10)]
    write_items(tmp_path / "in/x.parquet", [encode(e) for e in some])
    assert run_import(tmp_path / "in", tmp_path / "out")[1] == some


def test_nothing_to_import(tmp_path: Path) -> None:
    write_items(tmp_path / "in/x.parquet", [])
    with pytest.raises(EmptyDatasetError, match=r"no episode in .*in: no rows\. No version was committed"):
        run_import(tmp_path / "in", tmp_path / "out")
    with pytest.raises(DatasetNotFoundError, match="Check the path"):
        run_import(tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_failed_import_removes_the_folders_it_created_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x.csv").write_text("obs,actions\n1,2\n")
    (tmp_path / "there").mkdir()
    for output, left in (("a/b/out", ["in", "there"]), ("there/out", ["in", "there"]), ("there", ["in", "there"])):
        with pytest.raises(SchemaError, match="rewards"):
            run_import(tmp_path / "in", tmp_path / output)
        assert sorted(path.name for path in tmp_path.iterdir()) == left and not list((tmp_path / "there").iterdir())


def test_an_import_says_what_it_replaces(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_rows(tmp_path / "a/x.parquet", [*steps("a", 3), *steps("b", 3)])
    write_rows(tmp_path / "b/x.parquet", [*steps("b", 3), *steps("c", 3)])
    first, _ = run_import(tmp_path / "a", tmp_path / "out")
    second, _ = run_import(tmp_path / "b", tmp_path / "out")
    told = f"Version 2 replaces version 1: 1 episode of {tmp_path}/a is not in it; it stays readable as version 1."
    assert (first.replaced, second.replaced) == (None, told) and told in caplog.text
    again, _ = run_import(tmp_path / "a", tmp_path / "out")
    assert (again.reused, again.dataset.version, again.dataset.latest, again.replaced) == (True, 1, 2, None)


def test_an_import_of_more_replaces_nothing(tmp_path: Path) -> None:
    write_rows(tmp_path / "in/x.parquet", steps("a", 3))
    run_import(tmp_path / "in", tmp_path / "out")
    write_rows(tmp_path / "in/y.parquet", steps("b", 3))
    result, _ = run_import(tmp_path / "in", tmp_path / "out")
    assert (result.dataset.version, result.dataset.episodes, result.replaced) == (2, 2, None)


# Interrupted, and no room.

ROWS = [row for name in "abcdefgh" for row in steps(name, 20)]

KILLED = """
import os, signal, sys
from offline_core.data.formats.sources import small_files
from offline_core.data.importing import {module}
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
real, calls, small_files.MAX_FILES = {module}.{function}, [], 1
def killed(*arguments, **more):
    calls.append(1)
    if len(calls) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **more)
{module}.{function} = killed
import_data(ImportConfig(partitions=24), source=sys.argv[1], output=sys.argv[2])
"""


KILLED_IN = [("exchange", "part_of"), ("step_import", "write")]


@pytest.mark.parametrize(("module", "function"), slow_but(KILLED_IN, KILLED_IN[0]))
def test_killed_in_the_middle(tmp_path: Path, module: str, function: str) -> None:
    """While rows are scattered, or written: no version is there, and the next run makes what one run makes."""
    lying = shuffled(ROWS)
    for number in range(4):
        write_rows(tmp_path / f"in/{number}.parquet", lying[number::4])
    source, output = tmp_path / "in", tmp_path / "out"
    code = KILLED.format(module=module, function=function)
    done = subprocess.run(
        [sys.executable, "-c", code, source, output], capture_output=True, cwd=Path(__file__).parents[3], check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert any(TEMPORARY in name for name in found(output)), "killed while it was at work"
    assert versions(str(output)) == []
    with pytest.raises(DatasetNotFoundError, match="No version"):
        open_dataset(str(output))
    result, again = run_import(source, output, partitions=24)
    undisturbed, expected = run_import(source, tmp_path / "undisturbed", partitions=24)
    assert result.dataset.fingerprint == undisturbed.dataset.fingerprint
    assert again == expected
    assert not any(TEMPORARY in name for name in found(output)), "nothing of the killed run is left"
    assert sum(table.num_rows for table in open_dataset(str(output)).tables()) == len(expected) == 8
    assert result.dataset.version == 1


def test_a_failed_import_leaves_nothing_half_done(tmp_path: Path) -> None:
    write_rows(tmp_path / "in/x.parquet", ROWS)
    write_rows(tmp_path / "in/y.parquet", [ROWS[3] | {"rewards": 0.5}])
    with pytest.raises(Exception, match="Two different rows"):
        run_import(tmp_path / "in", tmp_path / "out", partitions=3)
    assert versions(str(tmp_path / "out")) == []
    assert not [name for name in found(tmp_path / "out") if TEMPORARY in name]


def test_no_space(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [row | {"noise": rng.random(200).tolist()} for row in ROWS * 4]
    rows = [row | {"eps_id": f"{row['eps_id']}{i // len(ROWS)}"} for i, row in enumerate(rows)]
    write_rows(tmp_path / "in/x.parquet", rows)
    (tmp_path / "small").mkdir()
    script = f"""
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.errors import StorageError
from offline_core.data.datasets.dataset import versions
try:
    import_data(ImportConfig(partitions=4), source={str(tmp_path / "in")!r}, output=root + "/out")
except StorageError as error:
    result = [str(error), versions(root + "/out")]
"""
    message, there = in_small_filesystem(tmp_path / "small", script)
    assert "The disk is full" in message
    assert f"{tmp_path}/small/out" in message
    assert there == []


STAGES: dict[str, Callable[[str, str], object]] = {
    "prune": lambda source, output: prune(PruningConfig(), dataset=source, output=output),
    "split": lambda source, output: split(SplitConfig(), dataset=source, output=output),
    "merge": lambda source, output: merge(MergeConfig(), datasets=[source], output=output),
    "compact": lambda source, output: compact(CompactionConfig(), dataset=source, output=output),
    "convert": lambda source, output: convert(ConversionConfig(), dataset=source, output=output),
    "export": lambda source, output: export(ExportConfig(), dataset=source, output=output),
    "mix": lambda source, output: mix(MixtureConfig(datasets={source: 1}), output=output),
    "train": lambda source, output: train(TrainingConfig(), dataset=source, output=output),
    "train, held out": lambda source, output: train(
        parse(TrainingConfig, {"evaluation": {"held_out": source}}),
        dataset=write_dataset(Path(source).parent / "own", [episode(0)]).ref.uri,
        output=output,
    ),
}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_stages_ask_for_an_import_and_do_none(tmp_path: Path, stage: Callable[[str, str], object]) -> None:
    write_items(tmp_path / "in/x.parquet", [encode(episode(0))])
    with pytest.raises(SchemaError, match=f"{tmp_path}/in has no manifest.*'offline import {tmp_path}/in -o"):
        stage(f"{tmp_path}/in", f"{tmp_path}/out")
    assert {path.name for path in tmp_path.iterdir()} <= {"in", "own", "out"}
    assert found(tmp_path / "in") == ["x.parquet"] and not found(tmp_path / "out")


def test_nothing_of_the_source_is_changed(rllib_recordings: Path, tmp_path: Path) -> None:
    copy_tree(rllib_recordings / "pendulum_episodes", tmp_path / "in")
    before = {path: path.stat().st_mtime_ns for path in itertools.chain([tmp_path / "in"], (tmp_path / "in").rglob("*"))}
    run_import(tmp_path / "in", tmp_path / "out")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(found(tmp_path / "in")) == 20


def test_a_folder_is_not_imported_into_itself(tmp_path: Path) -> None:
    """Else a failure would leave it marked as a dataset, and nobody could import it any more."""
    write_rows(tmp_path / "logs/steps.parquet", steps("a", 3))
    with pytest.raises(ConfigError, match="is read from and written to: choose another output"):
        run_import(tmp_path / "logs", tmp_path / "logs")
    assert found(tmp_path) == ["logs/steps.parquet"]
