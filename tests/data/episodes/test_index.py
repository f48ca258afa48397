"""What episodes are chosen by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from offline_core.data.episodes import Episode
from offline_core.data.episodes.codecs import CODECS
from offline_core.data.episodes.index import SCHEMA, content_of, success_of
from tests.data.episodes.strategies import counting


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, None),
        ({"is_success": True}, True),
        ({"success": False}, False),
        ({"success": 1.0}, True),
        ({"is_success": np.float32(0)}, False),
        ({"is_success": np.array([True])}, True),
        ({"success": np.bool_(True), "reward": 3}, True),
        ({"is_success": None, "success": 1}, True),
        ({"success": "yes"}, None),
        ({"success": [[1], [1, 2]]}, None),
        ({"success": np.array([True, False])}, None),
    ],
)
def test_success_as_environments_say_it(info: dict[str, Any], expected: bool | None) -> None:
    assert success_of(info) is expected


def test_metadata_is_that_of_the_last_step_and_of_the_custom_data() -> None:
    infos = [{"is_success": True}, {}, {"is_success": False}]
    some = [
        counting(2, infos=infos, custom_data={"policy_id": "abc"}),
        counting(2, infos=infos[::-1]),
        counting(2, infos=None),
        counting(0, infos=[{"is_success": True}]),
    ]
    table = CODECS["episodes"].encode(some).select(SCHEMA.names)
    assert table.schema.equals(SCHEMA)
    assert table["success"].to_pylist() == [False, True, None, None]
    assert table["policy_id"].to_pylist() == ["abc", None, None, None]
    assert len(set(table["content"].to_pylist())) == 2, "infos and custom data are no content"


def changed(name: str, place: int) -> np.ndarray:
    array: np.ndarray = getattr(counting(), name).copy()
    array[place] += 1
    return array


@pytest.mark.parametrize(
    "changes",
    [
        {"observations": changed("observations", 0)},
        {"observations": changed("observations", -1)},
        {"actions": changed("actions", -1)},
        {"rewards": changed("rewards", 3)},
        {"terminated": True},
        {"truncated": True},
        {"observations": counting().observations.astype(np.float64)},
        {"observations": {"a": counting().observations}},
        {"observations": counting().observations[:, ::-1]},
    ],
)
def test_other_content(changes: dict[str, Any]) -> None:
    assert content_of(counting(**changes)) != content_of(counting())


@pytest.mark.parametrize(
    "changes",
    [
        {"eps_id": "other"},
        {"infos": None},
        {"extras": {}},
        {"t_started": 0, "agent_id": "x", "module_id": "y", "custom_data": {"a": 1}},
        {"observations": np.asfortranarray(counting().observations)},
        {"observations": counting().observations.astype(">f4")},
        {"rewards": counting().rewards.astype(np.float32)},
    ],
)
def test_what_is_no_content(changes: dict[str, Any]) -> None:
    assert content_of(counting(**changes)) == content_of(counting())


def test_lookback_is_no_content() -> None:
    whole = counting(8)
    assert content_of(whole.slice(3, 8, lookback=2)) == content_of(whole.slice(3, 8)) != content_of(whole)


def test_content_of_text_does_not_depend_on_how_wide_it_is_stored() -> None:
    def spoken(*words: str, width: int) -> Episode:
        return counting(1, infos=None, observations=np.array(words, f"<U{width}"))

    assert content_of(spoken("ab", "c", width=2)) == content_of(spoken("ab", "c", width=9))
    assert content_of(spoken("ab", "c", width=2)) != content_of(spoken("a", "bc", width=2))


def test_content_is_the_same_tomorrow() -> None:
    """It is stored in files: another number for the same episode would make strangers of them."""
    assert content_of(counting()) == "05ed02a9d093d95e"


def test_rows_from_before_have_nulls() -> None:
    old = pa.table({"item": [b"x", b"y"], "eps_id": ["a", "b"], "length": [1, 2]})
    index = CODECS["episodes"].index(
        ["length", "success", "policy_id"], lambda names: old.select([*{*names} & {*old.column_names}])
    )
    assert index.to_pylist() == [{"length": length, "success": None, "policy_id": None} for length in (1, 2)]
