"""The runs of a sweep: checked against the data before any of them starts, trained and scored one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.judging.estimation.config import OffPolicyConfig
from offline_core.judging.estimation.estimate import check_policies, estimate
from offline_core.judging.estimation.estimators import weighing
from offline_core.judging.sweeps.config import Score, SweepConfig
from offline_core.judging.sweeps.result import SweptRun
from offline_core.judging.sweeps.settings import Setting, refuse
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run, asked_run
from offline_core.learning.train import found_result, train
from offline_core.policies.manifest import find_policy

RUNS = "runs"
"""Folder of the runs in the output of a sweep, by digest of the setting and seed."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How a trained policy is scored."""

    score: Score
    estimate: OffPolicyConfig
    estimate_on: Dataset | None

    def run(self, seed: int, result: TrainingResult) -> SweptRun:
        """Score a training."""
        checkpoint = result.last_checkpoint if self.score == "last_return" else result.checkpoint
        return SweptRun(
            seed=seed,
            checkpoint=checkpoint,
            score=self._score(result),
            curve=result.curve or result.held_out_losses,
            updates=result.updates,
            seconds=result.seconds,
        )

    def _score(self, result: TrainingResult) -> float:
        match self.score:
            case "last_return":
                return result.curve[-1][1]
            case "best_return":
                return result.metrics["episode_return_mean"]
            case "held_out_loss":
                return min(loss for _, loss in result.held_out_losses)
        assert self.estimate_on is not None
        data = self.estimate_on.ref
        found = estimate(self.estimate, policy=result.checkpoint, dataset=data.uri, version=data.version)
        return found.estimates[self.estimate.gate_method].value

    def check(self, runs: Sequence[Run]) -> None:
        """Check that policies of these runs can be scored so.

        Raises:
            ConfigError, SchemaError: They cannot be estimated from the data.
        """
        if self.estimate_on is None:
            return
        from offline_core.judging.estimation.logged import check_probabilities  # here, for what is reused needs no Torch
        from offline_core.policies.checkpoint import load_policy

        behaviour = None if self.estimate.behaviour is None else load_policy(self.estimate.behaviour)
        if behaviour is None and weighing(self.estimate.methods):
            check_probabilities(self.estimate_on)
        for run in runs:
            check_policies(self.estimate, run.networks().policy, behaviour, self.estimate_on)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One training of a sweep; small, and sent to the process that trains."""

    setting: Setting
    run: Run
    scoring: Scoring

    @property
    def seed(self) -> int:
        return self.run.config.seed

    @property
    def name(self) -> str:
        return f"{self.setting.name}, seed {self.seed}"

    def done(self) -> TrainingResult | None:
        """The result of the training, if it exists."""
        return found_result(self.run)

    def train(self, loaded: EpisodeBatch | None = None) -> TrainingResult:
        """Train, or resume what is there, from the columns in memory if they are given."""
        run, version = self.run, self.run.dataset.version or None
        return train(run.config, dataset=run.dataset.uri, version=version, output=run.output, loaded=loaded)

    def scored(self, result: TrainingResult) -> SweptRun:
        """Score the policy."""
        return self.scoring.run(self.seed, result)


def asked_runs(settings: Sequence[Setting], *, dataset: str, output: str, version: int | None) -> list[Run]:
    """Return a run of each setting; all learn from the same version of the dataset.

    Raises:
        ConfigError: Some cannot be; the message lists all that is wrong.
        StorageError, DataError: The dataset cannot be opened.
    """
    found: list[Run] = []
    wrong: dict[str, list[str]] = {}
    for setting in settings:
        try:
            run = asked_run(_alone(setting.config), dataset, folder_of(output, setting), version)
        except ConfigError as error:
            wrong.setdefault(str(error), []).append(setting.name)
            continue
        version = version or run.dataset.version or None
        found.append(run)
    refuse(wrong, "cannot be trained")
    return found


def check_runs(settings: Sequence[Setting], runs: Sequence[Run]) -> None:
    """Check by the networks of these settings that each can be trained.

    Raises:
        ConfigError: Some cannot; the message lists all that is wrong.
    """
    from offline_core.learning.work import check_environment, check_run  # here, for what is reused needs no Torch

    wrong: dict[str, list[str]] = {}
    for setting, run in zip(settings, runs, strict=True):
        try:
            algorithm = run.networks()
            check_run(run, algorithm)
            check_environment(run, algorithm)
        except ConfigError as error:
            wrong.setdefault(str(error), []).append(setting.name)
    refuse(wrong, "cannot be trained")


def planned_runs(config: SweepConfig, settings: Sequence[Setting], asked: Sequence[Run]) -> list[PlannedRun]:
    """Return all runs, setting by setting.

    Raises:
        ConfigError: They cannot be compared as they are to be.
    """
    scoring = scoring_of(config, settings, asked)
    runs: list[PlannedRun] = []
    for setting, run in zip(settings, asked, strict=True):
        for seed in config.all_seeds:
            seeded = run.config.model_copy(update={"seed": seed})
            one = replace(run, config=seeded, output=Location.of(run.output).child(str(seed)).uri)
            runs.append(PlannedRun(setting, one, scoring))
    return runs


def folder_of(output: str, setting: Setting) -> str:
    """Return the folder of a setting's runs."""
    return Location.of(output).child(f"{RUNS}/{setting.digest}").uri


