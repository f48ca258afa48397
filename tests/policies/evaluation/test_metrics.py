"""Metrics of the user's own: each step of each counted episode once, nothing else, and returns as without them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.episodes import nested
from offline_core.errors import ConfigError, OfflineError
from offline_core.policies.evaluation import EPISODE_METRICS, EvaluationConfig, EvaluationResult, evaluate
from offline_core.policies.played_step import PlayedStep
from offline_core.policies.policy import Policy
from offline_core.policies.rollouts import rollouts
from offline_core.runtime.config import EnvironmentSpec

torch.set_num_threads(1)

CARTPOLE = EnvironmentSpec(id="CartPole-v1")


class Counting(gym.Env[np.ndarray, Any]):
    """Every second copy plays episodes of 1 step, the others of 9. An observation is (steps played so far, copy), and always
    the same array; step k earns k."""

    observation_space = gym.spaces.Box(-1, np.inf, (2,))
    action_space = gym.spaces.Dict(a=gym.spaces.Discrete(3), b=gym.spaces.Box(-1, 1, (2,)))

    def __init__(self) -> None:
        self.seen = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self.seen[1] = seed % 2
        self.seen[0] = 0
        return self.seen, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.seen[0] += 1
        ends = self.seen[0] == (1 if self.seen[1] else 9)
        return self.seen, float(self.seen[0]), bool(ends and self.seen[1]), bool(ends), {"steps": int(self.seen[0])}


@pytest.fixture
def counting() -> Any:
    gym.register("Counting-v0", entry_point=Counting)
    yield EnvironmentSpec(id="Counting-v0")
    del gym.registry["Counting-v0"]


class Episodes:
    """Puts the episodes that count together again."""

    def __init__(self) -> None:
        self.open: list[list[tuple[float, float, float]]] = []
        """(observation before, after, reward) of each step."""
        self.whole: list[list[tuple[float, float, float]]] = []
        self.lengths: list[int] = []
        """As the environment's infos have them."""

    def look(self, step: PlayedStep) -> None:
        self.open = self.open or [[] for _ in step.counts]
        for copy in np.flatnonzero(step.counts):
            before, after = (
                float(nested.leaves(each)[0].flat[2 * copy]) for each in (step.observations, step.next_observations)
            )
            self.open[copy].append((before, after, float(step.rewards[copy])))
        for copy in np.flatnonzero(step.ends):
            self.whole.append(self.open[copy])
            self.lengths.append(int(step.infos.get("steps", np.zeros(len(step.counts)))[copy]))
            self.open[copy] = []

    def result(self) -> dict[str, float]:
        return {}


@pytest.mark.parametrize(("episodes", "num_envs"), [(1, 4), (4, 4), (11, 4), (3, 1)])
def test_each_step_of_a_counted_episode_is_shown_once(counting: EnvironmentSpec, episodes: int, num_envs: int) -> None:
    policy, metric = Policy(*spaces_of(counting)), Episodes()
    played = rollouts(policy, counting, episodes=episodes, seed=0, num_envs=num_envs, metrics=[metric])
    assert not any(metric.open), "steps that count belong to episodes that ended and count"
    assert metric.lengths == played.lengths.tolist()
    assert [sum(reward for *_, reward in one) for one in metric.whole] == played.returns.tolist()
    for one in metric.whole:
        assert one == [(t, t + 1.0, t + 1.0) for t in range(len(one))], "observations before and after each step, the last too"


@pytest.mark.parametrize("explore", [False, True])
def test_returns_are_those_without_metrics(explore: bool) -> None:
    def played(*metrics: Any) -> tuple[list[float], list[int]]:
        found = rollouts(
            Policy(*spaces_of(CARTPOLE)), CARTPOLE, episodes=9, seed=3, explore=explore, num_envs=4, metrics=metrics
        )
        return found.returns.tolist(), found.lengths.tolist()

    assert played() == played(Spread()) == played(Spread(), Spread(writes="infos"))


