"""Manifests: what identifies a version, and that any version of this program can read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from offline_core.data.datasets.manifest import FileEntry, Manifest, Operation, Parent
from offline_core.data.datasets.statistics import ColumnStatistics, Statistics, Summary
from offline_core.runtime.config import EnvironmentSpec

FILE = FileEntry(path="part-0.parquet", rows=3, episodes=3, steps=9, bytes=100, sha256="ab" * 32)
PARENT = Parent(kind="dataset", uri="/a", version=1, fingerprint="0123")


def manifest(**changes: Any) -> Manifest:
    whole: dict[str, Any] = {
        "version": 1,
        "format": "episodes",
        "operation": Operation(name="record", config={"seed": 1, "nested": {"b": [1, 2.5], "a": None}}),
        "parents": [PARENT],
        "environment": EnvironmentSpec(id="CartPole-v1", kwargs={"limit": 3}),
        "statistics": Statistics(episodes=3, returns=Summary.of(np.array([1.0, 2.0]))),
        "files": [FILE],
    }
    return Manifest(**whole | changes)


def test_summary_is_numpys() -> None:
    values = np.random.default_rng(0).standard_normal(101).astype(np.float32)
    summary, exact = Summary.of(values), values.astype(np.float64)
    assert summary == Summary(count=101, mean=exact.mean(), std=exact.std(), min=exact.min(), max=exact.max())
    assert Summary.of(np.array([True, False, False])).mean == pytest.approx(1 / 3)
    assert Summary.of(np.array([])) == Summary(count=0, mean=0, std=0, min=None, max=None)


def test_an_infinite_return_is_summed_up_too() -> None:
    summary = Summary.of(np.array([1.0, np.inf]))
    assert (summary.mean, np.isnan(summary.std), summary.max) == (np.inf, True, np.inf)


@given(st.lists(st.floats(-1e100, 1e100), max_size=9), st.lists(st.floats(-1e100, 1e100), max_size=9))
def test_merged_summaries_are_the_summary_of_all(left: list[float], right: list[float]) -> None:
    whole = Summary.of(np.array(left + right))
    merged = Summary.of(np.array(left)).merge(Summary.of(np.array(right)))
    assert (merged.count, merged.min, merged.max) == (whole.count, whole.min, whole.max)
    scale = 1e-9 * max(map(abs, left + right), default=0)
    assert (merged.mean, merged.std) == (pytest.approx(whole.mean, abs=scale), pytest.approx(whole.std, abs=scale))


def statistics(returns: list[float], *, columns: bool = True) -> Statistics:
    """Of episodes of two steps, every one terminated."""
    values = np.array(returns)
    return Statistics(
        episodes=len(values),
        steps=2 * len(values),
        terminated=len(values),
        truncated=1,
        returns=Summary.of(values),
        lengths=Summary.of(np.full(len(values), 2)),
        columns={"rewards": ColumnStatistics.of(values)} if columns else None,
    )


def test_statistics_add_up() -> None:
    merged = statistics([1, 2]).merge(statistics([6, 7, 8]))
    assert (merged.episodes, merged.steps, merged.terminated, merged.truncated) == (5, 10, 5, 2)
    assert (merged.returns.mean, merged.lengths.mean) == (pytest.approx(4.8), 2)
    assert merged.columns is not None
    assert merged.columns["rewards"].quantile(0.5) == [6]


def test_columns_are_known_only_if_they_are_on_both_sides() -> None:
    known, unknown = statistics([1]), statistics([2], columns=False)
    assert known.merge(unknown).columns is None
    assert unknown.merge(known).columns is None
    assert known.merge(Statistics()) == Statistics().merge(known) == known


def test_a_manifest_keeps_the_statistics_of_columns_and_reads_one_without() -> None:
    after = Manifest.model_validate_json(manifest(statistics=statistics([1, 2, 3])).model_dump_json(indent=2))
    assert after.statistics == statistics([1, 2, 3])
    before = json.loads(manifest().model_dump_json())
    del before["statistics"]["columns"]
    assert Manifest.model_validate(before).statistics.columns is None


def test_infinite_and_undefined_numbers_survive_json() -> None:
    before = manifest(
        statistics=Statistics(returns=Summary(count=1, mean=np.inf, std=np.nan, min=-np.inf)),
        environment=EnvironmentSpec(id="X", kwargs={"limit": np.inf}),
    )
    after = Manifest.model_validate_json(before.model_dump_json())
    returns = after.statistics.returns
    assert (returns.mean, returns.min, np.isnan(returns.std)) == (np.inf, -np.inf, True)
    assert after.environment == before.environment


@pytest.mark.parametrize(
    "changes",
    [
        {"created_at": datetime(2001, 1, 1, tzinfo=UTC)},
        {"provenance": {"python": "4.0"}},
        {"version": 7},
        {"parents": [PARENT.model_copy(update={"uri": "/elsewhere", "version": 9})]},
        {"operation": Operation(name="record", config={"nested": {"a": None, "b": [1, 2.5]}, "seed": 1})},
    ],
)
def test_fingerprint_does_not_depend_on(changes: dict[str, Any]) -> None:
    assert manifest(**changes).fingerprint == manifest().fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "table"},
        {"operation": Operation(name="record", config={"seed": 2, "nested": {"b": [1, 2.5], "a": None}})},
        {"operation": manifest().operation.model_copy(update={"name": "prune"})},
        {"operation": manifest().operation.model_copy(update={"version": 2})},
        {"parents": []},
        {"parents": [PARENT, PARENT]},
        {"parents": [PARENT.model_copy(update={"fingerprint": "4567"})]},
        {"parents": [PARENT.model_copy(update={"kind": "checkpoint"})]},
        {"files": [FILE.model_copy(update={"sha256": "cd" * 32})]},
        {"files": [FILE, FILE.model_copy(update={"path": "part-1.parquet"})]},
    ],
)
def test_fingerprint_depends_on(changes: dict[str, Any]) -> None:
    assert manifest(**changes).fingerprint != manifest().fingerprint


def test_the_fingerprint_is_computed_once_and_anew_for_a_changed_copy() -> None:
    whole = manifest()
    assert whole.fingerprint is whole.fingerprint
    assert whole.model_copy().fingerprint == whole.fingerprint
    assert whole.model_copy(update={"format": "table"}).fingerprint == manifest(format="table").fingerprint != whole.fingerprint


def test_files_that_an_operation_keeps_belong_to_the_version() -> None:
    """It is stored as earlier versions of this program did, for imports."""
    own = FILE.model_copy(update={"path": "_late/cuts-0.parquet"})
    whole = manifest(
        kept={"order": "t", "cuts": [own.model_dump(exclude_none=True)], "sources": [{"uri": "/a"}], "range": [0, 1]}
    )
    assert whole.all_files == [FILE, own]
    assert whole.fingerprint == manifest().fingerprint
    stored = json.loads(whole.to_json())
    assert stored["imported"] == whole.kept and "kept" not in stored
    again = Manifest.model_validate_json(whole.to_json())
    assert (again, again.all_files) == (whole, whole.all_files)
    with pytest.raises(ValidationError, match="sha256"):
        manifest(kept={"cuts": [{"path": "a.parquet"}]})


def test_the_order_of_files_matters() -> None:
    """It is the order of the episodes."""
    other = FILE.model_copy(update={"path": "part-1.parquet"})
    assert manifest(files=[FILE, other]).fingerprint != manifest(files=[other, FILE]).fingerprint


def test_a_line_for_each_file() -> None:
    files = [FILE, FILE.model_copy(update={"path": "b.parquet", "group_rows": [1, 2], "group_bytes": [30, 40]})]
    whole = manifest(files=files)
    text = whole.to_json()
    assert Manifest.model_validate_json(text) == whole
    lines = [json.loads(line.strip().rstrip(",")) for line in text.splitlines() if line.startswith('    {"path"')]
    assert lines == [file.model_dump(exclude_none=True) for file in files]
