"""The gate: what it reports about a dataset, keeps beside it, and stops at; and that it reads whatever is there."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.curation.config import SplitConfig
from offline_core.data.curation.split import split
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import encode
from offline_core.data.episodes.codecs import Format
from offline_core.data.quality.check import check, default_rules, enforce, last_report
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import Histogram, QualityReport
from offline_core.errors import CorruptFileError, DatasetNotFoundError, QualityError, SchemaError
from offline_core.runtime.config import parse
from tests.data.datasets.factories import FORMATS, flip_bit, rllib_states, write_dataset, write_items
from tests.data.datasets.factories import episode as random_episode
from tests.data.quality.datasets import broken, changed, clean, commit_tables, episode, run_check, table_of

both_formats = pytest.mark.parametrize("format", FORMATS)


@both_formats
def test_the_statistics_are_those_of_the_episodes(tmp_path: Path, format: Format) -> None:
    report = run_check(tmp_path, clean(), format)
    statistics = report.statistics
    assert (statistics.episodes, statistics.steps, statistics.terminated, statistics.truncated) == (20, 290, 10, 10)
    returns = np.array([e.rewards.sum() for e in clean()])
    assert (statistics.returns.mean, statistics.returns.std) == (pytest.approx(returns.mean()), pytest.approx(returns.std()))
    assert (statistics.lengths.min, statistics.lengths.max) == (5, 24)
    assert (sum(report.returns.counts), sum(report.lengths.counts)) == (20, 20)
    assert report.lengths.edges[0] == 5
    assert report.lengths.edges[-1] == 24
    assert statistics.columns is not None
    assert sorted(statistics.columns) == ["action_logp", "actions", "obs", "rewards"]
    observations = np.concatenate([np.asarray(e.observations)[:-1] for e in clean()]).astype(np.float64)
    assert statistics.columns["obs"].count == [290, 290, 290]
    np.testing.assert_allclose(statistics.columns["obs"].mean, observations.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(statistics.columns["obs"].std, observations.std(axis=0), rtol=1e-9)


def test_both_formats_get_the_same_report(tmp_path: Path) -> None:
    some = [*clean(), replace(episode(3), eps_id="other"), replace(episode(8), eps_id="open", terminated=False)]
    some[4] = replace(some[4], observations=changed(some[4].observations, (1, 1), np.nan))
    one, other = (run_check(tmp_path / format, some, format) for format in FORMATS)
    assert len(broken(one)) == 3

    def numbers(report: QualityReport) -> object:
        return [
            (f.rule, f.verdict, f.count, [(e.eps_id, e.t) for e in f.examples], f.message)
            for f in report.findings
            if f.rule != "observation_chain"
        ]

    assert numbers(one) == numbers(other)
    columns = (one.statistics.columns, other.statistics.columns)
    assert columns[0] is not None and columns[1] is not None
    assert columns[0].keys() == columns[1].keys()
    for name in columns[0]:
        left, right = (found[name] for found in columns)
        assert (left.count, left.nan, left.histogram) == (right.count, right.nan, right.histogram)
        np.testing.assert_allclose(left.mean, right.mean, rtol=1e-9)


@both_formats
@pytest.mark.parametrize("batch", [1, 3])
def test_the_report_does_not_depend_on_row_groups(tmp_path: Path, format: Format, batch: int) -> None:
    dataset = write_dataset(tmp_path / "many", clean(), format, batch=batch, max_rows_per_file=30)
    assert len(dataset.manifest.files) > 1 or format == "episodes"
    many = check(QualityConfig(), dataset=str(tmp_path / "many"))
    whole = run_check(tmp_path / "whole", clean(), format)
    assert many.findings == whole.findings


@pytest.mark.parametrize("rows", [1, 4, 37, 10_000])
def test_row_groups_may_end_within_episodes(tmp_path: Path, rows: int) -> None:
    """As in files that others wrote: with a group a step too, no rule sees an end where there is none."""
    table = table_of(clean(9))
    commit_tables(tmp_path / "one", table, row_group_size=rows)
    commit_tables(tmp_path / "two", table.slice(0, 50), table.slice(50), row_group_size=rows)
    for name in ("one", "two"):
        report = check(QualityConfig(), dataset=str(tmp_path / name))
        assert broken(report) == {}
        assert (report.statistics.episodes, report.statistics.steps) == (9, 81)
        assert next(f.of for f in report.findings if f.rule == "observation_chain") == 81 - 9


def test_spaces_and_columns_may_be_nested(tmp_path: Path) -> None:
    from gymnasium import spaces

    space = spaces.Dict({"position": spaces.Box(-9, 9, (2,), np.float32), "gear": spaces.Discrete(3)})
    some = []
    for i in range(6):
        steps = 5 + i
        rng = np.random.default_rng(i)
        position = rng.uniform(-4, 4, (steps + 1, 2)).astype(np.float32)
        observations = {"position": position, "gear": rng.integers(0, 3, steps + 1)}
        some.append(episode(i, observations=observations, observation_space=space))
    assert run_check(tmp_path / "clean", some, "table").verdict == "pass"
    bad = changed(some[2].observations["gear"], 4, 3)
    some[2] = replace(some[2], observations=some[2].observations | {"gear": bad})
    for format in FORMATS:
        found = broken(run_check(tmp_path / format, some, format))
        assert [(f.rule, f.count) for f in found.values()] == [("observations_outside_space", 1)]
        assert "obs/gear" in found["observations_outside_space"].message
        assert "obs/position" not in found["observations_outside_space"].message


def test_a_foreign_folder_of_episodes_is_judged_and_left_as_it_is(tmp_path: Path) -> None:
    write_items(tmp_path / "a.parquet", [encode(e) for e in [*clean(), episode(7)]])
    report = check(QualityConfig(), dataset=str(tmp_path))
    assert list(broken(report)) == ["duplicate_ids"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_recordings_of_rllib_are_judged(rllib_recordings: Path) -> None:
    """RLlib stores continuous actions as its network samples them, not as the environment clipped them."""
    cartpole = check(QualityConfig(), dataset=str(rllib_recordings / "cartpole_episodes"))
    assert cartpole.verdict == "pass"
    states = list(rllib_states(rllib_recordings / "cartpole_episodes"))
    assert cartpole.statistics.episodes == len(states)
    assert cartpole.statistics.steps == sum(len(state["rewards"]["data"]) for state in states)

    pendulum = check(QualityConfig(), dataset=str(rllib_recordings / "pendulum_episodes"))
    actions = [np.asarray(s["actions"]["data"], np.float32) for s in rllib_states(rllib_recordings / "pendulum_episodes")]
    found = broken(pendulum)
    assert list(found) == ["actions_outside_space"]
    assert found["actions_outside_space"].count == sum(int((np.abs(a) > 2).sum()) for a in actions) > 0
    assert found["actions_outside_space"].of == sum(map(len, actions))


def test_foreign_tables_have_to_be_imported_first(tmp_path: Path) -> None:
    pq.write_table(table_of(clean()), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=f"{tmp_path} has no manifest.*'offline import"):
        check(QualityConfig(), dataset=str(tmp_path))


def test_a_table_without_our_columns_is_refused(tmp_path: Path) -> None:
    commit_tables(tmp_path, table_of(clean()).drop_columns(["t", "new_obs"]))
    with pytest.raises(SchemaError, match=r"\.parquet lacks the columns \['new_obs', 't'\]"):
        check(QualityConfig(), dataset=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("t", pa.array(np.zeros(290)), "'t' has type double"),
        ("rewards", pa.array([None] * 290, pa.float64()), "'rewards' has 290 nulls"),
        ("eps_id", pa.array([None] * 290, pa.string()), "'eps_id' has 290 nulls"),
    ],
)
def test_values_that_cannot_be_judged_are_refused(tmp_path: Path, name: str, values: pa.Array, message: str) -> None:
    table = table_of(clean())
    commit_tables(tmp_path, table.set_column(table.column_names.index(name), name, values))
    with pytest.raises(SchemaError, match=message) as caught:
        check(QualityConfig(), dataset=str(tmp_path))
    assert str(tmp_path) in str(caught.value)


def test_there_has_to_be_a_dataset(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError):
        check(QualityConfig(), dataset=str(tmp_path / "nothing"))
    write_dataset(tmp_path / "train", clean())
    with pytest.raises(DatasetNotFoundError):
        check(QualityConfig(held_out=str(tmp_path / "nothing")), dataset=str(tmp_path / "train"))


# What is kept of it.


def test_the_report_is_kept_beside_the_version(tmp_path: Path) -> None:
    first = run_check(tmp_path, clean())
    second = run_check(tmp_path, [*clean(), episode(7)])
    kept = sorted((tmp_path / "_checks").iterdir())
    assert [path.name for path in kept] == ["000001.json", "000002.json"]
    assert [last_report(open_dataset(str(tmp_path), version)) for version in (1, 2)] == [first, second]
    assert (first.dataset.version, second.dataset.version) == (1, 2)
    assert check(QualityConfig(), dataset=str(tmp_path), version=1) == first.model_copy(update={"reused": True})


def test_damaged_files_do_not_pass(tmp_path: Path) -> None:
    """Not even where a page has no checksum: the hashes of the manifest are compared."""
    dataset = write_dataset(tmp_path, clean())
    flip_bit(dataset.paths[0], 8 * 6)
    with pytest.raises(CorruptFileError, match=r"1 of its 1 files are not what was written; first .*SHA-256"):
        check(QualityConfig(), dataset=str(tmp_path))


def test_a_report_does_not_speak_for_files_that_were_written_again(tmp_path: Path) -> None:
    """Even where their footers are as they were."""
    report = run_check(tmp_path, clean())
    dataset = open_dataset(str(tmp_path))
    assert report.verdict == "pass" and last_report(dataset) == report
    flip_bit(dataset.paths[0], 8 * 6)
    assert last_report(dataset) is None
    with pytest.raises(CorruptFileError, match="not what was written"):
        check(QualityConfig(), dataset=str(tmp_path))


def test_a_flipped_bit_of_a_report_is_noticed(tmp_path: Path) -> None:
    run_check(tmp_path, clean())
    path = tmp_path / "_checks" / "000001.json"
    flip_bit(path, 8 * (path.read_bytes().index(b'"count": ') + 9))
    assert last_report(open_dataset(str(tmp_path))) is None
    assert not check(QualityConfig(), dataset=str(tmp_path)).reused


def test_a_report_is_for_these_parameters_and_this_data(tmp_path: Path) -> None:
    run_check(tmp_path, clean())
    assert not check(QualityConfig(max_duplicate_fraction=0.5), dataset=str(tmp_path)).reused
    assert check(QualityConfig(max_duplicate_fraction=0.5), dataset=str(tmp_path)).reused
    own = QualityConfig(max_duplicate_fraction=0.5)
    assert not check(own, dataset=str(tmp_path), rules=default_rules(own)).reused
    assert check(own, dataset=str(tmp_path)).reused, "a report by rules of one's own is not kept"
    (tmp_path / "_checks" / "000001.json").write_text('{"half": ')
    assert not check(own, dataset=str(tmp_path)).reused


def test_a_report_with_infinite_numbers_can_be_read_back(tmp_path: Path) -> None:
    some = [*clean(), episode(20, rewards=changed(episode(20).rewards, 0, np.inf))]
    report = run_check(tmp_path, some)
    after = last_report(open_dataset(str(tmp_path)))
    assert after is not None
    assert after.statistics.returns.max == np.inf
    assert after.findings == report.findings
    assert sum(after.returns.counts) == 20
    assert json.loads(report.model_dump_json())["dataset"]["version"] == 1


def test_read_only_data_is_judged_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_dataset(tmp_path, clean())
    (tmp_path / "_checks").write_text("in the way")
    assert check(QualityConfig(), dataset=str(tmp_path)).verdict == "pass"
    assert "result is not kept" in caplog.text


# What it stops at.


def verdicts(tmp_path: Path) -> dict[str, QualityReport]:
    return {
        "pass": run_check(tmp_path / "pass", clean()),
        "warn": run_check(tmp_path / "warn", [*clean(), replace(episode(7), eps_id="other")]),
        "fail": run_check(tmp_path / "fail", [*clean(), replace(episode(7), eps_id="other"), episode(9)]),
    }


def test_what_a_report_stops(tmp_path: Path) -> None:
    for verdict, report in verdicts(tmp_path).items():
        assert report.verdict == verdict
        stopped = set()
        for stop_on in ("fail", "warn", "never"):
            try:
                enforce(report, QualityConfig(stop_on=stop_on))
            except QualityError:
                stopped.add(stop_on)
        assert stopped == {"pass": set(), "warn": {"warn"}, "fail": {"warn", "fail"}}[verdict]


def test_the_error_says_what_is_wrong_where_and_what_to_do(tmp_path: Path) -> None:
    some = [*clean(), replace(episode(8), eps_id="open", terminated=False), episode(9)]
    some[4] = replace(some[4], actions=changed(some[4].actions, (3, 1), np.nan))
    report = run_check(tmp_path, some)
    with pytest.raises(QualityError) as caught:
        enforce(report, QualityConfig())
    text = str(caught.value)
    assert str(tmp_path) in text.splitlines()[0]
    assert "breaks 2 of 17 rules" in text
    assert "non_finite (fail): 1 of 317 steps" in text
    assert "First: episode episode-4, step 3." in text
    assert "duplicate_ids (fail): 1 of 22 episodes" in text
    assert "open_episodes" not in text, "a warning does not stop by default"
    assert "Prune with drop_non_finite: true" in text
    assert "stop_on" in text


def test_random_actions_of_a_discrete_space_pass(tmp_path: Path) -> None:
    some = [random_episode(i, 5 + i) for i in range(20)]
    assert run_check(tmp_path, some, "table").verdict == "pass"


@pytest.mark.parametrize("values", [[], [np.nan, np.inf], [3.0], [5.0] * 9, [0.0, 1e17], [1e17, 1e17], [-2.0, 8.0, np.nan]])
def test_a_histogram_counts_every_finite_number(values: list[float]) -> None:
    histogram = Histogram.of(np.array(values, float))
    finite = [value for value in values if np.isfinite(value)]
    assert sum(histogram.counts) == len(finite)
    assert len(histogram.edges) == (len(histogram.counts) + 1 if finite else 0)
    assert all(histogram.edges[0] <= value <= histogram.edges[-1] for value in finite)
    assert histogram.edges == sorted(set(histogram.edges))


@pytest.mark.parametrize("count", [1, 3])
def test_the_next_command_splits_also_what_has_few_ids(tmp_path: Path, count: int) -> None:
    report = run_check(tmp_path / "data", clean(count))
    words = shlex.split(report.card().next)
    if count == 1:
        assert words[:2] == ["offline", "train"]
    else:
        settings = dict(word.split("=") for word in words if "=" in word)
        result = split(parse(SplitConfig, settings), dataset=words[2], output=words[3])
        assert result.train.episodes and result.held_out.episodes
