"""Logs as other programs write them, by their names and values alone: what is taken for what, said and asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offline_core as offline
from offline_core.data.importing.planning.result import ImportPlan
from offline_core.errors import OfflineError

EPISODES, STEPS = 3, 5


def csv(path: Path, header: str, row: Callable[[int, int], str]) -> Path:
    lines = [header, *(row(episode, t) for episode in range(EPISODES) for t in range(STEPS))]
    path.write_text("\n".join(lines) + "\n")
    return path


def _row(row: str, episode: int, t: int) -> str:
    return row.format(e=episode, t=t, a=("left", "right")[t % 2])


def plan_of(path: Path) -> ImportPlan:
    return offline.plan_import(path)


def sources(plan: ImportPlan) -> dict[str, str | list[str] | None]:
    return {role.name: role.source for role in plan.roles}


def candidates(plan: ImportPlan, name: str) -> list[str]:
    return next(role.candidates for role in plan.roles if role.name == name)


@pytest.mark.parametrize("after", ["next_{}", "{}_next", "{}'"])
def test_what_follows_a_step_is_no_observation_of_it(tmp_path: Path, after: str) -> None:
    names = [after.format(name) for name in ("state_0", "state_1")]
    path = csv(
        tmp_path / "x.csv",
        f"state_0,{names[0]},state_1,{names[1]},action,reward,done",
        lambda e, t: f"{t / 2},{(t + 1) / 2},{e},{e},{t % 2},1,{int(t == STEPS - 1)}",
    )
    data = offline.import_data(path, output=tmp_path / "out")
    first = next(iter(data.episodes()))
    np.testing.assert_array_equal(first.observations[:, 0], np.arange(STEPS + 1) / 2)


@pytest.mark.parametrize("after", ["next_temp", "temp_next", "temp'"])
def test_what_follows_a_step_is_no_candidate_either(tmp_path: Path, after: str) -> None:
    path = csv(
        tmp_path / "x.csv", f"episode,step,temp,{after},action,reward", lambda e, t: f"{e},{t},{t}.5,{t + 1}.5,{t % 2},1"
    )
    assert candidates(plan_of(path), "obs") == ["temp"]


def test_dates_whose_order_the_values_show_are_read(tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", "episode,date,obs,action,reward", lambda e, t: f"{e},{t + 12:02}/03/2026,{t}.5,{t % 2},{t}")
    data = offline.import_data(path, output=tmp_path / "out")
    assert any(note.startswith("columns.computed is {iso_time: ") and "%d/%m/%Y" in note for note in data.result.notes)
    assert [len(episode) for episode in data.episodes()] == [STEPS] * EPISODES


def test_dates_in_a_column_that_is_called_t_are_read_too(tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", "episode,t,obs,action,reward", lambda e, t: f"{e},{t + 12:02}/03/2026,{t}.5,{t % 2},{t}")
    plan = plan_of(path)
    assert plan.is_ready and plan.config.mapping["t"] == "iso_time" and not plan.refused
    assert "Encoding(" not in str(plan)


def test_an_id_to_decide_is_all_that_is_asked_of_where_episodes_end(tmp_path: Path) -> None:
    names = "Sailing ID,Route,Updated At,Seats,Step,Fare"
    path = csv(
        tmp_path / "x.csv", names, lambda e, t: f"S{e},R{e % 3},2026-03-{t + 12:02},{90 - t * 3},{['Cut', 'Hold'][t % 2]},{t}.5"
    )
    plan = plan_of(path)
    assert "eps_id" in [decision.name for decision in plan.decisions]
    assert "parameters" not in [decision.name for decision in plan.decisions]


def test_dates_whose_order_nothing_shows_are_asked_for(tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", "episode,date,obs,action,reward", lambda e, t: f"{e},{t + 1:02}/03/2026,{t}.5,{t % 2},{t}")
    plan = plan_of(path)
    [decision] = plan.decisions
    assert decision.name == "dates" and decision.candidates == ["%d/%m/%Y", "%m/%d/%Y"]
    assert plan.config.columns.computed == {"iso_time": "strptime(date, '%d/%m/%Y')"}
    with pytest.raises(OfflineError, match="may begin with the day or the month"):
        offline.import_data(path, output=tmp_path / "out")
    offline.import_data(path, output=tmp_path / "out", config=plan.config)


def test_texts_for_no_value_are_taken_so_in_columns_of_numbers_alone(tmp_path: Path) -> None:
    path = csv(
        tmp_path / "x.csv", "episode,step,obs,action,reward", lambda e, t: f"{e},{t},{'NA' if t == 2 else t},{t % 2},{t}.5"
    )
    with pytest.raises(OfflineError, match=r"obs 'NA' taken for none|columns: \{fill: \{obs: 0\}\}"):
        offline.import_data(path, output=tmp_path / "out")
    data = offline.import_data(path, output=tmp_path / "out", config={"columns": {"fill": {"obs": 0}}})
    assert [episode.observations[2] for episode in data.episodes()] == [0.0] * EPISODES
    words = csv(tmp_path / "y.csv", "episode,step,obs,action,reward", lambda e, t: f"{e},{t},{t},{('none', 'left')[t % 2]},1")
    assert str(offline.import_data(words, output=tmp_path / "words").action_space) == "Discrete(2)"


def test_categories_are_texts(tmp_path: Path) -> None:
    rows = EPISODES * STEPS
    table = pa.table(
        {
            "episode": pa.array(np.repeat(["a", "b", "c"], STEPS)).dictionary_encode(),
            "obs": np.arange(rows) / 2,
            "action": pa.array(["left", "right", "stay"] * STEPS).dictionary_encode(),
            "reward": np.arange(rows, dtype=np.float64),
            "done": pa.array((["no"] * (STEPS - 1) + ["yes"]) * EPISODES).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    data = offline.import_data(tmp_path / "x.parquet", output=tmp_path / "out")
    assert str(data.action_space) == "Discrete(3)" and all(episode.terminated for episode in data.episodes())


def test_ids_of_rows_and_probabilities_are_no_candidates_and_likely_names_come_first(tmp_path: Path) -> None:
    path = csv(
        tmp_path / "x.csv",
        "event_id,user_id,event_time,depth,cart,item_shown,propensity,purchased",
        lambda e, t: f"{e * 100 + t * 7},u{e},2026-03-{e + 1:02} 12:{t:02}:00,{t},{t}.5,i{t % 2},0.5,{t % 2}",
    )
    plan = plan_of(path)
    assert sources(plan)["eps_id"] == "user_id" and sources(plan)["t"] == "event_time"
    assert candidates(plan, "obs") == ["depth", "cart"]
    assert candidates(plan, "actions")[0] == "item_shown" and candidates(plan, "rewards")[0] == "purchased"


def test_texts_inside_of_actions_are_refused_with_the_line_that_numbers_them(tmp_path: Path) -> None:
    rows = [
        {"episode": e, "step": t, "obs": [t / 2], "action": {"kind": ("go", "stay")[t % 2]}, "reward": t}
        for e in range(EPISODES)
        for t in range(STEPS)
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(OfflineError, match=r"text in action\.kind.*mapping: \{actions: action\.kind\}"):
        offline.import_data(tmp_path / "x.jsonl", output=tmp_path / "out")
    config = {"columns": {"encode": {"action.kind": {"form": "index"}}}, "mapping": {"actions": "action.kind"}}
    assert str(offline.import_data(tmp_path / "x.jsonl", output=tmp_path / "out", config=config).action_space) == "Discrete(2)"


def test_observations_of_text_have_no_space_and_that_is_said(tmp_path: Path) -> None:
    path = csv(
        tmp_path / "x.csv", "episode,step,obs,action,reward", lambda e, t: f"{e},{t},{('eco', 'max')[t % 2]},{t % 2},{t}"
    )
    data = offline.import_data(path, output=tmp_path / "out")
    assert data.observation_space is None and any("observation space cannot be told" in note for note in data.result.notes)


def test_a_header_with_a_name_twice_is_said(tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", "episode,step,obs,obs,action,reward", lambda e, t: f"{e},{t},{t},{t},{t % 2},{t}")
    data = offline.import_data(path, output=tmp_path / "out")
    assert any("obs (the next one is obs_duplicated_0)" in note for note in data.result.notes)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("episode,step,obs,action_prev,reward", "{e},{t},{t}.5,{a},{t}"),
        ("episode,step,obs_temp,obs_valid,action,reward", "{e},{t},{t}.5,1,{a},{t}"),
        ("k,s,u,r,d", "{t},{t}.5,{a},{t},{d}"),
        ("episode,step,obs,action,reward,success", "{e},{t},{t}.5,{a},{t},{d}"),
    ],
)
def test_what_is_only_likely_is_not_imported_without_a_word(tmp_path: Path, header: str, row: str) -> None:
    path = csv(tmp_path / "x.csv", header, lambda e, t: row.format(e=e, t=t, a=t % 2, d=int(t == STEPS - 1)))
    assert not plan_of(path).is_certain


def test_no_secret_is_in_what_a_refusal_proposes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"speed": [1.0] * 6, "torque": [0, 1] * 3}), tmp_path / "x.parquet")
    secret = {"storage_options": {"aws_secret_access_key": "TOPSECRET"}}
    with pytest.raises(OfflineError) as refused:
        offline.import_data(
            tmp_path / "x.parquet", output=tmp_path / "out", config={"source": {"format": "parquet", "arguments": secret}}
        )
    assert "TOPSECRET" not in str(refused.value)


def test_settled_categories_are_those_of_later_appends(tmp_path: Path) -> None:
    rows = {"a": "{e},{t},{t}.5,{a},{t}", "b": "b{e},{t},{t}.5,right,{t}"}
    for name, row in rows.items():
        (tmp_path / name).mkdir()
        write = partial(_row, row)
        csv(tmp_path / name / f"{name}.csv", "episode,step,obs,action,reward", write)
    first = offline.import_data(tmp_path / "a", output=tmp_path / "out", config={"append": True})
    config = {"append": True, "mapping": {"eps_id": "episode"}}
    both = offline.import_data([tmp_path / "a", tmp_path / "b"], output=tmp_path / "out", config={"append": True})
    assert first.result.counts.episodes == EPISODES
    assert {tuple(episode.actions[:2].tolist()) for episode in both.episodes()} == {(0, 1), (1, 1)}
    with pytest.raises(OfflineError, match=r"was imported with mapping"):
        offline.import_data([tmp_path / "a"], output=tmp_path / "out", config=config | {"mapping": {"eps_id": "step"}})


def test_an_append_to_observations_of_several_parts(tmp_path: Path) -> None:
    for day in range(2):
        rows = [
            {"episode": f"{day}-{e}", "step": t, "obs": {"a": 1.0, "b": [1.0, 2.0]}, "actions": t % 2, "rewards": t}
            for e in range(EPISODES)
            for t in range(STEPS)
        ]
        (tmp_path / f"{day}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        config = {"append": True, "mapping": {"eps_id": "episode", "t": "step"}}
        data = offline.import_data([tmp_path / f"{n}.jsonl" for n in range(day + 1)], output=tmp_path / "out", config=config)
    assert len(list(data.episodes())) == 2 * EPISODES
