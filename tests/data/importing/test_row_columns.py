"""Columns made before the mapping: a building's logs in daily files, with nested, missing and wrong values, held against
the same columns worked out row by row."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import yaml
from gymnasium.spaces import Box

import offline_core as offline
from offline_core.data.curation.config import MergeConfig, PruningConfig
from offline_core.data.curation.merge import merge
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode, space_to_json
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.importing.columns_config import Join
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.joins import OtherRows
from offline_core.data.importing.report import ImportResult
from offline_core.data.importing.resolving import row_columns
from offline_core.errors import ConfigError, DataError, SchemaError
from offline_core.runtime.config import parse

Row = dict[str, Any]
MODES = ["heat", "cool", "off"]


def log(room: int, *, steps: int = 24) -> list[Row]:
    """A room's day, an hour a row."""
    return [
        {
            "ts": f"2026-01-31 {t:02d}:30:00",
            "sensors": {"tin": 18 + (7 * t + room) % 9 / 2, "tout": -t / 4},
            "energy": 0.5 + t % 5,
            "mode": MODES[(t + room) % 3],
            "setpoint": [16, 18.2, 20, 21.9][(t * 5 + room) % 4],
            "done": t == steps - 1,
        }
        for t in range(steps)
    ]


def written(folder: Path, *rooms: list[Row]) -> Path:
    """The days of rooms, a folder each, and prices by the hour but for noon."""
    for number, rows in enumerate(rooms):
        place = folder / "log" / f"room{number}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "2026-01-31.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prices = [{"ts": f"2026-01-31 {hour:02d}:00:00", "price": 0.1 * hour} for hour in range(24) if hour != 12]
    pl.DataFrame(prices).write_csv(folder / "prices.csv")
    return folder


def config(folder: Path, **changes: Any) -> ImportConfig:
    columns = {
        "joins": [{"source": str(folder / "prices.csv"), "asof": "ts", "columns": ["price"], "tolerance": 3600}],
        "computed": {
            "id": "_folder || '/' || substr(_file, 1, 10)",
            "reward": "-abs(sensors.tin - 21) - price * energy",
            "difference": "sensors.tin - sensors.tout",
        },
        "fill": {"sensors.tin": 20.5, "price": 1.0},
        "encode": {"mode": MODES},
        "discretise": {"setpoint": {"values": [16, 18, 20, 22]}},
    }
    mapping = {
        "obs": ["sensors.tin", "difference", "mode", "price"],
        "actions": "setpoint",
        "rewards": "reward",
        "eps_id": "id",
        "t": "ts",
        "dones": "done",
    }
    given = {"mapping": mapping, "columns": columns, "episodes": {"order": "time", "last_new_obs": "repeat"}}
    return parse(ImportConfig, given | changes)


def changed(before: ImportConfig, **columns: Any) -> ImportConfig:
    """With other columns."""
    return before.model_copy(update={"columns": parse(type(before.columns), before.columns.model_dump() | columns)})


def imported(folder: Path, given: ImportConfig, name: str = "data") -> tuple[dict[str, Episode], ImportResult]:
    result = import_data(given, source=str(folder / "log"), output=str(folder / name))
    return {each.eps_id: each for each in open_dataset(result.dataset.uri).episodes()}, result


def expected(row: Row) -> tuple[list[float], float]:
    """(observation, reward)."""
    tin, hour = row["sensors"]["tin"], int(row["ts"][11:13])
    tin = 20.5 if tin is None else tin
    price = 1.0 if hour == 12 else 0.1 * hour
    one_hot = [float(row["mode"] == mode) for mode in MODES]
    return [tin, tin - row["sensors"]["tout"], *one_hot, price], -abs(tin - 21) - price * row["energy"]


def test_columns_are_those_worked_out_row_by_row(tmp_path: Path) -> None:
    rooms = [log(0), log(1)]
    rooms[1][3]["sensors"]["tin"] = None
    found, result = imported(written(tmp_path, *rooms), changed(config(tmp_path), joins=[joined(tmp_path, tolerance=1800)]))
    assert found.keys() == {"room0/2026-01-31", "room1/2026-01-31"}
    for number, rows in enumerate(rooms):
        episode = found[f"room{number}/2026-01-31"]
        observations, rewards = zip(*map(expected, rows), strict=True)
        np.testing.assert_allclose(episode.observations[:-1], observations, rtol=1e-12)
        np.testing.assert_allclose(episode.rewards, rewards, rtol=1e-12)
        assert episode.actions.tolist() == [round((row["setpoint"] - 16) / 2) for row in rows]
    assert result.action_space == "Discrete(4)"
    assert [note for note in result.notes if "partner" in note] == [
        f"2 rows have no partner in the join with {tmp_path / 'prices.csv'} and got null for price; set "
        "columns.fill, or a larger tolerance, if that is not wanted."
    ]


