"""Importing rows some of which cannot be read, or contradict others: they are named, and nothing bridges over them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offline_core.data.datasets.dataset import versions
from offline_core.errors import EpisodeError, NonFiniteError
from tests.data.importing.factories import ROWS, TAGS, nonzero, parts, run_import, scattered, without, write_rows


def test_two_files_that_contradict_each_other(tmp_path: Path) -> None:
    write_rows(tmp_path / "in/x.parquet", ROWS)
    write_rows(tmp_path / "in/y.parquet", [ROWS[6] | {"rewards": 7.0}])
    with pytest.raises(EpisodeError, match=r"step 1 of episode b: row 6 of .*in/x\.parquet and row 0 of .*in/y\.parquet"):
        run_import(tmp_path / "in", tmp_path / "out")
    assert versions(str(tmp_path / "out")) == []


def test_rows_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    bad = [row | {"rewards": float("nan")} if row["tag"] == "b1" else row for row in ROWS]
    source = write_rows(tmp_path / "in/x.parquet", bad)
    with pytest.raises(NonFiniteError, match=rf"{source}, row 6: Column 'rewards' is NaN.*unreadable: quarantine") as refused:
        run_import(tmp_path / "in", tmp_path / "out")
    assert "fill: {" not in str(refused.value), "what is not known is not 0"
    for partitions in (1, 3):
        result, found = run_import(tmp_path / "in", tmp_path / "out", unreadable="quarantine", partitions=partitions)
        assert nonzero(result.counts) == {
            "rows": 21, "steps": 20, "episodes": 6, "quarantined_rows": 1, "gaps": 1, "open_ends": 1,
        }  # fmt: skip
        assert {"b0", "b2"} < {tags for tags, _ in parts(found)}
        assert result.quarantine is not None
        assert '"row": 6' in Path(result.quarantine).read_text()


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("order", ["stored", "time"])
def test_what_cannot_be_read_is_no_bridge(tmp_path: Path, order: str, partitions: int) -> None:
    """Without new_obs the step before it does not lead to the one after it; an episode whose rows lie around it goes on."""
    rows = [row | {"rewards": float("nan")} if row["tag"] in ("b1", "d3") else row for row in without(ROWS, "new_obs")]
    rows = rows[:9] + [row for pair in zip(rows[9:13], rows[17:], strict=True) for row in pair] + rows[13:17]  # d and e mixed
    write_rows(tmp_path / "in/x.parquet", rows[:7])
    write_rows(tmp_path / "in/y.parquet", rows[7:])
    rules = {"order": order, "last_new_obs": "repeat"}
    result, found = run_import(
        tmp_path / "in", tmp_path / "out", unreadable="quarantine", episodes=rules, partitions=partitions
    )
    tags = {tags for tags, _ in parts(found)}
    assert tags == {"a0 a1 a2 a3 a4", "b0", "b2", "c0", "d0 d1 d2", "d4 d5 d6 d7", "e0 e1 e2 e3"}
    assert (result.counts.gaps, result.counts.quarantined_rows) == (2, 2)
    for e in found:
        assert e.observations[-1].tolist() == e.observations[-2].tolist(), "the obs of another step stands nowhere"


@pytest.mark.parametrize("per", ["source", "file", "date"])
def test_a_lost_row_cuts_its_own_episode_and_every_one_around_it_if_its_id_is_lost(tmp_path: Path, per: str) -> None:
    rows = [
        {"eps_id": site, "t": f"2026-01-{1 + t // 8:02d}T{t % 8:02d}:00:00", "obs": [t, 0.0], "actions": 0, "rewards": 1.0}
        | {"tag": f"{site}{t:02d}"}
        for t in range(16)
        for site in "ns"
    ]
    lost = {"n03": {"rewards": float("nan")}, "n04": {"rewards": None}, "s12": {"eps_id": None}}
    write_rows(tmp_path / "x.parquet", [row | lost.get(str(row["tag"]), {}) for row in rows])
    for partitions in (1, 3):
        result, found = run_import(
            tmp_path / "x.parquet",
            tmp_path / "out",
            unreadable="quarantine",
            episodes={"order": "time", "ids_per": per, "max_gap": 1e9},
            partitions=partitions,
        )
        lengths = sorted(len(episode) for episode in found)
        # By date, the id of a row whose time is not known is none.
        days = {"n": [3, 3, 5, 3], "s": [3, 1, 4, 4, 3]} if per == "date" else {"n": [3, 8, 3], "s": [12, 3]}
        assert lengths == sorted(days["n"] + days["s"]), lengths
        assert result.counts.quarantined_rows == 3


@pytest.mark.parametrize("per", ["source", "file"])
def test_a_lost_row_cuts_no_episode_with_a_similar_id(tmp_path: Path, per: str) -> None:
    """Neither one whose id begins with its id and @, nor one of the same id in another file."""
    row = {"actions": 0, "rewards": 1.0}
    ids = ["jo@x.com", "jo", "jo@x.com", "jo@x.com"] if per == "source" else ["n", "n", "n"]
    (tmp_path / "logs").mkdir()
    rows = [row | {"eps_id": name, "t": t, "obs": [t, 0.0]} for t, name in enumerate(ids)]
    write_rows(tmp_path / "logs" / "a.parquet", [one | ({"rewards": None} if one["eps_id"] == "jo" else {}) for one in rows])
    lost = row | {"eps_id": "n", "t": 0, "obs": [9.0, 0.0], "rewards": None}
    write_rows(tmp_path / "logs" / "b.parquet", [lost, lost | {"t": 1, "rewards": 1.0}])
    _, found = run_import(
        tmp_path / "logs",
        tmp_path / "out",
        unreadable="quarantine",
        episodes={"order": "stored", "ids_per": per, "incomplete": "end"},
    )
    whole = [episode for episode in found if len(episode) == 3]
    assert len(whole) == 1 and whole[0].terminated


def test_lines_that_are_no_rows_and_rows_that_do_not_convert_are_no_bridges(tmp_path: Path) -> None:
    """Lines are found before the rows above them are converted."""
    lines = [f"a,{t}.5,0,{'NaN' if t == 2 else '1.0'},false{',5' * (t == 7)}" for t in range(10)]
    (tmp_path / "x.csv").write_text("\n".join(["eps_id,obs,actions,rewards,terminateds", *lines, ""]))
    rules = {"order": "stored", "last_new_obs": "repeat"}
    _, found = run_import(tmp_path / "x.csv", tmp_path / "out", unreadable="quarantine", episodes=rules)
    assert [e.observations.tolist() for e in found] == [[0.5, 1.5, 1.5], [3.5, 4.5, 5.5, 6.5, 6.5], [8.5, 9.5, 9.5]]


def test_where_nothing_tells_what_a_lost_row_belongs_to(tmp_path: Path) -> None:
    rows = [row | {"rewards": float("nan")} if row["tag"] == "b1" else row for row in without(ROWS, "new_obs")]
    source = scattered(tmp_path / "in", rows, 2, seed=0)
    rules = {"order": "time", "last_new_obs": "repeat"}
    with pytest.raises(EpisodeError, match="are not in the order of time: without new_obs, where a step is missing"):
        run_import(source, tmp_path / "out", unreadable="quarantine", episodes=rules)
    result, _ = run_import(source, tmp_path / "out", unreadable="quarantine", episodes=rules | {"order": "t"})
    assert (result.counts.gaps, result.counts.steps) == (1, 20)


@pytest.mark.usefixtures("ray_up")
@pytest.mark.parametrize("engine", ["local", "ray"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_episodes_that_contradict_themselves_are_quarantined(tmp_path: Path, engine: str, partitions: int) -> None:
    """All rows of these, and no others."""
    write_rows(tmp_path / "in/x.parquet", [*ROWS, *ROWS[:2]])
    wrong = [ROWS[6] | {"rewards": 7.0}, ROWS[9] | {"rewards": 7.0}, ROWS[8] | {"t": -1}]
    write_rows(tmp_path / "in/y.parquet", wrong)
    result, found = run_import(tmp_path / "in", tmp_path / "out", unreadable="quarantine", partitions=partitions, engine=engine)
    assert sorted(parts(found)) == [each for each in TAGS if each[0][0] in "ae"]
    quarantined = {"quarantined_rows": 15, "quarantined_terminations": 3}
    assert nonzero(result.counts) == {"rows": 26, "steps": 9, "episodes": 2, "duplicates": 2} | quarantined
    listed = [json.loads(line) for line in Path(str(result.quarantine)).read_text().splitlines()]
    assert sorted(each["rows"] for each in listed) == [1, 1, 1, 1, 3, 8]
    reasons = " ".join(each["reason"] for each in listed)
    assert "claim to be step 1 of episode b" in reasons
    assert "t is -1 in row 2 of" in reasons


@pytest.mark.usefixtures("ray_up")
def test_what_a_task_raises_is_raised_as_it_is(tmp_path: Path) -> None:
    write_rows(tmp_path / "in/x.parquet", [*ROWS, ROWS[6] | {"rewards": 7.0}])
    raised = []
    for engine in ("local", "ray"):
        with pytest.raises(EpisodeError) as caught:
            run_import(tmp_path / "in", tmp_path / "out", engine=engine, partitions=3)
        raised.append((caught.type, str(caught.value).partition("\n")[0]))
    assert raised[0] == raised[1] == (EpisodeError, raised[0][1])
