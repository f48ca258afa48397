"""What measures speak for: each rule once, and how sure it is."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from click.testing import CliRunner

import offline_core as offline
from benchmarks.outliers import write
from flows.cli import app
from offline_core.data.episodes import Episode
from offline_core.judging.ranking import trainings
from offline_core.judging.ranking.advice import advise
from offline_core.judging.ranking.measures import ActionMeasures, Measures, ObservationScale, density_of, measures_of
from offline_core.judging.ranking.trainings import Trained, Training, training_of
from offline_core.learning import trainer_config
from offline_core.policies.manifest import find_policy

DATA = Trained(["runs/log"], ["offline", "import", "log.parquet"])
LIST = ActionMeasures(kind="discrete")
BOX: dict[str, Any] = {"shape": [2], "dtype": "float32", "recorded_low": [-1.9, 0.0], "recorded_high": [2.1, 1.0]}
BOUNDED = ActionMeasures(kind="bounded", low=[-2, -2], high=[2, 2], used=0.5, **BOX)
UNBOUNDED = ActionMeasures(kind="unbounded", low=[-np.inf] * 2, high=[np.inf] * 2, **BOX)


def measured(returns: Any, **changes: Any) -> Measures:
    scale = ObservationScale(spreads=(0.5, 1.0), largest=2.0)
    given: dict[str, Any] = {"target": None, "noise": np.full(4, 0.3), "coverage": 0.5, "density": 0.1}
    given |= {"actions": LIST, "observations": scale}
    returns = np.asarray(returns, float)
    return measures_of(returns, np.full(len(returns), changes.pop("length", 100)), **given | changes)


@pytest.mark.parametrize(
    ("measures", "target", "kind", "first", "second"),
    [
        (measured(np.full(200, 500.0)), None, "expert", "bc", "marwil"),
        (measured(np.full(200, 500.0), noise=np.ones(4)), None, "random", "iql", "cql"),
        (measured(np.full(200, 500.0), noise=np.ones(4), actions=BOUNDED), None, "random", "iql", "td3_bc"),
        (measured(np.full(200, 20.0), target=500.0), 500.0, "one_policy", "marwil", "cql"),
        (measured(np.r_[np.full(150, 20.0), np.full(50, 500.0)]), None, "mixed", "iql", "bc on the best 25 % of the episodes"),
        (measured(np.linspace(0, 1, 200) ** 8 * 500), None, "mixed", "iql", "marwil"),
    ],
)
def test_what_the_data_speaks_for(measures: Measures, target: float | None, kind: str, first: str, second: str) -> None:
    advice = advise(measures, DATA, target=target)
    assert advice.kind == kind and (advice.first.what, advice.second.what) == (first, second)
    assert "arXiv" in advice.source and advice.first.what in str(advice)


@pytest.mark.parametrize("count", [200, 20_000])
@pytest.mark.parametrize("paid", [0.02, 0.3, 0.8])
def test_single_choices_have_no_parts_to_join_and_no_lucky_ones_to_copy(paid: float, count: int) -> None:
    """Whether few, some or most are paid, and there are few or enough of them."""
    returns = np.where(np.arange(count) < paid * count, 100.0, 0.0)
    advice = advise(measured(returns, length=1), DATA)
    assert advice.kind == "mixed" and (advice.first.what, advice.second.what) == ("iql", "marwil")
    assert "join" not in str(advice) and "the best episodes are not to be copied" in str(advice)
    assert not any("alike" in sentence for sentence in advice.sentences if sentence.startswith("All episodes"))
    assert advise(measured(returns, length=1, noise=np.zeros(4)), DATA).kind == "expert", "one action in each state"
    assert advise(measured(returns, length=1, noise=np.ones(4)), DATA).kind == "random"


def test_most_of_a_small_log_is_not_too_few_to_copy() -> None:
    """24 of 40 episodes of 55 steps reach the goal."""
    advice = advise(measured(np.r_[np.ones(24), np.zeros(16)], length=55), DATA)
    assert advice.second.what == "bc on the best 60 % of the episodes" and "60 % of the episodes are near the best" in str(
        advice
    )
    few = advise(measured(np.r_[np.ones(10), np.zeros(30)], length=55), DATA)
    assert few.second.what == "marwil" and "those are too few to copy" in str(few)


def test_little_data_speaks_with_little_confidence() -> None:
    assert advise(measured(np.full(20, 500.0)), DATA).confidence == "low"
    assert advise(measured(np.full(200, 500.0)), DATA).confidence == "high"


def test_measures_by_hand() -> None:
    found = measured(np.r_[np.zeros(50), np.full(50, 10.0)])
    assert (found.expertise, found.near_best, found.spread) == (0.5, 0.5, 1.0)
    assert density_of(np.array([0.0, 0.0, 1.0, -1.0])) == 0.5


def settings_of(training: Training) -> dict[str, str]:
    words = shlex.split(training.commands[-1])
    return dict(word.split("=", 1) for word in words[words.index("-s") :] if word != "-s")


def test_usual_data_needs_no_parameter_but_the_updates_that_little_data_has_too_few_of() -> None:
    usual, little = (measured(np.linspace(0, 100, count)) for count in (10_000, 200))
    assert settings_of(training_of("iql", usual, DATA)) == {"algorithm": "iql"}
    assert settings_of(training_of("iql", little, DATA)) == {
        "algorithm": "iql",
        "optimizer.batch_size": "256",
        "optimizer.max_updates": "10000",
    }
    assert "more updates than the 2,000 of the default" in training_of("iql", little, DATA).parameters[-1]


def test_rewards_and_observations_of_other_sizes_name_their_parameters() -> None:
    """Returns of 0 to 1 over 100 steps: 0.0090 a step between the lowest and the highest twentieth."""
    odd = measured(np.linspace(0, 1, 200), observations=ObservationScale(spreads=(0.01, 3.0), largest=3.0))
    found = training_of("iql", odd, DATA)
    assert settings_of(found)["data.rewards.scale"] == "100"
    assert settings_of(found)["network.normalize_observations"] == "true"
    assert "iql.beta is per unit of reward" in " ".join(found.parameters)
    assert "data.rewards.scale" not in settings_of(training_of("marwil", odd, DATA)), "it weighs by advantages in their units"


def test_what_needs_bounds_says_which_and_where() -> None:
    bounded = training_of("td3_bc", measured(np.arange(200.0), actions=BOUNDED), DATA)
    assert len(bounded.commands) == 1
    assert "has those of the dataset's action space: from -2 to 2." in bounded.parameters[0]
    found = training_of("td3_bc", measured(np.arange(200.0), actions=UNBOUNDED), DATA)
    words = shlex.split(found.commands[0])
    assert words[:6] == ["offline", "import", "log.parquet", "-o", "runs/bounded", "-s"]
    space = json.loads(words[6].removeprefix("action_space="))
    assert space == {"space": "box", "low": [-2.1, -0.05], "high": [2.3, 1.05], "shape": [2], "dtype": "float32"}
    assert found.commands[1].startswith("offline train runs/bounded runs/td3_bc")
    assert "actions[0] from -1.9 to 2.1, actions[1] from 0 to 1" in found.parameters[0]
    assert len(training_of("iql", measured(np.arange(200.0), actions=UNBOUNDED), DATA).commands) == 1, "it acts without"
    told = training_of("td3_bc", measured(np.arange(200.0), actions=UNBOUNDED), Trained(["runs/log"]))
    assert len(told.commands) == 1 and "Repeat the import" in told.parameters[1]


@pytest.mark.parametrize(
    "actions",
    [
        UNBOUNDED.model_copy(update={"spreads": (1.0, 400.0)}),
        BOUNDED.model_copy(update={"used": 0.02}),
    ],
    ids=["large", "hardly used"],
)
def test_actions_far_from_the_units_of_the_network_get_other_bounds(actions: ActionMeasures) -> None:
    found = training_of("bc", measured(np.arange(200.0), actions=actions), DATA)
    assert found.commands[0].startswith("offline import") and "The network works in units" in found.parameters[0]


def test_a_list_of_several_numbers_is_advised_nothing_that_cannot_act_in_it() -> None:
    composite = ActionMeasures(kind="composite")
    for noise in (np.ones(4), np.full(4, 0.3)):
        advice = advise(measured(np.full(200, 20.0), noise=noise, actions=composite, target=500.0), DATA, target=500.0)
        assert {advice.first.what, advice.second.what} == {"iql", "marwil"}


def walks(space: gym.Space[Any], scale: float, *, seed: int = 0) -> list[Episode]:
    """Eighty episodes of ten steps whose actions are by lot, and whose rewards are small."""
    rng, found = np.random.default_rng(seed), []
    for number in range(80):
        actions = rng.integers(0, 2, 10) if isinstance(space, gym.spaces.Discrete) else scale * rng.normal(size=(10, 1))
        found.append(
            Episode(
                eps_id=str(number),
                observations=(100 * rng.normal(size=(11, 2))).astype(np.float32),
                actions=actions.astype(space.dtype),
                rewards=0.001 * rng.random(10),
                terminated=True,
                observation_space=gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
                action_space=space,
            )
        )
    return found


@pytest.mark.parametrize(
    ("space", "trained"),
    [
        (gym.spaces.Discrete(2), ["bc", "cql", "iql", "marwil", trainings.BEST_EPISODES]),
        (gym.spaces.Box(-np.inf, np.inf, (1,), np.float32), ["bc", "iql", "marwil", "td3_bc"]),
    ],
    ids=["list", "unbounded"],
)
def test_the_commands_run_as_they_are(
    space: gym.Space[Any], trained: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainings, "UPDATES", 3)
    monkeypatch.setattr(trainer_config, "DEFAULT_EPOCHS", 1)
    monkeypatch.setattr(trainer_config, "LEAST_UPDATES", 1)
    write(Path("log"), walks(space, 50.0))
    found = offline.outliers("log", output="outliers", updates=10)
    data = Trained.of(offline.open_dataset("log"))
    assert found.advice.second == training_of(found.advice.second.what, found.measures, data)
    for algorithm in trained:
        for command in training_of(algorithm, found.measures, data).commands:
            done = CliRunner().invoke(app, shlex.split(command)[1:])
            assert done.exit_code == 0, (command, done.output, done.exception)
        name = shlex.split(command)[3]
        _, manifest = find_policy(name)
        assert manifest.operation.config.get("algorithm", "bc") in command
        if isinstance(space, gym.spaces.Box):
            assert "runs/bounded" in command
