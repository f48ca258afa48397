"""Splits: nothing in common, nothing lost, the share asked for in every stratum, and the same every time."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.data.curation.config import PruningConfig, SplitConfig
from offline_core.data.curation.prune import prune
from offline_core.data.curation.split import SplitResult, chosen_to_hold_out, dividing_fraction, held_out_by_id, split, tied
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.dataset_card import splitting
from offline_core.data.datasets.held_out import held_out_beside, judged_by
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.codecs import Format
from offline_core.data.episodes.index import content_of
from offline_core.errors import ConfigError, EmptyDatasetError
from tests.cases import examples
from tests.data.datasets.factories import FORMATS, episode, write_dataset
from tests.data.importing.factories import run_import


def run_split(folder: Path, name: str = "out", **config: Any) -> SplitResult:
    return split(SplitConfig(**config), dataset=str(folder / "in"), output=str(folder / name))


def sides(result: SplitResult) -> tuple[list[Episode], list[Episode]]:
    train, held_out = (list(open_dataset(ref.uri, ref.version).episodes()) for ref in (result.train, result.held_out))
    return train, held_out


@pytest.mark.parametrize("format", FORMATS)
def test_every_episode_is_on_one_side(tmp_path: Path, format: Format) -> None:
    some = [episode(i, 1 + i % 7) for i in range(50)]
    source = write_dataset(tmp_path / "in", some, format, batch=6, max_rows_per_file=20)
    result = run_split(tmp_path, held_out_fraction=0.3)
    train, held_out = sides(result)
    assert (len(train), len(held_out)) == (35, 15) == (result.train.episodes, result.held_out.episodes)
    chosen = {e.eps_id for e in held_out}
    assert train == [e for e in some if e.eps_id not in chosen], "in the order they had"
    assert held_out == [e for e in some if e.eps_id in chosen]
    assert not set(map(content_of, train)) & set(map(content_of, held_out))
    for ref, side in ((result.train, "train"), (result.held_out, "held_out")):
        assert ref.uri == f"{tmp_path}/out/{side}"
        manifest = open_dataset(ref.uri).manifest
        assert manifest.parents == [source.parent_entry]
        assert manifest.operation.name == "split"
        assert manifest.operation.config["side"] == side
        assert manifest.observation_space == source.manifest.observation_space is not None
    assert (result.source, result.duplicates) == (source.ref, 0)


def test_each_stratum_gives_its_share(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(100)
    some = [episode(i, 1, rewards=np.array([float(order[i])])) for i in range(100)]
    write_dataset(tmp_path / "in", some)
    _, held_out = sides(run_split(tmp_path, held_out_fraction=0.2, strata=10))
    returns = sorted(e.return_ for e in held_out)
    assert [sum(10 * k <= value < 10 * k + 10 for value in returns) for k in range(10)] == [2] * 10


def test_the_same_seed_gives_the_same_split_whatever_the_order_and_the_names(tmp_path: Path) -> None:
    some = [episode(i, rewards=np.full(7, float(i % 5))) for i in range(60)]
    write_dataset(tmp_path / "in", some)
    first, again, other = (run_split(tmp_path, name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert first.train.fingerprint == again.train.fingerprint
    assert first.held_out.fingerprint == again.held_out.fingerprint
    held_out = {content_of(e) for e in sides(first)[1]}
    assert held_out != {content_of(e) for e in sides(other)[1]}
    write_dataset(tmp_path / "in", [replace(e, eps_id=f"x{e.eps_id}") for e in some[::-1]], "table")
    assert {content_of(e) for e in sides(run_split(tmp_path, "d", seed=1))[1]} == held_out


def test_what_belongs_together_stays_together(tmp_path: Path) -> None:
    """Episodes of the same content, and pieces of one episode."""
    some = [episode(i, 8) for i in range(20)]
    copies = [replace(e, eps_id=f"again-{e.eps_id}") for e in some[:10]]
    parts = [piece for e in some[10:15] for piece in (e.slice(0, 3), replace(e.slice(5, 8), eps_id=f"{e.eps_id}@5"))]
    same_id = [piece for e in some[15:] for piece in (e.slice(0, 4), e.slice(4, 8))]
    write_dataset(tmp_path / "in", [*some[:10], *copies, *parts, *same_id])
    result = run_split(tmp_path, held_out_fraction=0.5, strata=1, equal_episodes="together")
    train, held_out = sides(result)
    whole = [{e.eps_id.removeprefix("again-").partition("@")[0] for e in side} for side in (train, held_out)]
    assert not whole[0] & whole[1]
    assert [len(side) for side in (train, held_out)] == [20, 20]
    assert len(train) + len(held_out) == 40
    assert result.duplicates == 20


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_an_imported_episode_stay_together(tmp_path: Path, seed: int) -> None:
    """They begin at step 0 each, as imports cut them where steps are missing."""
    parts = [
        replace(episode(10 * i + j, 4), eps_id=f"e{i}{name}") for i in range(10) for j, name in enumerate(["", "@7-0a1b2c3d"])
    ]
    write_dataset(tmp_path / "in", [replace(e, terminated=False, truncated=True) for e in parts])
    result = run_split(tmp_path, held_out_fraction=0.4, seed=seed)
    train, held_out = ({e.eps_id.partition("@")[0] for e in side} for side in sides(result))
    assert (len(train), len(held_out), train & held_out) == (6, 4, set())


def test_what_comes_under_one_id() -> None:
    names = ["a@5", "a", "a@5@7", "a@20-00000000", "a@9", "b@home", "c@home", "b@00112233aabbccdd", "d@3", "d@8"]
    terminated = [False, False, True, False, False, False, False, False, True, False]
    index = pl.DataFrame({"eps_id": names, "t_started": [0] * 10, "terminated": terminated, "content": names})
    assert tied(index).tolist() == [0, 0, 0, 3, 3, 5, 6, 7, 8, 9], (
        "none goes on after it has terminated; other names may have an @"
    )


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 12), st.floats(-5, 5)), min_size=1, max_size=40),
    st.floats(0.01, 0.99),
    st.integers(1, 50),
    st.integers(0, 5),
    st.booleans(),
    st.booleans(),
)
def test_the_share_is_as_asked(
    rows: list[tuple[int, float]], fraction: float, strata: int, seed: int, together: bool, by_time: bool
) -> None:
    """To within half of what cannot be parted: one episode, or the copies of one."""
    returns = dict(rows)
    index = pl.DataFrame(
        {
            columns.EPS_ID: [str(i) for i in range(len(rows))],
            columns.T_STARTED: [0] * len(rows),
            columns.TERMINATED: [True] * len(rows),
            columns.CONTENT: [str(content) for content, _ in rows],
            columns.RETURN: [returns[content] for content, _ in rows],
        }
    )
    values: dict[str, Any] = {"by": "time" if by_time else "episodes", "equal_episodes": "together" if together else "apart"}
    held_out = chosen_to_hold_out(index, SplitConfig(held_out_fraction=fraction, strata=strata, seed=seed, **values))
    chosen, left = (set(index[columns.CONTENT].filter(mask)) for mask in (held_out, ~held_out))
    largest = max(Counter(index[columns.CONTENT]).values()) if together else 1
    assert not (together and chosen & left)
    assert abs(held_out.sum() - fraction * len(rows)) <= largest / 2 + 1e-9
    if by_time and not together:
        assert held_out.tolist() == sorted(held_out)


def test_a_side_without_episodes(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", [episode(i) for i in range(3)])
    for fraction in (0.1, 0.9):
        with pytest.raises(
            EmptyDatasetError, match=f"A share of {fraction} .*without an episode: its 3 episodes are 3 groups.*Choose"
        ):
            run_split(tmp_path, held_out_fraction=fraction)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("by", ["episodes", "id"])
def test_what_no_share_divides_is_said_to_be_too_few(by: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", [episode(0)])
    with pytest.raises(EmptyDatasetError, match=r"cannot be divided: .* it is one. Record or import at least 2 episodes"):
        run_split(tmp_path, by=by)


@pytest.mark.parametrize("by", ["ship", "id"])
def test_a_value_with_most_of_the_steps_is_told(by: str, tmp_path: Path) -> None:
    names = ["Dora"] * 6 + ["Ella", "Finn", "Greta"] if by == "ship" else [f"e{number}" for number in range(9)]
    lengths = [20] * 9 if by == "ship" else [400] + [5] * 8
    episodes = [replace(episode(i, steps=n), eps_id=f"e{i}") for i, n in enumerate(lengths)]
    told = [replace(each, extras={"ship": np.array([name] * len(each))}) for each, name in zip(episodes, names, strict=True)]
    write_dataset(tmp_path / "in", told)
    result = run_split(tmp_path, by=by, held_out_fraction=0.3)
    [warning] = result.warnings
    assert warning.startswith(f"{by} has {len(set(names))} values, and {'Dora' if by == 'ship' else 'e0'} alone has ")
    assert "where 30 % of the episodes were asked for" in warning and result.card().verdict == "fair"
    assert run_split(tmp_path, by=by, held_out_fraction=0.3).warnings == result.warnings


def test_the_held_out_side_is_found_beside_the_train_side(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", [episode(i) for i in range(8)])
    result = run_split(tmp_path)
    assert held_out_beside(result.train) == result.held_out.uri
    pruned = prune(PruningConfig(where="length > 0"), dataset=result.train.uri, output=str(tmp_path / "pruned"))
    assert held_out_beside(pruned.dataset) == result.held_out.uri
    assert held_out_beside(result.held_out) is None and held_out_beside(result.source) is None
    shutil.rmtree(result.held_out.uri)
    assert held_out_beside(result.train) is None


def test_episodes_with_another_return_than_most_are_on_both_sides(tmp_path: Path) -> None:
    """Of 1,000 episodes 50 return less, all in the first stratum; the edges of strata do not decide where they go."""
    some = [episode(i, 1, rewards=np.array([0.0 if i % 20 == 0 else 1.0])) for i in range(1_000)]
    write_dataset(tmp_path / "in", some)
    _, held_out = sides(run_split(tmp_path, held_out_fraction=0.5))
    assert 15 <= sum(e.get_rewards()[0] == 0 for e in held_out) <= 35


@pytest.mark.parametrize("format", FORMATS)
def test_by_time_the_last_episodes_are_held_out(tmp_path: Path, format: Format) -> None:
    some = [episode(i, 1 + i % 3) for i in range(20)]
    write_dataset(tmp_path / "in", some, format)
    train, held_out = sides(run_split(tmp_path, held_out_fraction=0.3, by="time"))
    assert (train, held_out) == (some[:14], some[14:])


NUMBERS = (float("nan"), *map(float, range(9)))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "values",
    [range(10), [f"house {i}" for i in range(10)], NUMBERS, [[i, i + 1] for i in NUMBERS]],
    ids=["int", "text", "NaN", "vector"],
)
def test_by_a_column_equal_values_stay_on_one_side(tmp_path: Path, values: Sequence[Any], format: Format) -> None:
    some = [replace(episode(i, 2), extras={"building": np.array([values[i % 10]] * 2)}) for i in range(100)]
    write_dataset(tmp_path / "in", some, format)
    train, held_out = sides(run_split(tmp_path, held_out_fraction=0.3, by="building"))
    buildings = [{str(each.extras["building"][0]) for each in side} for side in (train, held_out)]
    assert (len(buildings[0]), len(buildings[1])) == (7, 3) and not buildings[0] & buildings[1]
    with pytest.raises(ConfigError, match=r"cannot be split by 'house': no column is called so. .* there are: building\.$"):
        run_split(tmp_path, "other", by="house")


def test_equal_episodes_may_be_on_both_sides_where_they_have_other_ids(tmp_path: Path) -> None:
    same = [replace(episode(i % 3, 1), eps_id=str(i)) for i in range(90)]
    write_dataset(tmp_path / "in", same)
    apart = run_split(tmp_path, held_out_fraction=0.5)
    counts = [Counter(content_of(e) for e in side) for side in sides(apart)]
    assert all(7 <= counts[0][kind] <= 23 and counts[0][kind] + counts[1][kind] == 30 for kind in counts[0])
    result = run_split(tmp_path, "together", held_out_fraction=0.5, equal_episodes="together")
    together = [{content_of(e) for e in side} for side in sides(result)]
    assert not together[0] & together[1]
    assert (apart.duplicates, result.duplicates) == (0, 87)


@pytest.mark.parametrize("format", FORMATS)
def test_time_is_that_of_the_column_and_not_the_order_of_the_files(tmp_path: Path, format: Format) -> None:
    """Two sites, a file each: the last episodes of both are held out."""
    some = [
        dataclasses.replace(episode(i, 2), extras={"time": np.array([day, day + 1], np.int64) * 10**15 + 10**18})
        for i, day in enumerate([*range(0, 100, 10), *range(5, 105, 10)])
    ]
    data = write_dataset(tmp_path / "in", some, format)
    assert data.in_time().tolist() == [number for pair in zip(range(10), range(10, 20), strict=True) for number in pair]
    train, held_out = sides(run_split(tmp_path, held_out_fraction=0.2, by="time"))
    assert held_out == [some[number] for number in (8, 9, 18, 19)]
    assert train == [one for one in some if one not in held_out]
    without = write_dataset(tmp_path / "without", [episode(i, 2) for i in range(3)], format)
    assert without.in_time().tolist() == [0, 1, 2]
    hours = [dataclasses.replace(episode(i, 2), extras={"time": np.array([9 - i, 9 - i])}) for i in range(3)]
    assert write_dataset(tmp_path / "hours", hours, format).in_time().tolist() == [0, 1, 2], "no times, but hours of the day"


@pytest.mark.parametrize("by", ["episodes", "time", "id", "day"])
def test_both_sides_of_a_bandits_log_are_samples_of_it(tmp_path: Path, by: str) -> None:
    """A few different episodes of one step, each many times: mean returns and shares are those of the log."""
    rng = np.random.default_rng(31)
    context, action = rng.integers(0, 4, 1_000), rng.integers(0, 3, 1_000)
    rewards = (rng.random(1_000) < 0.05 + 0.1 * action + 0.02 * context).astype(float)
    kinds = {key: episode(key, 1, rewards=np.array([key % 2.0])) for key in range(24)}
    log = [
        replace(kinds[int(6 * c + 2 * a + r)], eps_id=f"{number:08x}", extras={"day": np.array([number // 20])})
        for number, (c, a, r) in enumerate(zip(context, action, rewards, strict=True))
    ]
    write_dataset(tmp_path / "in", log, "table")
    held_out = run_split(tmp_path, held_out_fraction=0.3, by=by).held_out
    assert held_out.episodes == pytest.approx(300, abs=45 if by == "id" else 0)
    mean = open_dataset(held_out.uri).manifest.statistics.returns.mean
    assert mean == pytest.approx(rewards.mean(), abs=3 * rewards.std() / held_out.episodes**0.5)


def test_a_column_with_uneven_values_gives_the_share_of_episodes(tmp_path: Path) -> None:
    """One of 21 customers has half of the log."""
    customers = np.array(["large"] * 100 + [f"small {i // 5}" for i in range(100)])
    index = pl.DataFrame(
        {
            columns.EPS_ID: [str(i) for i in range(200)],
            columns.T_STARTED: 0,
            columns.TERMINATED: True,
            columns.CONTENT: [str(i) for i in range(200)],
            columns.RETURN: 0.0,
        }
    )
    for seed in range(20):
        held_out = chosen_to_hold_out(index, SplitConfig(held_out_fraction=0.3, by="customer", seed=seed), customers)
        assert not {*customers[held_out]} & {*customers[~held_out]}
        assert held_out.sum() == 60


@pytest.mark.parametrize("count", [2, 3, 5, 30])
@pytest.mark.parametrize("seed", range(5))
def test_the_proposed_share_leaves_both_sides_an_id(count: int, seed: int) -> None:
    ids = [f"building {number}" for number in range(count)]
    fraction = dividing_fraction(ids, SplitConfig(by="id", seed=seed))
    assert fraction is not None
    held_out = held_out_by_id(ids, SplitConfig(by="id", seed=seed, held_out_fraction=float(f"{fraction:g}")))
    assert held_out.any() and not held_out.all()
    assert held_out.sum() <= max(1, count / 2), "as near to the share that was asked for as few digits allow"


def test_the_error_of_a_split_of_few_ids_names_a_share_that_works(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "in", [episode(i, 3) for i in range(3)], "episodes")
    fraction = dividing_fraction([episode(i, 3).eps_id for i in range(3)], SplitConfig(by="id"))
    with pytest.raises(EmptyDatasetError, match=f"Set held_out_fraction to {fraction:g}, choose"):
        run_split(tmp_path, by="id")
    assert run_split(tmp_path, by="id", held_out_fraction=fraction).held_out.episodes in (1, 2)
    assert data.ref.episodes == 3


@pytest.mark.parametrize("site", [(1, 2, 3), ("north", "south", "west")], ids=["numbers", "texts"])
def test_a_column_that_names_the_episodes_of_a_day_is_kept_beside_them(tmp_path: Path, site: tuple[Any, ...]) -> None:
    rows = [f"{site[i // 8]},2026-01-0{1 + i // 4 % 2}T0{i % 4}:00:00Z,{i},1,{i}" for i in range(24)]
    (tmp_path / "log.csv").write_text("\n".join(["site,at,obs,action,reward", *rows, ""]))
    config: dict[str, Any] = {"mapping": {"eps_id": "site", "t": "at"}, "episodes": {"ids_per": "date"}}
    run_import(tmp_path / "log.csv", tmp_path / "in", **config)
    with pytest.raises(ConfigError, match=r"with columns: \{computed: \{site_kept: site\}\}, and name site_kept"):
        run_split(tmp_path, by="site")
    _, found = run_import(tmp_path / "log.csv", tmp_path / "in", **config, columns={"computed": {"site_kept": "site"}})
    assert len(found) == 6
    train, held_out = sides(run_split(tmp_path, by="site_kept", held_out_fraction=0.3))
    assert (len(train), len(held_out)) == (4, 2)
    assert len({one.extras["site_kept"][0] for one in held_out}) == 1


def test_a_held_out_side_is_what_judges(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", [episode(i, 3) for i in range(20)], "episodes")
    result = run_split(tmp_path)
    assert {judged_by(open_dataset(side.uri)) for side in (result.train, result.held_out)} == {result.held_out.uri}


@pytest.mark.parametrize("count", [2, 3, 5, 19, 20, 199, 200, 300])
def test_the_proposed_split_leaves_no_side_empty(tmp_path: Path, count: int) -> None:
    data = write_dataset(tmp_path / "in", [episode(i, 1 + i % 3) for i in range(count)], "episodes")
    words = splitting(data.ref).split(" -s ")[1:]
    held_out = run_split(tmp_path, **dict(word.split("=") for word in words)).held_out
    assert 0 < held_out.episodes < count
