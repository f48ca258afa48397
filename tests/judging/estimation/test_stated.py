"""Estimates of what is no checkpoint: rules, functions, ONNX files, columns of the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from offline_core.data.inputs.bins import Bins
from offline_core.data.inputs.encoding import Encoding
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.errors import CheckpointError, ConfigError
from offline_core.judging.estimation.rule import SqlRule
from offline_core.policies.export import export_policy
from offline_core.policies.export_config import PolicyExportConfig
from offline_core.policies.manifest import find_policy
from tests.judging.estimation.chains import BEHAVIOUR, SPACES, TARGET, played, policy_of, recorded
from tests.judging.estimation.test_box import BOX, SEES, bandit, gaussian, value
from tests.judging.estimation.test_estimate import QUICK, run_estimate, saved
from tests.learning.datasets import dataset_of

FUNCTIONS = "function:tests.judging.estimation.asked"
METHODS = [*QUICK, "fqe", "wdr"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the chain, with columns of what another policy would have done."""
    made = []
    for episode, (states, actions) in zip(recorded(steps := played(300, seed=11)), steps, strict=True):
        chances = TARGET[states]
        more = {
            "target_prob": chances[np.arange(len(states)), actions],
            "target_all": chances,
            "doubled": 2 * chances,
            "as_logs": np.log(chances[np.arange(len(states)), actions]),
        }
        made.append(replace(episode, extras=episode.extras | more))
    return dataset_of(tmp_path_factory.mktemp("log") / "data", made, spaces=SPACES, environment=None, rows=100)


def values(policy: Any, dataset: str, **config: Any) -> dict[str, float]:
    return {name: each.value for name, each in run_estimate(policy, dataset, **config).estimates.items()}


@pytest.mark.parametrize("policy", [f"{FUNCTIONS}:target", "column:target_all"])
def test_what_says_probabilities_is_estimated_as_the_checkpoint_that_has_them(policy: str, log: str, tmp_path: Path) -> None:
    wanted = values(saved(policy_of(TARGET), tmp_path / "policy"), log, methods=METHODS)
    assert values(policy, log, methods=METHODS) == pytest.approx(wanted, rel=1e-4)


def test_a_column_of_the_recorded_actions_probabilities_is_weighed(log: str, tmp_path: Path) -> None:
    wanted = values(saved(policy_of(TARGET), tmp_path / "policy"), log, methods=QUICK)
    assert values("column:target_prob", log, methods=QUICK) == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(ConfigError, match=r"wdr: the column target_prob says .* not what else it would do"):
        values("column:target_prob", log, methods=["wdr"])


@pytest.mark.parametrize("policy", ["rule:case when obs = 1 then 1 else 0 end", f"{FUNCTIONS}:greedy"])
def test_a_rule_is_the_greedy_policy_that_does_the_same(policy: str, log: str, tmp_path: Path) -> None:
    greedy = saved(policy_of(TARGET), tmp_path / "policy")
    wanted = values(greedy, log, methods=METHODS, explore=False)
    for explore in (True, False):
        assert values(policy, log, methods=METHODS, explore=explore) == pytest.approx(wanted, rel=1e-6)


def test_an_onnx_file_does_what_the_policy_does_that_was_exported(log: str, tmp_path: Path) -> None:
    policy = saved(policy_of(TARGET), tmp_path / "policy")
    export_policy(PolicyExportConfig(latency_calls=1), policy=policy, output=str(tmp_path / "exported"))
    file = tmp_path / "exported" / "policy.onnx"
    wanted = values(policy, log, methods=METHODS)
    assert values(str(file), log, methods=METHODS) == pytest.approx(wanted, rel=1e-4)
    with pytest.raises(ConfigError, match=r"has the inputs obs; the log's observations are|failed on|exported for other"):
        values(str(file), bandit(tmp_path / "box", gaussian(0.0, 0.6, squash=False), 20))
    file.write_bytes(b"no model")
    with pytest.raises(ConfigError, match="is no ONNX model that can be run"):
        values(str(file), log)
    with pytest.raises(CheckpointError, match="There is no file"):
        values(str(tmp_path / "none.onnx"), log)


