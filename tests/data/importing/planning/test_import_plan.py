"""What the plan of an import says, held against what the import then does with its YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.settings import read_values
from offline_core import errors
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.formats.sources.first_rows import FIRST_ROWS, _whole_lines
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.planning import sample
from offline_core.data.importing.planning.plan import plan_import
from offline_core.data.importing.planning.result import ImportPlan
from offline_core.data.importing.planning.sample import chosen
from offline_core.runtime.config import parse
from tests.cases import slow_but
from tests.data.importing.planning import logs

DATA = Path(__file__).parents[2] / "rllib"
RECORDINGS = sorted(path.name for path in DATA.iterdir())


def planned(source: Path, /, **given: Any) -> ImportPlan:
    return plan_import(parse(ImportConfig, given), source=str(source))


def check_by_import(plan: ImportPlan, folder: Path) -> None:
    """The YAML is the plan's config, and the import with it gives what the plan says."""
    assert plan.is_ready, plan
    (folder / "plan.yaml").write_text(plan.yaml)
    config = parse(ImportConfig, read_values([], str(folder / "plan.yaml")))
    assert config.model_dump(exclude_unset=True) == plan.config.model_dump(exclude_unset=True)
    made = import_data(config, source=plan.source, output=str(folder / "out"))
    assert (made.observation_space, made.action_space) == (plan.observation_space, plan.action_space)
    found = {episode.eps_id: len(episode) for episode in open_dataset(made.dataset.uri).episodes()}
    assert set(plan.eps_ids) <= found.keys()
    if plan.is_whole:
        assert made.counts == plan.counts and plan.lengths is not None
        assert (plan.lengths[0], plan.lengths[2]) == (min(found.values()), max(found.values()))
        notes = made.notes[bool(plan.left_out) :]  # the first says what is left out, which the plan says with its columns
        assert notes[: len(plan.notes)] == [note for note in plan.notes if note in made.notes]
        kept = made.counts.rows - made.counts.quarantined_rows
        assert sum(each.rows for each in plan.refused) == made.counts.rows - kept


@pytest.mark.parametrize("name", slow_but(RECORDINGS, *{*RECORDINGS} - {"pendulum_table"}))
def test_what_rllib_recorded(name: str, tmp_path: Path) -> None:
    given = {"environment": {"id": "Pendulum-v1"}} if name == "pendulum_table" else {}
    check_by_import(planned(DATA / name, **given), tmp_path)