def joined(folder: Path, **changes: Any) -> Row:
    return {"source": str(folder / "prices.csv"), "asof": "ts", "columns": ["price"]} | changes


@pytest.mark.parametrize("engine", ["one part", "many parts"])
def test_every_row_is_accounted_for(tmp_path: Path, engine: str) -> None:
    rooms = [log(0), log(1), log(2)]
    rooms[0][5]["mode"], rooms[0][7]["sensors"]["tin"], rooms[1][23]["energy"] = "boost", None, None
    rooms[2][0]["setpoint"] = None
    given = changed(config(tmp_path, unreadable="quarantine"), fill={"price": 1.0})
    given = given.model_copy(update={"partitions": 3 if engine == "many parts" else 1})
    _, result = imported(written(tmp_path, *rooms), given)
    assert (result.counts.rows, result.counts.steps, result.counts.quarantined_rows) == (72, 68, 4)
    assert (result.counts.terminations, result.counts.quarantined_terminations) == (3, 1)
    assert result.quarantine is not None
    bad = [json.loads(line) for line in Path(result.quarantine).read_text().splitlines()]
    assert sorted((each["uri"][-22:-18], each["row"]) for each in bad) == [("oom0", 5), ("oom0", 7), ("oom1", 23), ("oom2", 0)]
    with pytest.raises(SchemaError, match=r"room0/2026-01-31\.ndjson, row 5: Column 'mode' holds 'boost', which is none of"):
        imported(tmp_path, given.model_copy(update={"unreadable": "fail"}), "other")


def test_categories_and_bins_of_all_rows(tmp_path: Path) -> None:
    given = changed(config(tmp_path), encode={"mode": "auto"}, discretise={"setpoint": {"quantiles": 2}})
    _, result = imported(written(tmp_path, log(0), log(1)), given)
    inputs = open_dataset(result.dataset.uri).manifest.input_columns
    assert inputs is not None
    assert inputs.steps.encode["mode"].categories == sorted(MODES)
    assert inputs.labels == [16, 20]  # each of 16, 18.2, 20 and 21.9 occurs as often


def test_the_manifest_makes_the_same_observations(tmp_path: Path) -> None:
    rows = log(0)
    rows[3]["sensors"]["tin"] = None
    found, result = imported(written(tmp_path, rows), config(tmp_path))
    pruned = prune(PruningConfig(where="length > 1"), dataset=result.dataset.uri, output=str(tmp_path / "pruned")).dataset
    dataset = open_dataset(pruned.uri)
    inputs = dataset.manifest.input_columns
    assert inputs is not None
    assert sorted(inputs.steps.columns) == ["mode", "price", "sensors.tin", "sensors.tout"]
    prices = [None if t == 12 else 0.1 * t for t in range(24)]
    raw = {"sensors": [row["sensors"] for row in rows], "mode": [row["mode"] for row in rows], "price": prices}
    flat = {"sensors.tin": [row["sensors"]["tin"] for row in rows], "sensors.tout": [row["sensors"]["tout"] for row in rows]}
    (episode,) = found.values()
    assert dataset.observation_space is not None
    for given in (pl.DataFrame(raw), pl.DataFrame(raw).to_arrow(), {**raw, **flat}):
        again = inputs.observations(given, dataset.observation_space)
        assert again.tobytes() == episode.observations[:-1].tobytes()
    with pytest.raises(SchemaError, match=r"There is no column sensors\.tin, sensors\.tout"):
        inputs.observations({"mode": ["off"], "price": [1.0]}, dataset.observation_space)
    with pytest.raises(SchemaError, match="Row 1: Column 'mode' holds 'x'"):
        inputs.observations({**flat, **raw, "mode": ["off"] + ["x"] * 23}, dataset.observation_space)


def test_different_columns_are_not_merged(tmp_path: Path) -> None:
    written(tmp_path, log(0))
    _, one = imported(tmp_path, config(tmp_path), "one")
    other = changed(config(tmp_path), fill={"sensors.tin": 19, "price": 1.0})
    _, two = imported(tmp_path, other, "two")
    with pytest.raises(SchemaError, match=r"made in different ways: fill is \{'sensors.tin': 20.5, 'price': 1.0\} and"):
        merge(MergeConfig(), datasets=[one.dataset.uri, two.dataset.uri], output=str(tmp_path / "merged"))


