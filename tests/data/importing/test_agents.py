"""Episodes in which several agents act are refused, with the lines that take one agent, or each by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from offline_core.errors import DataError
from tests.data.importing.factories import parts, renamed, run_import, steps, summary, without, write_rows

NAMES = ("agent_id", "agent", "agent_index", "player_id")


def two_agents(name: str, agents: tuple[str | int, str | int] = ("red", "blue")) -> list[dict[str, object]]:
    """By turns, under one episode's id, without numbers of steps."""
    pairs = zip(steps("e", 3), [row | {"tag": f"x{row['t']}"} for row in steps("f", 3)], strict=True)
    rows = [row | {"eps_id": "e", name: agent} for pair in pairs for row, agent in zip(pair, agents, strict=True)]
    return without(rows, "new_obs", "t")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("agents", "line"), [(("red", "blue"), "{} = 'blue'"), ((0, 1), "{} = 0")])
def test_two_agents_in_one_episode_are_refused_and_named(
    tmp_path: Path, name: str, agents: tuple[str | int, str | int], line: str
) -> None:
    source = write_rows(tmp_path / "log.parquet", two_agents(name, agents))
    with pytest.raises(DataError) as refused:
        run_import(source, tmp_path / "out", episodes={"last_new_obs": "repeat"})
    said = str(refused.value)
    assert f"Episode e has steps of 2 agents in column {name}: {', '.join(sorted(map(str, agents)))}." in said
    of = "cast(agent_id as text)" if name == "agent_id" and agents == (0, 1) else name
    where = f"{of} = '0'" if of != name else line.format(name)
    assert f'source: {{where: "{where}"}}' in said
    result, _ = run_import(source, tmp_path / "one", source={"where": where}, episodes={"last_new_obs": "repeat"})
    assert result.counts.steps == 3


def test_the_lines_of_the_error_mend_it(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "log.parquet", two_agents("agent"))
    rules = {"episodes": {"last_new_obs": "repeat"}}
    with pytest.raises(DataError) as refused:
        run_import(source, tmp_path / "out", **rules)
    said = str(refused.value)
    lines = (said.split("To take one: ")[1].split(". To make")[0], said.split("agent's steps: ")[1].split(". If the column")[0])
    one, each = (yaml.safe_load(f"{{{line}}}") for line in lines)
    _, found = run_import(source, tmp_path / "one", **rules, **one)
    assert parts(found) == [("x0 x1 x2", "T")]
    _, found = run_import(source, tmp_path / "each", **rules, **each)
    assert summary(found) == [("e/red", "e0 e1 e2", "T"), ("e/blue", "x0 x1 x2", "T")]


def test_an_agent_an_episode_is_kept_also_where_episodes_have_different_ones(tmp_path: Path) -> None:
    rows = [row | {"agent_id": row["eps_id"]} for row in [*steps("a", 2), *steps("b", 3)]]
    result, found = run_import(write_rows(tmp_path / "log.parquet", rows), tmp_path / "out")
    assert len(found) == 2 and result.counts.steps == 5


def test_agents_without_ids_of_episodes_are_told_apart_by_what_follows_or_refused(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "log.parquet", without(two_agents("agent"), "eps_id"))
    with pytest.raises(DataError, match=r"The episode of row 0 of .* has steps of 2 agents in column agent"):
        run_import(source, tmp_path / "out", episodes={"last_new_obs": "repeat"})


def test_a_column_that_names_no_agents_is_kept_under_another_name(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "log.parquet", renamed(two_agents("agent"), {}))
    result, _ = run_import(source, tmp_path / "out", mapping={"operator": "agent"}, episodes={"last_new_obs": "repeat"})
    assert result.counts.steps == 6


def test_quarantine_leaves_such_episodes_out_and_counts_them(tmp_path: Path) -> None:
    rows = [*two_agents("agent"), *without([row | {"agent": "red"} for row in steps("g", 2)], "new_obs", "t")]
    source = write_rows(tmp_path / "log.parquet", rows)
    result, found = run_import(source, tmp_path / "out", unreadable="quarantine", episodes={"last_new_obs": "repeat"})
    assert parts(found) == [("g0 g1", "T")] and result.counts.quarantined_rows == 6
