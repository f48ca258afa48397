"""Pruning: exactly the chosen episodes, in order, byte for byte, and no more read than they need."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.plan import plan_pruning
from offline_core.data.curation.prune import PruningResult, prune
from offline_core.data.datasets import writer as writer_module
from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes import Episode
from offline_core.data.episodes.codecs import CODECS, Format
from offline_core.data.episodes.index import episode_summary
from offline_core.data.quality.check import check
from offline_core.data.quality.config import QualityConfig
from offline_core.errors import ConfigError, DatasetNotFoundError, EmptyDatasetError, SchemaError, VersionNotFoundError
from tests.cases import examples
from tests.data.datasets.factories import (
    FORMATS,
    cut_in_half,
    episode,
    replace_file,
    write_dataset,
)

RETURNS = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0]


def with_return(number: int, value: float, steps: int = 5, **changes: Any) -> Episode:
    return episode(number, steps, rewards=np.array([value] + [0.0] * (steps - 1)), **changes)


def ten(steps: Sequence[int] = (5,) * 10) -> list[Episode]:
    return [with_return(i, value, steps[i]) for i, value in enumerate(RETURNS)]


def run_prune(folder: Path, **config: Any) -> PruningResult:
    return prune(PruningConfig(**config), dataset=str(folder / "in"), output=str(folder / "out"))


def kept(result: PruningResult) -> list[Episode]:
    return list(open_dataset(result.dataset.uri, result.dataset.version).episodes())


# Which episodes are kept.


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("config", "numbers"),
    [
        ({}, range(10)),
        ({"where": "return >= 4"}, [2, 4, 5, 7, 8]),
        ({"where": "return > 4 AND not terminated"}, [5, 7]),
        ({"where": "return between 2 and 3 or length = 9"}, [0, 6, 8, 9]),
        ({"where": "eps_id in ('episode-0003', 'episode-0001')"}, [1, 3]),
        ({"where": "return > avg(return)"}, [2, 4, 5, 7, 8]),
        ({"where": "t_started = 0"}, range(10)),
        ({"where": "max(return) > 8"}, range(10)),
        ({"where": "truncated and length % 2 = 0"}, [1, 3, 5, 7, 9]),
        ({"keep_top_fraction": 0.1}, [5]),
        ({"keep_top_fraction": 0.11}, [5, 7]),
        ({"keep_top_fraction": 0.7}, [0, 2, 4, 5, 7, 8, 9]),
        ({"keep_top_fraction": 0.6}, [0, 2, 4, 5, 7, 8]),  # of two with return 3, the earlier one
        ({"keep_top_fraction": 0.3}, [4, 5, 7]),  # and of two with return 5
        ({"keep_top_fraction": 1.0}, range(10)),
        ({"where": "return < 6", "keep_top_fraction": 0.5}, [2, 4, 8, 0]),  # four of eight
        ({"where": "return < 2", "keep_top_fraction": 1e-6}, [1]),
    ],
)
def test_conditions(tmp_path: Path, format: Format, config: dict[str, Any], numbers: Sequence[int]) -> None:
    some = ten(steps=[4, 6, 4, 6, 4, 6, 4, 6, 9, 6])
    write_dataset(tmp_path / "in", some, format)
    assert kept(run_prune(tmp_path, **config)) == [some[i] for i in sorted(numbers)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("success", [0, 3, 6, 9]),
        ("not success", [1, 4, 7]),
        ("success is null", [2, 5, 8]),
        ("policy_id = 'new' and return < 5", [6, 9]),
        ("policy_id is null", []),
    ],
)
def test_conditions_on_success_and_policy(tmp_path: Path, format: Format, where: str, numbers: list[int]) -> None:
    last = [{"is_success": True}, {"success": 0}, {"other": 1}]
    some = [
        with_return(i, v, infos=[{}] * 5 + [last[i % 3]], custom_data={"policy_id": "new" if i > 5 else "old"})
        for i, v in enumerate(RETURNS)
    ]
    some[5] = replace(some[5], infos=None)
    write_dataset(tmp_path / "in", some, format, batch=4)
    if where == "policy_id is null":
        with pytest.raises(EmptyDatasetError):
            run_prune(tmp_path, where=where)
        return
    expected = [some[i] for i in numbers if not (where.startswith("policy") and some[i].return_ >= 5)]
    assert kept(run_prune(tmp_path, where=where)) == expected


@pytest.mark.parametrize("format", FORMATS)
def test_duplicates_are_dropped_whatever_they_are_called(tmp_path: Path, format: Format) -> None:
    some = ten()
    again = [replace(some[i], eps_id=f"again-{i}", extras=some[i + 1].extras) for i in (2, 5, 5)]
    again[2] = replace(again[2], eps_id="a third time")
    write_dataset(tmp_path / "in", [*some[:6], *again, *some[6:]], format, batch=2)
    result = run_prune(tmp_path, drop_duplicates=True, keep_top_fraction=0.2)
    assert kept(result) == [some[5], some[7]]
    assert result.dropped == {"drop_duplicates": 3, "keep_top_fraction": 8}
    assert result.dropped_episodes == 11


@pytest.mark.parametrize("format", FORMATS)
def test_of_short_episodes_those_of_one_id_and_equal_extras_are_copies(tmp_path: Path, format: Format) -> None:
    def quote(eps_id: str, context: int, hour: float) -> Episode:
        return Episode(
            eps_id=eps_id,
            observations=np.full((2, 1), context, np.float32),
            actions=np.zeros(1, np.int64),
            rewards=np.ones(1),
            terminated=True,
            extras={"hour": np.array([hour])},
        )

    some = [quote("a", 0, 1.0), quote("b", 0, 2.0), quote("c", 1, 3.0), quote("c@7-01234567", 1, 4.0)]
    write_dataset(tmp_path / "in", [*some, quote("a@3-01234567", 0, 1.0)], format, batch=2)
    plan = plan_pruning(PruningConfig(drop_duplicates=True), dataset=str(tmp_path / "in"))
    assert plan.episodes == (4 if format == "episodes" else 5)
    assert kept(run_prune(tmp_path, drop_duplicates=True)) == some


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("extra", ["time", "cust"])
def test_short_episodes_whose_extras_change_within_them_are_compared_by_all_values(
    tmp_path: Path, format: Format, extra: str
) -> None:
    def day(number: int, value: float) -> Episode:
        return Episode(
            eps_id="dev1" if number == 0 else f"dev1@{2 * number}-{number:08x}",
            observations=np.zeros((3, 1), np.float32),
            actions=np.zeros(2, np.int64),
            rewards=np.ones(2),
            terminated=True,
            extras={"time": np.zeros(2), "cust": np.array(["a", "b"])}
            | {extra: np.array([0.0, value]) if extra == "time" else np.array(["a", f"{value}"])},
        )

    some = [day(number, number + 1.0) for number in range(6)]
    write_dataset(tmp_path / "in", [*some, day(6, 1.0)], format, batch=2)
    assert kept(run_prune(tmp_path, drop_duplicates=True)) == some
    result = check(QualityConfig(), dataset=str(tmp_path / "in"))
    assert next(finding.count for finding in result.findings if finding.rule == "duplicate_contents") == 1


def test_duplicates_in_files_from_before_contents_were_noted(tmp_path: Path) -> None:
    some = ten()
    source = write_dataset(tmp_path / "in", [*some, replace(some[0], eps_id="again")])
    replace_file(source, pq.read_table(source.paths[0]).drop_columns(["success", "policy_id", "content"]))
    assert kept(run_prune(tmp_path, drop_duplicates=True)) == some


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_episodes_that_are_not_finite_are_dropped_before_anything_else(tmp_path: Path, format: Format, bad: float) -> None:
    some = ten()

    def spoilt(number: int, what: str) -> Episode:
        array = np.array(getattr(some[number], what), float)
        array[-1] = bad
        return replace(some[number], **{what: array}, action_space=None)

    actions = [replace(e, actions=np.asarray(e.actions, float), action_space=None) for e in some]
    bad_ones = [spoilt(5, "rewards"), spoilt(7, "observations"), spoilt(4, "actions")]
    bad_ones[1] = replace(bad_ones[1], observations=bad_ones[1].observations.astype(np.float32), actions=actions[7].actions)
    bad_ones[0] = replace(bad_ones[0], actions=actions[5].actions)
    mixed = [*actions[:4], bad_ones[2], bad_ones[0], actions[6], bad_ones[1], *actions[8:]]
    write_dataset(tmp_path / "in", mixed, format, batch=3)
    result = prune(
        PruningConfig(drop_non_finite=True, where="return > 2", keep_top_fraction=0.5),
        dataset=str(tmp_path / "in"),
        output=str(tmp_path / "out"),
    )
    assert [e.eps_id for e in kept(result)] == ["episode-0002", "episode-0008"]
    assert result.dropped == {"drop_non_finite": 3, "where": 3, "keep_top_fraction": 2}


def test_a_condition_in_polars(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", ten())
    where = (pl.col("return") >= 4) & ~pl.col("terminated")
    places: dict[str, Any] = {"dataset": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    result = prune(PruningConfig(), where=where, **places)
    assert [e.eps_id for e in kept(result)] == ["episode-0005", "episode-0007"]
    assert open_dataset(str(tmp_path / "out")).manifest.operation.config["where"] == str(where)
    other = prune(PruningConfig(), where=(pl.col("return") > 4) & ~pl.col("terminated"), **places)
    assert other.dataset.fingerprint != result.dataset.fingerprint, "the same episodes, but not the same pruning"
    assert len(kept(prune(PruningConfig(), where="return > 4", **places))) == 4, "SQL does as well"
    with pytest.raises(ConfigError, match="Two conditions are given, 'length > 1' and "):
        prune(PruningConfig(where="length > 1"), where=where, **places)
    with pytest.raises(ConfigError, match=r"names the column 'retrun'. Columns are eps_id"):
        prune(PruningConfig(), where=pl.col("retrun") > 4, **places)


@pytest.mark.parametrize(("count", "fraction", "expected"), [(100, 0.07, 7), (100, 0.55, 55), (3, 0.34, 2), (1000, 0.001, 1)])
def test_a_share_is_rounded_up_but_not_by_float_error(tmp_path: Path, count: int, fraction: float, expected: int) -> None:
    write_dataset(tmp_path / "in", [with_return(i, float(i), 1) for i in range(count)])
    result = run_prune(tmp_path, keep_top_fraction=fraction)
    assert [e.eps_id for e in kept(result)] == [f"episode-{i:04}" for i in range(count - expected, count)]


def test_of_many_equals_the_earlier_ones(tmp_path: Path) -> None:
    """A sort that is not stable shows only beyond a few."""
    write_dataset(tmp_path / "in", [with_return(i, float(i % 2), 1) for i in range(300)])
    ids = [e.eps_id for e in kept(run_prune(tmp_path, keep_top_fraction=0.25))]
    assert ids == [f"episode-{i:04}" for i in range(1, 150, 2)]


@pytest.mark.parametrize("format", FORMATS)
def test_counts_add_up(tmp_path: Path, format: Format) -> None:
    source = write_dataset(tmp_path / "in", ten(), format)
    result = run_prune(tmp_path, where="return >= 4")
    assert result.before == source.manifest.statistics
    assert (result.before.episodes, result.after.episodes, result.dropped_episodes) == (10, 5, 5)
    assert (result.before.steps, result.after.steps, result.dropped_steps) == (50, 25, 25)
    assert (result.dropped, result.further_pieces) == ({"where": 5}, 0)
    assert result.source == source.ref
    opened = open_dataset(str(tmp_path / "out"))
    assert result.dataset == opened.ref
    assert result.after == opened.manifest.statistics
    assert (result.after.returns.min, result.after.returns.max, result.after.returns.mean) == (4.0, 9.0, 5.8)
    assert result.after.terminated == 3


# What is written.


def test_the_bytes_of_episodes_are_copied(tmp_path: Path) -> None:
    """Not decoded and encoded again: what we do not know about a blob is kept too."""
    rows = CODECS["episodes"].encode(ten())
    blobs = [b"whatever-%d" % i for i in range(10)]
    with writer_module.EpisodeWriter(
        writer_module.Location.of(str(tmp_path / "in")), "part", format="episodes", config=FilesConfig(max_rows_per_file=4)
    ) as writer:
        writer.copy(rows.set_column(0, rows.schema.field(0), [blobs]), episode_summary(ten()))
    commit(
        str(tmp_path / "in"),
        writer.files,
        format="episodes",
        operation=Operation(name="test"),
        statistics=Statistics.of(writer.summaries),
    )
    run_prune(tmp_path, where="return >= 4")
    [path] = open_dataset(str(tmp_path / "out")).paths
    table = pq.read_table(path)
    assert table["item"].to_pylist() == [blobs[i] for i in (2, 4, 5, 7, 8)]
    assert table["return"].to_pylist() == [4.0, 5.0, 9.0, 6.0, 5.0]
    assert table.schema.equals(rows.schema, check_metadata=True)


@pytest.mark.parametrize("format", FORMATS)
def test_file_size_and_compression(tmp_path: Path, format: Format) -> None:
    write_dataset(tmp_path / "in", ten(), format)
    files = FilesConfig(max_rows_per_file=2 if format == "episodes" else 10, compression="snappy")
    result = run_prune(tmp_path, where="return >= 4", files=files)
    opened = open_dataset(result.dataset.uri)
    assert [file.episodes for file in opened.manifest.files] == [2, 2, 1] if format == "table" else [5]
    assert kept(result) == [e for e in ten() if e.return_ >= 4]
    assert pq.read_metadata(opened.paths[0]).row_group(0).column(0).compression == "SNAPPY"


@pytest.mark.parametrize("format", FORMATS)
def test_infos_that_only_some_files_have(tmp_path: Path, format: Format) -> None:
    some = [with_return(i, value, infos=[{"i": i}] * 6 if i > 6 else None) for i, value in enumerate(RETURNS)]
    write_dataset(tmp_path / "in", some, format, batch=1)
    assert kept(run_prune(tmp_path, where="return >= 3")) == [e for e in some if e.return_ >= 3]
    if format == "table":
        projected = kept(run_prune(tmp_path, where="return >= 3", columns=["action_logp"]))
        assert projected == [e for e in some if e.return_ >= 3]


def test_pieces_between_which_an_episode_is_dropped(tmp_path: Path) -> None:
    whole = episode(0, 12)
    write_dataset(tmp_path / "in", [whole.slice(0, 4), episode(1), whole.slice(6, 12)], "table", batch=1)
    result = run_prune(tmp_path, where="eps_id = 'episode-0000'")
    assert kept(result) == [whole.slice(0, 4), whole.slice(6, 12)]
    assert (result.after.episodes, result.after.steps, result.dropped_episodes) == (2, 10, 1)


def test_projection(tmp_path: Path) -> None:
    logits = np.arange(10, dtype=np.float32).reshape(5, 2)
    some = [with_return(i, v, extras={"action_logp": np.arange(5.0), "logits": logits}) for i, v in enumerate(RETURNS)]
    write_dataset(tmp_path / "in", some, "table")
    for names in ([], ["logits"], ["logits", "action_logp", "obs"]):
        projected = kept(run_prune(tmp_path, where="return >= 5", columns=names))
        assert [e.eps_id for e in projected] == ["episode-0004", "episode-0005", "episode-0007", "episode-0008"]
        for e in projected:
            assert e.extras.keys() == set(names) - {"obs"}
            np.testing.assert_array_equal(e.observations, some[int(e.eps_id[-4:])].observations)
            if "logits" in names:
                np.testing.assert_array_equal(e.extras["logits"], logits)


def bytes_read() -> int:
    """By this process so far, through any of its file handles."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="only Linux counts the bytes that a process reads")