def test_joins_by_keys(tmp_path: Path) -> None:
    written(tmp_path, log(0), log(1))
    keys = {"room": "_folder", "reward": "-area * energy"}
    pl.DataFrame({"room": ["room1", "room0"], "area": [30, 20]}).write_parquet(tmp_path / "rooms.parquet")
    given = config(tmp_path).model_copy(update={"mapping": {**config(tmp_path).mapping, "obs": ["area", "mode"]}})
    given = changed(
        given,
        joins=[{"source": str(tmp_path / "rooms.parquet"), "on": ["room"], "columns": ["area"]}],
        computed=given.columns.computed | keys,
        fill={},
    )
    given = changed(given, computed={name: text for name, text in given.columns.computed.items() if name != "difference"})
    found, _ = imported(tmp_path, given)
    assert [set(found[f"room{i}/2026-01-31"].observations[:, 0].tolist()) for i in (0, 1)] == [{20}, {30}]
    pl.DataFrame({"room": ["room1", "room1"], "area": [30, 20]}).write_parquet(tmp_path / "rooms.parquet")
    with pytest.raises(ConfigError, match=r"2 rows of .* share their keys with others, room room1 first"):
        imported(tmp_path, given)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ([1.0, 2.0], None),
        (["1", "2"], None),
        ([1.5, 2.0], r"1 keys of there \(Float64\) change when they become Int64 as in the source, 1\.5 first"),
        (["07", "7"], r"1 keys of there \(String\) change when they become Int64 as in the source, '07' first"),
    ],
)
def test_keys_of_another_type_are_joined_only_where_they_are_the_same(theirs: list[Any], message: str | None) -> None:
    other = OtherRows(Join(source="there", on=["k"], columns=["v"]), pl.DataFrame({"k": theirs, "v": ["a", "b"]}))
    frame = pl.DataFrame({"k": [2, 1, 7, 1]})
    if message is not None:
        with pytest.raises(ConfigError, match=message):
            other.joined(frame)
    else:
        found, missing, _ = other.joined(frame)
        assert (found["k"].to_list(), found["v"].to_list(), missing) == ([2, 1, 7, 1], ["b", "a", None, "a"], 1)


def test_numbers_are_joined_as_of_fractions() -> None:
    other = OtherRows(Join(source="there", asof="s", columns=["v"]), pl.DataFrame({"s": [0.5, 1.5], "v": ["a", "b"]}))
    found, missing, _ = other.joined(pl.DataFrame({"s": [2, 1, 0]}))
    assert (found["v"].to_list(), missing) == (["b", "a", None], 1)  # of 1.5 nothing is known at 1
    with pytest.raises(ConfigError, match="2 keys of there"):
        OtherRows(other.join, other.rows).joined(pl.DataFrame({"s": [2**60 + 1]}))


def test_a_time_written_in_two_ways_is_one_key(tmp_path: Path) -> None:
    given = changed(config(written(tmp_path, log(0))), joins=[joined(tmp_path)])
    times = ["2026-01-31 01:00:00", "2026-01-31T01:00:00"]
    pl.DataFrame({"ts": times, "price": [1.0, 2.0]}).write_ndjson(tmp_path / "prices.ndjson")
    given = changed(given, joins=[joined(tmp_path, source=str(tmp_path / "prices.ndjson"))])
    with pytest.raises(ConfigError, match=r"2 rows of .* share their keys with others, ts 2026-01-31 01:00:00 first"):
        imported(tmp_path, given)


def test_only_needed_columns_are_read(tmp_path: Path) -> None:
    rows = [row | {"p": math.exp(-row["energy"]), "other": "x"} for row in log(0)]
    place = tmp_path / "log"
    place.mkdir()
    pl.DataFrame(rows).write_parquet(place / "log.parquet")
    given = parse(
        ImportConfig,
        {
            "source": {"columns": ["energy", "setpoint", "done", "logp"]},
            "mapping": {"obs": ["tin"], "actions": "setpoint", "rewards": "energy", "dones": "done", "action_logp": "logp"},
            "columns": {"computed": {"logp": "ln(p)", "tin": "sensors.tin / 10"}},
            "episodes": {"last_new_obs": "repeat"},
        },
    )
    assert given.pushed_down.columns == ["energy", "setpoint", "done", "p", "sensors"]
    found, _ = imported(tmp_path, given)
    (episode,) = found.values()
    np.testing.assert_allclose(episode.extras["action_logp"], [-row["energy"] for row in rows])
    assert episode.extras.keys() == {"action_logp"}