@pytest.mark.parametrize(
    ("make", "given", "expected"),
    [
        (logs.daily_folders, {"mapping": logs.ROOM_ROLES}, {"ids_per": "folder"}),
        (logs.nested_ndjson, {}, {}),
        (logs.parquet_times, {"mapping": logs.ROOM_ROLES}, {"ids_per": "date"}),
        (logs.epochs, {}, {"order": "time"}),
        (logs.file_an_episode, {}, {"first_t": 1}),
        (logs.mixed_types, {}, {"ids_per": "file"}),
        (
            logs.unnamed,
            {"mapping": {"obs": "c2", "rewards": "c3", "actions": "c4"}},
            {},
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_messy_logs(make: Callable[[Path], Path], given: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    plan = planned(make(tmp_path / "in"), **given)
    assert plan.config.episodes.model_dump(exclude_unset=True) == expected
    check_by_import(plan, tmp_path)


def test_rows_without_values_are_left_out_and_a_column_of_few_is_not_kept(tmp_path: Path) -> None:
    """120 rows and two empty ones: each tenth lacks its observation."""
    plan = planned(logs.with_nulls(tmp_path / "in"))
    assert [decision.name for decision in plan.decisions] == ["rows"], "more than 5 % are a person's decision"
    assert plan.left_out == {"comment": "has 92 nulls among 108 rows; fill or drop them first"}
    assert plan.config.unreadable == "fail" and "# unreadable: quarantine" in plan.yaml
    assert (plan.counts.quarantined_rows, plan.counts.empty_rows) == (12, 2)
    assert "Lines without any value are left out: 2." in plan.notes
    assert [each.rows for each in plan.refused] == [12] and str(tmp_path) in plan.refused[0].first
    config = plan.config.model_copy(update={"unreadable": "quarantine"})
    made = import_data(config, source=plan.source, output=str(tmp_path / "out"))
    assert made.counts == plan.counts


@pytest.mark.parametrize("share", [0.5, 0.02])
def test_a_column_of_which_many_values_cannot_be_is_to_be_corrected(share: float, tmp_path: Path) -> None:
    """To leave rows out is for single ones: of a column that is wrong by a factor, the small values are as wrong."""
    rows = 400
    wrong = np.arange(rows) < share * rows
    log = {"x": [0.5] * rows, "action": [0, 1] * (rows // 2), "reward": [1.0] * rows}
    p = np.where(wrong, np.linspace(1.1, 1.5, rows).round(4), 0.3)
    pl.DataFrame({**log, "propensity": p}).write_csv(tmp_path / "log.csv")
    given = {"mapping": {"obs": ["x"], "action_prob": "propensity"}, "episodes": {"order": "single_step"}}
    plan = planned(tmp_path / "log.csv", **given)
    assert [each.rows for each in plan.refused] == [wrong.sum()], "one reason, whatever the values"
    if share < 0.05:
        assert plan.is_ready and plan.config.unreadable == "quarantine"
        return
    assert [decision.name for decision in plan.decisions] == ["columns"]
    assert "50 % of its values cannot be action_prob" in plan.decisions[0].question
    assert "run from 0.3 to 1.2995" in plan.decisions[0].question
    assert "quarantine" not in plan.yaml
    with pytest.raises(errors.SchemaError, match="Once the column is corrected") as refused:
        import_data(plan.config, source=plan.source, output=str(tmp_path / "out"))
    assert "quarantine" not in str(refused.value)


def clicks(rows: int = 300) -> pl.DataFrame:
    """A log of offers: nothing says which belong together."""
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "hour": rng.integers(0, 24, rows),
            "device": rng.choice(["mobile", "desktop", "tablet"], rows),
            "item": rng.choice(["shoes", "hats"], rows),
            "probability": rng.choice([0.2, 0.8], rows),
            "click": rng.integers(0, 2, rows),
        }
    )


def test_a_log_of_offers_is_planned_as_single_steps(tmp_path: Path) -> None:
    """The lines to decide, taken as they are, make an import: text is encoded, and no outcome is seen before."""
    clicks().write_csv(tmp_path / "log.csv")
    plan = planned(tmp_path / "log.csv")
    roles = {role.name: role for role in plan.roles}
    assert roles["obs"].candidates == ["hour", "device"] and roles["rewards"].candidates[0] == "click"
    assert roles["action_prob"].source == "probability" and plan.config.episodes.order == "single_step"
    decided = re.sub(r"^( *)# (obs|actions|rewards|columns):", r"\1\2:", plan.yaml, flags=re.MULTILINE)
    (tmp_path / "decided.yaml").write_text(decided)
    config = parse(ImportConfig, read_values([], str(tmp_path / "decided.yaml")))
    made = import_data(config, source=plan.source, output=str(tmp_path / "out"))
    assert (made.counts.episodes, made.counts.quarantined_rows) == (300, 0)
    assert (made.observation_space, made.action_space) == ("Box(-inf, inf, (4,), float64)", "Discrete(2)")


@pytest.mark.parametrize(("shifts", "first"), [(30, 0), (30, 1), (600, 0)])  # of the last one only the first rows are read
def test_rows_in_no_order_are_numbered_by_the_column_that_never_repeats_in_an_id(
    tmp_path: Path, shifts: int, first: int
) -> None:
    rng, minutes = np.random.default_rng(0), 40
    rows = shifts * minutes
    frame = pl.DataFrame(
        {
            "shift": np.repeat(np.arange(shifts), minutes),
            "minute": np.tile(np.arange(minutes) + first, shifts),
            "obs": rng.normal(size=rows),
            "text": ["much that makes the file large " * 5] * rows,
            "action": rng.integers(0, 2, rows),
            "reward": rng.normal(size=rows),
            "probability": rng.choice([0.5, 0.25], rows),
        }
    )
    frame[[*rng.permutation(rows), *range(minutes)]].write_csv(tmp_path / "log.csv")  # a shift is there twice
    plan = planned(tmp_path / "log.csv")
    roles = {role.name: role.source for role in plan.roles}
    assert (roles["eps_id"], roles["t"], roles["action_prob"]) == ("shift", "minute", "probability")
    assert plan.is_ready, plan
    made = import_data(plan.config, source=plan.source, output=str(tmp_path / "out"))
    assert (made.counts.episodes, made.counts.steps) == (shifts, rows)


def test_an_offer_with_a_row_number_and_the_hour_is_a_single_step(tmp_path: Path) -> None:
    frame = clicks()
    frame = frame.with_columns(
        row=pl.int_range(len(frame)), hour=pl.Series(np.random.default_rng(0).integers(0, 24, len(frame)))
    )
    frame.sample(fraction=1, shuffle=True, seed=0).write_csv(tmp_path / "log.csv")
    assert planned(tmp_path / "log.csv").config.episodes.order == "single_step"


def test_files_that_may_be_an_episode_each_are_no_single_steps(tmp_path: Path) -> None:
    for number in range(3):
        frame = pl.DataFrame({"obs": [0.5] * 30, "action": [0, 1] * 15, "reward": [1.0] * 30, "action_prob": [0.5] * 30})
        frame.write_csv(tmp_path / f"{number}.csv")
    plan = planned(tmp_path)
    assert plan.config.episodes.order != "single_step"


def test_what_holds_the_word_of_an_outcome_in_its_name_may_be_observed(tmp_path: Path) -> None:
    clicks().with_columns(last_click_age=pl.col("hour") * 0.5 + 1).write_csv(tmp_path / "log.csv")
    roles = {role.name: role for role in planned(tmp_path / "log.csv").roles}
    assert "last_click_age" in roles["obs"].candidates and "click" not in roles["obs"].candidates


def test_gaps_are_no_mistake_of_a_whole_column(tmp_path: Path) -> None:
    rows = pl.DataFrame({"x": [0.5] * 80, "offer": ["a", "b", "a", None] * 20, "reward": [1.0] * 80})
    rows.write_csv(tmp_path / "log.csv")
    given = {"mapping": {"obs": ["x"], "actions": "offer"}, "columns": {"encode": {"offer": {"form": "index"}}}}
    plan = planned(tmp_path / "log.csv", episodes={"order": "single_step"}, **given)
    assert not any("has to be corrected" in decision.question for decision in plan.decisions)


def test_text_that_is_mapped_to_observations_is_encoded(tmp_path: Path) -> None:
    clicks().write_csv(tmp_path / "log.csv")
    mapping = {"obs": ["hour", "device"], "actions": "item", "rewards": "click"}
    given = {"mapping": mapping, "columns": {"encode": {"item": {"form": "index"}}}}
    plan = planned(tmp_path / "log.csv", **given)
    assert plan.is_ready and not plan.gaps
    assert plan.config.columns.encode.keys() == {"item", "device"} and plan.config.columns.encode["device"].form == "one_hot"


@pytest.mark.parametrize(
    ("names", "values", "is_taken"),
    [
        ("probability", [0.5, 1.0], True),
        ("probability", [0.5, 1.5], False),
        ("probability", [0.0, 1.0], False),
        ("density", [0.5, 1.5], True),
        ("episode,density", [0.5, 1.5], False),
        ("p", [0.5, 1.0], True),
        ("episode,p", [0.5, 1.0], False),
    ],
)
def test_probabilities_are_known_by_name_and_values(names: str, values: list[float], is_taken: bool, tmp_path: Path) -> None:
    log = {"obs": [0.5, 0.7] * 20, "action": [i / 40 for i in range(40)], "reward": [1.0] * 40}
    *ids, name = names.split(",")
    log |= {each: [1.0] * 20 + [2.0] * 20 for each in ids} | {name: values * 20}
    pl.DataFrame(log).write_csv(tmp_path / "log.csv")
    plan = planned(tmp_path / "log.csv")
    assert ("action_prob" in {role.name for role in plan.roles}) == is_taken
    assert (plan.config.episodes.order == "single_step") == is_taken
    said = any("named like a probability" in note for note in plan.notes)
    assert said == (name in ("probability", "p") and not is_taken)


@pytest.mark.parametrize("is_mapped", [True, False])
def test_decimals_are_numbers_and_durations_are_shown(is_mapped: bool, tmp_path: Path) -> None:
    rows = {"episode": [0] * 4 + [1] * 4, "x": [0.5] * 8, "action": [Decimal(i % 2) for i in range(8)]}
    rows |= {"reward": [Decimal("0.25")] * 8, "elapsed": [timedelta(seconds=i % 4) for i in range(8)]}
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    plan = planned(tmp_path / "log.parquet", mapping={"obs": ["x"], **({"t": "elapsed"} if is_mapped else {})})
    roles = {role.name: role.source for role in plan.roles}
    assert (roles["actions"], roles["rewards"]) == ("action", "reward")
    assert [(each.minimum, each.maximum) for each in plan.columns if each.name == "elapsed"] == [("0:00:00", "0:00:03")]
    assert plan.order == ("time" if is_mapped else "stored") and plan.counts.episodes == 2
    check_by_import(plan, tmp_path)


def test_the_daily_logs_of_rooms_are_understood_but_for_what_no_name_says(tmp_path: Path) -> None:
    plan = planned(logs.daily_folders(tmp_path / "in"))
    assert plan.verdict == "2 things to decide: obs, actions."
    assert [decision.candidates for decision in plan.decisions] == [
        ["temp_in", "temp_out", "energy_kwh"],
        ["valve", "temp_in", "temp_out", "energy_kwh"],
    ], "the likeliest first"
    roles = {role.name: (role.source, role.reason) for role in plan.roles}
    assert roles["eps_id"] == ("room", "tells apart the rows of one time")
    assert roles["t"] == ("timestamp", "another name for t") and roles["rewards"][0] == "reward"
    assert plan.counts.episodes == 15 and plan.lengths == (40, 40, 40), "one a room and day"
    assert "  # obs: [temp_in, temp_out, energy_kwh] # to decide: no name says what a policy observes" in plan.yaml
    assert str(plan).startswith("2 things to decide: obs, actions.\n  1. obs: no name says what a policy observes. Candidates:")


def test_values_say_what_names_do_not(tmp_path: Path) -> None:
    plan = planned(logs.unnamed(tmp_path / "in"))
    roles = {role.name: role.source for role in plan.roles}
    assert (roles["eps_id"], roles["t"], roles["terminateds"]) == ("c0", "c1", "c6")
    assert [decision.name for decision in plan.decisions] == ["obs", "actions", "rewards"]


def test_what_is_given_stays(tmp_path: Path) -> None:
    source = logs.daily_folders(tmp_path / "in")
    given = {"mapping": {**logs.ROOM_ROLES, "eps_id": "room"}, "episodes": {"ids_per": "date", "last_new_obs": "repeat"}}
    given |= {"source": {"columns": ["timestamp", "room", "temp_in", "temp_out", "valve", "reward"]}, "format": "table"}
    plan = planned(source, **given)
    stays = plan.config.model_dump(exclude_unset=True)
    assert stays["episodes"] == given["episodes"] and stays["format"] == "table"
    assert stays["source"]["columns"] == given["source"]["columns"]
    assert stays["mapping"] == {"t": "timestamp", "rewards": "reward", **given["mapping"]}
    assert "room   # given" in plan.yaml
    check_by_import(plan, tmp_path)
    assert planned(source, **stays).config == plan.config, "a plan of the plan is the same"


def test_ids_of_which_nothing_says_whether_they_go_on_are_to_decide(tmp_path: Path) -> None:
    for number in range(2):
        lines = [f"{t // 5},{t * 0.5},{t % 2},1.0" for t in range(10)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["episode,obs,action,reward", *lines]) + "\n")
    plan = planned(tmp_path)
    (decision,) = plan.decisions
    assert (decision.name, decision.candidates) == ("ids_per", ["source", "file", "folder"])


def test_actions_recorded_by_rllib_need_their_environment() -> None:
    plan = planned(DATA / "pendulum_table")
    assert [decision.name for decision in plan.decisions] == ["parameters"]
    assert "declare them by environment.id or by action_space" in plan.decisions[0].question


def test_a_time_limit_is_pointed_at(tmp_path: Path) -> None:
    """One flag for both ends, and most episodes end at step 20."""
    lengths = [20, 20, 12, 20, 7]
    lines = [f"{e},{t},{e + t / 100},0,1.0,{int(t == n - 1)}" for e, n in enumerate(lengths) for t in range(n)]
    (tmp_path / "x.csv").write_text("\n".join(["episode,t,obs,action,reward,done", *lines]) + "\n")
    assert any("3 of 5 episodes end at exactly 20 steps" in note for note in planned(tmp_path).notes)


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({}, "EmptyDatasetError", "There are no data files"),
        ({"x.parquet": b"nonsense"}, "CorruptFileError", "no readable Parquet file"),
        ({"x.csv": b"a,b\n1,2\n", "y.ndjson": b'{"a": 1}\n'}, "ConfigError", "different formats"),
        ({"x.csv": b""}, "EmptyDatasetError", "There are no rows in"),
        ({"x.ndjson": b"hello\n"}, "CorruptFileError", "cannot be read as ndjson"),
    ],
    ids=["empty", "nonsense", "mixed", "no rows", "no JSON"],
)
def test_what_cannot_be_planned_is_refused(files: dict[str, bytes], error: str, message: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(getattr(errors, error), match=message):
        planned(tmp_path)


def test_no_yaml_is_said_to_settle_rows_of_which_none_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("hour,action,reward\n" + "1,nan,0.5\n" * 20)
    config = {"mapping": {"obs": ["hour"], "actions": "action", "rewards": "reward"}, "episodes": {"order": "single_step"}}
    told = planned(tmp_path, **config).advice("runs/x")
    assert "No row can be imported by this YAML as it is: mend what" in told and "settles it" not in told
    (tmp_path / "x.csv").write_text("hour,action,reward\n" + "1,,0.5\n" * 10 + "1,0,0.5\n" * 10)
    assert "This YAML settles it" in planned(tmp_path, **config).advice("runs/x")


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(errors.DatasetNotFoundError, match="There is nothing at"):
        planned(tmp_path / "nowhere")
    with pytest.raises(errors.ConfigError, match="needs Ray, which a plan does not start"):
        planned(tmp_path, source={"format": "read_sql"})


def test_of_large_files_and_of_many_only_a_part_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the formats that lie in files of their own; rows are told apart by their number."""
    monkeypatch.setattr(sample, "SMALL_BYTES", 0)
    n = 3 * FIRST_ROWS
    steps = {"episode": np.arange(n) // 64, "t": np.arange(n) % 64, "obs": np.arange(n) + 0.5, "action": np.zeros(n, int)}
    frame = pl.DataFrame(steps | {"reward": np.arange(n) * 1.0, "done": np.arange(n) % 64 == 63, "text": ["x" * 100] * n})
    frame.write_parquet(tmp_path / "x.parquet")
    frame.write_csv(tmp_path / "x.csv")
    frame.write_ndjson(tmp_path / "x.ndjson")
    frame.write_ipc(tmp_path / "x.arrow")
    for suffix in ("parquet", "csv", "ndjson", "arrow"):
        plan = planned(tmp_path / f"x.{suffix}")
        assert not plan.is_whole and plan.is_ready, suffix
        assert 1000 < plan.counts.rows <= FIRST_ROWS and plan.counts.gaps == 0, suffix
    many = tmp_path / "many"
    many.mkdir()
    for number in range(192):
        frame.slice(number * 64, 64).write_csv(many / f"{number:04d}.csv")
    plan = planned(many)
    assert (plan.files, plan.files_read, plan.counts.rows) == (192, 24, 24 * 64)
    assert chosen(192)[:3] == [0, 1, 2] and chosen(192)[-1] == 191 and len(chosen(10_000)) == 24


def test_quoted_lines_are_not_cut_in_two() -> None:
    text = b'a,b\n1,"x\ny"\n2,"p\nq'
    assert _whole_lines(text) == b'a,b\n1,"x\ny"\n'


def test_columns_that_are_made_are_planned_with_the_others(tmp_path: Path) -> None:
    """Fields of structs by their dotted names, and an expression."""
    source = logs.nested_ndjson(tmp_path / "in")
    given = {"mapping": {"obs": ["state.tin", "state.tout"]}, "columns": {"computed": {"rewards": "-abs(state.tin - 21)"}}}
    plan = planned(source, source={"columns": ["episodeId", "step", "state", "action", "done"]}, **given)
    assert [role.source for role in plan.roles if role.name == "rewards"] == ["rewards"]
    assert plan.observation_space == "Box(-inf, inf, (2,), float64)"
    check_by_import(plan, tmp_path)


def test_fields_of_structs_are_found_by_their_names(tmp_path: Path) -> None:
    rows = [
        {
            "meta": {"episode": t // 10, "step": t % 10, "note": None},
            "obs": [t / 2, 1.0],
            "out": {"action": t % 2, "reward": 0.5},
        }
        for t in range(40)
    ]
    (tmp_path / "x.ndjson").write_text("\n".join(map(json.dumps, rows)) + "\n")
    plan = planned(tmp_path / "x.ndjson")
    roles = {role.name: role.source for role in plan.roles}
    assert roles == {
        "eps_id": "meta.episode",
        "t": "meta.step",
        "obs": "obs",
        "actions": "out.action",
        "rewards": "out.reward",
    }
    assert plan.counts.episodes == 4
    check_by_import(plan, tmp_path)


@pytest.mark.parametrize("has_next", [False, True])
def test_masks_of_actions_are_mapped_where_an_import_can_use_them(has_next: bool, tmp_path: Path) -> None:
    steps = np.arange(60)
    log = pl.DataFrame(
        {"episode": steps // 10, "step": steps % 10, "obs": (steps[:, None] * [1.0, 0.5]).tolist(), "action": steps % 3}
        | {"reward": steps / 7, "done": steps % 10 == 9, "legal_actions": [[1, 1, 1, i % 2] for i in steps]}
        | ({"next_obs": ((steps[:, None] + 1) * [1.0, 0.5]).tolist()} if has_next else {})
    )
    log.write_parquet(tmp_path / "log.parquet")
    plan = planned(tmp_path / "log.parquet")
    assert ("action_mask" in plan.config.mapping) == (not has_next), "new_obs has no mask of its own"
    check_by_import(plan, tmp_path)


def test_actions_in_words_get_numbers(tmp_path: Path) -> None:
    rows = [
        {"episode": e, "t": t, "x": float(t), "action": "left" if t % 2 else "right", "reward": t, "done": t == 3}
        for e in range(3)
        for t in range(4)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "log.csv")
    plan = planned(tmp_path / "log.csv", mapping={"obs": ["x"]})
    assert plan.is_ready and plan.action_space == "Discrete(2)" and "encode: {action: {form: index}}" in plan.yaml
    check_by_import(plan, tmp_path)


def test_last_rows_of_rlds_are_no_steps(tmp_path: Path) -> None:
    rows = [
        {
            "episode_id": e,
            "observation": [float(t)],
            "action": t % 2,
            "reward": float(t),
            "is_first": t == 0,
            "is_last": t == 3,
            "is_terminal": t == 3,
        }
        for e in range(3)
        for t in range(4)
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "log.parquet")
    plan = planned(tmp_path / "log.parquet")
    assert plan.is_ready and plan.counts.steps == 9 and plan.counts.final_observations == 3
    check_by_import(plan, tmp_path)


@pytest.mark.parametrize("names", [{}, {"tick": "number_in"}, {"tick": "number_in", "episode_uuid": "mission"}], ids=len)
def test_a_row_that_is_there_twice_hides_no_step_counter(names: dict[str, str], tmp_path: Path) -> None:
    given = {"mapping": {"obs": ["lidar"], "actions": ["v", "w"], "eps_id": "mission"}}
    if "episode_uuid" not in names:
        del given["mapping"]["eps_id"]
    plan = planned(logs.robot(tmp_path / "in", names), **given)
    assert plan.config.mapping["t"] == names.get("tick", "tick") and plan.order == "t"
    assert (plan.counts.duplicates, plan.counts.gaps) == (8, 4)
    check_by_import(plan, tmp_path)


def test_a_row_that_is_there_twice_hides_no_counter_without_ids(tmp_path: Path) -> None:
    """Nothing but the counter tells where an episode ends; a file begins amid one."""
    t = [*range(17, 30), *[t for _ in range(25) for t in range(30)]]
    rows = pl.DataFrame({"nr": t, "obs": np.arange(len(t)) / 7, "action": [0, 1] * 381 + [0], "reward": np.arange(len(t)) % 5})
    rows[np.sort(np.append(np.arange(len(t)), 100))].write_csv(tmp_path / "log.csv")
    plan = planned(tmp_path / "log.csv")
    assert (plan.config.mapping["t"], plan.order) == ("nr", "t")


def test_a_last_row_that_is_there_twice_hides_no_end(tmp_path: Path) -> None:
    """The flag is set in last rows only, though one of them is followed by itself."""
    rows = pl.concat(
        [logs.room(0, number, 20).with_columns(k=pl.int_range(20), over=pl.int_range(20) == 19) for number in range(4)]
    )
    rows = rows.drop("timestamp", "energy_kwh").rename(
        {"room": "episode", "valve": "action", "temp_in": "obs_0", "temp_out": "obs_1"}
    )
    rows[np.sort(np.append(np.arange(80), 39))].write_parquet(tmp_path / "log.parquet")
    plan = planned(tmp_path / "log.parquet")
    assert plan.config.mapping["terminateds"] == "over" and plan.counts.terminations >= 4
    check_by_import(plan, tmp_path)


def test_a_file_with_a_row_that_is_there_twice_is_an_episode(tmp_path: Path) -> None:
    logs.file_an_episode(tmp_path / "in")
    rows = pl.read_parquet(tmp_path / "in" / "0.parquet")
    pl.concat([rows[:5], rows[4:]]).write_parquet(tmp_path / "in" / "0.parquet")
    plan = planned(tmp_path / "in")
    assert plan.counts.episodes == 5 and plan.counts.duplicates == 1
    check_by_import(plan, tmp_path)


@pytest.mark.parametrize("rows", ["all", "ends"])
def test_flags_that_are_written_where_they_matter_only_are_filled(rows: str, tmp_path: Path) -> None:
    """Null in all rows but the last ones; or true somewhere, and never false."""
    logs.robot(tmp_path / "in")
    if rows == "ends":
        for file in (tmp_path / "in").iterdir():
            frame = pl.read_parquet(file)
            frame.with_columns(success=pl.when("success").then(1)).write_parquet(file)
    plan = planned(tmp_path / "in", mapping={"obs": ["lidar"], "actions": ["v", "w"], "terminateds": "success"})
    assert plan.config.columns.fill == {"success": False} and plan.config.unreadable == "fail"
    assert "fill: {success: " in plan.advice("runs/x") and "quarantine" not in plan.advice("runs/x")
    assert plan.counts.terminations == 20
    check_by_import(plan, tmp_path)


def test_rows_that_are_mostly_refused_are_no_rows_to_leave_out(tmp_path: Path) -> None:
    """Flags that are null here and there, and false in a few rows: that is no way to write them, and no single rows."""
    logs.robot(tmp_path / "in", files=1)
    frame = pl.read_parquet(tmp_path / "in" / "0.parquet").with_row_index()
    frame = frame.with_columns(success=pl.when(pl.col("index") % 9 == 0).then(False).otherwise("success")).drop("index")
    frame.write_parquet(tmp_path / "in" / "0.parquet")
    plan = planned(tmp_path / "in", mapping={"obs": ["lidar"], "actions": ["v", "w"], "terminateds": "success"})
    told = plan.advice("runs/x")
    assert [decision.name for decision in plan.decisions] == ["rows"] and "quarantine" not in told
    assert "Hardly a row can be imported by this YAML as it is" in told


def test_a_struct_is_offered_by_the_numbers_in_it(tmp_path: Path) -> None:
    plan = planned(logs.robot(tmp_path / "in", files=1), mapping={"actions": ["v", "w"]})
    [decision] = plan.decisions
    assert decision.candidates == ["robot", "pose.x", "pose.y", "pose.heading", "lidar"]
    config = {"mapping": {**plan.config.mapping, "obs": decision.candidates[1:]}}
    check_by_import(planned(tmp_path / "in", **config), tmp_path)
    with pytest.raises(errors.SchemaError, match=r"Name the fields in place of pose: pose\.x, pose\.y, pose\.heading\."):
        given = parse(ImportConfig, {"mapping": {**plan.config.mapping, "obs": ["pose", "lidar"]}})
        import_data(given, source=plan.source, output=str(tmp_path / "data"))


def test_a_cost_is_turned_round_by_the_yaml_of_a_plan(tmp_path: Path) -> None:
    plan = planned(logs.heating(tmp_path / "heat.csv"))
    assert {decision.name: decision.candidates[0] for decision in plan.decisions}["rewards"] == "energy_cost"
    assert "energy_cost is named like something to be minimised" in plan.advice("runs/x")
    decided = re.sub(r"^( *)# (obs|actions|rewards|columns|unreadable):", r"\1\2:", plan.yaml, flags=re.MULTILINE)
    (tmp_path / "plan.yaml").write_text(decided)
    config = parse(ImportConfig, read_values([], str(tmp_path / "plan.yaml")))
    assert config.columns.computed == {"reward": "-energy_cost"} and config.mapping["rewards"] == "reward"
    assert config.columns.fill == {} and config.unreadable == "quarantine", "what a step cost is not known, and not 0"
    made = import_data(config, source=plan.source, output=str(tmp_path / "out"))
    assert made.counts.quarantined_rows == 3
    assert all((episode.rewards < 0).all() for episode in open_dataset(made.dataset.uri).episodes())


def test_a_match_a_file_that_is_there_twice(tmp_path: Path) -> None:
    """The column of ids names the episodes, and not the file, so that the copy is one; a scope of ids would hide it."""
    for number in range(25):
        rows = [f"m{number},{1000 * number + 100 * t},{number % 3},{t / 2},{t % 2},{t}" for t in range(6)]
        (tmp_path / f"{number:02d}.csv").write_text("\n".join(["match_id,ts,player_id,x,action,reward", *rows, ""]))
    (tmp_path / "12_again.csv").write_bytes((tmp_path / "12.csv").read_bytes())
    plan = planned(tmp_path, mapping={"obs": ["x"]})
    assert plan.config.mapping["eps_id"] == "match_id"
    assert plan.config.episodes.ids_per == "source"
    assert (plan.counts.episodes, plan.counts.duplicates) == (25, 6)


def test_prices_name_no_episodes(tmp_path: Path) -> None:
    prices = [Decimal(f"{t % 7}.{25 * number}") for t in range(60) for number in range(2)]
    times = [datetime(2026, 1, 1) + timedelta(minutes=15 * (t // 2)) for t in range(120)]
    table = pa.table({"at": times, "site": ["n", "s"] * 60, "forecast": pa.array(prices, pa.decimal128(9, 2))})
    pq.write_table(table.append_column("power", pa.array(np.arange(120.0) % 5)), tmp_path / "x.parquet")
    plan = planned(tmp_path / "x.parquet")
    assert plan.config.mapping["eps_id"] == "site"


def test_what_comes_in_runs_is_proposed_for_episodes(tmp_path: Path) -> None:
    rows = [f"f{p},0{1 + t}.0{1 + 7 * p % 9}.2026 10:00,{3 * t % 5}.5,{t % 2},{p % 4}.5" for p in range(9) for t in range(4)]
    (tmp_path / "x.csv").write_text("\n".join(["fall,wann,x,action,reward", *rows, ""]))
    [decision] = [decision for decision in planned(tmp_path / "x.csv").decisions if decision.name == "episodes"]
    assert decision.candidates == ["fall"]


@pytest.mark.parametrize(
    ("values", "is_coded"),
    [([18, 20, 22], True), ([0, 5, 10, 15], True), ([0, 1, 2, 4], False), ([3, 4, 5], False), ([-1, 1, 3], False)],
)
def test_actions_that_are_few_of_many_numbers_are_choices_where_somebody_looks(
    values: list[int], is_coded: bool, tmp_path: Path
) -> None:
    lines = [f"{i // 4},{i % 4},{i / 10},{values[i * 7 % len(values)]},1,{int(i % 4 == 3)}" for i in range(60)]
    (tmp_path / "x.csv").write_text("\n".join(["visit,step,o,discount,reward,done", *lines, ""]))
    given = {"mapping": {"eps_id": "visit", "t": "step", "obs": ["o"], "actions": "discount"}}
    plan = planned(tmp_path / "x.csv", **given)
    assert ("discount" in plan.config.columns.encode) == ("each is a choice" in plan.yaml) == is_coded
    assert (plan.action_space == f"Discrete({len(values)})") == is_coded
    [column] = [column for column in plan.columns if column.name == "discount"]
    assert (column.minimum, column.maximum) == (str(min(values)), str(max(values))), "as the file has them"
    check_by_import(plan, tmp_path)
    taken = import_data(parse(ImportConfig, given), source=str(tmp_path / "x.csv"), output=str(tmp_path / "taken"))
    assert (taken.action_space != plan.action_space) == is_coded, "nobody looked"


def test_levels_of_a_price_are_choices_and_its_probability_is_known_by_its_name(tmp_path: Path) -> None:
    lines = [f"{i},{i % 7},{[0.8, 1.0, 1.25][i % 3]},0.25,{i % 2},{i % 5},{i % 2}" for i in range(120)]
    (tmp_path / "x.csv").write_text(
        "\n".join(["offer_id,age,price_level,price_level_prob,is_sold,margin,margin_after", *lines, ""])
    )
    given = {"mapping": {"actions": "price_level", "rewards": "margin"}, "episodes": {"order": "single_step"}}
    plan = planned(tmp_path / "x.csv", **given)
    assert plan.config.columns.discretise["price_level"].values == [0.8, 1.0, 1.25]
    assert plan.config.mapping["action_prob"] == "price_level_prob"
    [seen] = [role for role in plan.roles if role.name == "obs"]
    assert seen.candidates == ["age"], "is_sold and margin_after are what came of it"
    given["mapping"]["obs"] = ["age"]
    plan = planned(tmp_path / "x.csv", **given)
    assert plan.action_space == "Discrete(3)"
    check_by_import(plan, tmp_path)


def test_a_state_with_a_text_inside_is_its_fields(tmp_path: Path) -> None:
    """As a whole it is no numbers: it was imported, and nothing learned from it."""
    rows = [
        {
            "session": i // 4,
            "turn": i % 4,
            "state": {"hp": i, "enemy": {"kind": "orc" if i % 3 else "elf", "hp": 3}},
            "move": i % 3,
        }
        | {"win": i % 2, "done": i % 4 == 3}
        for i in range(60)
    ]
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    plan = planned(tmp_path / "x.jsonl")
    wanted = {decision.name: decision.candidates for decision in plan.decisions}
    assert wanted["actions"][0] == "move" and wanted["rewards"][0] == "win"
    assert not any(name.startswith("state") for name in wanted["actions"] + wanted["rewards"])
    assert {"state.hp", "state.enemy.kind", "state.enemy.hp"} <= {*wanted["obs"]}
    mapping = {"actions": "move", "rewards": "win", "obs": ["state.hp", "state.enemy.kind", "state.enemy.hp"]}
    plan = planned(tmp_path / "x.jsonl", mapping=mapping)
    assert "state.enemy.kind" in plan.config.columns.encode
    check_by_import(plan, tmp_path)


def test_who_has_won_is_a_reward_that_comes_at_the_end(tmp_path: Path) -> None:
    rows = [
        {"game": i // 5, "turn": i % 5, "hp": i % 7, "move": i % 3, "win": i % 2 == 0 if i % 5 == 4 else None}
        for i in range(60)
    ]
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    plan = planned(tmp_path / "x.jsonl", mapping={"obs": ["hp"], "actions": "move"})
    [asked] = [decision for decision in plan.decisions if decision.name == "rewards"]
    assert asked.candidates[0] == "win"
    plan = planned(tmp_path / "x.jsonl", mapping={"obs": ["hp"], "actions": "move", "rewards": "win"})
    assert plan.fills == {"win": 0} and "fill: {win: 0}" in plan.yaml
    given = {"mapping": {"obs": ["hp"], "actions": "move", "rewards": "win"}, "columns": {"fill": {"win": 0}}}
    check_by_import(planned(tmp_path / "x.jsonl", **given), tmp_path)


def test_levels_are_proposed_only_where_all_rows_were_looked_at(tmp_path: Path) -> None:
    """Others would become the nearest."""
    lines = [f"{i},{i % 7},{[0.8, 1.0, 1.25][i % 3] + (i > 250_000) / 10:g},{i % 5}" for i in range(300_000)]
    (tmp_path / "x.csv").write_text("\n".join(["offer_id,age,price_level,margin", *lines, ""]))
    mapping = {"actions": "price_level", "rewards": "margin", "obs": ["age"]}
    plan = planned(tmp_path / "x.csv", mapping=mapping, episodes={"order": "single_step"})
    assert not plan.is_whole and not plan.config.columns.discretise


@pytest.mark.parametrize("name", ["treatment", "csat"])
def test_what_is_unknown_in_most_rows_is_no_zero(tmp_path: Path, name: str) -> None:
    lines = [f"{i // 6},{i % 6},{i},{i % 3 if i % 4 == 1 else ''},{i % 2}" for i in range(120)]
    (tmp_path / "x.csv").write_text("\n".join([f"visit,step,age,{name},other", *lines, ""]))
    mapping = {"obs": ["age"], "actions": "treatment", "rewards": "other"}
    plan = planned(
        tmp_path / "x.csv", mapping=mapping if name == "treatment" else mapping | {"actions": "other", "rewards": "csat"}
    )
    assert plan.gaps == {name: 90} and plan.fills == {}


def test_texts_that_are_numbers_in_another_form_get_the_expression_that_reads_them(tmp_path: Path) -> None:
    rows = [f'{i // 4},{i % 4},"{40 + i},8 %",{i % 2},"€{1 + i},000.50"' for i in range(12)]
    (tmp_path / "log.csv").write_text("\n".join(["guest,t,load,action,reward", *rows]))
    plan = planned(tmp_path / "log.csv")
    assert [decision.candidates for decision in plan.decisions] == [["load_number"]]
    done = planned(tmp_path / "log.csv", mapping={"obs": ["load_number"]})
    check_by_import(done, tmp_path)
    [first, *_] = open_dataset(str(tmp_path / "out")).episodes()
    np.testing.assert_allclose(first.rewards, [1000.5, 2000.5, 3000.5, 4000.5])
    np.testing.assert_allclose(first.observations[0], [40.8])


def _log(**changed: Any) -> pa.Table:
    """Four episodes of six steps, as others name their columns."""
    rows = 24
    known: dict[str, Any] = {
        "episode_index": np.repeat(np.arange(4), 6),
        "frame_index": np.tile(np.arange(6), 4),
        "reward": np.arange(rows) / 8,
        "done": np.tile(np.arange(6) == 5, 4),
        "state": [[float(row), 1.0] for row in range(rows)],
        "action": np.arange(rows) % 2,
    }
    return pa.table({name: column for name, column in (known | changed).items() if column is not None})


@pytest.mark.parametrize(
    ("changed", "headline"),
    [
        ({"reward": [np.nan, *np.arange(23) / 8]}, r"log\.parquet: 1 row cannot be imported: Column 'reward' is NaN"),
        (
            {"reward": [None, *np.arange(23) / 8]},
            r"log\.parquet: 1 row cannot be imported: Column 'reward' has 1 null among",
        ),
        ({"frame_index": np.tile(np.arange(1, 7), 4)}, r"log\.parquet: episodes\.first_t may be 1: 4 of 4 episodes"),
        ({"state": [f"{row},5" for row in range(24)]}, r"log\.parquet: 24 rows cannot be imported: Column 'state' has text"),
        ({"state": None, "x": np.arange(24.0)}, r"log\.parquet: There is no column obs and none"),
        ({"state": None, "action": None, "reward": None}, r"There is no column obs, actions, rewards and none"),
    ],
)
def test_an_import_that_stops_says_first_what_is_in_the_way(changed: dict[str, Any], headline: str, tmp_path: Path) -> None:
    pq.write_table(_log(**changed), tmp_path / "log.parquet")
    with pytest.raises(errors.SchemaError, match=headline) as error:
        import_data(ImportConfig(), source=str(tmp_path / "log.parquet"), output=str(tmp_path / "out"))
    assert "NaN" not in headline or "there are" not in str(error.value)


def test_a_space_that_is_none_is_refused_without_yaml_that_repeats_it(tmp_path: Path) -> None:
    pq.write_table(_log(), tmp_path / "log.parquet")
    config = parse(ImportConfig, {"observation_space": {"space": "box", "low": -5, "shape": [2]}})
    with pytest.raises(errors.ConfigError, match="has no 'high', which it needs") as error:
        import_data(config, source=str(tmp_path / "log.parquet"), output=str(tmp_path / "out"))
    assert "YAML" not in str(error.value)


def test_vectors_in_two_types_of_real_numbers_keep_their_name(tmp_path: Path) -> None:
    for number, kind in enumerate((np.float32, np.float64)):
        actions = pa.FixedShapeTensorArray.from_numpy_ndarray(np.full((24, 2), 0.1, kind))
        pq.write_table(_log(action=actions), tmp_path / f"{number}.parquet")
    plan = planned(tmp_path, episodes={"ids_per": "file"})
    assert plan.is_ready and "Some rows have actions in float64" in " ".join(plan.notes), plan
    assert plan.action_space == "Box(-inf, inf, (2,), float32)"


def test_archives_of_an_episode_each_need_no_parameters_but_their_names(tmp_path: Path) -> None:
    for number in range(3):
        arrays = {
            "obs": np.full((4 + number, 2), 0.5),
            "actions": np.arange(4 + number) % 2,
            "rewards": np.arange(4.0 + number),
        }
        np.savez(tmp_path / f"{number}.npz", success=number > 0, done=number > 1, **arrays)
    plan = planned(tmp_path)
    assert plan.lengths == (4, 5, 6) and plan.counts.terminations == 1
    check_by_import(plan, tmp_path)
    second = [*open_dataset(str(tmp_path / "out")).episodes()][1]
    assert second.extras["success"].tolist() == [True] * 5  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["sess", "visit"])
def test_a_text_that_comes_in_many_runs_names_the_episodes_of_times_that_grow(name: str, tmp_path: Path) -> None:
    rows = 96
    sessions = [f"s{row // 8}" for row in range(rows)]
    times = np.arange(rows) * 1000 + np.arange(rows) % 7 + 1_700_000_000_000
    log = {name: sessions, "ts": times, "obs": np.arange(rows) / 8, "action": np.arange(rows) % 2, "reward": np.ones(rows)}
    pq.write_table(pa.table(log), tmp_path / "log.parquet")
    plan = planned(tmp_path / "log.parquet")
    assert next(role.source for role in plan.roles if role.name == "eps_id") == name
    assert plan.lengths == (8, 8, 8)


def test_a_log_of_which_rows_may_be_left_out_is_imported_without_them(tmp_path: Path) -> None:
    pq.write_table(_log(reward=[np.nan, *np.arange(23) / 8]), tmp_path / "log.parquet")
    config = parse(ImportConfig, {"unreadable": "quarantine"})
    made = import_data(config, source=str(tmp_path / "log.parquet"), output=str(tmp_path / "out"))
    assert (made.counts.rows, made.counts.steps, made.counts.quarantined_rows) == (24, 23, 1)


def test_steps_are_numbered_by_their_index_and_not_by_times_beside_it(tmp_path: Path) -> None:
    pq.write_table(_log(timestamp=np.tile(np.arange(6) * 0.1, 4)), tmp_path / "log.parquet")
    made = import_data(ImportConfig(), source=str(tmp_path / "log.parquet"), output=str(tmp_path / "out"))
    [first, *_] = open_dataset(made.dataset.uri).episodes()
    np.testing.assert_allclose(first.extras["timestamp"], np.arange(6) * 0.1)


def test_names_with_digits_become_no_numbers(tmp_path: Path) -> None:
    rows = [f"{i // 4}%,{i % 4},{i}a,{i}A,{i % 3 + 1}XL,{i}%,0.{i},{i % 2},1.5" for i in range(12)]
    (tmp_path / "log.csv").write_text("\n".join(["eps_id,t,ticket,seat,size,row_id,obs,actions,rewards", *rows]))
    assert planned(tmp_path / "log.csv").config.columns.computed == {}


def test_a_reward_that_is_read_from_texts_is_what_a_plan_asks_about(tmp_path: Path) -> None:
    rows = [f'{i // 4},{i % 4},"{40 + i},8 %",{i % 2},"€{1 + i},000.50"' for i in range(12)]
    (tmp_path / "log.csv").write_text("\n".join(["eps_id,t,obs,actions,rewards", *rows]))
    plan = planned(tmp_path / "log.csv")
    assert plan.is_ready and plan.config.mapping["rewards"] == "rewards_number"
    assert "obs_as_text: obs   # its texts are numbers" in plan.yaml
    assert plan.first_obstacle.startswith("mapping.obs may be obs_number: obs holds texts")


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_counter_that_counts_down_is_not_taken_for_the_step_index(has_ids: bool, tmp_path: Path) -> None:
    ids = {} if has_ids else {"episode_index": None}
    times = np.arange(24) * 0.1
    for name, cycle in (("down", np.tile(np.arange(6)[::-1], 4)), ("up", np.tile(np.arange(6), 4))):
        log = _log(frame_index=None, timestamp=times, **ids)
        pq.write_table(log.append_column("cycle", pa.array(cycle)), tmp_path / f"{name}.parquet")
    role = next(role for role in planned(tmp_path / "down.parquet").roles if role.name == "t")
    assert {*role.sources, *role.candidates} == {"cycle", "timestamp"}
    role = next(role for role in planned(tmp_path / "up.parquet").roles if role.name == "t")
    assert (role.source, role.candidates) == ("cycle", [])
    with pytest.raises(errors.OfflineError, match=r"timestamp"):
        import_data(ImportConfig(), source=str(tmp_path / "down.parquet"), output=str(tmp_path / "out"))


def test_a_notebook_shows_what_is_to_decide_the_columns_and_the_yaml(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "day,hour,x<b>,dose,gain\n" + "".join(f"{n // 4},{n % 4},{n},{n % 2},1\n" for n in range(12))
    )
    shown = plan_import(ImportConfig(), source=str(tmp_path / "log.csv"))._repr_html_()
    assert "3 things to decide" in shown and "Candidates: dose" in shown and "x&lt;b&gt;" in shown and "<b>,dose" not in shown
    assert "># 3 things to decide" in shown and "eps_id: day" in shown
