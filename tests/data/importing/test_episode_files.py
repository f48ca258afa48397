"""Files of episodes: both forms, duplicates, pieces, open ends, and what cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.episodes import Episode, encode
from offline_core.data.episodes.spaces import space_to_json
from offline_core.errors import ConfigError, CorruptFileError, EpisodeError, NonFiniteError, SchemaError, SpaceError
from tests.data.datasets.factories import cut_in_half, episode, write_items
from tests.data.importing.factories import end_of, nonzero, plain, run_import


def in_list_form(whole: Episode) -> bytes:
    """As RLlib's recorder writes it: an object a step."""
    state = msgpack.unpackb(encode(whole), object_hook=msgpack_numpy.decode)
    for name in ("observations", "actions", "rewards"):
        state[name] |= {"data": list(state[name]["data"]), "finalized": False}
    for buffer in state["extra_model_outputs"].values():
        buffer |= {"data": list(buffer["data"]), "finalized": False}
    return msgpack.packb(state, default=msgpack_numpy.encode)


def kept(found: Sequence[Episode]) -> list[tuple[str, int, int, str]]:
    """(id, first step, length, how it ended)"""
    return sorted((plain(e.eps_id), e.t_started, len(e), end_of(e)) for e in found)


def test_both_forms(tmp_path: Path) -> None:
    some = [episode(i) for i in range(4)]
    write_items(tmp_path / "in/x.parquet", [in_list_form(some[0]), encode(some[1])])
    write_items(tmp_path / "in/y.parquet", [encode(some[2]), in_list_form(some[3])])
    result, found = run_import(tmp_path / "in", tmp_path / "out")
    assert found == some
    assert nonzero(result.counts) == {"rows": 28, "steps": 28, "episodes": 4}


def test_duplicates_in_one_file_and_in_several(tmp_path: Path) -> None:
    one, two = episode(1, 5), episode(2, 3)
    write_items(tmp_path / "in/x.parquet", [encode(one), encode(one)])
    write_items(tmp_path / "in/y.parquet", [in_list_form(one), encode(two)])
    result, found = run_import(tmp_path / "in", tmp_path / "out")
    assert found == [one, two]
    assert nonzero(result.counts) == {"rows": 18, "steps": 8, "episodes": 2, "duplicates": 10}


def test_other_content_under_the_same_id(tmp_path: Path) -> None:
    one, other, two = episode(1), episode(1, rewards=np.zeros(7)), episode(2)
    write_items(tmp_path / "in/x.parquet", [encode(one)])
    write_items(tmp_path / "in/y.parquet", [encode(two), encode(other)])
    with pytest.raises(EpisodeError, match=r"in/y\.parquet, row 1: Another episode episode-0001 with other steps came before"):
        run_import(tmp_path / "in", tmp_path / "out")
    assert versions(str(tmp_path / "out")) == []
    result, found = run_import(tmp_path / "in", tmp_path / "out", unreadable="quarantine")
    assert found == [one, two], "what stands beside it goes on"
    assert (result.counts.steps, result.counts.quarantined_rows) == (14, 1)


OPEN = {"terminated": False, "truncated": False}


@pytest.mark.parametrize(
    ("rule", "expected", "dropped"),
    [
        ("cut", [("episode-0000", 0, 7, "T"), ("episode-0001", 0, 4, "X")], 0),
        ("end", [("episode-0000", 0, 7, "T"), ("episode-0001", 0, 4, "T")], 0),
        ("keep", [("episode-0000", 0, 7, "T"), ("episode-0001", 0, 4, "open")], 0),
        ("drop", [("episode-0000", 0, 7, "T")], 4),
    ],
)
def test_open_episodes(tmp_path: Path, rule: str, expected: Any, dropped: int) -> None:
    write_items(tmp_path / "in/x.parquet", [encode(episode(1, 4, **OPEN)), encode(episode(0))])
    result, found = run_import(tmp_path / "in", tmp_path / "out", episodes={"incomplete": rule})
    assert kept(found) == expected
    assert (result.counts.open_ends, result.counts.dropped_steps) == (1, dropped)


def test_a_declared_end_at_the_time_limit_is_none(tmp_path: Path) -> None:
    write_items(tmp_path / "in/x.parquet", [encode(episode(0, 4, **OPEN)), encode(episode(1, 3, **OPEN))])
    rules = {"incomplete": "end", "time_limit_steps": 4}
    result, found = run_import(tmp_path / "in", tmp_path / "out", episodes=rules)
    assert kept(found) == [("episode-0000", 0, 4, "X"), ("episode-0001", 0, 3, "T")]
    assert (result.counts.declared_ends, result.counts.time_limits) == (1, 0)