@pytest.mark.parametrize("format", FORMATS)
def test_row_groups_without_a_chosen_episode_are_not_read(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "ROW_GROUP_BYTES", 2**18)
    observations = np.random.default_rng(0).standard_normal((40, 501, 32)).astype(np.float32)
    noise = [with_return(i, float(i), 500, observations=observations[i], observation_space=None) for i in range(40)]
    source = write_dataset(tmp_path / "in", noise, format, compression="none")
    assert source.ref.bytes > 2 * 2**20
    groups = sum(pq.read_metadata(path).num_row_groups for path in source.paths)
    assert groups >= 10

    def cost(where: str) -> int:
        before = bytes_read()
        run_prune(tmp_path, where=where, files=FilesConfig(compression="none"))
        return bytes_read() - before

    cost("return = 39")  # what is imported on the first call is not counted
    assert cost("return >= 0") > source.ref.bytes, "or else this test would show nothing"
    assert cost("return = 20 or return = 3") < 0.3 * source.ref.bytes


# Where to and where from.


@pytest.mark.parametrize("format", FORMATS)
def test_pruning_into_the_same_dataset_makes_its_next_version(tmp_path: Path, format: Format) -> None:
    source = write_dataset(tmp_path / "in", ten(), format)
    result = prune(PruningConfig(where="return >= 5"), dataset=str(tmp_path / "in"), output=str(tmp_path / "in"))
    assert (result.source.version, result.dataset.version) == (1, 2)
    assert kept(result) == [e for e in ten() if e.return_ >= 5]
    assert list(open_dataset(str(tmp_path / "in"), 1).episodes()) == ten()
    assert open_dataset(str(tmp_path / "in")).manifest.parents == [source.parent_entry]
    again = prune(PruningConfig(), dataset=str(tmp_path / "in"), output=str(tmp_path / "in"), version=1)
    assert (again.source.version, again.dataset.version, again.dropped_episodes) == (1, 3, 0)
    assert kept(again) == ten()


