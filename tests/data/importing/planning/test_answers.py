"""What a plan cannot know is asked, and the answers make a plan that is ready."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import offline_core as offline
from examples.logs.hotel import write
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.planning.answers import ALL, IS_OVER, LARGER, LEAVE_OUT, SMALLER, asked
from offline_core.data.importing.planning.plan import plan_import
from tests.data.importing.planning import logs


@pytest.mark.parametrize(("fill", "quarantined"), [("0", 0), (LEAVE_OUT, 7)])
def test_answers_settle_a_log(tmp_path: Path, fill: str, quarantined: int) -> None:
    write(tmp_path / "logs", days=8)
    source, questions = str(tmp_path / "logs" / "pricing.csv"), []

    def ask(question: str, candidates: list[str]) -> str:
        questions.append(question.split(":")[0])
        return fill if LEAVE_OUT in candidates else candidates[0]

    *_, plan = asked(ImportConfig(episodes={"max_gap": 7000}), [source], ask)
    assert questions == ["actions", "obs", "rewards", "occupancy", "episodes"]
    assert plan.is_ready and plan.config.mapping["actions"] == "price"
    lines = {line.strip() for line in plan.yaml.splitlines()}
    assert {"actions: price   # your answer", "max_gap: 7000.0   # given"} <= lines
    assert not any(line.startswith(("t:", "eps_id:", "format:")) and "# given" in line for line in lines)
    data = offline.import_data(source, output=tmp_path / "data", config=plan.config)
    assert data.result.counts.quarantined_rows == quarantined


def test_the_last_reading_is_offered_first_for_a_gap_in_what_is_observed(tmp_path: Path) -> None:
    rows = [f"{room},{t},{'' if t in (0, 3) else 20 + t},{t % 3},1.5" for room in "ab" for t in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(["room,t,room temp,valve,reward", *rows, ""]))
    questions = list[str]()

    def ask(question: str, candidates: list[str]) -> str:
        questions.append(question)
        return "room temp" if question.startswith("obs:") else candidates[0]

    *_, plan = asked(
        ImportConfig(mapping={"actions": "valve", "rewards": "reward", "eps_id": "room"}), [str(tmp_path / "log.csv")], ask
    )
    assert plan.is_ready and plan.config.mapping["obs"] == ["room temp_known"]
    assert [question.partition(":")[0] for question in questions] == ["obs", "room temp", "room temp", "episodes"]
    shown = str(plan)
    assert "e+38" not in shown and "left out" not in shown
    made = offline.import_data(tmp_path / "log.csv", output=tmp_path / "data", config=plan.config)
    assert made[0].observations[:6, 0].tolist() == [22, 21, 22, 22, 24, 25]  # the first is the median


@pytest.mark.parametrize("answer", [" ", "no such column"])
def test_what_is_no_answer_is_asked_again(tmp_path: Path, answer: str) -> None:
    write(tmp_path / "logs", days=1)
    *_, plan = asked(ImportConfig(), [str(tmp_path / "logs" / "pricing.csv")], lambda *_: answer)
    assert plan.decisions[0].name == "obs" and plan.config.mapping.keys().isdisjoint({"obs", "actions", "rewards"})


def test_all_that_may_be_observed_is_offered_first(tmp_path: Path) -> None:
    rows = [f"s{day},2026-05-{day + 1:02d}T0{hour}:00:00,{hour},{hour * 2},Hold,1.5" for day in range(4) for hour in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(["sailing,updated at,seats,load,step,eur", *rows, ""]))
    given = {"eps_id": "sailing", "t": "updated at", "actions": "step", "rewards": "eur"}
    questions = dict[str, list[str]]()

    def ask(question: str, candidates: list[str]) -> str:
        questions[question.partition(":")[0]] = candidates
        return candidates[0]

    *_, plan = asked(ImportConfig(mapping=given), [str(tmp_path / "log.csv")], ask)
    assert questions["obs"][0] == ALL and plan.config.mapping["obs"] == questions["obs"][1:] == ["seats", "load"]


def test_the_likeliest_answers_make_a_reward_of_a_cost_and_observe_no_outcome(tmp_path: Path) -> None:
    """`return_temp` is what flows back; a cost that is not known is not 0; what is null in most rows is nothing of a step."""
    questions = list[tuple[str, list[str]]]()

    def ask(question: str, candidates: list[str]) -> str:
        questions.append((question.partition(":")[0], candidates))
        return candidates[0]

    *_, plan = asked(ImportConfig(), [str(logs.heating(tmp_path / "heat.csv"))], ask)
    assert plan.is_ready and plan.config.columns.computed == {"reward": "-energy_cost"}
    assert plan.config.mapping["rewards"] == "reward" and plan.config.mapping["actions"] == "setpoint"
    assert plan.config.mapping["obs"] == ["outdoor_temp", "return_temp"]
    assert questions[-3:-1] == [("energy_cost", [SMALLER, LARGER]), ("reward", [LEAVE_OUT])]
    assert plan.config.unreadable == "quarantine" and plan.counts.quarantined_rows == 3


def test_a_reward_that_is_larger_where_it_is_better_stays(tmp_path: Path) -> None:
    def ask(question: str, candidates: list[str]) -> str:
        return LARGER if LARGER in candidates else candidates[0]

    *_, plan = asked(ImportConfig(), [str(logs.heating(tmp_path / "heat.csv"))], ask)
    assert plan.config.mapping["rewards"] == "energy_cost" and plan.config.columns.computed == {}


def test_columns_whose_names_begin_alike_are_no_struct(tmp_path: Path) -> None:
    rows = [f"{run},{t},{t / 2},{t * t},{t % 3},1.5" for run in "ab" for t in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(["run,t,x,x.1,valve,reward", *rows, ""]))
    given = {"eps_id": "run", "t": "t", "actions": "valve", "rewards": "reward"}
    *_, plan = asked(ImportConfig(mapping=given), [str(tmp_path / "log.csv")], lambda _, candidates: candidates[0])
    assert plan.is_ready and plan.config.mapping["obs"] == ["x", "x.1"]


def test_an_error_is_observed_where_the_reward_is_known(tmp_path: Path) -> None:
    rows = [f"{run},{t},{t / 2},{t * t},{t % 3},1.5" for run in "ab" for t in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(["run,t,speed,tracking_error,torque,reward", *rows, ""]))
    *_, plan = asked(
        ImportConfig(mapping={"eps_id": "run", "actions": "torque"}),
        [str(tmp_path / "log.csv")],
        lambda _, candidates: candidates[0],
    )
    assert plan.config.mapping["obs"] == ["speed", "tracking_error"] and plan.config.mapping["rewards"] == "reward"


def test_a_struct_is_answered_by_its_fields_and_a_refusal_says_why(tmp_path: Path) -> None:
    source, questions = logs.robot(tmp_path / "in", files=1), list[str]()
    answers = iter(["nothing", "pose, lidar", "pose.x, pose.y, lidar", "2", IS_OVER])

    def ask(question: str, candidates: list[str]) -> str:
        questions.append(question)
        return next(answers)

    *_, plan = asked(ImportConfig(mapping={"actions": ["v", "w"]}), [str(source)], ask)
    assert plan.is_ready and plan.config.mapping["obs"] == ["pose.x", "pose.y", "lidar"]
    assert questions[4].startswith("That is none of them. episodes: no column says how they end")
    assert plan.config.episodes.incomplete == "end" and "are over there" not in str(plan)
    assert questions[0].startswith("obs: ") and questions[1].startswith("There is no column nothing.")
    assert questions[2].startswith("A vector is joined from numbers: name pose.x, pose.y, pose.heading. obs: ")


def test_choices_with_a_number_each_are_asked_for_and_see_what_is_inside_a_struct(tmp_path: Path) -> None:
    """Tickets that are routed, with times: chained as one episode, each would be a consequence of the one before."""
    questions = list[str]()

    def ask(question: str, candidates: list[str]) -> str:
        questions.append(question)
        return candidates[0]

    *_, plan = asked(ImportConfig(), [str(logs.tickets(tmp_path / "tickets.jsonl"))], ask)
    assert [question.partition(":")[0] for question in questions] == ["actions", "obs", "rewards", "episodes"]
    assert "each row has its own ticket" in questions[-1]
    assert plan.is_ready and plan.config.episodes.order == "single_step" and plan.counts.lone_rows == 40
    assert plan.config.mapping["obs"] == ["customer.segment", "customer.tenure_days", "priority", "queue"]
    assert (plan.config.mapping["actions"], plan.config.mapping["rewards"]) == ("assigned_to", "csat")
    assert plan.config.columns.encode["customer.segment"].other


@pytest.mark.parametrize("name", ["hash", "message", "ticket"])
def test_rows_of_a_log_with_a_time_are_choices_only_if_a_name_says_so(tmp_path: Path, name: str) -> None:
    rows = [f"2026-05-01T00:{t:02d}:00,{name[0]}{t:03d},{t * t % 7},{t % 2},1.5" for t in range(30)]
    (tmp_path / "log.csv").write_text("\n".join([f"time,{name},temp,action,reward", *rows, ""]))
    given = ImportConfig(mapping={"obs": ["temp"]})
    *_, plan = asked(given, [str(tmp_path / "log.csv")], lambda _, candidates: candidates[-1])
    assert plan.is_ready and plan.config.mapping["eps_id"] == "file" and plan.counts.episodes == 1
    assert ("episodes" in [one.name for one in plan_import(given, source=str(tmp_path)).decisions]) == (name != "hash")


def test_what_is_done_is_not_observed(tmp_path: Path) -> None:
    """Actions are asked for first; where they are named among what is observed, that is asked again."""
    rows = [f"n,2026-01-01T{t:02d}:00:00,{t + 0.5},{-t / 2},{t % 3}" for t in range(24)]
    (tmp_path / "log.csv").write_text("\n".join(["site,time,soc,power,eur", *rows, ""]))
    told = list[str]()

    def ask(question: str, candidates: list[str]) -> str:
        told.append(question)
        if question.startswith("obs:"):
            return "soc, power"
        if "to actions and to obs" in question:
            return "soc"
        return {"actions": "power", "rewards": "eur"}.get(question.partition(":")[0]) or candidates[0]

    *_, plan = asked(ImportConfig(mapping={"eps_id": "site"}), [str(tmp_path / "log.csv")], ask)
    assert plan.config.mapping["obs"] == ["soc"] and plan.config.mapping["actions"] == "power"
    assert any("power is mapped to actions and to obs" in question for question in told)


def test_several_actions_and_a_reward_that_is_computed(tmp_path: Path) -> None:
    """As a list of YAML, and as an expression."""
    lines = [f"{i // 3},{i % 3},{i},{i / 2},{i * 2.5},{i / 3},{i % 2}" for i in range(12)]
    (tmp_path / "x.csv").write_text("\n".join(["episode,step,tin,set_a,set_b,kwh,discomfort", *lines, ""]))
    given = {"actions": "[set_a, set_b]", "obs": "tin", "rewards": "-0.3 * kwh - discomfort", "episodes": "nothing"}
    said: list[str] = []

    def ask(question: str, candidates: list[str]) -> str:
        said.append(question)
        return given[question.partition(":")[0]]

    *_, plan = asked(ImportConfig(), [str(tmp_path / "x.csv")], ask)
    assert plan.is_ready and len(said) == 4
    assert plan.config.mapping["actions"] == ["set_a", "set_b"]
    assert plan.config.columns.computed[plan.config.mapping["rewards"]] == "-0.3 * kwh - discomfort"


def _csv(path: Path, **columns: Sequence[Any]) -> str:
    pl.DataFrame(columns).write_csv(path)
    return str(path)


def _first_of_all(questions: list[str]) -> Callable[[str, list[str]], str]:
    """Answers each question by its first candidate, and keeps the questions."""

    def ask(question: str, candidates: list[str]) -> str:
        questions.append(f"{question} {candidates}")
        return candidates[0]

    return ask


@pytest.mark.parametrize("by_time", [True, False])
def test_columns_that_tell_rows_of_one_time_apart_together_are_one_id(tmp_path: Path, by_time: bool) -> None:
    rows = [(hotel, room, hour) for hotel in ("Adler", "Bear") for room in ("single", "double") for hour in range(24)]
    rows = sorted(rows, key=lambda row: row[2]) if by_time else rows
    hotel, room, hour = zip(*rows, strict=True)
    number = range(len(rows))
    time = [f"{1 + h // 12:02d}.10.2025 {h % 12:02d}:00" for h in hour]
    price, reward = [90 + 10 * (n % 4) for n in number], [n % 3 for n in number]
    source = _csv(tmp_path / "log.csv", time=time, hotel=hotel, room=room, price=price, reward=reward)
    questions = list[str]()
    config = ImportConfig(columns={"computed": {"dear": "price > 100"}}, mapping={"obs": "dear", "actions": "price"})
    *_, plan = asked(config, [source], _first_of_all(questions))
    assert "these together tell apart the rows of one time" in questions[0] and "['[hotel, room]'" in questions[0]
    assert plan.is_ready and plan.config.mapping["eps_id"] == ["hotel", "room"]
    assert "strptime" in plan.config.columns.computed["iso_time"] and plan.config.columns.computed["dear"] == "price > 100"
    data = offline.import_data(source, output=tmp_path / "data", config=plan.config)
    assert sorted(episode.eps_id for episode in data)[0] == "Adler/double" and len(data) == 4


@pytest.mark.parametrize("name", ["p", "density"])
def test_rows_with_a_probability_are_asked_for_whether_they_are_choices(tmp_path: Path, name: str) -> None:
    number = range(60)
    time = [f"2026-03-0{1 + n // 40} 00:00:{n % 40:02d}" for n in number]
    sources = []
    for day in (0, 1):
        own = [n for n in number if n // 40 == day]
        columns = {"ts": [time[n] for n in own], "load": own, "price": [n % 3 + (1 if name == "p" else n / 99) for n in own]}
        more = {name: [0.2 + n % 5 / 10 for n in own], "reward": [n % 7 / 2 for n in own]}
        sources.append(_csv(tmp_path / f"{day}.csv", **columns, **more))
    questions = list[str]()
    config = ImportConfig(mapping={"obs": "load", "actions": "price"})
    *_, plan = asked(config, sources, _first_of_all(questions))
    assert f"{name} may be the probability of what was done" in questions[0] and "'single_step', 'each file'" in questions[0]
    assert plan.is_ready and plan.config.episodes.order == "single_step" and plan.counts.episodes == 60
    assert plan.config.mapping["action_prob"] == name


def test_ids_and_vectors_inside_records_are_candidates(tmp_path: Path) -> None:
    rows = [
        {"match": {"id": f"m{match}"}, "body": {"hp": 10 - turn, "at": [turn, match]}, "action": turn % 2, "won": 0}
        for match in range(6)
        for turn in range(8)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    plan = plan_import(ImportConfig(), source=str(tmp_path / "log.jsonl"))
    assert plan.config.mapping["eps_id"] == "match.id"
    [observed] = [decision.candidates for decision in plan.decisions if decision.name == "obs"]
    assert {"body.hp", "body.at"} <= {*observed} and "match.id" not in observed


def test_a_record_beside_a_column_of_its_fields_name_and_users_who_take_turns_are_planned(tmp_path: Path) -> None:
    for name, rows in {
        "twice": [{"match": {"id": f"m{n // 8}"}, "match.id": n // 8, "step": n % 8, "action": 0} for n in range(48)],
        "turns": [{"user": {"id": f"u{n % 2}"}, "step": n // 2, "action": 0} for n in range(48)],
    }.items():
        (tmp_path / name).write_text("\n".join(json.dumps(row | {"x": 1.5, "reward": 1}) for row in rows))
        plan = plan_import(ImportConfig(source={"format": "ndjson"}), source=str(tmp_path / name))
        assert plan.decisions and [column.name for column in plan.columns].count("match.id") <= 1


def test_whether_the_day_or_the_month_comes_first_is_asked_before_all_else(tmp_path: Path) -> None:
    number = range(36)
    date = [f"01/{1 + n % 12:02d}/{2022 + n // 12}" for n in number]
    source = _csv(tmp_path / "log.csv", date=date, stock=[n % 7 for n in number], qty=[n % 3 for n in number], margin=number)
    questions = list[str]()

    def ask(question: str, candidates: list[str]) -> str:
        questions.append(question.partition(":")[0])
        return candidates[1 if questions[-1] == "dates" else 0]

    *_, plan = asked(ImportConfig(), [source], ask)
    assert questions[0] == "dates" and questions.count("dates") == 1 and len(questions) > 3
    assert "%d/%m/%Y" in plan.config.columns.computed["iso_time"] and plan.counts.time_gaps == 0


def test_what_names_an_episode_may_be_seen_by_a_policy_too_and_is_no_outcome(tmp_path: Path) -> None:
    rows = [(store, product, day) for day in range(31) for product in ("milk", "tea") for store in ("north", "south")]
    store, product, day = zip(*rows, strict=True)
    columns = {
        "day": [f"2026-01-{1 + d:02d}" if d < 31 else f"2026-02-{d - 30:02d}" for d in day],
        "price": [d % 3 for d in day],
    }
    sold = [n * 37 % 101 for n in range(len(rows))]  # another number in nearly each row of a day
    source = _csv(tmp_path / "log.csv", store=store, product=product, units_sold=sold, **columns)

    def ask(question: str, candidates: list[str]) -> str:
        return "store, product" if question.startswith("obs:") else candidates[0]

    *_, plan = asked(ImportConfig(mapping={"actions": "price", "rewards": "units_sold"}), [source], ask)
    assert plan.is_ready and plan.config.mapping["eps_id"] == ["store", "product"]
    data = offline.import_data(source, output=tmp_path / "data", config=plan.config)
    assert sorted(episode.eps_id for episode in data) == ["north/milk", "north/tea", "south/milk", "south/tea"]
    assert data.observation_space is not None and data.observation_space.shape == (4,)


def test_the_numbers_of_one_action_are_offered_as_one_and_are_no_state(tmp_path: Path) -> None:
    source = tmp_path / "robot.csv"
    rows = [f"{e},{t},{t / 7},{t / 9},{e / 3 + t},{e - t / 2},-1" for e in range(4) for t in range(5)]
    source.write_text("\n".join(["run,t,angle_0,angle_1,torque_0,torque_1,reward", *rows]))
    for mapping, to_decide in (({}, ["actions", "obs"]), ({"actions": "torque_0"}, ["obs"])):
        plan = plan_import(ImportConfig(mapping=mapping), source=str(source))
        candidates = {decision.name: decision.candidates for decision in plan.decisions}
        assert {"actions", "obs"} & {*candidates} == {*to_decide} and candidates["obs"] == ["angle_0", "angle_1"]
        said = "torque_0 and torque_1 are named alike, and may be one: actions: [torque_0, torque_1]" in str(plan)
        assert said == ("actions" in to_decide)


def test_all_numbers_of_a_kind_are_offered_where_there_is_no_other_state(tmp_path: Path) -> None:
    rows = [f"{e},{t},{t / 7},{t / 9},{e - t / 2},-1" for e in range(4) for t in range(5)]
    (tmp_path / "log.csv").write_text("\n".join(["run,t,price_1,price_2,price_3,reward", *rows]))
    plan = plan_import(ImportConfig(mapping={"actions": "price_1"}), source=str(tmp_path / "log.csv"))
    [observed] = [decision for decision in plan.decisions if decision.name == "obs"]
    assert observed.candidates == ["price_2", "price_3"]


def test_numbers_of_another_form_name_no_episode_and_costs_are_seen_through_them(tmp_path: Path) -> None:
    """A ticket a row, as a tool for tickets exports them: two at a time, which the number of words tells apart."""
    rows = [
        f'2025-01-01 {n // 40:02d}:{n // 2 % 20:02d}:00,T{n},"{1 + n % 7},{100 + n}",q{n // 2 % 3},"$1,{300 + n}.50"'
        for n in range(400)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["Created,Ticket ID,Words,Queue,Handling Cost", *rows]))
    plan = plan_import(ImportConfig(), source=str(tmp_path / "log.csv"))
    assert "eps_id" not in plan.config.mapping
    candidates = {decision.name: decision.candidates for decision in plan.decisions}
    assert candidates["rewards"] == ["Handling Cost_number"] and "Handling Cost_number" not in candidates["obs"]


def test_nan_is_counted_as_missing_and_a_record_is_no_id(tmp_path: Path) -> None:
    rows = [{"id": n // 5, "t": n % 5, "x": float("nan") if n == 7 else 1.5, "valve": n % 2, "reward": 1} for n in range(20)]
    pl.DataFrame(rows).with_columns(state=pl.struct(player=pl.struct(hp="t"))).write_parquet(tmp_path / "log.parquet")
    plan = plan_import(ImportConfig(), source=str(tmp_path / "log.parquet"))
    assert {column.name: column.nulls for column in plan.columns}["x"] == 1
    assert "agent_id" not in {role.name for role in plan.roles}


def test_a_format_of_dates_that_is_none_is_asked_for_again(tmp_path: Path) -> None:
    rows = [f"0{1 + n % 9}/0{1 + n % 7}/2025,{n % 2},{n},1" for n in range(30)]
    (tmp_path / "log.csv").write_text("\n".join(["day,valve,level,reward", *rows]))
    asked_for = list[str]()

    def ask(question: str, candidates: list[str]) -> str:
        asked_for.append(question)
        if "begin with the day or the month" in question:
            return "valve" if len(asked_for) == 1 else candidates[0]
        return candidates[0]

    config = ImportConfig(mapping={"obs": "level", "actions": "valve"}, episodes={"order": "single_step"})
    *_, plan = asked(config, [str(tmp_path / "log.csv")], ask)
    assert asked_for[1] == f"That is none of them. {asked_for[0]}"
    assert "%d" in str(plan.config.columns.computed)