def test_pieces_that_follow_one_another_are_one(tmp_path: Path) -> None:
    """Wherever they lie, with or without a lookback; what RLlib's runner gives when it cuts by steps."""
    whole = episode(0, 12)
    pieces = [whole.slice(0, 5), whole.slice(5, 9, lookback=2), whole.slice(9, 12)]
    write_items(tmp_path / "in/x.parquet", [encode(pieces[2]), encode(pieces[0])])
    write_items(tmp_path / "in/y.parquet", [encode(pieces[1]), encode(pieces[0])])
    for rule in ("cut", "keep", "drop"):
        result, found = run_import(tmp_path / "in", tmp_path / "out", episodes={"incomplete": rule})
        assert found == [whole]
        assert nonzero(result.counts) == {"rows": 17, "steps": 12, "episodes": 1, "duplicates": 5}


@pytest.mark.parametrize(
    ("rule", "expected", "dropped"),
    [
        ("cut", [("episode-0000", 0, 5, "X"), ("episode-0000@9", 0, 3, "T"), ("episode-0002", 0, 2, "T")], 0),
        ("end", [("episode-0000", 0, 5, "X"), ("episode-0000@9", 0, 3, "T"), ("episode-0002", 0, 2, "T")], 0),
        ("keep", [("episode-0000", 0, 5, "open"), ("episode-0000@9", 9, 3, "T"), ("episode-0002", 5, 2, "T")], 0),
        ("drop", [], 10),
    ],
)
def test_pieces_with_others_missing(tmp_path: Path, rule: str, expected: Any, dropped: int) -> None:
    whole, other, good = episode(0, 12), episode(2, 7), episode(4)
    items = [whole.slice(9, 12), whole.slice(0, 5), other.slice(5, 7), good]
    write_items(tmp_path / "in/x.parquet", [encode(item) for item in items])
    result, found = run_import(tmp_path / "in", tmp_path / "out", episodes={"incomplete": rule})
    assert kept(found) == [*expected, ("episode-0004", 0, 7, "T")]
    counts = result.counts
    assert (counts.gaps, counts.late_starts, counts.open_ends, counts.dropped_steps) == (1, 1, 1, dropped)


@pytest.mark.parametrize("other", [(5, 15), (0, 15)])
def test_pieces_that_overlap(tmp_path: Path, other: tuple[int, int]) -> None:
    whole = episode(0, 15)
    pieces = [whole.slice(0, 10), whole.slice(*other), whole.slice(2, 4), whole.slice(8, 12, lookback=3)]
    write_items(tmp_path / "in/x.parquet", [encode(piece) for piece in pieces])
    result, found = run_import(tmp_path / "in", tmp_path / "out")
    assert found == [whole]
    twice = sum(map(len, pieces)) - 15
    assert nonzero(result.counts) == {"rows": 15 + twice, "steps": 15, "episodes": 1, "duplicates": twice}


def test_pieces_of_what_is_there_whole(tmp_path: Path) -> None:
    whole = episode(0, 20)
    write_items(tmp_path / "in/x.parquet", [encode(whole.slice(5, 10)), encode(episode(1)), encode(whole)])
    write_items(tmp_path / "in/y.parquet", [encode(whole.slice(15, 20)), encode(whole.slice(0, 1))])
    for partitions in (1, 2):
        result, found = run_import(tmp_path / "in", tmp_path / "out", files={"max_rows_per_file": partitions})
        assert sorted(found, key=lambda e: e.eps_id) == [whole, episode(1)]
        assert nonzero(result.counts) == {"rows": 38, "steps": 27, "episodes": 2, "duplicates": 11}


@pytest.mark.parametrize(
    "pieces",
    [
        [episode(0, 10, terminated=False), episode(0, 10, rewards=np.zeros(10)).slice(5, 10)],
        [episode(0, 10), episode(0, 10, rewards=np.zeros(10)).slice(5, 8)],
        [episode(0, 10), replace(episode(0, 10).slice(5, 8), truncated=True)],
        [episode(0, 10), replace(episode(0, 10).slice(5, 10), terminated=False, truncated=True)],
        [replace(episode(0, 10).slice(0, 6), truncated=True), episode(0, 10).slice(5, 10)],
    ],
    ids=["pieces", "of a whole", "that end within", "that end otherwise", "that go on"],
)
def test_pieces_that_contradict_each_other(tmp_path: Path, pieces: list[Episode]) -> None:
    write_items(tmp_path / "in/x.parquet", [encode(piece) for piece in [*pieces, episode(1)]])
    with pytest.raises(EpisodeError, match=r"row \d: Two pieces of episode episode-0000 contradict each other from step 5"):
        run_import(tmp_path / "in", tmp_path / "out")
    result, found = run_import(tmp_path / "in", tmp_path / "out", unreadable="quarantine")
    there = [piece for piece in pieces if piece.t_started == 0 and piece.is_done]
    assert found == [*there, episode(1)]
    assert result.counts.quarantined_rows == 2 - len(there)


