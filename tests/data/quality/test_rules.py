"""Every rule: a dataset that breaks it and no other, with exact counts and places."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from gymnasium import spaces

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.episodes import Episode
from offline_core.data.episodes.codecs import Format
from offline_core.data.quality.check import check
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import Finding
from tests.data.datasets.factories import FORMATS, edit_json, write_dataset
from tests.data.importing.factories import run_import, steps, without, write_rows
from tests.data.quality.datasets import (
    broken,
    changed,
    clean,
    column,
    commit_tables,
    episode,
    places,
    run_check,
    steps_of,
    table_of,
    the_finding,
)

both_formats = pytest.mark.parametrize("format", FORMATS)


def with_episode(number: int, **changes: Any) -> list[Episode]:
    """The clean dataset with one episode changed."""
    return [replace(e, **changes) if i == number else e for i, e in enumerate(clean())]


def row(number: int, step: int) -> int:
    """Where a step of the clean dataset lies in its table."""
    return steps_of(clean(number)) + step


@both_formats
def test_a_clean_dataset_passes(tmp_path: Path, format: Format) -> None:
    report = run_check(tmp_path, clean(), format)
    assert broken(report) == {}
    assert report.verdict == "pass"
    assert len(report.findings) == 17
    assert all(finding.advice == "" for finding in report.findings)
    no_such_columns = ["forbidden_actions", "observed_outcomes", "time_jumps"]
    assert [finding.rule for finding in report.findings if finding.of == 0] == no_such_columns


@both_formats
@pytest.mark.parametrize(
    ("name", "at", "value", "step"),
    [
        ("observations", (2, 1), np.nan, 2),
        ("observations", (0, 0), np.nan, 0),
        ("observations", (8, 2), np.nan, 7),
        ("actions", (4, 1), np.nan, 4),
        ("rewards", 7, np.nan, 7),
        ("rewards", 0, -np.inf, 0),
    ],
)
def test_non_finite(tmp_path: Path, format: Format, name: str, at: Any, value: float, step: int) -> None:
    """Episode 3 has 8 steps: observation 8 is the one after the last."""
    values = changed(getattr(episode(3), name), at, value)
    finding = the_finding(run_check(tmp_path, with_episode(3, **{name: values}), format), "non_finite")
    assert (finding.verdict, finding.count, finding.of) == ("fail", 1, steps_of(clean()))
    assert places(finding) == [("episode-3", step)]


@both_formats
def test_an_infinite_action_is_no_number_and_outside_its_space(tmp_path: Path, format: Format) -> None:
    report = run_check(tmp_path, with_episode(3, actions=changed(episode(3).actions, (1, 0), np.inf)), format)
    assert {(f.rule, f.count) for f in broken(report).values()} == {("non_finite", 1), ("actions_outside_space", 1)}


@both_formats
def test_what_is_not_finite_is_dropped_by_pruning(tmp_path: Path, format: Format) -> None:
    """The gate and pruning give one answer, also where the space has no bounds."""
    unbounded = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    some = [replace(e, observation_space=unbounded) for e in clean()]
    some[3] = replace(some[3], observations=changed(some[3].observations, (2, 1), np.inf))
    report = run_check(tmp_path, some, format)
    assert set(broken(report)) == {"non_finite"}
    assert report.statistics.columns is not None
    assert report.statistics.columns["obs"].infinite == [0, 1, 0]
    pruned = prune(PruningConfig(drop_non_finite=True), dataset=report.dataset.uri, output=str(tmp_path / "pruned"))
    assert pruned.dropped_episodes == 1
    assert check(QualityConfig(), dataset=pruned.dataset.uri).verdict == "pass"


@both_formats
def test_constant_features(tmp_path: Path, format: Format) -> None:
    some = [replace(e, observations=changed(e.observations, (slice(None), 1), 0.25)) for e in clean()]
    finding = the_finding(run_check(tmp_path, some, format), "constant_features")
    assert (finding.verdict, finding.count, finding.of) == ("warn", 1, 5)
    assert "obs[1] = 0.25" in finding.message


@both_formats
@pytest.mark.parametrize("sign", [1, -1])
def test_observed_outcomes(tmp_path: Path, format: Format, sign: int) -> None:
    """A number that is known only once the action is rewarded."""
    rng = np.random.default_rng(0)
    some = []
    for number in range(60):
        steps = 5 + number
        rewards = rng.integers(0, 3, steps) / 2
        told = np.append(sign * (rewards != 0) + 0.3 * rng.random(steps), 9.0)
        observations = np.column_stack([rng.random((steps + 1, 2)), told]).astype(np.float32)
        some.append(episode(number, observations=observations, rewards=rewards, observation_space=None))
    finding = the_finding(run_check(tmp_path, some, format), "observed_outcomes")
    assert (finding.verdict, finding.count, finding.of) == ("warn", 1, 3)
    assert "tell by themselves which steps are rewarded: obs[2]" in finding.message


def test_a_clock_that_tells_the_last_step_is_no_finding(tmp_path: Path) -> None:
    some = []
    for number in range(120):
        steps = 5 + number % 20
        left = np.arange(steps, -1, -1)
        observations = np.column_stack([np.random.default_rng(number).random(steps + 1), left / 25, left]).astype(np.float32)
        rewards = (left[:-1] == 1).astype(float)
        changes = {"actions": np.zeros((steps, 2), np.float32), "extras": {}, "observation_space": None, "eps_id": f"e{number}"}
        some.append(episode(0, observations=observations, rewards=rewards, **changes))
    assert "observed_outcomes" not in broken(run_check(tmp_path, some, "episodes"))


def test_a_reward_that_no_single_number_tells_is_no_finding(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    some = []
    for number in range(60):
        observations = rng.random((6 + number, 3)).astype(np.float32)
        rewards = (observations[:-1].sum(axis=1) > 1.5).astype(float)
        some.append(episode(number, observations=observations, rewards=rewards, observation_space=None))
    assert broken(run_check(tmp_path, some, "episodes")) == {}


@both_formats
def test_saturated_actions(tmp_path: Path, format: Format) -> None:
    """All but the first two steps of every episode are at one of the two bounds."""
    some = [replace(e, actions=changed(e.actions, (slice(2, None), 1), (-1.0) ** i)) for i, e in enumerate(clean())]
    finding = the_finding(run_check(tmp_path, some, format), "saturated_actions")
    steps = steps_of(clean())
    assert (finding.verdict, finding.count, finding.of) == ("warn", steps - 40, steps)
    assert f"actions[1]: {100 * (steps - 40) / steps:.0f} % of the steps" in finding.message
    assert "actions[0]" not in finding.message
    assert places(finding) == [("episode-0", 2), ("episode-0", 3), ("episode-0", 4), ("episode-1", 2), ("episode-1", 3)]


def test_some_saturation_is_allowed(tmp_path: Path) -> None:
    some = [replace(e, actions=changed(e.actions, (slice(None), 1), 1.0)) if i < 10 else e for i, e in enumerate(clean())]
    report = run_check(tmp_path, some)
    assert report.verdict == "pass"
    assert next(f.count for f in report.findings if f.rule == "saturated_actions") == steps_of(clean(10))
    strict = check(QualityConfig(max_saturated_fraction=0.2), dataset=str(tmp_path))
    assert list(broken(strict)) == ["saturated_actions"]


@pytest.mark.parametrize("low", [-np.inf, -5.0])
def test_rules_about_bounds_do_not_apply_where_there_are_none(tmp_path: Path, low: float) -> None:
    unbounded = {name: spaces.Box(low, np.inf, (n,), np.float32) for name, n in {"observation": 3, "action": 2}.items()}
    some = [replace(e, observation_space=unbounded["observation"], action_space=unbounded["action"]) for e in clean()]
    report = run_check(tmp_path, some)
    about = [
        f for f in report.findings if f.rule in ("saturated_actions", "actions_outside_space", "observations_outside_space")
    ]
    assert len(about) == 3
    assert {f.outcome for f in about} == ({"pass"} if np.isfinite(low) else {"not applicable"})
    assert all(f.message.startswith("Not applicable: no ") for f in about) != np.isfinite(low)


@both_formats
def test_actions_outside_their_space(tmp_path: Path, format: Format) -> None:
    some = with_episode(2, actions=changed(episode(2).actions, ([1, 3], 0), [1.5, -1.01]))
    finding = the_finding(run_check(tmp_path, some, format), "actions_outside_space")
    assert (finding.verdict, finding.count, finding.of) == ("fail", 2, steps_of(clean()))
    assert places(finding) == [("episode-2", 1), ("episode-2", 3)]


@both_formats
@pytest.mark.parametrize(("at", "step"), [(4, 4), (7, 6)])
def test_observations_outside_their_space(tmp_path: Path, format: Format, at: int, step: int) -> None:
    """Episode 2 has 7 steps: observation 7 is the one after the last."""
    some = with_episode(2, observations=changed(episode(2).observations, (at, 1), 9.0))
    finding = the_finding(run_check(tmp_path, some, format), "observations_outside_space")
    assert (finding.verdict, finding.count, finding.of) == ("warn", 1, steps_of(clean()))
    assert places(finding) == [("episode-2", step)]


@pytest.mark.parametrize("flag", ["terminateds", "truncateds"])
def test_steps_after_the_end(tmp_path: Path, flag: str) -> None:
    """Episode 4 has 9 steps, and ends at step 2 already: six follow."""
    table = table_of(clean())
    finding = the_finding(
        run_check(tmp_path, column(table, flag, changed(table[flag], row(4, 2), True))),
        "steps_after_end",
    )
    assert (finding.verdict, finding.count, finding.of) == ("fail", 6, table.num_rows)
    assert places(finding) == [("episode-4", t) for t in (3, 4, 5, 6, 7)]


@both_formats
def test_a_piece_after_the_end(tmp_path: Path, format: Format) -> None:
    some = clean()
    last = some.pop()
    pieces = [replace(last.slice(0, 10), truncated=True), last.slice(10, 24)]
    finding = the_finding(run_check(tmp_path, [pieces[0], *some, pieces[1]], format), "steps_after_end")
    assert (finding.count, finding.of) == (14, steps_of(clean()))
    assert places(finding)[0] == ("episode-19", 10)


@both_formats
def test_pieces_of_an_episode_are_one_episode(tmp_path: Path, format: Format) -> None:
    some = clean()
    last = some.pop()
    assert run_check(tmp_path, [last.slice(0, 10), *some, last.slice(10, 24)], format).verdict == "pass"


def test_the_order_of_steps(tmp_path: Path) -> None:
    """Episode 4 skips two steps, then a third."""
    table = table_of(clean())
    late = np.arange(row(4, 3), row(5, 0))
    t = table["t"].to_numpy() + 2 * np.isin(np.arange(table.num_rows), late) + np.isin(np.arange(table.num_rows), late[3:])
    finding = the_finding(run_check(tmp_path, column(table, "t", t)), "step_order")
    assert (finding.verdict, finding.count, finding.of) == ("fail", 2, table.num_rows)
    assert places(finding) == [("episode-4", 5), ("episode-4", 9)]


@both_formats
def test_a_piece_is_missing(tmp_path: Path, format: Format) -> None:
    some = clean()
    last = some.pop()
    finding = the_finding(run_check(tmp_path, [last.slice(0, 10), *some, last.slice(12, 24)], format), "step_order")
    assert (finding.count, places(finding)) == (1, [("episode-19", 12)])


def test_unsorted_steps(tmp_path: Path) -> None:
    """Two neighbours have changed places, which breaks the order three times."""
    table = table_of(clean())
    order = np.arange(table.num_rows)
    order[[row(4, 3), row(4, 4)]] = order[[row(4, 4), row(4, 3)]]
    finding = the_finding(run_check(tmp_path, table.take(pa.array(order))), "step_order")
    assert (finding.count, places(finding)) == (3, [("episode-4", 4), ("episode-4", 3), ("episode-4", 5)])


def test_a_broken_chain_of_observations(tmp_path: Path) -> None:
    """The third new_obs of episode 4 was recorded after a reset; the obs of the next row is right."""
    table = table_of(clean())
    new_obs = np.array(table["new_obs"].combine_chunks().to_numpy_ndarray())
    new_obs[row(4, 2), 1] += 0.5
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(new_obs)
    finding = the_finding(run_check(tmp_path, column(table, "new_obs", tensor)), "observation_chain")
    assert (finding.verdict, finding.count, finding.of) == ("fail", 1, table.num_rows - 20)
    assert places(finding) == [("episode-4", 3)]


def test_nan_does_not_break_the_chain(tmp_path: Path) -> None:
    some = with_episode(3, observations=changed(episode(3).observations, (2, 1), np.nan))
    assert list(broken(run_check(tmp_path, some, "table"))) == ["non_finite"]


@both_formats
@pytest.mark.parametrize("apart", [True, False])
def test_duplicate_ids(tmp_path: Path, format: Format, apart: bool) -> None:
    again = replace(episode(30), eps_id="episode-7")
    some = clean()
    some.insert(20 if apart else 8, replace(again, terminated=False, truncated=True))
    finding = the_finding(run_check(tmp_path, some, format), "duplicate_ids")
    assert (finding.verdict, finding.count, finding.of) == ("fail", 1, 21)
    assert places(finding) == [("episode-7", 0)]


@both_formats
def test_a_copy_is_one_finding(tmp_path: Path, format: Format) -> None:
    assert the_finding(run_check(tmp_path, [*clean(), episode(7)], format), "duplicate_ids").count == 1


@both_formats
def test_duplicate_contents(tmp_path: Path, format: Format) -> None:
    some = [*clean(), replace(episode(7), eps_id="other"), replace(episode(7), eps_id="third")]
    report = run_check(tmp_path, some, format)
    finding = the_finding(report, "duplicate_contents")
    assert (finding.verdict, finding.count, finding.of) == ("warn", 2, 22)
    assert places(finding) == [("other", 0), ("third", 0)]
    assert check(QualityConfig(max_duplicate_fraction=0.1), dataset=str(tmp_path)).verdict == "pass"


def repeated(kinds: Sequence[tuple[int, int, int]], steps: int = 1) -> list[Episode]:
    """An episode for each (context, action, reward), under ids of their own."""
    return [
        Episode(
            eps_id=f"{number:08x}",
            observations=np.full((steps + 1, 2), kind[0], np.float32),
            actions=np.full(steps, kind[1]),
            rewards=np.linspace(0, kind[2], steps + 1)[1:],
            terminated=True,
        )
        for number, kind in enumerate(kinds)
    ]


def bandit(episodes: int, contexts: int = 4, arms: int = 3, seed: int = 0) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    clicks = (rng.random(episodes) < 0.2).astype(int)
    return [*zip(rng.integers(contexts, size=episodes), rng.integers(arms, size=episodes), clicks, strict=True)]


EQUAL_BY_CHANCE = {
    "few kinds": (bandit(300), 1),
    "no contexts": (bandit(200, contexts=1), 1),
    "many kinds, and few twice": (bandit(400, contexts=40, arms=30), 1),
    "one kind in most": ([(0, 0, 0)] * 150 + bandit(60), 1),
    "several steps": (bandit(300, contexts=2), 5),
}
RECORDED_TWICE = {
    "a log of few kinds": ([(i % 50, i % 6, int(i % 7 == 0)) for i in range(150)] * 2, 3),
    "contexts that never come again": ([(i, i % 3, 0) for i in [*range(100), *range(50)]], 3),
    "three times and twice": ([(i, i % 3, 0) for i in [*range(60), *range(60), *range(30), *range(90)]], 3),
    "equal seeds": ([(i // 8, i // 8 % 3, 0) for i in range(400)], 5),
    "long ones": (bandit(300), 50),
}


def checked(folder: Path, some: list[Episode], rule: str, held_out: list[Episode] | None = None) -> Finding:
    if held_out is not None:
        write_dataset(folder / "held_out", held_out)
    given = {} if held_out is None else {"held_out": str(folder / "held_out")}
    return next(finding for finding in run_check(folder / "log", some, **given).findings if finding.rule == rule)


@pytest.mark.parametrize("steps", [1, 2])
def test_short_episodes_are_duplicates_under_one_id_at_one_time(tmp_path: Path, steps: int) -> None:
    some = [
        replace(episode, extras={"time": np.full(steps, number, np.float64)})
        for number, episode in enumerate(repeated([(number % 90, 0, 1) for number in range(100)], steps))
    ]
    assert checked(tmp_path / "clean", some, "duplicate_contents").verdict == "pass"
    again = [replace(episode, eps_id=f"{episode.eps_id}@1-01234567") for episode in some[:20]]
    finding = checked(tmp_path / "twice", [*some, *again], "duplicate_contents")
    assert (finding.verdict, finding.count) == ("warn", 20)
    later = [replace(episode, extras={"time": episode.extras["time"] + 1}) for episode in again]
    assert checked(tmp_path / "later", [*some, *later], "duplicate_contents").count == 0


@pytest.mark.parametrize("kinds", EQUAL_BY_CHANCE.values(), ids=EQUAL_BY_CHANCE)
def test_episodes_that_are_equal_by_chance_are_no_duplicates(tmp_path: Path, kinds: tuple[Any, int]) -> None:
    some = repeated(*kinds)
    finding = checked(tmp_path / "alone", some, "duplicate_contents")
    assert (finding.verdict, finding.advice) == ("pass", "")
    assert ("by chance" in finding.message) == (kinds[1] > 2)  # shorter ones are not compared
    others = [replace(e, eps_id=f"x{e.eps_id}") for e in some[::3]]
    assert checked(tmp_path / "others", some, "held_out_overlap", others).verdict == "pass"
    shared = checked(tmp_path / "shared", some, "held_out_overlap", some[::3])
    assert (shared.verdict, shared.count) == ("fail", len(some[::3]))


@pytest.mark.parametrize("kinds", RECORDED_TWICE.values(), ids=RECORDED_TWICE)
def test_recordings_that_were_written_twice_are_duplicates(tmp_path: Path, kinds: tuple[Any, int]) -> None:
    some = repeated(*kinds)
    finding = checked(tmp_path / "alone", some, "duplicate_contents")
    assert finding.verdict == "warn"
    assert "written twice" in finding.advice
    assert "chance" not in finding.message
    others = [replace(e, eps_id=f"x{e.eps_id}") for e in some[::3]]
    assert checked(tmp_path / "others", some, "held_out_overlap", others).verdict == "fail"


@both_formats
def test_a_time_limit_stored_as_termination(tmp_path: Path, format: Format) -> None:
    """Four of 23 episodes terminate after 24 steps, which is as long as any gets."""
    long = [
        replace(episode(19), eps_id=f"long-{i}", rewards=episode(19).rewards + i, terminated=True, truncated=False)
        for i in range(4)
    ]
    finding = the_finding(run_check(tmp_path, [*clean(19), *long], format), "time_limit_as_termination")
    assert (finding.verdict, finding.count, finding.of) == ("warn", 4, 23)
    assert "24 steps" in finding.message
    assert places(finding) == [(f"long-{i}", 0) for i in range(4)]


@pytest.mark.parametrize("long", [1, 2, 4])
def test_no_time_limit_is_suspected_where_none_can_be(tmp_path: Path, long: int) -> None:
    """Two that are as long as each other are a coincidence; four that are truncated are what should be."""
    some = [
        replace(episode(19), eps_id=f"long-{i}", rewards=episode(19).rewards + i, terminated=long < 3, truncated=long >= 3)
        for i in range(long)
    ]
    assert run_check(tmp_path, [*clean(19), *some]).verdict == "pass"


@both_formats
def test_open_episodes(tmp_path: Path, format: Format) -> None:
    some = [replace(e, terminated=False, truncated=False) if i in (3, 5) else e for i, e in enumerate(clean())]
    finding = the_finding(run_check(tmp_path, some, format), "open_episodes")
    assert (finding.verdict, finding.count, finding.of) == ("warn", 2, 20)
    assert places(finding) == [("episode-3", 7), ("episode-5", 9)]


@pytest.mark.parametrize("held_out_format", FORMATS)
@both_formats
def test_overlap_with_the_held_out_dataset(tmp_path: Path, format: Format, held_out_format: Format) -> None:
    others = [episode(30), replace(episode(7), eps_id="renamed"), episode(31), episode(9)]
    write_dataset(tmp_path / "held_out", others, held_out_format)
    report = run_check(tmp_path / "train", clean(), format, held_out=str(tmp_path / "held_out"))
    finding = the_finding(report, "held_out_overlap")
    assert (finding.verdict, finding.count, finding.of) == ("fail", 2, 20)
    assert places(finding) == [("episode-7", 0), ("episode-9", 0)]
    assert str(tmp_path / "held_out") in finding.message


def test_no_overlap(tmp_path: Path) -> None:
    write_dataset(tmp_path / "held_out", [episode(30), episode(31)])
    report = run_check(tmp_path / "train", clean(), held_out=str(tmp_path / "held_out"))
    assert report.verdict == "pass"
    assert report.findings[-1].rule == "held_out_overlap"


def wider(e: Episode) -> Episode:
    return replace(e, observations=np.asarray(e.observations).astype(np.float64))


def without_extras(e: Episode) -> Episode:
    return replace(e, extras={})


def of_another_space(e: Episode) -> Episode:
    return replace(e, action_space=spaces.Box(-2, 2, (2,), np.float32))


def of_another_shape(e: Episode) -> Episode:
    return replace(e, actions=np.asarray(e.actions)[:, [0, 1, 0]], action_space=spaces.Box(-1, 1, (3,), np.float32))


MIXTURES: list[tuple[Callable[[Episode], Episode], str]] = [
    (wider, "obs is float64[3] and not float32[3]"),
    (without_extras, "action_logp is missing and not float64"),
    (of_another_shape, "actions is float32[3] and not float32[2]"),
    (of_another_space, "the space of actions is Box(-2.0, 2.0, (2,), float32)"),
]


@pytest.mark.parametrize(("change", "message"), MIXTURES)
def test_mixed_episodes(tmp_path: Path, change: Callable[[Episode], Episode], message: str) -> None:
    some = [change(e) if i in (6, 12, 13) else e for i, e in enumerate(clean())]
    finding = the_finding(run_check(tmp_path, some), "mixed_types")
    assert (finding.verdict, finding.count, finding.of) == ("fail", 3, 20)
    assert places(finding) == [("episode-6", 0), ("episode-12", 0), ("episode-13", 0)]
    assert message in finding.message


@pytest.mark.parametrize(("change", "message"), MIXTURES)
def test_mixed_tables(tmp_path: Path, change: Callable[[Episode], Episode], message: str) -> None:
    some = clean()
    commit_tables(tmp_path, table_of(some[:17]), table_of([change(e) for e in some[17:]]))
    finding = the_finding(check(QualityConfig(), dataset=str(tmp_path)), "mixed_types")
    assert (finding.verdict, finding.count, finding.of) == ("fail", 3, 20)
    assert places(finding) == [("episode-17", 0), ("episode-18", 0), ("episode-19", 0)]
    assert message in finding.message


def test_an_empty_table(tmp_path: Path) -> None:
    finding = the_finding(run_check(tmp_path, table_of(clean()).slice(0, 0)), "empty_dataset")
    assert (finding.verdict, finding.count, finding.of) == ("fail", 0, 0)


def test_episodes_without_steps(tmp_path: Path) -> None:
    some = [episode(i).slice(0, 0) for i in range(3)]
    report = run_check(tmp_path, some)
    assert broken(report)["empty_dataset"].count == 3
    assert report.statistics.steps == 0
    mixed = run_check(tmp_path / "mixed", [*some, *clean()[3:]])
    assert mixed.verdict == "pass"
    assert (mixed.statistics.episodes, mixed.statistics.steps) == (20, steps_of(clean()) - 5 - 6 - 7)


def lasting(*lengths: int) -> list[Episode]:
    """Episodes of these lengths that all terminate."""
    return [
        replace(
            episode(max(0, n - 5)).slice(0, n), eps_id=f"of-{i}", rewards=np.full(n, float(i)), terminated=True, truncated=False
        )
        for i, n in enumerate(lengths)
    ]


@pytest.mark.parametrize(
    ("lengths", "is_suspected"),
    [
        ([1] * 5 + [2] * 4 + [3] * 3, False),  # blackjack
        ([1] * 9 + [3] * 3, False),
        ([*range(2, 12), *range(2, 12), 12, 12, 12], False),  # as likely as others near it
        ([3, 7, 11, 20, 20, 20, 20], True),
        ([20] * 5, True),
    ],
)
def test_a_time_limit_needs_a_pile_at_the_longest_length(tmp_path: Path, lengths: list[int], is_suspected: bool) -> None:
    assert ("time_limit_as_termination" in broken(run_check(tmp_path, lasting(*lengths)))) == is_suspected


@both_formats
def test_times_that_jump(tmp_path: Path, format: Format) -> None:
    """Forwards, further than the episode's pace says; an hour of the day, which goes back, is none, and text is no time."""
    some = [episode(i) for i in range(30, 33)]
    times = [np.arange(len(e)) * 10.0 for e in some]
    times[1][3:] += 1000.0
    times[2] = (np.arange(len(some[2])) / 8 + 20) % 24
    times[2][5:9] += 100
    timed = [replace(e, extras=e.extras | {"time": t}) for e, t in zip(some, times, strict=True)]
    finding = the_finding(run_check(tmp_path / "timed", timed, format), "time_jumps")
    assert (finding.verdict, finding.count, finding.of) == ("warn", 1, 108)
    assert places(finding) == [("episode-31", 3)]
    assert "episodes: {max_gap: 900}" in finding.advice  # of a jump by 1,010
    named = [replace(e, extras={"time": np.array(["noon"] * len(e))}) for e in clean(3)]
    assert run_check(tmp_path / "named", named, format).verdict == "pass"