def test_columns_of_earlier_rows(tmp_path: Path) -> None:
    rooms = [log(0), log(1)]
    rooms[1][10]["mode"] = "boost"  # its row is left out, and what follows it is another part
    late = {
        "before": {"of": "sensors.tin * 2", "steps": 2, "first": -1},
        "used": {"of": "energy", "how": "sum"},
        "last": {"of": "energy", "first": 0},
    }
    given = changed(config(tmp_path, unreadable="quarantine"), in_episode=late)
    obs = ["mode", "before", "sensors.tin", "used"]
    given = given.model_copy(update={"mapping": {**given.mapping, "obs": obs}})
    found, result = imported(written(tmp_path, *rooms), given)
    parts = {"room0/2026-01-31": rooms[0], "room1/2026-01-31": rooms[1][:10]}
    (other,) = found.keys() - parts.keys()
    for name, rows in (parts | {other: rooms[1][11:]}).items():
        tin, energy = ([row["sensors"]["tin"] for row in rows], [row["energy"] for row in rows])
        expected = np.array([[-1, -1, *(2 * np.array(tin[:-2]))], tin, np.cumsum(energy)]).T
        np.testing.assert_allclose(found[name].observations[:-1, 3:], expected)
        np.testing.assert_allclose(found[name].observations[1:-1, 3:], expected[1:])  # the next observations, but the last
        np.testing.assert_allclose(found[name].extras["last"], [0, *energy[:-1]])
    inputs = open_dataset(result.dataset.uri).manifest.input_columns
    assert inputs is not None
    assert inputs.steps.columns == {"mode": "text", "sensors.tin": "number", "before": "number", "used": "number"}
    assert inputs.steps.computed == {}


@pytest.mark.parametrize("order", ["by time", "shuffled", "as extra"])
def test_a_missing_reading_is_the_last_one_known_in_its_episode(tmp_path: Path, order: str) -> None:
    """Gaps at the start, in a row, at the end and across the border of two episodes, in numbers and in integers."""
    rooms = [log(0), log(1)]
    tins: list[list[float | None]] = [[row["sensors"]["tin"] for row in rows] for rows in rooms]
    for number in (0, 1, 5, 6, len(tins[0]) - 1):
        tins[0][number] = None
    tins[1][0] = tins[1][2] = None
    for rows, values in zip(rooms, tins, strict=True):
        for number, (row, tin) in enumerate(zip(rows, values, strict=True)):
            row["sensors"]["tin"] = tin
            row["count"] = None if tin is None else number
    late = {
        "warm": {"of": "sensors.tin", "how": "last_known", "first": 20.5},
        "counted": {"of": "count", "how": "last_known", "first": -3},
    }
    computed = {"id": "_folder || '/' || substr(_file, 1, 10)", "reward": "0 - energy"}
    given = changed(config(tmp_path), computed=computed, fill={}, in_episode=late)
    as_extra = order == "as extra"
    obs = ["energy"] if as_extra else ["energy", "warm", "counted"]
    given = given.model_copy(update={"mapping": {**given.mapping, "obs": obs}})
    if order == "shuffled":
        rooms = [[rows[number] for number in np.random.default_rng(0).permutation(len(rows))] for rows in rooms]
    found, result = imported(written(tmp_path, *rooms), given)
    for name, values in {"room0/2026-01-31": tins[0], "room1/2026-01-31": tins[1]}.items():
        warm, counted = 20.5, -3.0
        expected = []
        for number, tin in enumerate(values):
            warm, counted = (warm, counted) if tin is None else (tin, float(number))
            expected.append([warm, counted])
        episode = found[name]
        got = np.stack([episode.extras["warm"], episode.extras["counted"]], 1) if as_extra else episode.observations[:-1, 1:]
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    inputs = open_dataset(result.dataset.uri).manifest.input_columns
    assert inputs is not None
    assert inputs.steps.fill == {}  # who serves it knows the value


