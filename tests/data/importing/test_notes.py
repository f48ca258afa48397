"""What an import says: why nothing came of it, what of it looks wrong, and the lines that mend it."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

import offline_core as offline
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.importing.report import Findings
from offline_core.errors import DataError, EmptyDatasetError
from tests.data.importing.factories import ROWS, run_import, scattered, steps, without, write_rows


@pytest.mark.parametrize("names", [(), ("terminateds", "truncateds")])
def test_no_end_at_all_is_why_all_are_dropped(tmp_path: Path, names: tuple[str, ...]) -> None:
    """There are no flags, or none is set."""
    rows = without([row | {"terminateds": False, "truncateds": False} for row in ROWS], *names)
    source = scattered(tmp_path / "in", rows, 1)
    with pytest.raises(
        EmptyDatasetError, match=r"no step ends an episode.*Map the column of ends to terminateds or truncateds"
    ):
        run_import(source, tmp_path / "out", episodes={"incomplete": "drop"})


def test_a_quarantine_of_all_rows_says_why(tmp_path: Path) -> None:
    source = scattered(tmp_path / "in", [row | {"rewards": "much"} for row in ROWS], 1)
    with pytest.raises(
        EmptyDatasetError, match=r"21 rows could not be read: .*'rewards'.*First: .*0\.parquet, row 0.*_quarantine"
    ):
        run_import(source, tmp_path / "out", unreadable="quarantine")


@pytest.mark.parametrize(("t", "told"), [([0, 1, 2, 5, 6], True), ([0, 1, 2, 3, 4], False)])
def test_missing_steps_are_noted(t: list[int], told: bool, tmp_path: Path) -> None:
    rows = [{"eps_id": "a", "t": at, "obs": float(at), "actions": at % 2, "rewards": 1.0 * at} for at in t]
    result, _ = run_import(
        write_rows(tmp_path / "x.parquet", rows), tmp_path / "out", episodes={"order": "t", "last_new_obs": "repeat"}
    )
    assert any("Steps are missing at 1 place within episodes" in note for note in result.notes) == told


@pytest.mark.parametrize(
    ("actions", "given", "told"),
    [
        ([-1.0, 0.5, 0.99], {}, True),
        ([-1.0, 0.5, 1.01], {}, False),
        ([-0.9, 0.5, 1.0], {}, False),
        ([-1.0, 0.5, 0.99], {"recorded_action_range": (-1, 1)}, False),
    ],
)
def test_actions_that_look_normalised_in_a_wider_space_are_noted(
    actions: list[float], given: dict[str, Any], told: bool, tmp_path: Path
) -> None:
    known = {"eps_id": "a", "obs": [0.5, 1.0, 0.0], "rewards": 1.0}
    rows = [known | {"t": t, "actions": [action]} for t, action in enumerate(actions)]
    result, _ = run_import(
        write_rows(tmp_path / "x.parquet", rows),
        tmp_path / "out",
        environment={"id": "Pendulum-v1"},
        episodes={"last_new_obs": "repeat"},
        **given,
    )
    assert any("set recorded_action_range: [-1, 1]" in note for note in result.notes) == told


def test_no_fill_is_proposed_for_a_row_without_a_place(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("eps_id,t,obs,actions,rewards\na,0,0.5,0,1\na,1,1.5,1,2\nTOTAL,,,,3\n")
    rules: dict[str, Any] = {"episodes": {"last_new_obs": "repeat"}}
    with pytest.raises(DataError, match=r"Column 't' has 1 null among") as refused:
        run_import(tmp_path / "x.csv", tmp_path / "out", **rules)
    assert "fill: " not in str(refused.value)
    source = str(refused.value).split("leave it out: ", 1)[1].split("}.", 1)[0] + "}"
    result, [found] = run_import(tmp_path / "x.csv", tmp_path / "out", **yaml.safe_load(source), **rules)
    assert len(found) == result.counts.rows == 2


LOG = [row | {"actions": row["t"] % 3} for row in ROWS]


@pytest.mark.parametrize(("start", "said"), [(1, "a choice 0 that no row has"), (1001, "choices 0 to 1,000 that no row has")])
def test_ids_of_actions_that_begin_above_zero_are_said(tmp_path: Path, start: int, said: str) -> None:
    source = scattered(tmp_path / "in", [row | {"actions": row["actions"] + start} for row in LOG], 1)
    result, _ = run_import(source, tmp_path / "out")
    [note] = [note for note in result.notes if "action space" in note]
    line = f"{{space: discrete, n: 3, start: {start}}}"
    assert said in note and f"declare action_space: {line}" in note
    result, found = run_import(source, tmp_path / "declared", action_space=yaml.safe_load(line))
    assert result.notes == [] and str(found[0].action_space) == f"Discrete(3, start={start})"
    encode = {"encode": {"actions": {"form": "index"}}}
    result, _ = run_import(source, tmp_path / "encoded", columns=encode)
    assert result.notes == [] and result.action_space == "Discrete(3)"


@pytest.mark.parametrize("start", [-1, 0])
def test_ids_of_actions_around_zero_are_not(tmp_path: Path, start: int) -> None:
    source = scattered(tmp_path / "in", [row | {"actions": row["actions"] + start} for row in LOG], 1)
    assert run_import(source, tmp_path / "out")[0].notes == []


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_rewards_that_are_all_equal_are_said(tmp_path: Path, reward: float) -> None:
    source = scattered(tmp_path / "in", [row | {"rewards": reward} for row in LOG], 1)
    [note] = run_import(source, tmp_path / "out")[0].notes
    assert note.startswith(f"All rewards are {reward:g}: ")


@pytest.mark.parametrize("name", ["p", "action_logp"])
def test_a_probability_that_is_mapped_as_its_logarithm_is_refused(tmp_path: Path, name: str) -> None:
    source = scattered(tmp_path / "in", [row | {name: 0.25} for row in LOG], 1)
    with pytest.raises(DataError, match=rf"Column '{name}' is mapped to action_logp and holds 0\.25") as refused:
        run_import(source, tmp_path / "out", mapping={"action_logp": name})
    line = str(refused.value).split("to action_prob: ")[1].split(".\n")[0]
    _, found = run_import(source, tmp_path / "ln", **yaml.safe_load(f"{{{line}}}"))
    assert found[0].extras["action_logp"] == pytest.approx(math.log(0.25))


@pytest.mark.parametrize("changes", [{"logp": 0.0}, {"logp": 1e-8}, {"actions": [0.5], "logp": 1.25}])
def test_logarithms_of_probabilities_and_densities_are_not(tmp_path: Path, changes: dict[str, Any]) -> None:
    source = scattered(tmp_path / "in", [row | changes for row in LOG], 1)
    result, _ = run_import(source, tmp_path / "out", mapping={"action_logp": "logp"})
    assert result.counts.steps == len(ROWS)


@pytest.mark.parametrize(("written", "is_open"), [("%d/%m/%Y %H:%M", True), ("%d.%m.%y", False), ("%d-%m-%Y %I:%M %p", True)])
def test_a_time_that_begins_with_a_day_or_a_month_is_refused_with_the_line_that_reads_it(
    tmp_path: Path, written: str, is_open: bool
) -> None:
    days = [row | {"t": (datetime(2026, 1, 9) + timedelta(days=row["t"])).strftime(written)} for row in without(LOG, "new_obs")]
    source, rules = scattered(tmp_path / "in", days, 1), {"episodes": {"last_new_obs": "repeat"}}
    said = "does not say whether the day or the month comes first. Say so" if is_open else "is not by ISO 8601. Read it"
    with pytest.raises(DataError, match=said) as refused:
        run_import(source, tmp_path / "out", **rules)
    line = str(refused.value).split(f"{said}: ")[1].split(", or %m" if is_open else ". With unreadable")[0]
    assert f"'{written}'" in line
    result, _ = run_import(source, tmp_path / "read", **rules, **yaml.safe_load(f"{{{line}}}"))
    assert result.counts.episodes == 5


@pytest.mark.parametrize("iso", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M"])
@pytest.mark.parametrize("files", [1, 5])
def test_times_in_two_forms_are_refused_with_the_line_that_reads_both(tmp_path: Path, iso: str, files: int) -> None:
    """In one file and in several. The form of the times by ISO 8601 is to be changed in it, if it is not the usual one."""
    days = [
        row
        | {"at": (datetime(2026, 1, 9) + timedelta(hours=row["t"])).strftime(iso if row["eps_id"] == "a" else "%d.%m.%Y %H:%M")}
        for row in without(LOG, "new_obs")
    ]
    source = scattered(tmp_path / "in", without(days, "t"), files)
    rules: dict[str, Any] = {"episodes": {"last_new_obs": "repeat"}}
    with pytest.raises(DataError, match=r"Column 'at' has the time '09\.01\.2026 0.:00', which is not by ISO 8601") as refused:
        run_import(source, tmp_path / "out", **rules, mapping={"t": "at"})
    line = yaml.safe_load("{" + str(refused.value).split("Read it: ")[1].split(". That reads")[0] + "}")
    computed = line["columns"]["computed"]
    computed["iso_time"] = computed["iso_time"].replace("%Y-%m-%d %H:%M:%S", iso)
    assert iso in computed["iso_time"]
    result, _ = run_import(source, tmp_path / "read", **rules, **line)
    assert result.counts.episodes == 5


def test_texts_after_times_are_shown(tmp_path: Path) -> None:
    for number, text in enumerate(["2026-01-09 10:00:00", "soon"]):
        write_rows(tmp_path / f"in/{number}.parquet", without([steps("ab"[number], 1)[0] | {"t": text}], "new_obs"))
    with pytest.raises(
        DataError, match="Column 't' holds texts that are no times, such as 'soon', where earlier rows have times"
    ):
        run_import(tmp_path / "in", tmp_path / "out", episodes={"last_new_obs": "repeat"})


def test_actions_in_words_get_numbers_and_that_is_said(tmp_path: Path) -> None:
    source = scattered(tmp_path / "in", [row | {"actions": "left" if row["t"] else "right"} for row in LOG], 1)
    result, _ = run_import(source, tmp_path / "out")
    assert result.action_space == "Discrete(2)"
    assert result.notes[0] == (
        "columns.encode is {actions: {form: index}}: the texts of actions name actions, each of which gets a number."
    )


def test_actions_in_words_beside_other_encodings_are_numbered(tmp_path: Path) -> None:
    source = scattered(tmp_path / "in", [row | {"actions": "left" if row["t"] else "right"} for row in LOG], 1)
    result, _ = run_import(source, tmp_path / "out", columns={"encode": {"tag": {"form": "index"}}})
    assert result.action_space == "Discrete(2)"


def test_lines_without_ids_and_ends_are_an_episode_each(tmp_path: Path) -> None:
    lines = [
        {"type": "SampleBatch", "obs": [[0.0]] * n, "actions": [0] * n, "rewards": [0.0] * (n - 1) + [1.0]} for n in (3, 2)
    ]
    (tmp_path / "log.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result, found = run_import(tmp_path / "log.json", tmp_path / "out", episodes={"last_new_obs": "repeat"})
    assert sorted(map(len, found)) == [2, 3] and result.notes[0].startswith("Lines say neither which episode")


@pytest.mark.parametrize("order", ["auto", "stored"])
def test_a_counter_that_is_not_mapped_is_said_where_rows_lie_in_order(tmp_path: Path, order: str) -> None:
    rows = [
        {"eps_id": eps_id, "row in": t, "obs": [t / 3], "actions": t % 2, "rewards": t / 7}
        for eps_id in "abc"
        for t in range(8)
    ]
    (tmp_path / "in.ndjson").write_text("\n".join(json.dumps(row | {"level": 7}) for row in rows))
    result, _ = run_import(tmp_path / "in.ndjson", tmp_path / "out", episodes={"order": order})
    said = [note for note in result.notes if "numbers the rows of each eps_id" in note]
    assert len(said) == (order == "auto")
    assert all("Column row in " in note and "set mapping: {t: row in}" in note for note in said)


@pytest.mark.parametrize(("name", "sign"), [("energy cost", 1), ("energy cost", -1), ("profit", 1)])
def test_a_cost_that_is_a_reward_is_said_with_the_line_that_turns_it_round(tmp_path: Path, name: str, sign: int) -> None:
    rows = [{"eps_id": "a", "t": t, "obs": [t / 3], "actions": t % 2, name: sign * (t + 1)} for t in range(9)]
    (tmp_path / "in.ndjson").write_text("\n".join(json.dumps(row) for row in rows))
    given = {"mapping": {"rewards": name}}
    result, _ = run_import(tmp_path / "in.ndjson", tmp_path / "out", **given)
    said = [note for note in result.notes if "named like something to be minimised" in note]
    assert len(said) == (name == "energy cost" and sign > 0)
    if said:
        turned = yaml.safe_load("{" + said[0].partition("turn it round: ")[2].removesuffix(".") + "}")
        result, found = run_import(tmp_path / "in.ndjson", tmp_path / "turned", **turned)
        assert found[0].rewards.tolist() == [-t - 1 for t in range(9)]
        assert not [note for note in result.notes if "minimised" in note]


def test_one_thing_is_told_as_one(tmp_path: Path) -> None:
    rows = [{"eps_id": "a", "t": t, "obs": [t / 3], "actions": t % 2, "rewards": t} for t in (0.5, 1.5, 2.5, 90.5, 91.5)]
    (tmp_path / "in.ndjson").write_text("\n".join(json.dumps(row) for row in rows))
    result, _ = run_import(tmp_path / "in.ndjson", tmp_path / "out", episodes={"max_gap": 10})
    [note] = [note for note in result.notes if "so much time" in note]
    assert note.startswith("Once so much time lies between two steps of one id that another episode begins there; 88 (seconds")
    (tmp_path / "one.ndjson").write_text(json.dumps(rows[0]))
    result, _ = run_import(tmp_path / "one.ndjson", tmp_path / "one")
    assert "1 row became 1 step of 1 episode." in str(result.card().sentence)
    assert str(result.counts).startswith("1 row, 1 step, 1 episode,")


def test_why_rows_could_not_be_read_is_told_with_the_most_frequent_reasons_first(tmp_path: Path) -> None:
    rows = [{"obs": [1.0], "actions": n % 2, "rewards": 0.5, "eps_id": str(n // 4), "t": n % 4} for n in range(40)]
    for n in range(5, 9):
        rows[n]["rewards"] = None
    rows[20]["obs"] = [math.nan]
    pl.DataFrame(rows).write_parquet(tmp_path / "log.parquet")
    data = offline.import_data(tmp_path / "log.parquet", output=tmp_path / "data", unreadable="quarantine")
    first, second = data.result.notes[:2]
    assert re.fullmatch(r"4 rows could not be read: Column 'rewards' .*\. First: .*log\.parquet, row 5\.", first)
    assert re.fullmatch(r"1 row could not be read: .* First: .*log\.parquet, row 20\.", second)
    assert f"! {first}" in data.result.card().terminal()


def test_lines_of_one_kind_are_one_reason() -> None:
    findings = Findings("quarantine")
    for line in ("2", "9", "1,234"):
        findings.refuse(Unreadable("log.ndjson", 1, 1, DataError(f"log.ndjson, line {line} has a list in 'x'.")))
    assert [reason.rows for reason in findings.reasons] == [3]


def test_steps_that_are_there_twice_are_one_reason(tmp_path: Path) -> None:
    rows = [{"obs": [1.0], "actions": 0, "rewards": float(n), "eps_id": str(n // 8), "t": n % 4} for n in range(64)]
    rows += [{"obs": [1.0], "actions": 0, "rewards": 0.0, "eps_id": "good", "t": n} for n in range(4)]
    pl.DataFrame(rows).write_parquet(tmp_path / "log.parquet")
    data = offline.import_data(tmp_path / "log.parquet", output=tmp_path / "data", unreadable="quarantine")
    told = [note for note in data.result.notes if "could not be read" in note]
    assert len(told) == 1 and told[0].startswith("64 rows could not be read: Two different rows claim to be step 0")