@pytest.mark.parametrize(("back", "is_found"), [(2700, True), (7200, False)])
def test_times_jump_also_where_the_clock_is_set_back(tmp_path: Path, back: int, is_found: bool) -> None:
    """By an hour at most, in nanoseconds since 1970; times that go back further are no times by which steps follow."""
    took = np.full(60, 900)
    took[20], took[40] = -back, 90_000
    time = 10**9 * (1_761_000_000 + np.cumsum(took))
    one = episode(55)
    report = run_check(tmp_path, [replace(one, extras=one.extras | {"time": time})])
    assert ("time_jumps" in broken(report)) == is_found


@pytest.mark.parametrize("declared", [None, 1e6])
def test_an_import_that_declares_its_largest_gap_has_no_jumps(tmp_path: Path, declared: float | None) -> None:
    rows = without(steps("a", 40, end="X"), "new_obs")
    write_rows(tmp_path / "x.parquet", [row | {"t": float(row["t"] + 500 * (row["t"] > 20))} for row in rows])
    rules = {"order": "time", "last_new_obs": "repeat", "max_gap": 1e6}
    run_import(tmp_path / "x.parquet", tmp_path / "out", episodes=rules)
    if declared is None:  # as imported before there were gaps
        manifest = json.loads((place := tmp_path / "out/_versions/000001.json").read_text())
        manifest["operation"]["config"]["episodes"]["max_gap"] = None
        edit_json(place, operation=manifest["operation"])
    report = check(QualityConfig(), dataset=str(tmp_path / "out"))
    assert ("time_jumps" in broken(report)) == (declared is None)