def test_pieces_after_an_end(tmp_path: Path) -> None:
    """They are episodes of their own, whole if nothing is missing in between."""
    longer = episode(0, 20)
    first, second = replace(longer.slice(0, 7), terminated=True), longer.slice(7, 20)
    write_items(tmp_path / "in/x.parquet", [encode(first), encode(second)])
    for rule in ("cut", "keep", "drop"):
        result, found = run_import(tmp_path / "in", tmp_path / "out", episodes={"incomplete": rule, "time_limit_steps": 13})
        start = 0 if rule == "cut" else 7
        assert kept(found) == [("episode-0000", 0, 7, "T"), ("episode-0000@7", start, 13, "X")]
        assert nonzero(result.counts) == {"rows": 20, "steps": 20, "episodes": 2, "restarted_ids": 1, "time_limits": 1}
    write_items(tmp_path / "in/x.parquet", [encode(first), encode(longer.slice(9, 20))])
    result, found = run_import(tmp_path / "in", tmp_path / "out", episodes={"incomplete": "drop"})
    assert (kept(found), result.counts.late_starts) == ([("episode-0000", 0, 7, "T")], 1)


def test_time_limits(tmp_path: Path) -> None:
    write_items(tmp_path / "in/x.parquet", [encode(episode(0, 7)), encode(episode(2, 6)), encode(episode(1, 7))])
    result, found = run_import(tmp_path / "in", tmp_path / "out", episodes={"time_limit_steps": 7})
    assert [end_of(e) for e in found] == ["X", "T", "X"]
    assert result.counts.time_limits == 1
    write_items(tmp_path / "late/x.parquet", [encode(episode(0, 7).slice(4, 7))])
    _, found = run_import(tmp_path / "late", tmp_path / "out", episodes={"time_limit_steps": 7})
    assert [end_of(e) for e in found] == ["X"], "t counts, not the steps that are left"


def test_episodes_without_steps(tmp_path: Path) -> None:
    write_items(tmp_path / "in/x.parquet", [encode(episode(0).slice(0, 0)), encode(episode(1))])
    result, found = run_import(tmp_path / "in", tmp_path / "out", format="table")
    assert found == [episode(1)]
    assert result.counts.dropped_episodes == 1


@pytest.mark.parametrize(
    ("item", "error", "reason"),
    [
        (b"rubbish", CorruptFileError, "not a stored episode"),
        (encode(episode(9))[:-5], CorruptFileError, "not a stored episode"),
        (None, CorruptFileError, "The row is null"),
        (encode(episode(9, rewards=np.full(7, np.inf))), NonFiniteError, "episode-0009"),
    ],
    ids=["rubbish", "cut off", "null", "infinite"],
)
def test_a_bad_item_in_the_middle(tmp_path: Path, item: bytes | None, error: type[Exception], reason: str) -> None:
    items = [encode(episode(0)), encode(episode(1)), item, encode(episode(2))]
    pq.write_table(pa.table({"item": pa.array(items, pa.binary())}), tmp_path / "x.parquet", row_group_size=2)
    with pytest.raises(error, match=rf"x\.parquet, row 2: .*{reason}.*unreadable: quarantine"):
        run_import(tmp_path, tmp_path / "out")
    assert versions(str(tmp_path / "out")) == []
    source = [str(tmp_path / "x.parquet")]
    result, found = run_import(source, tmp_path / "out", unreadable="quarantine")
    assert found == [episode(i) for i in range(3)]
    assert nonzero(result.counts) == {"rows": 22, "steps": 21, "episodes": 3, "quarantined_rows": 1}
    listed = Path(str(result.quarantine)).read_text()
    assert '"row": 2' in listed
    assert reason in listed


def test_two_environments_whose_range_of_actions_is_told(tmp_path: Path) -> None:
    for number, width in enumerate((1, 2, 1)):
        box = spaces.Box(-1, 1, (width,), np.float32)
        actions = np.linspace(-2, 2, 7 * width, dtype=np.float32).reshape(7, width)
        recorded = {"extras": {"weights_seq_no": np.zeros(7, np.int64)}, "actions": actions, "action_space": box}
        write_items(tmp_path / f"in/{number}.parquet", [encode(episode(number, **recorded))])
    with pytest.raises(SchemaError, match=r"in/1\.parquet, row 0: Column 'actions' .*shape \(2,\), earlier ones of \(1,\)"):
        run_import(tmp_path / "in", tmp_path / "out")
    result, found = run_import(tmp_path / "in", tmp_path / "out", unreadable="quarantine")
    assert (len(found), result.counts.quarantined_rows) == (2, 1)


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    write_items(tmp_path / "in/x.parquet", [encode(episode(0))])
    write_items(tmp_path / "in/y.parquet", [encode(episode(1))])
    cut_in_half(tmp_path / "in/y.parquet")
    with pytest.raises(CorruptFileError, match=r"in/y\.parquet is no readable Parquet file"):
        run_import(tmp_path / "in", tmp_path / "out")
    result, found = run_import(tmp_path / "in", tmp_path / "out", unreadable="quarantine")
    assert found == [episode(0)]
    assert (result.counts.quarantined_files, result.counts.quarantined_rows) == (1, 0)
    assert "y.parquet" in Path(str(result.quarantine)).read_text()