class Spread:
    """How far the cart gets; goes wrong where it is told to."""

    def __init__(self, *, writes: str = "", name: str = "furthest", gives: Any = None, fails: str = "") -> None:
        self.writes, self.name, self.gives, self.fails = writes, name, gives, fails
        self.furthest = 0.0

    def look(self, step: PlayedStep) -> None:
        if self.fails == "look":
            raise LookupError("which cart?")
        if self.writes == "infos":
            step.infos["mine"] = 1
        elif self.writes:
            getattr(step, self.writes)[:] = 0
        self.furthest = max(self.furthest, float(np.abs(step.observations[step.counts, 0]).max(initial=0)))

    def result(self) -> Any:
        if self.fails == "result":
            raise ZeroDivisionError
        return self.gives if self.fails == "gives" else {self.name: self.furthest if self.gives is None else self.gives}


def a_function(step: PlayedStep) -> None:
    """No metric: it has no result."""


def own(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"path": f"{__name__}:{name}", "arguments": arguments}


def run_evaluate(policy: str, *metrics: dict[str, Any]) -> EvaluationResult:
    return evaluate(EvaluationConfig.model_validate({"episodes": 5, "metrics": metrics}), policy=policy)


def test_results_stand_beside_the_others(cartpole_policy: str) -> None:
    plain = run_evaluate(cartpole_policy)
    result = run_evaluate(cartpole_policy, own("Spread"), own("Spread", name="half", gives=0.5), own("Episodes"))
    assert result.metrics == plain.metrics | {"furthest": result.metrics["furthest"], "half": 0.5}
    assert tuple(plain.metrics) == EPISODE_METRICS[:-1], "CartPole tells nothing of success"
    assert 0 < result.metrics["furthest"] < 2.5
    assert (result.returns, result.lengths) == (plain.returns, plain.lengths)
    assert run_evaluate(cartpole_policy, own("Spread"), own("Spread", name="half", gives=0.5), own("Episodes")).reused


@pytest.mark.parametrize(
    ("metrics", "error", "message"),
    [
        ([own("Spread", name="episodes")], ConfigError, "Spread calls a result 'episodes', which is the name of"),
        ([own("Spread", name="success_rate")], ConfigError, "Spread calls a result 'success_rate', which is the name of"),
        ([own("Spread"), own("Spread")], ConfigError, "Spread calls a result 'furthest', which is the name of another; rename"),
        ([own("Spread", gives=float("nan"))], ConfigError, "Spread gives 'furthest': nan; .* finite numbers by name"),
        ([own("Spread", gives="far")], ConfigError, "Spread gives 'furthest': 'far'"),
        ([own("Spread", fails="gives", gives=[1.0])], ConfigError, "metric .*:Spread failed at the end: TypeError"),
        ([own("Spread", fails="look")], ConfigError, r"metric .*:Spread failed on a step: LookupError\('which cart\?'\)"),
        ([own("Spread", fails="result")], ConfigError, "metric .*:Spread failed at the end: ZeroDivisionError"),
        ([own("Spread", writes="rewards")], ConfigError, "Spread failed on a step: .*read-only"),
        ([own("Spread", writes="observations")], ConfigError, "Spread failed on a step: .*read-only"),
        ([own("Spread", writes="next_observations")], ConfigError, "Spread failed on a step: .*read-only"),
        ([own("a_function")], ConfigError, r"a_function has to be a class with look\(step\) and result\(\)"),
        ([own("Spread", wrong=1)], ConfigError, "The metric .*:Spread cannot be made with wrong"),
        ([own("Missing")], ConfigError, "The metric '.*:Missing' cannot be imported"),
    ],
)
def test_errors_name_the_metric(
    cartpole_policy: str, metrics: list[dict[str, Any]], error: type[OfflineError], message: str
) -> None:
    with pytest.raises(error, match=message):
        run_evaluate(cartpole_policy, *metrics)


def test_an_evaluation_as_it_always_was_is_the_operation_it_was() -> None:
    assert not {"metrics", "num_envs"} & Operation.of("evaluate", EvaluationConfig()).config.keys()
