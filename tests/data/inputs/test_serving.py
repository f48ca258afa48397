"""From raw logs to a policy that acts on raw rows: import, training and serving make the same observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import offline_core as offline
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


def test_what_it_cannot_act_on(policy: offline.Policy) -> None:
    with pytest.raises(SchemaError, match="Row 1: Column 'mode' holds 'boost'"):
        policy.act_on({"tin": [20, 20], "hour": [1, 2], "mode": ["heat", "boost"]})
    with pytest.raises(SchemaError, match="There is no column hour"):
        policy.act_on({"tin": [20], "mode": ["heat"]})
    without = offline.Policy(policy.observation_space, policy.action_space)
    with pytest.raises(ConfigError, match="does not say which raw columns"):
        without.act_on({"tin": [20]})


def test_a_policy_that_begins_at_another_keeps_its_columns(policy: offline.Policy) -> None:
    other = offline.Policy(policy.observation_space, policy.action_space, policy.network)
    begin_as(other, policy)
    assert other.input_columns == policy.input_columns is not None
