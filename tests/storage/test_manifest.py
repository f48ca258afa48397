"""Manifests: what identifies a version, and that any version of this program can read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from offline_core.config import EnvironmentSpec
from offline_core.storage.manifest import FileEntry, Manifest, Operation, Parent, Statistics, Summary, digest

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


def test_large_integers_are_summed_up_as_floats() -> None:
    assert Summary.of(np.array([100, 100, 100], np.int8)).mean == 100


def test_json_and_back() -> None:
    before = manifest()
    after = Manifest.model_validate_json(before.model_dump_json())
    assert after == before
    assert after.fingerprint == before.fingerprint


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


def test_the_order_of_files_matters() -> None:
    """It is the order of the episodes."""
    other = FILE.model_copy(update={"path": "part-1.parquet"})
    assert manifest(files=[FILE, other]).fingerprint != manifest(files=[other, FILE]).fingerprint


def test_digest_is_short_and_knows_no_order_of_keys() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 2, "b": 1})
    assert len(digest([])) == 16
    assert int(digest([]), 16) >= 0


def test_another_kind_of_manifest_is_refused() -> None:
    data = json.loads(manifest().model_dump_json())
    with pytest.raises(ValidationError, match="manifest_version"):
        Manifest.model_validate(data | {"manifest_version": 2})
