"""Evaluate a finished policy in its environment, from start states that no other stage has used."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Literal

from pydantic import Field

from offline_core.data.datasets.dataset_card import returns_and_lengths
from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.environments.vector_env import NUM_ENVS
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.policies.manifest import environment_for, find_policy, fingerprint_of
from offline_core.policies.played_step import Metric, PlayedStep
from offline_core.runtime.config import Config, EnvironmentSpec
from offline_core.runtime.progress import progress
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, command
from offline_core.runtime.reporting.returns import episode_facts, played
from offline_core.runtime.result import PolicyResult
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.stage import Made, policy, stage
from offline_core.runtime.units import duration_text
from offline_core.runtime.user_code import UserCode, user_errors

log = logging.getLogger(__name__)

EVALUATIONS = "_evaluations"
"""Folder of them, below a checkpoint."""
EPISODE_METRICS = (
    "episode_return_mean",
    "episode_return_std",
    "episode_return_min",
    "episode_return_max",
    "episode_length_mean",
    "episodes",
    "success_rate",
)
"""The built-in metrics; success_rate where infos say so. All others are user metrics."""

FOLLOWED = ("episode_return_mean", "success_rate")
"""Metrics that `metrics.jsonl` holds for each evaluation during training."""


class EvaluationConfig(Config):
    """How many episodes a finished policy plays, where, and what is measured."""

    episodes: int = Field(100, ge=1, le=1_000_000, description="Episodes to play.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of start states and actions; no other stage uses the same ones.")
    explore: bool = Field(False, description="Sample actions from the policy; otherwise always take the most likely one.")
    environment: EnvironmentSpec | None = Field(None, description="Where to play; None: where the policy was trained.")
    num_envs: int = Field(
        NUM_ENVS,
        ge=1,
        le=65_536,
        description="Copies of the environment that are played at once, at most. Another number plays other episodes.",
    )
    metrics: list[UserCode] = Field(
        [],
        description="Your classes with look(step) and result(), in addition to the built-in metrics.",
    )


class EvaluationResult(PolicyResult):
    """How a policy played."""

    uri: str = Field(description="Where this is stored, below the checkpoint; no file exists if the folder cannot be written.")
    environment: str
    actions: Literal["sampled", "greedy"] = "greedy"
    metrics: dict[str, float] = Field(description="Built-in and user metrics by name.")
    returns: list[float] = Field(description="Of each episode.")
    lengths: list[int] = Field(description="Of each episode, in steps.")
    seconds: float

    def card(self) -> Card:
        told, own = played(self.metrics, actions=self.actions), [name for name in self.metrics if name not in EPISODE_METRICS]
        return Card(
            "Evaluation",
            verdict=told.verdict,
            word=told.word,
            sentence=told.sentence,
            facts={
                "Policy": self.checkpoint,
                "Environment": self.environment,
                **episode_facts(self.metrics),
                "Time": duration_text(self.seconds),
            },
            details={f"Metric {name}": self.metrics[name] for name in own},
            draw=figures.drawn(lambda: returns_and_lengths({"played": self.returns}, {"played": self.lengths})),
            next=command("offline", "export-policy", self.checkpoint),
            about=(self.checkpoint, None),
            places=[self.uri.removesuffix(".json")],
        )

    @property
    def mean_return(self) -> float:
        """Undiscounted."""
        return self.metrics["episode_return_mean"]


@stage(
    "evaluate",
    version=3,
    after="sweep",
    arguments=(policy("play"),),
    run_name="evaluate {policy}, {config.episodes} episodes, seed {config.seed}",
)
def evaluate(config: EvaluationConfig, *, policy: str) -> Made[EvaluationResult]:
    """Play a policy on start states that no other stage has seen.

    The result of the `episodes` whole episodes is kept at `<policy>/_evaluations`.

    Arguments:
        policy: URI of a checkpoint, or the address of a registered one.

    Raises:
        CheckpointError: `policy` is not a checkpoint.
        ConfigError: no environment is known, or it cannot be made; a user metric cannot be made, fails, returns a value
            that is not a finite number, or repeats the name of another.
    """
    start = time.perf_counter()
    policy, manifest = find_policy(policy)
    environment = environment_for(policy, manifest, config.environment)
    config = config.model_copy(update={"environment": environment})
    begun = yield StoredResult(
        EvaluationResult,
        Location.of(policy).child(EVALUATIONS),
        [manifest.parent_entry(policy)],
        fingerprint_of,
        outputs=lambda result: [result.checkpoint],
        config=config,
        name="{identity}.json",
        is_beside=True,
    )
    from offline_core.policies.checkpoint import load_policy  # here, for what is reused needs no Torch
    from offline_core.policies.rollouts import rollouts
    from offline_core.runtime.torch_settings import torch_threads

    user_metrics = [UserMetric(metric) for metric in config.metrics]
    seed = derive_seed(config.seed, "evaluate_policy")
    with torch_threads(1), progress(config.episodes, what="evaluate", unit="episode") as bar:  # as a training's evaluations do
        episodes = rollouts(
            load_policy(policy, manifest),
            environment,
            episodes=config.episodes,
            seed=seed,
            explore=config.explore,
            num_envs=config.num_envs,
            on_ended=bar.update,
            metrics=user_metrics,
        )
    metrics = with_results(episodes.metrics, user_metrics)
    mean, std = metrics["episode_return_mean"], metrics["episode_return_std"]
    log.info("Policy %s: return %.1f ± %.1f over %d episodes of %s", policy, mean, std, config.episodes, environment.id)
    return EvaluationResult(
        actions="sampled" if config.explore else "greedy",
        uri=begun.file.uri,
        checkpoint=policy,
        environment=environment.id,
        metrics=metrics,
        returns=episodes.returns.tolist(),
        lengths=episodes.lengths.tolist(),
        seconds=time.perf_counter() - start,
    )


class UserMetric:
    """Makes a user metric and calls it for one evaluation; errors name it.

    Raises:
        ConfigError: it cannot be made, or has no look(step) and result().
    """

    def __init__(self, code: UserCode) -> None:
        self.path = str(code)
        self._what = f"metric {code}"
        made = code.make("metric")
        if not isinstance(made, Metric):
            raise ConfigError(f"The {self._what} has to be a class with look(step) and result().")
        self._metric: Metric = made

    def look(self, step: PlayedStep) -> None:
        """See `Metric`."""
        with user_errors(self._what, "on a step", ConfigError):
            self._metric.look(step)

    def result(self) -> dict[str, float]:
        """See `Metric`."""
        with user_errors(self._what, "at the end", ConfigError):
            values = self._metric.result()
            numbers = dict(values)
        for name, value in numbers.items():
            if not (isinstance(name, str) and isinstance(value, Real) and math.isfinite(value)):
                raise ConfigError(f"The {self._what} gives {name!r}: {value!r}; result() has to give finite numbers by name.")
        return {name: float(value) for name, value in numbers.items()}


def with_results(metrics: Mapping[str, float], user_metrics: Sequence[UserMetric]) -> dict[str, float]:
    """Add the results of user metrics to `metrics`.

    Raises:
        ConfigError: a name is taken, or a value is not a finite number.
    """
    together = dict(metrics)
    for metric in user_metrics:
        results = metric.result()
        if twice := sorted(results.keys() & {*together, *EPISODE_METRICS}):
            raise ConfigError(f"The metric {metric.path} calls a result {twice[0]!r}, which is the name of another; rename it.")
        together |= results
    return together
