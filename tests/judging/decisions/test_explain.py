"""One episode, step by step, beside what policies would have done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from gymnasium import spaces

import offline_core as offline
from flows.cli import app
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.errors import ConfigError
from offline_core.judging.decisions.explain import explained
from offline_core.judging.decisions.explanation import ExplainedStep, Explanation
from offline_core.judging.estimation.observations import Observations
from offline_core.judging.estimation.target import distribution_inputs
from offline_core.policies.policy import Policy
from tests.judging.decisions.test_candidates import clicks
from tests.judging.estimation.chains import REWARDS, SPACES, TARGET, played, policy_of, recorded
from tests.judging.estimation.test_box import bandit, gaussian
from tests.judging.estimation.test_estimate import saved
from tests.learning.datasets import dataset_of

RULE = "rule:case when obs = 1 then 1 else 0 end"


def replace_seen(step: ExplainedStep, seen: dict[str, str]) -> ExplainedStep:
    return step.model_copy(update={"seen": seen})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = recorded(steps := played(30, seed=3))
    made = [
        replace(each, extras=each.extras | {"other": TARGET[states, actions]})
        for each, (states, actions) in zip(made, steps, strict=True)
    ]
    return dataset_of(tmp_path_factory.mktemp("explain") / "log", made, spaces=SPACES, environment=None, rows=7)


def test_each_step_has_what_was_done_and_what_each_would_do(log: str, tmp_path: Path) -> None:
    number, (states, actions) = max(enumerate(played(30, seed=3)), key=lambda each: len(each[1][0]))
    policy = saved(policy_of(TARGET), tmp_path / "target")
    found = offline.explain(log, [policy, RULE, "column:other"], episode=f"{number:032x}")
    name = next(name for name, uri in found.policies.items() if uri == policy)
    assert [each.step for each in found.steps] == [*range(len(states))]
    assert [each.seen for each in found.steps] == [{"obs": str(state)} for state in states]
    assert [each.done for each in found.steps] == [str(action) for action in actions]
    assert [each.reward for each in found.steps] == REWARDS[states, actions].tolist()
    assert [each.choices[name].action for each in found.steps] == [str(action) for action in TARGET.argmax(axis=1)[states]]
    assert [each.choices[name].chance for each in found.steps] == pytest.approx(TARGET[states, actions], rel=1e-5)
    assert [each.choices[RULE].chance for each in found.steps] == (actions == (states == 1)).astype(float).tolist()
    assert [each.choices["column:other"].chance for each in found.steps] == pytest.approx(TARGET[states, actions], rel=1e-6)
    assert found.agreeing(RULE) == (actions == (states == 1)).sum()
    table = found.table()
    assert table.height == len(states) and table[f"{RULE}: chance of what was done"].sum() == found.agreeing(RULE)
    card = found.card()
    assert f"{RULE} in {found.agreeing(RULE)}" in card.sentence and len(card.sections[1].rows) == len(states)
    assert card.markdown("") and Explanation.model_validate_json(found.model_dump_json()) == found


def test_what_comes_next_is_a_log_that_the_policies_have_not_learned_from(log: str, tmp_path: Path) -> None:
    assert offline.explain(log, RULE).card().next == f"offline decide {log} '{RULE}'"
    short = {"algorithm": "bc", "optimizer": {"max_updates": 1}}
    run = offline.train(log, output=tmp_path / "run", **short)
    assert offline.explain(log, [run.best, RULE]).card().next.startswith(f"offline split {log} ")
    train, held_out = offline.split(log, output=tmp_path / "split")
    run = offline.train(train, output=tmp_path / "held", **short)
    assert offline.explain(train, run.best).card().next == f"offline decide {held_out.location.uri} {run.best}"


def test_an_episode_that_is_not_there_is_refused_with_those_that_are(log: str) -> None:
    with pytest.raises(ConfigError, match=r"has no episode 7 with a step\. .*It has 30: 0{32}, 0{31}1, .* and 25 more\."):
        offline.explain(log, RULE, episode="7")
    assert offline.explain(log, RULE).episode == "0" * 32


def test_a_log_of_one_step_is_explained_by_many_episodes(tmp_path: Path) -> None:
    dataset = clicks(tmp_path / "clicks", hour=np.arange(40) % 24)
    rule = "rule:case when hour > 11 then 'bags' else 'hats' end"
    found = offline.explain(dataset, rule)
    assert (found.episodes, len(found.steps), found.table()["episode"].n_unique()) == (40, 40, 40)
    card = found.card()
    assert "Of 40 steps" in card.sentence and card.facts["Episodes"] == "40 of one step, spread over the log"
    counted = {row[0]: row[1:] for row in card.sections[0].rows}
    would = sum(each.choices[rule].action == "bags" for each in found.steps)
    assert counted["bags"][2] == would and counted["bags"][0] + counted["hats"][0] == 40
    assert len(offline.explain(dataset, rule, episode=found.episode).steps) == 1


def test_one_action_of_a_box_has_no_chance_without_noise(tmp_path: Path) -> None:
    dataset = bandit(tmp_path / "box", gaussian(0.0, 0.6, squash=False), 3)
    step = offline.explain(dataset, "rule:obs[1] / 2").steps[0]
    [choice], [noisy] = step.choices.values(), offline.explain(dataset, "rule:obs[1] / 2", noise=0.5).steps[0].choices.values()
    assert choice.action == f"{float(step.seen['obs[0]']) / 2:.6g}"[: len(choice.action)] and choice.chance is None
    density = np.exp(-(((float(step.done) - float(choice.action)) / 0.5) ** 2) / 2) / (0.5 * np.sqrt(2 * np.pi))
    assert noisy.chance == pytest.approx(density, rel=1e-4)
    other = saved(Policy(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,))), tmp_path / "other")
    with pytest.raises(ConfigError, match=f"Policy {other} has the observation space"):
        offline.explain(dataset, other)


def test_actions_of_a_box_are_told_by_how_far_they_are_from_what_was_done(tmp_path: Path) -> None:
    dataset = bandit(tmp_path / "box", gaussian(0.0, 0.6, squash=False), 3)
    rule = "rule:obs[1] / 2"
    found = offline.explain(dataset, rule, noise=0.5)
    apart = np.mean([abs(float(step.done) - float(step.choices[rule].action)) for step in found.steps])
    assert found.distance(rule) == pytest.approx(apart, abs=1e-5)
    card = found.card()
    assert f"differs from what was done, on average: {rule} by {found.distance(rule):.4g}"[:70] in card.sentence
    assert "density of what was done" in card.sections[1].title and "chance" not in card.sections[1].title
    table = found.table()
    assert f"{rule}: density of what was done" in table.columns
    assert table["done"].to_list() == [float(step.done) for step in found.steps] and table["obs[0]"].dtype == pl.Float64


def test_a_terminal_shows_the_first_steps(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path / "log", recorded([(np.zeros(50, int), np.zeros(50, int))]), spaces=SPACES, environment=None)
    lines = CliRunner().invoke(app, ["explain", dataset, RULE]).output.splitlines()
    [title] = [line for line in lines if "What each would do" in line]
    assert "the first 20 of 50 steps" in title and len(lines) < 50
    assert len(offline.explain(dataset, RULE).card().sections[1].rows) == 50


def test_texts_of_digits_stay_texts_where_numbers_would_lose_some(log: str) -> None:
    found = offline.explain(log, RULE)
    assert found.table()["obs"].dtype == pl.Int64
    codes = [replace_seen(step, {"code": "007"}) for step in found.steps]
    assert found.model_copy(update={"steps": codes}).table()["code"].to_list() == ["007"] * len(codes)


def test_steps_are_told_in_the_words_of_the_log() -> None:
    """Seven numbers, of which six are shown, those that change first; actions have labels."""
    see, do = spaces.Box(-100, 100, (7,), np.float32), spaces.Discrete(2)
    names = [f"sensor {place}" for place in range(6)] + ["hour"]
    made_of = InputColumns(steps=RowSteps(), obs=names, action="mode", labels=["heat", "off"])
    observations = np.zeros((2, 7), np.float32)
    observations[:, 6] = [7, 8.5]
    batch = EpisodeBatch.from_steps({"obs": observations, "actions": np.array([1, 0]), "rewards": np.array([0.5, 1.0])}, [2])
    policy = Policy(see, do)
    inputs = {"it": distribution_inputs(policy, Observations(batch, see))}
    steps, more = explained(batch, np.array([0, 1]), {"it": policy}, inputs, made_of)
    assert more == 1 and [each.seen["hour"] for each in steps] == ["7", "8.5"] and "sensor 5" not in steps[0].seen
    assert [each.done for each in steps] == ["off", "heat"] and {each.choices["it"].action for each in steps} <= {"heat", "off"}
    assert all(0 < each.choices["it"].chance < 1 for each in steps)
    steps, _ = explained(batch, np.array([0, 1]), {"it": policy}, inputs, made_of, explore=False)
    assert [each.choices["it"].chance for each in steps] == [float(each.choices["it"].agrees) for each in steps], (
        "if it is greedy"
    )