def test_a_column_of_text_names_episodes_and_is_observed(tmp_path: Path) -> None:
    rows = [{"room": room, "t": t, "setpoint": t % 2, "reward": 1.0} for room in ("north", "south") for t in range(4)]
    pl.DataFrame(rows).write_csv(tmp_path / "log.csv")
    mapping = {"eps_id": "room", "obs": ["room", "t"], "actions": "setpoint", "rewards": "reward"}
    given: Row = {"mapping": mapping, "columns": {"encode": {"room": "auto"}}, "episodes": {"last_new_obs": "repeat"}}
    made = offline.import_data(tmp_path / "log.csv", output=tmp_path / "data", **given)
    found = {each.eps_id: each.observations[0].tolist() for each in made}
    assert found == {"north": [1, 0, 0], "south": [0, 1, 0]}
    assert offline.plan_import(tmp_path / "log.csv", **given).is_ready
    mapping |= {"eps_id": "made", "obs": ["made", "t"]}
    given["columns"] = {"computed": {"made": "room || '!'"}, "encode": {"made": "auto"}}
    with pytest.raises(ConfigError, match="made has categories or bins, and is mapped to more than obs and actions"):
        offline.import_data(tmp_path / "log.csv", output=tmp_path / "other", **given)


KNOWN = {"how": "last_known", "first": 0}


@pytest.mark.parametrize(
    ("obs", "more", "message"),
    [
        (["energy", "b", "b"], {}, r"b .columns\.in_episode. can be one number of obs, and not several: name it there once"),
        (["b", "vector"], {}, r"b .* beside other numbers, and not beside lists or structs"),
        (["b"], {"observation_space": space_to_json(Box(0, 9, (1,), np.int64))}, "has gaps, which int64 has no number for"),
        (["energy", "b"], {"episodes": {"order": "single_step"}}, "single_step each row is an episode: it would have no value"),
    ],
)
def test_where_a_column_of_earlier_rows_cannot_be(tmp_path: Path, obs: list[str], more: Row, message: str) -> None:
    rows = [row | {"vector": [1.0, 2.0]} for row in log(0)]
    columns = {"computed": {}, "in_episode": {"b": {"of": "energy", **KNOWN}}}
    given = config(written(tmp_path, rows), columns=columns, **more)
    mapping = {"obs": obs, "actions": "energy", "rewards": "energy", "t": "ts", "dones": "done"}
    with pytest.raises((ConfigError, DataError), match=message):
        imported(tmp_path, given.model_copy(update={"mapping": mapping}))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["tin", "tin-1", "room temp", "order", 'say "hi"', "Tin"])
