"""Bad episodes of several kinds in real recordings are ranked on top, good ones are left alone, and a pruning acts on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import offline_core as offline
from benchmarks.outliers import damaged, ranked
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.data.quality.steps import step_batches
from offline_core.errors import ConfigError
from offline_core.judging.ranking.result import OutlierResult
from offline_core.judging.ranking.steps import numbers_of
from tests.data.datasets.factories import FORMATS, write_dataset

QUICK = {"updates": 200, "max_steps": 20_000}


def play(episodes: int, *, skill: float, seed: int) -> list[Episode]:
    """CartPole by lot, or with so large a share of the steps by a controller that balances the pole."""
    env, rng, found = gym.make("CartPole-v1", max_episode_steps=100), np.random.default_rng(seed), []
    for number in range(episodes):
        seen, actions, done = [env.reset(seed=seed + number)[0]], [], False
        while not done:
            angle, turn = seen[-1][2:]
            action = int(angle + 0.3 * turn > 0) if rng.random() < skill else int(rng.integers(2))
            state, _, terminated, truncated, _ = env.step(action)
            seen.append(state)
            actions.append(action)
            done = terminated or truncated
        found.append(
            Episode(
                eps_id=f"{skill}-{number}",
                observations=np.stack(seen).astype(np.float32),
                actions=np.array(actions),
                rewards=np.ones(len(actions)),
                terminated=terminated,
                truncated=truncated and not terminated,
                observation_space=env.observation_space,
                action_space=env.action_space,
            )
        )
    return found


@pytest.fixture(scope="module")
def mixed() -> list[Episode]:
    return [*play(330, skill=0, seed=1), *play(70, skill=0.9, seed=1001)]


@pytest.fixture(scope="module")
def clean(mixed: list[Episode], tmp_path_factory: pytest.TempPathFactory) -> OutlierResult:
    folder = tmp_path_factory.mktemp("clean")
    return offline.outliers(write_dataset(folder / "data", mixed), output=folder / "out", **QUICK)


def test_damaged_episodes_are_on_top(mixed: list[Episode], tmp_path: Path) -> None:
    episodes, by = damaged(mixed, seed=3, share=0.035)
    found = offline.outliers(write_dataset(tmp_path / "data", episodes), output=tmp_path / "out", **QUICK)
    top = ranked(found)[: len(by)].tolist()
    assert len(set(top) & by.keys()) >= 0.9 * len(by), {number: by[number] for number in by.keys() - set(top)}
    assert all(each.reason for each in found.outliers)


def test_good_episodes_of_mixed_quality_are_left_alone(clean: OutlierResult) -> None:
    assert clean.count <= 4  # a hundredth
    table = pl.read_parquet(clean.scores)
    assert table["eps_id"].to_list()[329:331] == ["0-329", "0.9-0"] and len(table) == 400
    assert not table.filter(pl.col("eps_id").str.starts_with("0.9"))["is_outlier"].sum() > 2


def test_the_same_is_reused_and_lost_scores_are_made_again(clean: OutlierResult) -> None:
    again = offline.outliers(clean.dataset, output=clean.uri, **QUICK)
    assert again.reused and again.outliers == clean.outliers


@pytest.mark.parametrize("format", FORMATS)
def test_a_pruning_by_the_scores(format: str, tmp_path: Path) -> None:
    episodes = play(60, skill=0, seed=5)
    episodes[7] = replace(episodes[7], rewards=episodes[7].rewards * 100)
    data = write_dataset(tmp_path / "data", episodes, format)  # type: ignore[arg-type]
    found = offline.outliers(data, output=tmp_path / "out", **QUICK)
    assert found.outliers[0].episode == 7 and "reward" in found.outliers[0].reason
    good = offline.prune(data, "outlier_score < 1000", outliers=found.uri, output=tmp_path / "good")
    kept = good.table()["eps_id"].to_list()
    assert found.outliers[0].score >= 1000 or len(kept) == 60
    good = offline.prune(data, f"outlier_score < {found.outliers[0].score}", outliers=found.uri, output=tmp_path / "good")
    assert good.table()["eps_id"].to_list() == [each.eps_id for i, each in enumerate(episodes) if i != 7]


def test_prunings_by_equal_scores_are_the_same_and_by_others_are_not(clean: OutlierResult, tmp_path: Path) -> None:
    given = {"where": "outlier_score < 3", "output": tmp_path / "good"}
    first = offline.prune(clean.dataset, outliers=clean.uri, **given)
    assert offline.prune(clean.dataset, outliers=clean.uri, **given).result.reused  # type: ignore[union-attr]
    table = pq.read_table(clean.scores)
    changed = table.set_column(table.column_names.index("outlier_score"), "outlier_score", [np.zeros(len(table))])
    (tmp_path / "other").mkdir()
    pq.write_table(changed, tmp_path / "other" / "scores.parquet")
    other = offline.prune(clean.dataset, outliers=str(tmp_path / "other"), **given)
    assert other.ref.episodes == 400 > first.ref.episodes


@pytest.mark.parametrize(
    ("where", "outliers", "message"),
    [
        ("outlier_score < 6", None, "name the folder of the scores by 'outliers'"),
        ("return > 1", "scores", "no condition names outlier_score or is_outlier"),
        (None, "scores", "no condition names outlier_score or is_outlier"),
        ("not is_outlier", "nowhere", "make it with 'offline outliers"),
        ("not is_outlier", "scores", "of another dataset or version"),
    ],
)
def test_what_does_not_fit_is_refused(
    where: str | None, outliers: str | None, message: str, clean: OutlierResult, mixed: list[Episode], tmp_path: Path
) -> None:
    data = write_dataset(tmp_path / "data", mixed[:5])
    folder = {"scores": clean.uri, "nowhere": str(tmp_path / "nowhere"), None: None}[outliers]
    with pytest.raises(ConfigError, match=message):
        offline.prune(data, where, outliers=folder, output=tmp_path / "out")


def days(folder: Path, number: int = 14) -> str:
    """Days of a building with a row an hour; on the last one it is hot outside, and the recorder pauses for a day."""
    hours, frames = np.arange(24), []
    for day in range(number):
        odd = day == number - 1
        begin = np.datetime64("2026-01-01T00:00:00", "us") + np.timedelta64(2 * day, "D")
        time = begin + (hours + (24 if odd else 0) * (hours > 11)) * np.timedelta64(1, "h")
        tout = np.sin(hours) + (50 if odd else 0) + 0.01 * day
        sensors = [{"tin": 20 + 0.1 * ((hour + day) % 3), "tout": float(tout[hour])} for hour in hours]
        heating = [float((hour + day) % 2) for hour in hours]
        frames.append(pl.DataFrame({"day": [day] * 24, "time": time, "sensors": sensors, "heating": heating, "cost": heating}))
    pl.concat(frames).write_parquet(folder / "days.parquet")
    mapping = {"obs": ["sensors.tin", "sensors.tout"], "actions": "heating", "rewards": "cost", "eps_id": "day", "t": "time"}
    logs = offline.import_data(
        folder / "days.parquet", mapping=mapping, episodes={"max_gap": 1e6, "last_new_obs": "repeat"}, output=folder / "data"
    )
    return logs.location.uri


def test_reasons_name_the_mapped_columns_and_tell_durations(tmp_path: Path) -> None:
    found = offline.outliers(days(tmp_path), output=tmp_path / "out", **QUICK)
    features = pl.read_parquet(found.scores)
    assert "mean of sensors.tout" in features.columns and "largest jump of time in seconds" in features.columns
    first = found.outliers[0]
    assert first.episode == 13 and first.score < 1e4
    assert "sensors.tout" in first.reason and "time 25.0 h" in first.reason and "the median of 60 min" in first.reason
    assert first.farther_than == 13 and "all other episodes" in found.card().markdown()


def test_features_name_the_numbers_of_a_mapped_vector_and_the_labels_of_actions(tmp_path: Path) -> None:
    made_of = InputColumns(steps=RowSteps(), obs=["state"], action="mode", labels=["off", "low", "high"])
    episodes = [replace(each, action_space=gym.spaces.Discrete(3)) for each in play(1, skill=0, seed=0)]
    [batch] = step_batches(write_dataset(tmp_path / "data", episodes))
    names = numbers_of(batch, made_of).names
    assert {"state[0]", "state[3]", "actions = off", "actions = high"} <= {*names}


def test_what_no_policy_sees_makes_no_episode_an_outlier(tmp_path: Path) -> None:
    episodes = [replace(each, extras={"wind": np.full(len(each), 9999.0)}) for each in play(2, skill=0, seed=0)]
    [batch] = step_batches(write_dataset(tmp_path / "data", episodes))
    assert "wind" in batch.columns and {*numbers_of(batch).columns} == {"obs", "actions", "rewards"}


def test_statistics_name_the_mapped_columns_and_tell_dates(tmp_path: Path) -> None:
    from offline_core.keeping.homepage.facts import COLUMN_NUMBERS, column_rows

    dataset = open_dataset(days(tmp_path, number=3))
    report = offline.check(dataset.location.uri)
    rows = {name: numbers for name, numbers, _ in column_rows(report.statistics.columns or {}, dataset.manifest.input_columns)}
    assert rows.keys() >= {"sensors.tin", "sensors.tout", "actions", "rewards", "time"}
    told = dict(zip(COLUMN_NUMBERS, rows["time"], strict=True))
    assert (told["min"], told["max"]) == ("2026-01-01 00:00:00", "2026-01-06 23:00:00")
    assert str(told["std"]).endswith(" h")
    assert told["5 %"] is told["median"] is told["95 %"] is None  # known to some hundred days, of six
    assert rows["rewards"][COLUMN_NUMBERS.index("median")] is not None


def offers(folder: Path, *, broken: bool) -> str:
    """400 choices by lot of one step each, of which two are paid 100 times as much; or whose observation is far off in one."""
    rng = np.random.default_rng(0)
    seen, acted = rng.normal(size=(400, 2, 2)).astype(np.float32), rng.integers(0, 2, 400)
    paid = rng.normal(1, 0.1, 400)
    if broken:
        seen[7] = 1e4
    else:
        paid[[7, 8]] *= 100
    spaces = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32), gym.spaces.Discrete(2)
    return write_dataset(
        folder,
        [
            Episode(
                eps_id=f"A{number:03}",
                observations=seen[number],
                actions=acted[number : number + 1],
                rewards=paid[number : number + 1],
                terminated=True,
                observation_space=spaces[0],
                action_space=spaces[1],
            )
            for number in range(400)
        ],
    )


def test_what_came_of_a_choice_by_lot_is_not_to_be_pruned(tmp_path: Path) -> None:
    found = offline.outliers(offers(tmp_path / "data", broken=False), output=tmp_path / "out", **QUICK)
    assert {"A007", "A008"} <= {each.eps_id for each in found.outliers} and found.drawn >= 2
    card = found.card()
    assert "look before you prune by it" in " ".join(card.sections[0].sentences)
    assert card.next == (" && ".join(found.advice.first.commands) if found.count == found.drawn else "")
    assert "Episode A007" in card.facts and not any("steps 0 to 0" in each.reason for each in found.outliers)


def test_what_is_far_off_in_an_observation_of_a_choice_may_be(tmp_path: Path) -> None:
    found = offline.outliers(offers(tmp_path / "data", broken=True), output=tmp_path / "out", **QUICK)
    assert found.outliers[0].eps_id == "A007" and found.drawn == 0
    assert found.card().next.startswith("offline prune")