def scoring_of(config: SweepConfig, settings: Sequence[Setting], runs: Sequence[Run]) -> Scoring:
    """Return how runs are scored, `auto` decided.

    Raises:
        ConfigError: There is nothing to score them by.
    """
    place = config.estimate_on or config.training.evaluation.held_out
    order: tuple[Score, ...] = ("last_return", "held_out_loss", "estimate") if config.score == "auto" else (config.score,)
    reasons: dict[Score, str] = {}
    for score in order:
        if (reason := _not_scored(score, settings, runs, place)) is None:
            break
        reasons[score] = reason
    else:
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise ConfigError(f"There is nothing to compare the runs by ({why}).")
    if score != "estimate":
        return Scoring(score, config.estimate, None)
    assert place is not None
    if config.estimate.gate_method not in config.estimate.methods:
        raise ConfigError(
            f"estimate.gate_method, which scores the runs, is {config.estimate.gate_method}, and not in estimate.methods: "
            f"{', '.join(config.estimate.methods)}. Add it there."
        )
    estimate = config.estimate
    if estimate.behaviour is not None:
        estimate = estimate.model_copy(update={"behaviour": find_policy(estimate.behaviour)[0]})
    return Scoring(score, estimate, open_dataset(place))


def _not_scored(score: Score, settings: Sequence[Setting], runs: Sequence[Run], place: str | None) -> str | None:
    """Why runs have no such score; only a held-out loss needs their networks to tell, and so checks them first."""
    match score:
        case "last_return" | "best_return":
            return _not_played(runs)
        case "held_out_loss":
            return _losses_do_not_compare(settings, runs)
    return None if place else "no data to estimate from is named (estimate_on, training.evaluation.held_out)"


def _not_played(runs: Sequence[Run]) -> str | None:
    if all(run.played_in is not None for run in runs):
        return None
    return "the policy is not played (training.evaluation.environment, training.evaluation.play)"


def _losses_do_not_compare(settings: Sequence[Setting], runs: Sequence[Run]) -> str | None:
    if any(run.played_in is not None for run in runs):
        return "the policy is played, so the best one is not that of the lowest loss (training.evaluation.play)"
    if any(run.held_out is None for run in runs):
        return "no data is held out (training.evaluation.held_out)"
    check_runs(settings, runs)
    if other := next((run for run in runs if not run.algorithm.loss_compares), None):
        return f"the losses of {other.config.algorithm} depend on values that are learned, too"
    losses = {(str(run.config.algorithm), str(run.config.chosen)) for run in runs}
    return None if len(losses) == 1 else "the settings have different losses"


def _alone(config: TrainingConfig) -> TrainingConfig:
    """Without a measurement of how many prelearners are worth their start: runs share the machine."""
    if config.data.prelearners != "auto":
        return config
    return config.model_copy(update={"data": config.data.model_copy(update={"prelearners": 0})})