def test_one_action_of_a_box_needs_noise_or_a_q_function(tmp_path: Path) -> None:
    dataset = bandit(tmp_path / "box", gaussian(0.0, 0.6, squash=False), 400)
    for policy in ("rule:0.2", f"{FUNCTIONS}:point"):
        with pytest.raises(ConfigError, match=r"wpdis: .*(rule:0.2|asked:point) always takes one action .* noise"):
            values(policy, dataset, methods=["wpdis"])
        assert set(values(policy, dataset, methods=["fqe"])) == {"fqe"}
        assert values(policy, dataset, methods=["is"], noise=0.5)["is"] == pytest.approx(value(0.2, 0.5, squash=False), abs=0.1)
    noisy = values("rule:0.2", dataset, methods=["wpdis"], noise=0.5)
    assert values(f"{FUNCTIONS}:drawn", dataset, methods=["wpdis"]) == pytest.approx(noisy, rel=1e-6)
    squashed = saved(gaussian(0.2, 0.5, squash=True), tmp_path / "squashed")
    export_policy(PolicyExportConfig(latency_calls=1), policy=squashed, output=str(tmp_path / "exported"))
    wanted = values(squashed, dataset, methods=["wpdis"])
    assert values(str(tmp_path / "exported/policy.onnx"), dataset, methods=["wpdis"]) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("rule:case when hour < 7 then 0 else 1 end", "sees what is seen before an action. There is no column hour.* are obs"),
        ("rule:rewards", "There is no column rewards"),
        ("rule:avg(obs)", "calls avg, which is not allowed. It is of several rows"),
        ("rule:case when obs = 0 then 1 end", r"gives nothing for \{'obs': [12]\}: end it with else"),
        ("rule:'left'", "gives the text 'left', and the actions of the log are numbers: say which a text stands for"),
        ("rule:obs", r"answers 2.0 to an observation, and outside Discrete\(2\) to"),
        ("rule:date '2026-01-01'", "gives Date, which is no action"),
        ("rule:", "is empty"),
        (f"{FUNCTIONS}:fails", r"asked:fails failed on .* KeyError\('tout'\)"),
        (f"{FUNCTIONS}:short", r"gives \d+ answers to \d+ observations"),
        (f"{FUNCTIONS}:outside", r"answers 2 to an observation, and outside Discrete\(2\)"),
        (f"{FUNCTIONS}:halves", r"answers 0.5 to an observation"),
        (f"{FUNCTIONS}:words", "and not numbers"),
        (f"{FUNCTIONS}:uncertain", "sum up to 1.4"),
        (f"{FUNCTIONS}:none", "cannot be imported"),
        ("function:nonsense", "names no function"),
        ("column:nothing", "There is no column|has no column 'nothing' .* there are: .*target_prob"),
        ("column:doubled", "says 1.6, and it has to say probabilities between 0 and 1"),
        ("column:as_logs", "Logarithms of probabilities have to be raised to e first"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_plain_words(policy: str, message: str, log: str) -> None:
    with pytest.raises(ConfigError, match=message):
        values(policy, log, methods=["wis"])


def test_a_function_of_a_notebook_is_known_by_its_source(log: str, tmp_path: Path) -> None:
    import offline_core as offline

    found = offline.estimate(lambda observations: np.zeros(len(observations), int), log, methods=["wis"], resamples=20)
    assert found.checkpoint.startswith("function:python:") and found.uri.startswith(f"{log}/_estimates/")
    again = offline.estimate(lambda observations: np.ones(len(observations), int), log, methods=["wis"], resamples=20)
    assert again.estimates != found.estimates and not again.reused


def test_the_same_rule_is_estimated_once(log: str) -> None:
    first = run_estimate("rule: 1 ", log, methods=["wis"])
    assert run_estimate("rule:1", log, methods=["wis"]).reused and not run_estimate("rule:0", log, methods=["wis"]).reused
    assert first.card().about == (log, 1) and "What rule: 1 was made from is unknown" in "".join(first.warnings)


def test_imports_that_are_not_allowed_are_refused(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFLINE_IMPORTS", "examples")
    with pytest.raises(ConfigError, match="is none that OFFLINE_IMPORTS allows"):
        values(f"{FUNCTIONS}:greedy", log, methods=["wis"])


def test_what_is_judged_only_is_no_policy_elsewhere() -> None:
    with pytest.raises(CheckpointError, match=r"is a rule and no checkpoint: .* judge it on a log"):
        find_policy("rule:0")


def test_a_rule_has_the_columns_of_the_import_in_its_words() -> None:
    """Two numbers, a category in one-hot form, an amount in bins; actions are labels."""
    steps = RowSteps(
        columns={"hour": "number", "mode": "text", "load": "number"},
        encode={"mode": Encoding(categories=["heat", "off"], other=True)},
        bins={"load": Bins(edges=[10.0], values=[5.0, 20.0])},
    )
    made_of = InputColumns(steps=steps, obs=["hour", "mode", "load"], action="setpoint", labels=[19.0, 21.0])
    see, do = spaces.Box(-100, 100, (5,), np.float32), spaces.Discrete(2, start=3)
    observations = np.array([[6, 1, 0, 0, 1], [8, 0, 1, 0, 0], [9, 0, 0, 1, 0]], np.float32)

    def answered(text: str, known: InputColumns | None = made_of) -> list[Any]:
        return SqlRule(text, "it", (see, do), known)(observations).tolist()

    assert answered("case when hour < 7 then 21 else 19 end") == [4, 3, 3]
    assert answered("case when mode = 'off' then 21.0 else 19.0 end") == [3, 4, 3]
    assert answered("case when mode is null or load > 10 then 21 else 19 end") == [4, 3, 4]
    assert answered("case when obs[1] = 8 then 21 else 19 end") == [3, 4, 3]
    assert answered("case when obs[1] = 8 then 4 else 3 end", None) == [3, 4, 3]
    texts = made_of.model_copy(update={"labels": ["low", "high"]})
    assert answered("case when hour < 7 then 'high' else 'low' end", texts) == [4, 3, 3]
    with pytest.raises(ConfigError, match=r"gives 20, and the actions of the log are 19.0, 21.0"):
        answered("20")
    with pytest.raises(ConfigError, match=r"gives the number 3, and the actions of the log are low, high"):
        answered("3", texts)
    with pytest.raises(ConfigError, match=r"goes by setpoint, which is what was done: a rule goes by what is seen before, obs"):
        answered("setpoint * 0.95")
    with pytest.raises(
        ConfigError, match=r"names a column high, and there is none: write the action high in single quotes, 'high'"
    ):
        answered("high", texts)


def test_actions_outside_a_box_are_not_clipped_in_silence() -> None:
    from offline_core.judging.estimation.stated import FunctionOfObservations
    from offline_core.policies.config import NetworkConfig

    policy = FunctionOfObservations("it", lambda seen: seen[:, :1] * 2, (SEES, BOX), NetworkConfig(), noise=None)
    with pytest.raises(
        ConfigError, match=r"answers \[1.5\] to an observation, and outside .* to 1 of 2 .* least\(20, greatest"
    ):
        policy.inputs_of(np.array([[0.2, 0.0], [0.75, 0.0]], np.float32))


def test_what_follows_a_termination_is_never_asked_about(log: str) -> None:
    """The chain ends in a state that is recorded as 0."""
    seen: list[int] = []

    def counting(observations: np.ndarray) -> np.ndarray:
        seen.append(len(observations))
        return np.zeros(len(observations), int)

    import offline_core as offline

    offline.estimate(counting, log, methods=["fqe"], fqe={"updates": 1}, resamples=10)
    steps = sum(len(states) for states, _ in played(300, seed=11))
    first = len(played(300, seed=11)[0][0])
    assert sum(seen) == first + steps
    assert BEHAVIOUR.shape == (3, 2)
