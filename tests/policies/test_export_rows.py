"""Serving as trained: of each example log, `act_on` does what an exported graph does with `observations_of` the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import onnxruntime
import polars as pl
import pytest
import torch
from gymnasium import spaces

from examples.logs.building import write_day
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.planning.plan import plan_import
from offline_core.data.inputs.bins import Bins
from offline_core.data.inputs.encoding import Encoding
from offline_core.data.inputs.frames import Rows
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.runtime.config import parse
from tests.cases import slow_but
from tests.data.importing import test_row_columns as rooms
from tests.data.importing.planning import logs
from tests.data.inputs import test_serving as hours
from tests.examples import test_logs as building
from tests.policies.test_export import exported, run_onnx

READ: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": pl.read_csv,
    ".ndjson": pl.read_ndjson,
    ".parquet": pl.read_parquet,
}
VECTOR = spaces.Box(-np.inf, np.inf, (2,), np.float64)


class Log(NamedTuple):
    """A log as a policy learns from it, and as it is served."""

    made_of: InputColumns
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    rows: Rows
    numbers: list[str]
    """What those of its observations are called."""
    stored: frozenset[bytes] = frozenset()
    """The observations that the import made of these rows."""


def imported(source: Path | str, given: ImportConfig, rows: Rows, numbers: list[str], folder: Path) -> Log:
    dataset = open_dataset(import_data(given, source=str(source), output=str(folder / "data")).dataset.uri)
    known = dataset.manifest.input_columns, dataset.observation_space, dataset.action_space
    stored = frozenset(each.tobytes() for episode in dataset.episodes() for each in episode.observations[: len(episode)])
    assert None not in known and stored
    return Log(*known, rows, numbers, stored)  # type: ignore[arg-type]


def of_building(folder: Path) -> Log:
    """That of examples/, by the configuration of docs/logs.md; the price is joined by who serves."""
    for number in range(2):
        write_day(folder / "logs", building._day(number), first=number == 0)
    rows = pl.concat(pl.read_ndjson(path) for path in sorted((folder / "logs").glob("*/zones.ndjson"))).drop_nulls("zone")
    prices = pl.concat(pl.read_parquet(path) for path in sorted((folder / "truth").glob("*.parquet")))
    prices = prices.select("zone", pl.col("at").dt.strftime("%Y-%m-%dT%H:%M:%S"), "eur_per_kwh")
    rows = rows.join(prices, on=["zone", "at"], how="left", validate="m:1")
    config = parse(ImportConfig, building._config(folder / "logs"))
    numbers = ["sensors.tin", "sensors.tout", "sensors.occupied", "hour_sin", "hour_cos", "eur_per_kwh"]
    numbers += ["mode = weekday", "mode = weekend"]
    return imported(f"{folder}/logs/*/zones.ndjson", config, rows, numbers, folder)


def of_rooms(folder: Path) -> Log:
    """Joined, computed, filled and encoded columns, nested ones, and bins of actions."""
    days = [rooms.log(0), rooms.log(1)]
    days[1][3]["sensors"]["tin"] = None
    given = rooms.changed(rooms.config(rooms.written(folder, *days)), joins=[rooms.joined(folder, tolerance=1800)])
    rows = pl.DataFrame([row for day in days for row in day])
    hour = pl.col("ts").str.slice(11, 2).cast(pl.Int64)
    rows = rows.with_columns(price=pl.when(hour != 12).then(hour * 0.1))
    numbers = ["sensors.tin", "difference", *(f"mode = {mode}" for mode in rooms.MODES), "price"]
    return imported(folder / "log", given, rows, numbers, folder)


def of_hours(folder: Path) -> Log:
    """Actions in words."""
    hours.log().write_csv(folder / "log.csv")
    given = {"mapping": hours.MAPPING, "columns": hours.COLUMNS, "episodes": {"last_new_obs": "repeat"}}
    rows = hours.log().drop("command", "reward", "id").to_arrow()
    numbers = ["away", "late", "mode = heat", "mode = cool"]
    return imported(folder / "log.csv", parse(ImportConfig, given), rows, numbers, folder)


def as_planned(make: Callable[[Path], Path], obs: list[str], **roles: str) -> Callable[[Path], Log]:
    """One of the logs that plans are tried with, imported as its plan has it: nothing is made but a vector of columns."""

    def of_planned(folder: Path) -> Log:
        source = make(folder / "in")
        given = parse(ImportConfig, {"mapping": {"obs": obs, **roles}, "unreadable": "quarantine"})
        config = plan_import(given, source=str(source)).config
        rows = pl.concat([READ[path.suffix](path) for path in sorted(source.rglob("*.*"))])
        return imported(source, config, rows.drop_nulls(obs[0].partition(".")[0]), obs, folder)

    return of_planned


def of_everything(folder: Path) -> Log:
    """What no log has: flags, categories by index and with others, bins of observations, in float64."""
    steps = RowSteps(
        columns={"tin": "number", "tout": "number", "mode": "text", "floor": "number", "busy": "flag", "power": "number"},
        fill={"tin": 20.5, "mode": "off", "busy": False},
        computed={"heats": "case when mode = 'heat' and tin < tout then 1 else 0 end", "free": "not busy"},
        encode={
            "mode": Encoding(categories=["heat", "cool", "off"], form="index"),
            "floor": Encoding(categories=[1.0, 2.0], other=True),
        },
        bins={"power": Bins(edges=[0, 2], values=[-1, 1, 3])},
    )
    rng, n = np.random.default_rng(0), 200
    rows: dict[str, Any] = {"tin": [None, 3.0] * (n // 2), "tout": rng.normal(3, 2, n), "power": rng.normal(1, 2, n)}
    rows |= {"mode": rng.choice(["heat", "cool", "off", ""], n), "floor": rng.integers(1, 4, n)}
    rows["busy"] = [True, None] * (n // 2)
    made_of = InputColumns(steps=steps, obs=["heats", "mode", "floor", "free", "power"], labels=["16", "18", "x"])
    numbers = ["heats", "mode", "floor = 1.0", "floor = 2.0", "other floor", "free", "power"]
    space = spaces.Box(-np.inf, np.inf, (len(numbers),), np.float64)
    return Log(made_of, space, spaces.Discrete(3), rows, numbers)


LOGS: dict[str, Callable[[Path], Log]] = {
    "building": of_building,
    "rooms": of_rooms,
    "hours": of_hours,
    "everything": of_everything,
    "daily_folders": as_planned(logs.daily_folders, ["temp_in", "temp_out"], actions="valve"),
    "parquet_times": as_planned(logs.parquet_times, ["temp_in", "temp_out"], actions="valve"),
    "nested_ndjson": as_planned(logs.nested_ndjson, ["state.tin", "state.tout"]),
    "with_nulls": as_planned(logs.with_nulls, ["obs_0", "obs_1"]),
    "epochs": as_planned(logs.epochs, ["s0", "s1"]),
}


@pytest.mark.parametrize("name", slow_but(LOGS, "building", "rooms", "everything"))
def test_the_graph_begins_after_the_encoding(name: str, tmp_path: Path) -> None:
    log = LOGS[name](tmp_path)
    policy = Policy(log.observation_space, log.action_space, NetworkConfig(hidden_sizes=[16], normalize_observations=True))
    policy.input_columns = log.made_of
    observations = policy.observations_of(log.rows)
    assert log.stored <= {each.tobytes() for each in observations}, "serving makes what the import made"
    policy.encoder.mean.copy_(torch.from_numpy(observations.mean(axis=0)))
    policy.encoder.variance.copy_(torch.from_numpy(observations.var(axis=0) + 0.1))
    _, said = exported(policy.eval(), tmp_path)

    there = load_policy(str(tmp_path / "policy"))
    session = onnxruntime.InferenceSession(tmp_path / "out" / "policy.onnx")
    made_of = json.loads(session.get_modelmeta().custom_metadata_map["made_of"])
    assert said.made_of is not None and said.made_of.model_dump() == made_of
    assert made_of["numbers"] == log.numbers and made_of["labels"] == log.made_of.labels
    actions, _ = run_onnx(tmp_path / "out", {"obs": there.observations_of(log.rows)})
    expected = there.act_on(log.rows)
    if made_of["labels"] is None:
        np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-5)
    else:
        assert [made_of["labels"][action] for action in actions] == expected.tolist()
    assert len(np.unique(actions, axis=0)) > 1, "one action for all would prove little"


def test_who_acts_on_no_rows_says_nothing_of_them(tmp_path: Path) -> None:
    unknown = Policy(VECTOR, spaces.Discrete(2))
    masked = Policy(spaces.Dict({"action_mask": spaces.MultiBinary(2), "observations": VECTOR}), spaces.Discrete(2))
    masked.input_columns = InputColumns(steps=RowSteps(columns={"a": "number", "b": "number"}), obs=["a", "b"])
    for name, policy in (("unknown", unknown), ("masked", masked)):
        with pytest.raises(ConfigError, match=r"raw columns its observations|which raw rows do not say"):
            policy.observations_of({"a": [1.0], "b": [2.0]})
        _, said = exported(policy, tmp_path / name)
        session = onnxruntime.InferenceSession(tmp_path / name / "out" / "policy.onnx")
        assert said.made_of is None and session.get_modelmeta().custom_metadata_map == {}