def test_the_same_pruning_again_has_the_same_fingerprint(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", ten())
    first, other, second = (run_prune(tmp_path, where=f"return >= {least}") for least in (4, 5, 4))
    assert (first.dataset.version, other.dataset.version) == (1, 2)
    again = first.dataset.model_copy(update={"latest": 2})
    assert second == first.model_copy(update={"dataset": again, "reused": True}) and not other.reused
    assert first.dataset.fingerprint != other.dataset.fingerprint


def test_a_result_whose_data_is_gone_is_made_again(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", ten())
    first = run_prune(tmp_path, where="return >= 4")
    [file] = open_dataset(str(tmp_path / "out")).paths
    whole = Path(file).read_bytes()
    for damage in (lambda: Path(file).unlink(), lambda: Path(file).write_bytes(whole[:-1])):
        damage()
        again = run_prune(tmp_path, where="return >= 4")
        assert (again.reused, again.dataset) == (False, first.dataset), "in its old place, under its old version"
        assert Path(file).read_bytes() == whole


# What cannot be done.


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("retrun > 3", "names the column 'retrun'. Columns are eps_id, t_started, .*, success, policy_id, content.$"),
        ("reward > 3", "reward"),
        ("return", "gives Float64 and not true or false"),
        ("length + 1", "gives Int64 and not true or false"),
        ("NULL", "gives Null and not true or false"),
        ("eps_id > 3", "cannot compare"),
        ("return >", "cannot be understood"),
        ("return > 3; drop table x", "has ';' at character 11, which is not allowed"),
        ("select * from x", "has the word from. A condition cannot contain a query"),
        ("return in (select 1)", "has the word select. A condition cannot contain a query"),
        ("", "cannot be understood"),
        ("*", "cannot be understood"),
        ("))", "cannot be understood"),
    ],
)
def test_conditions_that_cannot_be_understood(tmp_path: Path, where: str, message: str) -> None:
    write_dataset(tmp_path / "in", ten())
    with pytest.raises(ConfigError, match=message) as caught:
        run_prune(tmp_path, where=where)
    assert f"The condition {where!r}" in str(caught.value)
    assert "\n" not in str(caught.value), "no plan of Polars"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("where", ["return > 9", "length < 5", "false", "return / 0 < 0", "terminated and truncated"])
