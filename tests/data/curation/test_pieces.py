"""Pruning of steps: exactly those that meet the condition, each run of them a piece that says where it lay."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import offline_core as offline
from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.pieces import pieces
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.dataset import versions
from offline_core.data.episodes import Episode, nested
from offline_core.data.episodes.codecs import Format
from offline_core.errors import ConfigError, EmptyDatasetError, SchemaError
from tests.cases import examples
from tests.data.curation.test_prune import kept, run_prune
from tests.data.datasets.factories import FORMATS, episode, write_dataset


def with_rewards(number: int, *rewards: float, **changes: Any) -> Episode:
    return episode(number, len(rewards), rewards=np.array(rewards), **changes)


def test_runs_become_pieces() -> None:
    whole = with_rewards(0, 0, 1, 2, 3, 4, 5, 6, 7)
    first, second, third = pieces(whole, np.array([False, True, True, False, True, False, True, True]))
    assert [(p.eps_id, p.t_started, len(p)) for p in (first, second, third)] == [
        ("episode-0000", 1, 2),
        ("episode-0000@4", 4, 1),
        ("episode-0000@6", 6, 2),
    ]
    assert [p.terminated for p in (first, second, third)] == [False, False, True], "only the last one reaches the end"
    np.testing.assert_array_equal(first.observations, whole.observations[1:4])
    np.testing.assert_array_equal(third.observations, whole.observations[6:9])
    assert pieces(whole, np.ones(8, bool)) == [whole]
    assert pieces(whole, np.zeros(8, bool)) == []


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_kept_and_what_is_counted(tmp_path: Path, format: Format) -> None:
    some = [
        with_rewards(0, 1, 1, -1, 1, -1, infos=[{"t": t} for t in range(6)], custom_data={"policy_id": "p"}),
        with_rewards(1, -1, -1),
        with_rewards(2, 1, 1, 1),
        with_rewards(3, -1, 5, 5),
        with_rewards(4, 9, 9),
    ]
    write_dataset(tmp_path / "in", some, format, batch=2)
    result = run_prune(tmp_path, where="return < 18", where_steps="rewards > 0")
    found = kept(result)
    assert [(e.eps_id, e.t_started, len(e), e.is_done) for e in found] == [
        ("episode-0000", 0, 2, False),
        ("episode-0000@3", 3, 1, False),
        ("episode-0002", 0, 3, True),
        ("episode-0003", 1, 2, True),
    ]
    assert [info["t"] for info in found[1].get_infos()] == [3, 4]
    assert [e.custom_data for e in found] == [{"policy_id": "p"}, {"policy_id": "p"}, {}, {}]
    assert result.dropped == {"where": 1, "where_steps": 1}
    assert (result.before.steps, result.after.steps, result.dropped_steps) == (15, 8, 7)
    assert (result.before.episodes, result.after.episodes, result.dropped_episodes, result.further_pieces) == (5, 4, 2, 1)
    assert result.after.columns is not None
    assert result.after.columns["rewards"].min == [1.0]


CONDITIONS: dict[str, Callable[[Episode], np.ndarray]] = {
    "t >= 2": lambda e: np.arange(len(e)) >= 2,
    "obs[1] > 0": lambda e: e.observations[:-1, 0] > 0,
    "obs[4] > 0 and new_obs[1] < 0.5": lambda e: (e.observations[:-1, 3] > 0) & (e.observations[1:, 0] < 0.5),
    "actions = 1 or abs(rewards) > 5": lambda e: (e.actions == 1) | (np.abs(e.rewards) > 5),
    "action_logp < 0": lambda e: e.extras["action_logp"] < 0,
    "eps_id = 'episode-0002'": lambda e: np.full(len(e), e.eps_id == "episode-0002"),
    "not terminateds and not truncateds": lambda e: np.arange(len(e)) < len(e) - 1,
    "rewards >= avg(rewards)": lambda e: e.rewards >= e.rewards.mean(),
    "t < max(t) - 1": lambda e: np.arange(len(e)) < len(e) - 2,
    "true": lambda e: np.ones(len(e), bool),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions(tmp_path: Path, format: Format, condition: str) -> None:
    some = [episode(i, 4 + i) for i in range(6)]
    write_dataset(tmp_path / "in", some, format, batch=3)
    found = kept(run_prune(tmp_path, where_steps=condition))
    assert found == [piece for e in some for piece in pieces(e, CONDITIONS[condition](e))]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("condition", "expected"),
    [("score > 5", []), ("not score > 1", [2]), ("score > 1 or t = 1", [1, 3, 5]), ("pair[2] > 5 or pair[1] = 4", [4])],
)
def test_nan_meets_no_condition(tmp_path: Path, format: Format, condition: str, expected: list[int]) -> None:
    score = np.array([np.nan, np.nan, -1, 2, np.nan, 3])
    one = episode(0, 6, extras={"score": score, "pair": np.stack([np.arange(6.0), score], 1)})
    write_dataset(tmp_path / "in", [one], format)
    if not expected:
        with pytest.raises(EmptyDatasetError):
            run_prune(tmp_path, where_steps=condition)
        return
    found = kept(run_prune(tmp_path, where_steps=condition))
    assert [t for e in found for t in range(e.t_started, e.t)] == expected


@pytest.mark.parametrize("format", FORMATS)
def test_images_and_composite_spaces(tmp_path: Path, format: Format) -> None:
    rng = np.random.default_rng(0)

    def one(number: int) -> Episode:
        observations = {
            "image": rng.integers(0, 256, (8, 2, 3, 1), np.uint8),
            "pair": (rng.random(8), np.array(["a", "b"] * 4)),
        }
        return episode(number, observations=observations, observation_space=None)

    some = [one(i) for i in range(5)]
    write_dataset(tmp_path / "in", some, format)
    found = kept(run_prune(tmp_path, where_steps=""""obs/image"[6] > 99 and "obs/pair/0" < 0.8 and "obs/pair/1" = 'b'"""))
    masks = [
        (e.observations["image"][:-1, 1, 2, 0] > 99) & (e.observations["pair"][0][:-1] < 0.8) & (np.arange(7) % 2 == 1)
        for e in some
    ]
    assert found == [piece for e, mask in zip(some, masks, strict=True) for piece in pieces(e, mask)]
    assert len(found) > 3


def test_pieces_of_pieces_keep_ids_apart(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", [with_rewards(0, 1, 0, 2, 3, 0, 3, 3), with_rewards(1, 3)])
    run_prune(tmp_path, where_steps="rewards > 0")
    again = prune(PruningConfig(where_steps="rewards = 3"), dataset=str(tmp_path / "out"), output=str(tmp_path / "2"))
    assert [(e.eps_id, e.t_started, len(e)) for e in kept(again)] == [
        ("episode-0000@2", 3, 1),
        ("episode-0000@5", 5, 2),
        ("episode-0001", 0, 1),
    ]


def test_columns_that_a_condition_needs_are_not_kept_for_that(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", [episode(i, extras={"a": np.arange(7.0), "b": np.arange(7)}) for i in range(3)], "table")
    found = kept(run_prune(tmp_path, where_steps="a > 3 and b < 6", columns=["b"]))
    assert [(e.t_started, len(e), list(e.extras)) for e in found] == [(4, 2, ["b"])] * 3


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("reward > 3", "names the column 'reward'. Columns are eps_id, t, obs, .*action_logp"),
        ("infos > 3", "names the column 'infos'"),
        ("obs[0] > 3", "neither true nor false for .*subscripts count from 1"),
        ("obs[5] > 3", "neither true nor false"),
        ("rewards", "gives Float64 and not true or false"),
        ("obs > 3", "cannot be used|gives"),
        ("rewards >", "cannot be understood"),
    ],
)
def test_conditions_that_cannot_be_used(tmp_path: Path, format: Format, condition: str, message: str) -> None:
    write_dataset(tmp_path / "in", [episode(i) for i in range(2)], format)
    with pytest.raises(ConfigError, match=message) as caught:
        run_prune(tmp_path, where_steps=condition)
    assert f"The condition {condition!r}" in str(caught.value)
    assert versions(str(tmp_path / "out")) == []


@pytest.mark.parametrize("format", FORMATS)
def test_no_step_kept(tmp_path: Path, format: Format) -> None:
    write_dataset(tmp_path / "in", [episode(i) for i in range(2)], format)
    with pytest.raises(EmptyDatasetError, match=r"None of the 2 episodes .*where steps t > 100.*No version was committed"):
        run_prune(tmp_path, where_steps="t > 100")
    assert versions(str(tmp_path / "out")) == []


def test_episodes_that_do_not_agree_on_a_column(tmp_path: Path) -> None:
    odd = episode(1, observations=np.zeros((8, 2)), observation_space=gym.spaces.Box(-1, 1, (2,), np.float64))
    write_dataset(tmp_path / "in", [episode(0), odd])
    with pytest.raises(SchemaError, match="do not agree on the shape of obs"):
        run_prune(tmp_path, where_steps="obs[1] > 0")
    assert len(kept(run_prune(tmp_path, where_steps="t > 0"))) == 2, "what it does not name may differ"


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=9), min_size=1, max_size=5), st.sampled_from(FORMATS))
def test_any_mask(masks: list[list[bool]], format: Format) -> None:
    """Steps come back, in order, exactly where the mask said; what follows in a piece followed in the episode."""
    some = [episode(i, len(mask), extras={"wanted": np.array(mask)}) for i, mask in enumerate(masks)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_dataset(folder / "in", some, format, batch=2)
        if not any(map(any, masks)):
            with pytest.raises(EmptyDatasetError):
                run_prune(folder, where_steps="wanted")
            return
        result = run_prune(folder, where_steps="wanted")
        found = kept(result)
    steps = [(e.eps_id.partition("@")[0], t) for e in found for t in range(e.t_started, e.t)]
    assert steps == [(e.eps_id, t) for e, mask in zip(some, masks, strict=True) for t in np.flatnonzero(mask).tolist()]
    assert result.after.steps == len(steps) == result.before.steps - result.dropped_steps
    assert len({e.eps_id for e in found}) == len(found)
    by_id = {e.eps_id: e for e in some}
    for piece in found:
        whole = by_id[piece.eps_id.partition("@")[0]]
        same = whole.slice(piece.t_started, piece.t)
        assert replace(piece, eps_id=whole.eps_id) == same
        assert nested.equal(piece.observations, whole.observations[piece.t_started : piece.t + 1])


@pytest.mark.parametrize("format", FORMATS)
def test_steps_are_named_as_in_the_log_that_was_imported(tmp_path: Path, format: Format) -> None:
    rows = pl.DataFrame({"day": [1] * 6, "hour": range(6), "temp": [19, 20, 21, 22, 23, 24], "reward": [0.5] * 6})
    rows = rows.with_columns(place=pl.lit("cellar"), valve=pl.Series(["shut", "open"] * 3))
    rows.write_csv(tmp_path / "log.csv")
    mapping = {"obs": ["temp", "place"], "actions": "valve", "rewards": "reward", "eps_id": "day", "t": "hour"}
    encode = {"place": {}, "valve": {"form": "index"}}
    data = offline.import_data(
        tmp_path / "log.csv", output=tmp_path / "data", mapping=mapping, columns={"encode": encode}, format=format
    )
    pruned = data.prune(output=tmp_path / "warm", where_steps="temp > 20 and valve = 'open' and place = 'cellar'")
    assert [(piece.t_started, piece.observations[0, 0]) for piece in pruned] == [(3, 22.0), (5, 24.0)]
    with pytest.raises(ConfigError, match=r"names the column 'tmp'\. Columns are .*truncateds, temp, place, valve"):
        data.prune(output=tmp_path / "none", where_steps="tmp > 20")


def test_a_category_that_is_not_known_meets_no_condition(tmp_path: Path) -> None:
    rows = pl.DataFrame({"day": [1] * 4, "hour": range(4), "valve": ["shut", "open", "jammed", "open"], "temp": range(4)})
    rows.with_columns(a=pl.Series([0, 1] * 2), r=pl.lit(1.0)).write_csv(tmp_path / "log.csv")
    mapping = {"obs": ["temp", "valve"], "actions": "a", "rewards": "r", "eps_id": "day", "t": "hour"}
    encode = {"valve": {"categories": ["open", "shut"], "other": True}}
    data = offline.import_data(tmp_path / "log.csv", output=tmp_path / "data", mapping=mapping, columns={"encode": encode})
    pruned = data.prune(output=tmp_path / "open", where_steps="valve = 'open'")
    assert [(piece.t_started, len(piece)) for piece in pruned] == [(1, 1), (3, 1)]