def test_what_is_proposed_for_gaps_can_be_followed(tmp_path: Path, name: str) -> None:
    """Whatever the column is called, and with its space declared."""
    readings: list[float | None] = [20.0, None, 22.5, None]
    others = {"a": [0, 1, 0, 1], "r": [1.0] * 4, "t": range(4), "e": ["one"] * 4}
    pl.DataFrame({name: readings} | others).write_parquet(tmp_path / "log.parquet")
    mapping = {"obs": [name], "actions": "a", "rewards": "r", "eps_id": "e"}
    given: Row = {"mapping": mapping, "episodes": {"last_new_obs": "repeat"}}
    with pytest.raises(DataError) as raised:
        offline.import_data(tmp_path / "log.parquet", output=tmp_path / "data", **given)
    proposed = re.findall(r"columns: (\{in_episode: .*?\}\}\})", str(raised.value))[0]
    mapping["obs"] = [f"{name}_known"]
    given |= {"columns": yaml.safe_load(proposed), "observation_space": space_to_json(Box(0, 50, (1,), np.float32))}
    made = offline.import_data(tmp_path / "log.parquet", output=tmp_path / "data", **given)
    assert made[0].observations[:4, 0].tolist() == [20, 20, 22.5, 22.5]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"computed": {"x": "b"}, "in_episode": {"b": {"of": "energy", "first": 0}}},
            "no expression, category, bin or join can",
        ),
        ({"in_episode": {"b": {"of": "energy"}}}, "A lag needs 'first'"),
        ({"in_episode": {"b": {"of": "energy", "how": "last_known"}}}, "A last_known needs 'first'"),
        ({"in_episode": {"b": {"of": "energy", "how": "sum", "first": 0}}}, "A sum has no 'first'"),
        (
            {"fill": {"b": 0}, "in_episode": {"b": {"of": "energy", "how": "last_known", "first": 0}}},
            "b has the last value that is known",
        ),
        ({"in_episode": {"reward": {"of": "energy", "how": "sum"}}}, "reward .columns.in_episode. can be a part of obs"),
        (
            {"computed": {"x": "sensors.tinn + 1"}},
            r"The computed column 'x' needs sensors\.tinn\. .* Did you mean sensors\.tin\?",
        ),
        ({"computed": {"x": "tin +"}}, "The expression 'tin \\+' cannot be understood"),
        ({"computed": {"x": "avg(energy)"}}, "It is of several rows"),
        ({"computed": {"x": "y", "y": "x"}}, "x, y need one another in a circle"),
        ({"computed": {"energy": "1"}}, "The source has columns energy already"),
        ({"computed": {"x": "ts * 2"}}, r"Column 'x': 'ts \* 2' cannot be computed of ts \(String\)"),
        (
            {"computed": {"x": "date_part('hour', ts)"}},
            r"Texts are read as times first, .* by strptime\(ts, ",
        ),
        ({"encode": {"mod": ["a"]}}, r"columns\.encode needs mod\. .* Did you mean mode\?"),
        ({"discretise": {"setpoint": {"equal": 2, "values": [1, 2]}}}, "Set one of values"),
        ({"encode": {"mode": ["off"]}, "discretise": {"mode": {"equal": 2}}}, "cannot have both categories"),
    ],
)
def test_what_is_refused_in_words(tmp_path: Path, columns: Row, message: str) -> None:
    written(tmp_path, log(0))
    with pytest.raises(ConfigError, match=message):
        imported(tmp_path, config(tmp_path, columns={"computed": {}} | columns))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("obs", "columns", "expected"),
    [
        (["x", "ammo"], {"fill": {"ammo": 30}}, [[1, 5], [2, 30]]),
        (["x", "known"], {"in_episode": {"known": {"of": "ammo", "how": "last_known", "first": 9}}}, [[1, 5], [2, 9]]),
        (["x", "mode"], {"fill": {"mode": "off"}, "encode": {"mode": ["on", "off"]}}, [[1, 1, 0], [2, 0, 1]]),
    ],
)
def test_a_file_without_a_column_that_is_filled(tmp_path: Path, obs: list[str], columns: Row, expected: list[Row]) -> None:
    """It is one of rows without a value, and that is said; a column that is not filled is missed."""
    for name, lines in {"a": "id,x,ammo,mode,a,r\n1,1,5,on,0,1\n", "b": "id,x,a,r\n2,2,1,1\n"}.items():
        (tmp_path / f"{name}.csv").write_text(lines)
    config = {"mapping": {"eps_id": "id", "obs": obs, "actions": "a", "rewards": "r"}, "columns": columns}
    made = offline.import_data(str(tmp_path / "*.csv"), output=tmp_path / "out", **config)
    assert sorted(episode.observations[0].tolist() for episode in made) == expected
    assert any("A file without the column" in note for note in made.result.notes)
    with pytest.raises(DataError, match="no column ammo"):
        offline.import_data(
            str(tmp_path / "*.csv"), output=tmp_path / "other", mapping={**config["mapping"], "obs": ["x", "ammo"]}
        )


class Times(NamedTuple):
    """A reader of rows at these times, which counts how often it is read."""

    times: list[str]
    read: list[int]
    uri: str = "log.csv"

    def batches(self) -> Iterator[pa.Table]:
        self.read[0] += 1
        yield pa.table({"ts": self.times, "obs": [1.0] * len(self.times)})


@pytest.mark.parametrize(
    ("times", "beside", "first", "reads"),
    [
        ([["01/02/2025"], ["13/02/2025"]], [["02/13/2025"]], "d", 3),
        ([[""], ["02/13/2025"]], [], "m", 3),
        ([["01/02/2025"]], [["13/02/2025"], ["14/02/2025"]], "d", 3),
        ([["2025-02-01"], ["2025-02-13"]], [["13/02/2025"]], "dm", 1),
    ],
)
def test_all_files_tell_what_comes_first_in_dates_and_are_read_only_for_them(
    tmp_path: Path, times: list[list[str]], beside: list[list[str]], first: str, reads: int
) -> None:
    written(tmp_path, log(0))
    columns = {"joins": [{"source": str(tmp_path / "prices.csv"), "asof": "ts", "columns": ["price"]}]}
    given, read = parse(ImportConfig, {"source": {}, "columns": columns}), [0]
    readers, others = ([Times(each, read) for each in every] for every in (times, beside))
    made = row_columns(given, readers, Listing(), others)
    assert (made.joins[0].first, read[0]) == ({*first}, reads)