def test_a_table_among_them(tmp_path: Path) -> None:
    write_items(tmp_path / "in/x.parquet", [encode(episode(0))])
    pq.write_table(pa.table({"obs": [1.0]}), tmp_path / "in/y.parquet")
    with pytest.raises(SchemaError, match=r"in/y\.parquet holds no episodes but \['obs'\]"):
        run_import(tmp_path / "in", tmp_path / "out")


# What is declared.


def test_spaces_and_the_range_of_actions_are_heeded(tmp_path: Path) -> None:
    box, wide = (spaces.Box(-high, high, (2,), np.float32) for high in (2, 4))
    actions = np.linspace(-1, 1, 14, dtype=np.float32).reshape(7, 2)
    recorded = episode(0, actions=actions, action_space=box)
    logp = recorded.extras["action_logp"]
    write_items(tmp_path / "in/x.parquet", [encode(recorded)])
    for declared, factor in ((None, 2), (wide, 4)):
        config = {} if declared is None else {"action_space": space_to_json(declared)}
        result, [found] = run_import(tmp_path / "in", tmp_path / "out", recorded_action_range=(-1, 1), **config)
        np.testing.assert_allclose(found.actions, actions * factor, rtol=1e-6)
        assert found.actions.dtype == np.float32
        np.testing.assert_allclose(found.extras["action_logp"], logp - 2 * np.log(factor), rtol=1e-6)
        assert found.extras["action_logp"].dtype == np.float32
        assert open_dataset(result.dataset.uri).action_space == (declared or box)


def test_a_space_that_the_episodes_do_not_fit(tmp_path: Path) -> None:
    write_items(tmp_path / "in/x.parquet", [encode(episode(0))])
    three = space_to_json(spaces.Box(-1, 1, (3,), np.float32))
    with pytest.raises(SpaceError, match=r"row 0: Column 'obs' has steps of shape \(4,\); the space .* has \(3,\)"):
        run_import(tmp_path / "in", tmp_path / "out", observation_space=three)
    double = spaces.Box(-np.inf, np.inf, (2, 2), np.float64)
    result, [found] = run_import(tmp_path / "in", tmp_path / "out", observation_space=space_to_json(double))
    assert (found.observations.shape, found.observations.dtype) == ((8, 2, 2), np.float64)
    assert open_dataset(result.dataset.uri).observation_space == double


def test_ids_per_file(tmp_path: Path) -> None:
    for name, length in (("x", 5), ("y", 8)):
        whole = episode(1, length)
        write_items(
            tmp_path / f"in/{name}.parquet",
            [encode(whole.slice(0, 3)), encode(whole.slice(3, length)), encode(episode(0, length))],
        )
    with pytest.raises(EpisodeError, match=r"set episodes\.ids_per: file"):
        run_import(tmp_path / "in", tmp_path / "out")
    result, found = run_import(tmp_path / "in", tmp_path / "out", episodes={"ids_per": "file"})
    assert nonzero(result.counts) == {"rows": 26, "steps": 26, "episodes": 4}
    assert len({e.eps_id for e in found}) == 4


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"source": {"columns": ["obs"]}}, r"source\.columns"),
        ({"source": {"where": "rewards > 3"}, "mapping": {"obs": "o"}}, r"source\.where, mapping"),
        ({"source": {"arguments": {"module_id": "p"}}}, r"source\.arguments"),
        ({"episodes": {"order": "linked", "first_t": 1}}, r"episodes\.order, episodes\.first_t"),
        ({"episodes": {"last_new_obs": "drop"}}, r"episodes\.last_new_obs"),
    ],
)
def test_what_is_for_steps_alone(tmp_path: Path, config: dict[str, Any], named: str) -> None:
    write_items(tmp_path / "in/x.parquet", [encode(episode(0))])
    with pytest.raises(ConfigError, match=f"hold episodes, and {named} can only be heeded for rows"):
        run_import(tmp_path / "in", tmp_path / "out", **config)
    assert not (tmp_path / "out").exists()
