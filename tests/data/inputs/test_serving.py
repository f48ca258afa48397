"""From raw logs to a policy that acts on raw rows: import, training and serving make the same observations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import polars as pl
import pytest

import offline_core as offline
from offline_core.data.curation.observed import columns_of
from offline_core.data.datasets.dataset import open_dataset as open_version
from offline_core.errors import ConfigError, SchemaError
from offline_core.policies.initial import begin_as

COLUMNS = {
    "computed": {"away": "abs(tin - 21)", "late": "case when hour >= 18 then 1 else 0 end"},
    "fill": {"tin": 20},
    "encode": {"mode": ["heat", "cool"], "command": {"categories": ["stop", "go"], "form": "index"}},
}
MAPPING = {"obs": ["away", "late", "mode"], "actions": "command", "rewards": "reward", "eps_id": "id", "t": "hour"}


def log(days: int = 8) -> pl.DataFrame:
    """Goes exactly when it is not heating; a value of `tin` is missing now and then."""
    hours = np.tile(np.arange(24), days)
    heats = (hours * 7 + np.repeat(np.arange(days), 24)) % 3 == 0
    return pl.DataFrame(
        {
            "id": np.repeat(np.arange(days), 24),
            "hour": hours,
            "tin": [None if i % 29 == 5 else 18 + i % 13 / 2 for i in range(24 * days)],
            "mode": np.where(heats, "heat", "cool"),
            "command": np.where(heats, "stop", "go"),
            "reward": np.ones(24 * days),
        }
    )


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> offline.Policy:
    folder = tmp_path_factory.mktemp("served")
    log().write_csv(folder / "log.csv")
    given: Any = {"mapping": MAPPING, "columns": COLUMNS, "episodes": {"last_new_obs": "repeat"}}
    data = offline.import_data(str(folder / "log.csv"), output=folder / "data", **given)
    data = data.prune("length > 2", output=folder / "pruned")
    run = offline.train(data, algorithm="bc", output=folder / "run", optimizer={"max_epochs": 40, "learning_rate": 0.01})
    assert open_version(str(folder / "pruned")).manifest.input_columns is not None
    return offline.load_policy(run.best)


def test_it_acts_on_raw_rows(policy: offline.Policy) -> None:
    rows = log().drop("command", "reward", "id")
    assert (policy.act_on(rows) == log()["command"].to_numpy()).all()
    assert policy.act_on({"tin": [None, 30], "hour": [3, 20], "mode": ["heat", "cool"]}).tolist() == ["stop", "go"]


def test_rows_of_every_form_are_the_same_rows(policy: offline.Policy) -> None:
    """A value that comes first in a later row counts as it does in a column."""
    rows = log().drop("command", "reward", "id").with_columns(tin=pl.when(pl.int_range(pl.len()) > 120).then("tin"))
    expected = policy.act_on(rows)
    every = [rows.to_arrow(), rows.to_dict(as_series=False), rows.to_dicts()]
    assert all((policy.act_on(given) == expected).all() for given in every)
    assert policy.act_on([{"hour": 3, "mode": "heat"}, {"hour": 20, "mode": "cool", "tin": 30.5}]).tolist() == ["stop", "go"]


def test_rows_of_pandas_are_columns_by_name(policy: offline.Policy) -> None:
    columns = {"hour": [3, 20], "mode": ["heat", "cool"], "tin": [20.0, 30.5]}
    assert (policy.act_on(pd.DataFrame(columns)) == policy.act_on(columns)).all()


@pytest.mark.parametrize("rows", [{}, []])
def test_an_empty_table_has_no_columns(policy: offline.Policy, rows: Any) -> None:
    with pytest.raises(SchemaError, match=r"There is no column .*\. There are no columns\.$"):
        policy.act_on(rows)


def test_what_it_cannot_act_on(policy: offline.Policy) -> None:
    with pytest.raises(SchemaError, match="Row 1: Column 'mode' holds 'boost'"):
        policy.act_on({"tin": [20, 20], "hour": [1, 2], "mode": ["heat", "boost"]})
    with pytest.raises(SchemaError, match="The rows are no table"):
        policy.act_on([1, 2])
    with pytest.raises(SchemaError, match="There is no column hour"):
        policy.act_on({"tin": [20], "mode": ["heat"]})
    without = offline.Policy(policy.observation_space, policy.action_space)
    with pytest.raises(ConfigError, match=r"does not say which raw columns .* lists that are equally long"):
        without.act_on({"tin": [20]})


def test_a_column_of_earlier_rows_is_asked_for_by_what_it_is(tmp_path: Path) -> None:
    log(2).write_csv(tmp_path / "log.csv")
    late: Any = {
        "tin_known": {"of": "tin", "how": "last_known", "first": 20},
        "before": {"of": "hour", "steps": 2, "first": 0},
        "so_far": {"of": "hour", "how": "sum"},
    }
    mapping: Any = {**MAPPING, "obs": ["hour", *late]}
    made = {"in_episode": late, "encode": {"command": {"form": "index"}}}
    offline.import_data(str(tmp_path / "log.csv"), output=tmp_path / "data", mapping=mapping, columns=made)
    inputs = open_version(str(tmp_path / "data")).manifest.input_columns
    assert inputs is not None
    said = "tin_known is the last known tin of the episode; before is hour of 2 rows earlier in the episode; so_far is the sum"
    with pytest.raises(SchemaError, match=f"^{said} .* give it as a column tin_known, before, so_far"):
        inputs.observations({"hour": [1], "tin": [20.0]}, gym.spaces.Box(-1, 1, (4,)))
    given = {"hour": [1], "tin_known": [20.5], "before": [0], "so_far": [1]}
    assert inputs.observations(given, gym.spaces.Box(-1, 1, (4,))).tolist() == [[1, 20.5, 0, 1]]


@pytest.mark.parametrize("columns", [{}, {"computed": {"x": "2 * hour"}}])
def test_lists_of_numbers_are_observed(tmp_path: Path, columns: dict[str, Any]) -> None:
    """Next to single numbers, whether or not columns are computed."""
    rows = log(2).with_columns(x="hour", lidar=pl.concat_list(pl.lit([1.5, -2.0]), pl.col("hour").cast(pl.Float64)))
    rows = rows.drop(columns.get("computed", {}))
    rows.write_parquet(tmp_path / "log.parquet")
    mapping: Any = {**MAPPING, "obs": ["x", "lidar"], "actions": "reward"}
    data = offline.import_data(str(tmp_path / "log.parquet"), output=tmp_path / "data", mapping=mapping, columns=columns)
    inputs, space = data.manifest.input_columns, gym.spaces.Box(-1, 1, (4,))
    assert inputs is not None
    assert (inputs.observations(rows[:24], space) == data[0].observations[:24]).all()
    assert inputs.observations(rows[:0], space).shape == (0, 4)

    def refused(lidar: Any) -> str:
        with pytest.raises(SchemaError) as refusal:
            inputs.observations({"hour": [1, 2], "x": [1, 2], "lidar": lidar}, space)
        return str(refusal.value)

    assert refused([[1, 2, 3], [1]]) == "Row 1: 'lidar' holds 1 numbers, where row 0 holds 3."
    assert refused([[1], [2]]) == "The columns x, lidar make 2 numbers of a row, where observations have 4."
    assert refused([[1, 2, 3], [1, None, 3]]) == "Row 1: column 'lidar' is missing, and has no fill."
    assert refused([[1, 2, 3], None]) == "Row 1: column 'lidar' is missing, and has no fill."
    assert (
        refused([[1, 2, 3], [1, float("inf"), 3]]) == "Row 1: column 'lidar' is infinite as float32, in which policies compute."
    )
    assert refused([[["a"], ["b"], ["c"]], [["d"], ["e"], ["f"]]]).startswith("Column 'lidar' holds no numbers")


def test_a_condition_sees_all_numbers_of_a_list_that_is_observed_alone(tmp_path: Path) -> None:
    rows = log(2).with_columns(lidar=pl.concat_list(pl.lit(0.0), pl.col("hour").cast(pl.Float64)))
    rows.write_parquet(tmp_path / "log.parquet")
    mapping: Any = {**MAPPING, "obs": ["lidar"], "actions": "reward"}
    data = offline.import_data(str(tmp_path / "log.parquet"), output=tmp_path / "data", mapping=mapping)
    seen = columns_of(data[0].observations, data.manifest.input_columns)["lidar"]
    assert seen[:3].to_list() == [[0, 0], [0, 1], [0, 2]]


def test_a_policy_that_begins_at_another_keeps_its_columns(policy: offline.Policy) -> None:
    other = offline.Policy(policy.observation_space, policy.action_space, policy.network)
    begin_as(other, policy)
    assert other.input_columns == policy.input_columns is not None