def test_nothing_kept(tmp_path: Path, where: str) -> None:
    source = write_dataset(tmp_path / "in", ten())
    with pytest.raises(EmptyDatasetError) as caught:
        run_prune(tmp_path, where=where, keep_top_fraction=0.5)
    message = f"None of the 10 episodes of {source.ref} meets the conditions (where {where}, keep_top_fraction 0.5)"
    assert str(caught.value).startswith(message)
    assert "the highest return is 9.0" in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert versions(str(tmp_path / "in")) == [1]


def test_nothing_kept_because_nobody_said(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", ten())
    with pytest.raises(EmptyDatasetError, match=r"the highest return is 9.0, success is not known of 10\. No version"):
        run_prune(tmp_path, where="return > 4 and success")


def test_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=f"There is no dataset at {tmp_path}/in"):
        run_prune(tmp_path)
    write_dataset(tmp_path / "in", ten())
    with pytest.raises(VersionNotFoundError, match="has no version 7"):
        prune(PruningConfig(), dataset=str(tmp_path / "in"), output=str(tmp_path / "out"), version=7)
    assert not (tmp_path / "out").exists()


def test_columns_that_cannot_be_chosen(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", ten(), "episodes")
    with pytest.raises(ConfigError, match="Columns can be chosen in table format only"):
        run_prune(tmp_path, columns=["obs"])
    write_dataset(tmp_path / "in", ten(), "table")
    with pytest.raises(SchemaError, match=f"{tmp_path}/in has no column logits, state; it has eps_id, agent_id"):
        run_prune(tmp_path, columns=["state", "obs", "logits"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("format", FORMATS)
def test_a_source_that_breaks_off_leaves_nothing(tmp_path: Path, format: Format) -> None:
    source = write_dataset(tmp_path / "in", ten(), format, max_rows_per_file=2 if format == "episodes" else 10)
    cut_in_half(source.paths[3])
    with pytest.raises(Exception, match=source.paths[3]):
        run_prune(tmp_path)
    assert versions(str(tmp_path / "out")) == []


# Any episodes, any threshold.


@st.composite
def recordings(draw: st.DrawFn) -> list[Episode]:
    """Episodes of one shape, of any length, with returns that are often equal."""
    box = gym.spaces.Box(-1, 1, draw(st.sampled_from([(1,), (3,), (2, 2, 1)])), np.float32)
    space = draw(st.sampled_from([box, gym.spaces.Dict({"b": gym.spaces.Discrete(5), "a": box})]))
    has_infos = draw(st.booleans())

    def one(number: int, steps: int, rewards: list[int]) -> Episode:
        space.seed(number)
        items = [space.sample() for _ in range(steps + 1)]
        stacked = {k: np.stack([i[k] for i in items]) for k in ("a", "b")} if isinstance(items[0], dict) else np.stack(items)
        return episode(
            number,
            steps,
            observations=stacked,
            observation_space=space,
            rewards=np.resize(np.array(rewards) / 4, steps),
            infos=[{"n": number, "t": t} for t in range(steps + 1)] if has_infos and number % 3 else None,
        )

    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=12))
    return [one(i, n, draw(st.lists(st.integers(-4, 4), min_size=1, max_size=3))) for i, n in enumerate(lengths)]


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(recordings(), st.data(), st.sampled_from([10**6, 1500, 1]), st.sampled_from([None, 1, 3, 20]))
def test_any_threshold_keeps_exactly_the_episodes_that_meet_it(
    some: list[Episode], data: st.DataObject, row_group_bytes: int, max_rows: int | None
) -> None:
    threshold = data.draw(st.sampled_from(sorted({e.return_ for e in some})) | st.floats(-20, 20), "threshold")
    batch = data.draw(st.integers(1, 5), "batch")
    expected = [e for e in some if float(np.sum(e.rewards)) >= threshold]
    for format in FORMATS:
        with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer_module, "ROW_GROUP_BYTES", row_group_bytes)
            folder = Path(temporary)
            write_dataset(folder / "in", some, format, batch=batch, max_rows_per_file=max_rows)
            if not expected:
                with pytest.raises(EmptyDatasetError):
                    run_prune(folder, where=f"return >= {threshold!r}")
                assert not (folder / "out").exists()
                continue
            result = run_prune(folder, where=f"return >= {threshold!r}", files=FilesConfig(max_rows_per_file=max_rows))
            assert kept(result) == expected
            assert result.after.episodes + result.dropped_episodes == result.before.episodes == len(some)
